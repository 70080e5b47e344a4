# SPDX-License-Identifier: Apache-2.0
"""Every command of README and docs/ does what the page says, as written, in the order of the page.

Each page begins with what docs/start.md leaves and with the files a reader is told to bring. A command that
ends with another exit code than 0 fails the test, unless the page shows its error.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from tests import published
from tests.e2e import needs
from tests.e2e.documents import Command, File, Script, is_command, pages, steps
from tests.e2e.scratch import Machine, machine
from wirewise import agent
from wirewise.datasets import write_capture
from wirewise.targets.ebpf.clang import find_clang
from wirewise.traffic import LABELS, MIX, generate

pytestmark = [*needs.marks(), pytest.mark.xdist_group("docs")]

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page for page in pages(ROOT)}
START = "docs/start.md"

NOT_RUN = {
    "make demo ": "tests/e2e/test_demo.py runs the demo",
    "make test ": "it runs this test",
    "make bench-planes ": "minutes; tests/kernel/test_bench.py measures two programs",
    "make bench-xdp ": "minutes; crates/wirewised/tests/agent/bench_xdp.rs measures all parts, shortly",
    "sudo wirewised bench xdp ": "a minute; crates/wirewised/tests/agent/bench_xdp.rs runs it, shortly",
    "make bench-n3ic": "minutes; tests/kernel/test_bench_n3ic.py measures a network, shortly",
    "make models ": "minutes, and captures; tests/e2e/test_ready.py makes models from fewer packets",
    "wirewised serve ": "until a signal; tests/e2e/test_serve.py runs it",
    'sudo adduser "$USER" wirewise': "it changes a user; tests/e2e/test_serve_readers.py has such a one",
    "wirewised allow add 192.0.2.7 2001:db8::/32 --for 10m": "crates/wirewised/tests/agent/allow.rs",
    "wirewised allow remove 192.0.2.7": "the same",
    "wirewised allow list": "the same",
    "wirewised deny add 192.0.2.7 2001:db8::/32 --for 10m": "crates/wirewised/tests/agent/deny.rs",
    "wirewised deny load drop.txt --origin spamhaus": "the same",
    "wirewised deny remove --origin spamhaus": "the same",
    "wirewised deny list": "the same",
    "cscli bouncers add wirewise": "tests/e2e/test_crowdsec.py",
    "cscli machines add edge1": "tests/e2e/test_serve_bans.py",
    "wirewised deny sync": "the same",
    "wirewised bans list": "crates/wirewised/tests/agent/bans.rs",
    "wirewised bans lift 192.0.2.7": "the same",
    "wirewised bans lift --all --dry-run": "the same",
    "wirewised run --bundle model.wirewise --interface 'wan*' --share-flows":
        "crates/wirewised/tests/agent/several.rs",
    "wirewised mode --class port-scan": "crates/wirewised/tests/agent/modes.rs",
    "wirewised mode observe --for 1h": "the same",
    "wirewised mode enforce --for 10m": "the same",
    "sudo env LIBXDP_SKIP_DISPATCHER=1 xdp-filter load eth0": "crates/wirewised/tests/agent/next.rs",
    "sudo ln /sys/fs/bpf/xdp-filter/programs/": "the same",
    "sudo wirewised run --bundle model.wirewise --interface eth0 --policy policy.yaml --replace": "the same",
    "sudo xdp-filter load eth0": "tests/matrix/dispatcher.py, on kernels that allow extensions",
    "sudo wirewised run --bundle model.wirewise --interface eth0 --order 20": "the same",
    "sudo xdp-loader status eth0": "the same",
    "wirewised run --bundle @flood --interface eth0 --policy policy.yaml --mode enforce --evaluation":
        "the captures here are too few; crates/wirewised/tests/agent/ready_models.rs has a report",
    "make setup": "it has run before this test",
    "make dist ": "minutes; `make test-dist` runs it",
    "make test-dist ": "minutes; it installs what docs/install.md says in empty roots",
    "make test-kernels ": "an hour; .ci/run runs a part of it",
    ".venv/bin/python -m tests.matrix": "virtual machines, minutes to hours; .ci/run runs a part of it",
    "make test-p4 ": "no registry has p4c and simple_switch",
    "sudo .venv/bin/python examples/5g/run.py all": "minutes; tests/e2e/test_fiveg.py runs it, shortly",
    ".venv/bin/python -m examples.tomography": "minutes; tests/e2e/test_examples.py makes a smaller data set",
    "wirewise compile networks/": "networks of the line above; tests/e2e/test_examples.py has smaller ones",
    ".venv/bin/wirewise compile networks/": "likewise",
    ".venv/bin/python examples/traffic_analysis.py": "tests/e2e/test_examples.py runs it",
    "sudo apt-get install": "it would change the machine; scripts/setup.sh installs these packages",
    "python3 -m venv ~/wirewise": "packages from the network; `make test-dist` makes such an environment",
    "~/wirewise/bin/pip install": "packages from the network; `make test-dist` installs the wheel",
    "sudo cp model.wirewise /etc/wirewise/": "of the unit, below",
    "sudo systemctl": "there is no systemd in a test; packaging/ looks at the unit",
    "sudo wirewised stats --interface eth0": "of the unit, above",
    "sudo install build/dist/wirewised": "`make dist` has not run",
    "podman": "there are no containers in a test; packaging/ looks at the Containerfiles",
    "wirewised detach --interface eth0 --netns /proc/4711/ns/net": "the process is an example",
    "wirewise compile model.pkl --table table.parquet --network int8 --calibration mse":
        "ten seconds of the search that the line above it runs too",
    "wirewise datasets zeek captures/ -l conn.log -f hara2023 -o zeek-table --ray auto":
        "there is no Ray; `make test-ray` runs a job on a local cluster",
    "wirewise train table.parquet --estimator bnn --hidden 128,64":
        "half a minute; the line above it trains a smaller one",
    "wirewise importance table.parquet --eliminate":
        "a minute; tests/unit/test_search.py leaves out features",
    "sudo wirewised run --bundle model.wirewise --interface eth0 --policy second.yaml":
        "tests/e2e/test_second.py runs one on such an interface",
    "sudo wirewise second ": "the same",
    "wirewise compile model.pkl --table table.parquet -o model.wirewise --shape functions --clang clang-14":
        "`make test-kernels` has this clang; not every machine does",
}  # fmt: skip
"""What cannot be run in a test, by how the command begins, and why."""

SLOW = {
    "docs/bundles.md", "docs/datasets.md", "docs/evaluation.md", "docs/feature-sets.md", "docs/labels.md",
    "docs/networks.md", "docs/ready-models.md", "docs/recording.md", "docs/search.md", "docs/second.md",
    "docs/targets/ebpf.md", "docs/targets/micro-c.md", "docs/targets/p4.md", "docs/targets/verilog.md",
    "docs/training.md",
}  # fmt: skip
"""Pages that train, compile, search or record for long."""


def unrun(command: Command) -> str | None:
    """The entry of NOT_RUN that a command is under."""
    return next((start for start in NOT_RUN if command.text.startswith(start)), None)


def commands() -> list[Command]:
    found = [step for name, page in PAGES.items() for step in steps(name, page.read_text())]
    return [step for step in found if isinstance(step, Command)]


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files a reader is told to bring: captures, and their truth."""
    folder = tmp_path_factory.mktemp("brought")
    benign = {kind: share for kind, share in MIX.items() if LABELS[kind] == "benign"}
    attack = {kind: share for kind, share in MIX.items() if kind not in benign}

    def record(name: str, seed: int, mix: dict[str, float], packets: int) -> None:
        traffic = generate(seed=seed, duration_s=4, packets=packets, mix=mix)
        write_capture(folder / name, ((packet.time_ns, packet.frame) for packet in traffic))

    record("normal.pcap", 1, benign, 1500)
    record("attack.pcap", 2, attack, 1000)
    record("day.pcap", 3, dict(MIX), 1500)
    shutil.copy(folder / "day.pcap", folder / "capture.pcap")
    shutil.copy(folder / "day.pcap", folder / "a.pcap")
    shutil.copy(folder / "attack.pcap", folder / "b.pcapng")
    (folder / "day.pcap.gz").write_bytes(gzip.compress((folder / "day.pcap").read_bytes(), 1))
    published.bring(folder, folder / "day.pcap")
    for step in steps("docs/labels.md", PAGES["docs/labels.md"].read_text()):
        if isinstance(step, File) and step.name == "truth.csv":
            (folder / step.name).write_text(step.content)
    (folder / "captures").mkdir()
    entry = {"path": "../day.pcap", "link_type": "ETHERNET", "packets": 0, "class": "web", "label": "benign"}
    (folder / "captures" / "manifest.json").write_text(json.dumps([entry]))
    return folder


