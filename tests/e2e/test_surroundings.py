# SPDX-License-Identifier: Apache-2.0
"""The commands where little is as usual: locale, names, umask, home, terminal, a read-only source tree."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wirewise import agent
from wirewise.datasets import write_capture
from wirewise.errors import MissingFeatureError
from wirewise.traffic import generate

# One worker runs them all: what they start from is made once.
pytestmark = pytest.mark.xdist_group("surroundings")

ROOT = Path(__file__).parents[2]
LABELS = """
version: 1
rules:
  - {label: attaqué, proto: tcp, flags: S}
  - {label: attaqué, proto: udp, sport: [53, 123, 1900, 11211]}
otherwise: benign
"""
POLICY = "version: 1\nclasses: {attaqué: drop}  # ≥ 99 %\n"
PACKAGES = [path for path in sys.path if path.endswith("-packages")]
# As strict as Python can be told to be: no UTF-8 mode, no other locale than the one that is set.
SURROUNDINGS = {
    "PATH": os.environ["PATH"], "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    "HOME": "/proc/no home", "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *PACKAGES]),
}  # fmt: skip
# Python before 3.13 does not start in such a locale if a path file names a folder with an accent, and this
# checkout may lie in one. So without path files, or by the script, which starts it in another locale.
PYTHON = (sys.executable, "-S")
WIREWISE = (
    (*PYTHON, "-m", "wirewise") if str(ROOT).isascii() else (f"{Path(sys.executable).parent}/wirewise",)
)


def start(
    *command: str | Path, folder: Path, environment: dict[str, str] = SURROUNDINGS
) -> subprocess.CompletedProcess[str]:
    """A command without a terminal and with umask 077."""
    return subprocess.run(
        [os.fsencode(word) for word in command], cwd=folder, env=environment, umask=0o077, encoding="utf-8",
        stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False,
    )  # fmt: skip


def ok(*command: str | Path, folder: Path, environment: dict[str, str] = SURROUNDINGS) -> str:
    done = start(*command, folder=folder, environment=environment)
    assert done.returncode == 0, (command, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout


def the_agent() -> Path:
    try:
        return agent.find()
    except MissingFeatureError as error:
        pytest.skip(f"tools: {error}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spaces, accents and what shells take for patterns in its name, and such files."""
    folder = tmp_path_factory.mktemp("été") / "ça [et] là *"
    folder.mkdir()
    traffic = generate(seed=1, duration_s=4, packets=3000)
    write_capture(folder / "du matin à midi.pcap", ((packet.time_ns, packet.frame) for packet in traffic))
    (folder / "étiquettes.yaml").write_text(LABELS, encoding="utf-8")
    (folder / "règles.yaml").write_text(POLICY, encoding="utf-8")
    return folder


def all_verbs(folder: Path, *prefix: str) -> None:
    """From a capture to a bundle and its verdicts, by both commands."""
    capture, table, model, bundle = "du matin à midi.pcap", "été.parquet", "forêt.pkl", "forêt.wirewise"
    labels, policy = ("-l", "étiquettes.yaml"), ("--policy", "règles.yaml")
    verbs: list[tuple[str, ...]] = [
        ("features", capture, "-f", "hara2026", *labels, "-o", table),
        ("train", table, "-o", model, "--trees", "3", "--depth", "5"),
        ("compile", model, "--table", table, "-o", bundle, "--no-verify"),
        ("inspect", bundle),
        ("inspect", bundle, "--json"),
        ("explain", capture, "--packet", "17", "--bundle", bundle, *policy),
        ("explain", "--help"),
    ]
    for verb in verbs:
        said = ok(*prefix, *WIREWISE, *verb, folder=folder)
        assert "attaqué" in said or verb[0] in ("explain", "train"), verb
    wirewised = str(the_agent())
    dropped = "jetés à midi.pcapng"
    replay = ("replay", capture, "--bundle", bundle, *policy, "--mode", "enforce", "--dropped", dropped)
    said = json.loads(ok(*prefix, wirewised, *replay, "--json", folder=folder))
    assert "attaqué" in [row["name"] for row in said["classes"]]
    program = (
        "from pathlib import Path; from wirewise import replay;"
        "files = [str(next(Path().glob(name))) for name in ('du*.pcap', '*.wirewise', 'r*.yaml')];"
        "print(len(replay(*files, mode='enforce')))"
    )
    surroundings = SURROUNDINGS | {"TMPDIR": str(folder)}
    assert int(ok(*prefix, *PYTHON, "-c", program, folder=folder, environment=surroundings)) > 1000
    for made in (table, model, bundle, dropped):
        assert stat.S_IMODE((folder / made).stat().st_mode) == 0o600, made


def test_from_packets_to_verdicts_where_little_is_as_usual(folder: Path) -> None:
    read_only = (
        'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; ! touch "$0/new" 2>/dev/null && exec "$@"'
    )
    in_namespace = ("unshare", "--mount", "sh", "-c", read_only, str(ROOT))
    all_verbs(folder, *(in_namespace if os.geteuid() == 0 else ()))


def test_a_stream_of_another_encoding_gets_what_it_can_show(folder: Path) -> None:
    said = ok(
        *WIREWISE, "features", "du matin à midi.pcap", "-f", "hara2026", "-l", "étiquettes.yaml",
        "-o", "été.parquet", folder=folder, environment=SURROUNDINGS | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert "attaqu\\xe9" in said and said.isascii()


def test_the_library_reads_utf_8_in_every_locale(folder: Path) -> None:
    (folder / "features.yaml").write_text("name: odd  # µs\nfeatures: [length]\n", encoding="utf-8")
    program = (
        "import sys, wirewise; assert sys.getfilesystemencoding() == 'ascii';"
        "print(wirewise.FeatureSet.load('features.yaml').name)"
    )
    assert ok(*PYTHON, "-c", program, folder=folder) == "odd\n"


def test_the_command_starts_from_a_folder_with_any_name(tmp_path: Path) -> None:
    """As set-up leaves it: the script beside Python, and a path file that leads to the code."""
    folder = tmp_path / "ça et là"
    folder.mkdir()
    (folder / "python").symlink_to(ROOT / "python")
    ok(sys.executable, "-m", "venv", "--without-pip", ".venv", folder=folder, environment=dict(os.environ))
    (site,) = folder.glob(".venv/lib/python*/site-packages")
    (site / "wirewise.pth").write_text(
        "\n".join([str(folder / "python"), *PACKAGES]) + "\n", encoding="utf-8"
    )
    command = folder / ".venv" / "bin" / "wirewise"
    command.write_bytes((ROOT / "python" / "wirewise.data" / "scripts" / "wirewise").read_bytes())
    command.chmod(0o755)
    (folder / "link").symlink_to(command)
    environment = {name: value for name, value in SURROUNDINGS.items() if name not in ("HOME", "PYTHONPATH")}
    for name in (command, folder / "link"):
        assert ok(name, "--version", folder=tmp_path, environment=environment).startswith("wirewise ")


@pytest.mark.parametrize("name", ["a folder", "a\tb", *(f"a{one}b" for one in ":#%$;|&<>()*?\\`'\"")])
def test_a_path_that_cannot_be_built_in_is_told_before_anything_is_done(name: str, tmp_path: Path) -> None:
    scripts = tmp_path / name / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup.sh", scripts)
    done = subprocess.run([scripts / "setup.sh", "demo"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{name}: a path with a space" in done.stderr and "move the folder" in done.stderr
    assert [path.name for path in scripts.parent.iterdir()] == ["scripts"], "nothing was made"