@pytest.fixture(scope="module")
def started(brought: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What START leaves; its commands run here, once."""
    folder = tmp_path_factory.mktemp("started")
    with prepared(brought) as place:
        follow(START, place)
        train = "wirewise train table.parquet --trees 12 -o retrained.pkl"
        done = place.run(f"{train} && wirewise compile retrained.pkl -o retrained.wirewise")
        assert done.returncode == 0, done.stderr
        shutil.copy(place.folder / "table.parquet", place.folder / "earlier.parquet")
        make_up(place.folder / "model.wirewise", place.folder / "made-up.wirewise")
        shutil.copy(place.folder / "labels.yaml", place.folder / "rules.yaml")
        (place.folder / ".venv").unlink()
        shutil.copytree(place.folder, folder, dirs_exist_ok=True)
    return folder


def make_up(real: Path, path: Path) -> None:
    """A bundle that holds another program than wirewise makes."""
    source = 'int f(void *c) { return 0; } char _license[] __attribute__((section("license"))) = "GPL";'
    source = f'__attribute__((section("kprobe/do_nanosleep"))) {source}'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "o"
        command = [find_clang(), "-O2", "-g", "-target", "bpf", "-x", "c", "-c", "-", "-o", file]
        subprocess.run(command, input=source, text=True, check=True)
        with zipfile.ZipFile(real) as bundle:
            members = {name: bundle.read(name) for name in bundle.namelist()}
        members["program.bpf.o"] = file.read_bytes()
    manifest = json.loads(members["manifest.json"])
    manifest["digests"]["program.bpf.o"] = sha256(members["program.bpf.o"]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as bundle:
        for name, content in members.items():
            bundle.writestr(name, content)


@contextmanager
def prepared(files: Path) -> Iterator[Machine]:
    """A machine with these files, and a copy of the agent, whose file the pages may change."""
    with machine() as place:
        shutil.copytree(files, place.folder, dirs_exist_ok=True)
        place.folder.chmod(0o755)  # it got the mode of the other folder
        shutil.copy(agent.find(), place.programs)
        (place.folder / ".venv").symlink_to(Path(sys.prefix))
        yield place


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else []) for name in PAGES if name != START],
)
def test_a_page_does_what_it_says(name: str, started: Path) -> None:
    if not any(isinstance(step, Command | Script) for step in steps(name, PAGES[name].read_text())):
        return
    with prepared(started) as place:
        follow(name, place)


def test_the_first_page_does_what_it_says(started: Path) -> None:
    assert (started / "model.wirewise").is_file() and (started / "dropped.pcapng").is_file()


def follow(name: str, place: Machine) -> None:
    """Does all that a page says."""
    for step in steps(name, PAGES[name].read_text()):
        if isinstance(step, File):
            (place.folder / step.name).write_text(step.content)
        elif isinstance(step, Script):
            (place.folder / "script.py").write_text(step.content)
            done = place.run(f"{sys.executable} script.py")
            assert done.returncode == 0, f"{name}, line {step.line}: {done.stderr}"
        elif unrun(step) is None:
            done = place.run(step.text)
            where = f"{name}, line {step.line}: {step.text}"
            assert bool(done.returncode) == step.fails, f"{where}\n{done.stdout}{done.stderr}"
            if step.fails:
                assert done.stderr.startswith("error: "), f"{where}\n{done.stderr}"


def test_what_is_not_run_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = {command: unrun(command) for command in commands() if unrun(command)}
    with capsys.disabled():
        print("\ncommands of the documentation that no test runs:")
        for command, start in skipped.items():
            print(f"  {command.page}:{command.line}: {command.text}: {NOT_RUN[start or '']}")
    assert set(skipped.values()) == set(NOT_RUN), "an entry of NOT_RUN is of no command"
    assert len(commands()) - len(skipped) > 60


def test_every_extra_that_the_documentation_names_exists() -> None:
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    text = PAGES["docs/install.md"].read_text()
    named = {extra for group in re.findall(r"\[([\w,]+)\]\"", text) for extra in group.split(",")}
    named |= set(re.findall(r"`(\w+)`", text[text.index("as extras") : text.index("[xgboost")]))
    assert {"xgboost", "binary"} <= named <= extras


def test_a_block_of_commands_holds_nothing_else() -> None:
    for name, page in PAGES.items():
        for step in steps(name, page.read_text()):
            if isinstance(step, Command):
                first = step.text.split()[0]
                assert is_command(step.text) or first == "git", f"{name}, line {step.line}: {step.text}"
