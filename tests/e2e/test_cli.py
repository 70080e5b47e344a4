# SPDX-License-Identifier: Apache-2.0
"""The toolkit from packets to a bundle, as a user runs it, and what it says to bad input."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import wirewise
from wirewise import agent
from wirewise.bundle import Bundle
from wirewise.cli import main
from wirewise.datasets import write_capture
from wirewise.traffic import generate

# One worker runs them all: what they start from is made once.
pytestmark = pytest.mark.xdist_group("cli")

ROOT = Path(__file__).parents[2]
NO_PRIVILEGES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loading programs needs root")

LABELS = """
version: 1
rules:
  - {label: attack, proto: tcp, flags: S}
  - {label: attack, proto: udp, sport: [53, 123, 1900, 11211]}
otherwise: benign
"""
POLICY = """
version: 1
classes: {attack: drop}
allow: {ports: [22]}
"""


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, through its own guard."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["wirewise", *map(str, arguments)])
        capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        captured = capfd.readouterr()
        assert isinstance(code, int) or code is None
        return Result(code or 0, captured.out, captured.err)

    return call


def run_process(*arguments: object, prefix: list[str] | None = None, **environment: str) -> Result:
    """The command line in its own process."""
    command = [*(prefix or []), sys.executable, "-m", "wirewise", *map(str, arguments)]
    paths = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths, **environment}
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture, labels, a table, an estimator and a bundle, made by the verbs themselves."""
    folder = tmp_path_factory.mktemp("cli")
    traffic = generate(seed=1, duration_s=4, packets=3000)
    write_capture(folder / "a.pcap", ((packet.time_ns, packet.frame) for packet in traffic))
    (folder / "labels.yaml").write_text(LABELS)
    (folder / "policy.yaml").write_text(POLICY)
    table = run_process(
        "features",
        folder / "a.pcap",
        "-f",
        "hara2026",
        "-l",
        folder / "labels.yaml",
        "-o",
        folder / "a.parquet",
    )
    assert table.code == 0, table.err
    trained = run_process(
        "train", folder / "a.parquet", "-o", folder / "m.pkl", "--trees", "5", "--depth", "6"
    )
    assert trained.code == 0, trained.err
    compiled = run_process("compile", folder / "m.pkl", "-o", folder / "m.wirewise", "--no-verify")
    assert compiled.code == 0, compiled.err
    return folder


# -- the path from packets to a bundle


@needs_root
def test_the_agent_runs_where_there_is_no_other_file(made: Path, tmp_path: Path) -> None:
    """Neither a library nor /dev, /proc or /sys: the installed agent is linked statically."""
    for file in (agent.find(), made / "a.pcap", made / "m.wirewise"):
        shutil.copy(file, tmp_path)
    replay = ["replay", "/a.pcap", "--bundle", "/m.wirewise", "--verdicts", "/rows.parquet", "--json"]
    done = subprocess.run(["chroot", tmp_path, "/wirewised", *replay], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packets"] > 3000
    assert (tmp_path / "rows.parquet").stat().st_size > 0


def test_the_table_says_what_it_holds(run: Run, made: Path) -> None:
    said = run("features", made / "a.pcap", "-f", "hara2026", "-l", made / "labels.yaml", "--json").json
    assert said["packets"] == sum(said["labels"].values()) > 3000
    assert set(said["labels"]) == {"attack", "benign"}
    assert said["statuses"] == {"classified": said["packets"]}


def test_training_reports_on_flows_it_has_not_seen(run: Run, made: Path, tmp_path: Path) -> None:
    # With other seeds the one bulk transfer of this small table is tested on, but not learned.
    said = run(
        "train", made / "a.parquet", "-o", tmp_path / "t.pkl", "-e", "tree", "--seed", 1, "--json"
    ).json
    assert said["classes"] == ["benign", "attack"]
    assert 0.8 < said["accuracy"]["accuracy"] <= 1
    assert 0 < said["accuracy"]["packets"] < said["training"]["packets"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.pkl", "t.pkl.training.json"]


def test_a_bundle_says_where_it_came_from(run: Run, made: Path) -> None:
    said = run("inspect", made / "m.wirewise", "--json").json
    assert said["classes"] == ["benign", "attack"]
    assert said["training"]["trees"] == 5 and said["training"]["split"] == "by flow"
    assert said["accuracy"]["packets"] > 100
    assert said["model_detail"]["trees"] == 5 and said["model_detail"]["depth"]["most"] <= 6
    assert sum(said["model_detail"]["reads"]) > 5
    flow = said["flow"]
    assert said["memory"]["bytes"] == flow["table_size"] * (flow["entry4_size"] + flow["entry6_size"])
    text = run("inspect", made / "m.wirewise").out
    for part in ("max(length)", "Flow table", "MiB, for each CPU", "not asked", "RandomForestClassifier"):
        assert part in text
    assert run("inspect", made / "m.wirewise", "--card").out.startswith("# m\n")


def test_compile_ends_with_the_agreement(run: Run, made: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.wirewise"
    text = run("compile", made / "m.pkl", "-t", made / "a.parquet", "-o", output, "--no-verify").out
    assert re.search(r"predicted +[\d,]+ instructions", text)
    assert text.splitlines()[-1].startswith("agreement: all ")
    fidelity = Bundle.read(output).manifest.fidelity
    assert fidelity is not None and fidelity["rows"] == fidelity["agree"] > 3000


def test_disagreement_is_counted_and_shown(made: Path) -> None:
    """An estimator that changed after the import stands for a rounding that goes wrong."""
    from dataclasses import replace

    from wirewise.fidelity import agreement
    from wirewise.importers import import_model

    imported = import_model(made / "m.pkl")
    rows = np.arange(120, dtype=np.int64).reshape(10, 12)
    ours, _ = imported.model.predict(rows)
    wrong = replace(imported, predict=lambda x: np.where(np.arange(len(x)) == 3, 1 - ours, ours))
    said = agreement(wrong, rows)
    assert (said["rows"], said["agree"]) == (10, 9)
    assert said["differences"][0]["row"] == 3 and said["differences"][0]["features"] == rows[3].tolist()
    assert said["differences"][0]["model"] != said["differences"][0]["estimator"]


def test_an_imported_model_needs_no_estimator(run: Run, made: Path, tmp_path: Path) -> None:
    assert run("import", made / "m.pkl", "-o", tmp_path / "m.json").code == 0
    again = run(
        "compile",
        tmp_path / "m.json",
        "-f",
        "hara2026",
        "-o",
        tmp_path / "m.wirewise",
        "--no-verify",
        "--json",
    ).json
    assert again["model"]["digest"] == Bundle.read(made / "m.wirewise").manifest.model.digest
    assert again["fidelity"] is None


def test_evaluate_bundle_and_estimator_alike(run: Run, made: Path) -> None:
    bundle = run("evaluate", made / "m.wirewise", made / "a.parquet", "--json").json
    model = run("evaluate", made / "m.pkl", made / "a.parquet", "--json").json
    assert bundle["confusion"] == model["confusion"] and bundle["accuracy"] > 0.9
    assert model["fidelity"]["rows"] == model["fidelity"]["agree"] == bundle["packets"]


def test_explain_from_the_reference(run: Run, made: Path) -> None:
    arguments = [
        "explain",
        made / "a.pcap",
        "-n",
        "1500",
        "-b",
        made / "m.wirewise",
        "-p",
        made / "policy.yaml",
    ]
    said = run(*arguments, "--reference-only", "--json").json["reference"]
    assert len(said["features"]) == 12 and len(said["paths"]) == 5
    assert said["class"] in ("benign", "attack")
    assert said["rule"] == (
        "attack: drop" if said["class"] == "attack" else "benign: pass (not named in the policy)"
    )
    for path in said["paths"]:
        for test in path["tests"]:
            assert test["left"] == (test["value"] <= test["threshold"])
            assert test["value"] == said["features"][test["feature"]]
    text = run(*arguments, "--reference-only").out
    for part in ("Headers", "max_length", "Verdict", "tree "):
        assert part in text


@needs_root
@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_explain_agrees_with_the_object(run: Run, made: Path, mode: str) -> None:
    for packet in (1, 700, 2900):
        said = run(
            "explain", made / "a.pcap", "-n", packet, "-b", made / "m.wirewise", "-p", made / "policy.yaml",
            "--mode", mode, "--json",
        )  # fmt: skip
        assert said.code == 0, said.err
        assert said.json["agree"] is True, said.json["differences"]


@needs_root
@pytest.mark.parametrize("plane", ["kernel", "engine"])
def test_explain_agrees_on_packets_that_are_not_classified(
    run: Run, made: Path, tmp_path: Path, plane: str
) -> None:
    capture = tmp_path / "odd.pcap"
    arp, cut = bytes(12) + b"\x08\x06" + bytes(46), bytes(12) + b"\x08\x00\x45" + bytes(9)
    write_capture(capture, [(0, arp), (1000, cut)])
    for packet, status in ((1, "not_ip"), (2, "malformed_ip")):
        said = run(
            "explain", capture, "-n", packet, "-b", made / "m.wirewise", "--plane", plane, "--json"
        ).json
        assert said["agree"] is True, said["differences"]
        assert said["reference"]["status"] == status


@needs_root
def test_the_verifier_is_asked(run: Run, made: Path, tmp_path: Path) -> None:
    said = run("compile", made / "m.pkl", "-o", tmp_path / "v.wirewise", "--verify", "--json")
    assert said.code == 0, said.err
    verifier = said.json["program"]["verifier"]
    assert verifier["verified_instructions"] > 100 and verifier["load_ms"] > 0
    assert Bundle.read(tmp_path / "v.wirewise").manifest.program.verifier == verifier


@needs_root
def test_without_privileges_it_says_so(made: Path, tmp_path: Path) -> None:
    said = run_process(
        "compile", made / "m.pkl", "-o", tmp_path / "u.wirewise", "--json", prefix=NO_PRIVILEGES
    )
    assert said.code == 0, said.err
    assert said.json["program"]["verifier"] is None and "CAP_BPF" in said.json["unverified"]
    must = run_process(
        "compile", made / "m.pkl", "-o", tmp_path / "w.wirewise", "--verify", prefix=NO_PRIVILEGES
    )
    assert must.code == 3 and "CAP_BPF" in must.err
    assert not (tmp_path / "w.wirewise").exists()


# -- bad input: one line, exit code 2, nothing left behind


def refused(result: Result, *fragments: str, code: int = 2) -> None:
    assert result.code == code, result.out + result.err
    assert result.err.startswith("error: ") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    for fragment in fragments:
        assert fragment in result.err


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where output may appear; must stay empty."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_features_by_program_and_by_reference(run: Run, made: Path) -> None:
    command = ("features", made / "a.pcap", "-f", "hara2026", "-l", made / "labels.yaml", "--json")
    by_program, by_reference = run(*command).json, run(*command, "--reference").json
    assert by_program == by_reference
    first_two = run(*command, "--at", "1,2").json
    assert by_program["flows"] <= first_two["packets"] < by_program["packets"]
    assert run(*command, "--at-end").json["packets"] >= by_program["flows"]
    assert run(*command, "--interval", "1s").json["packets"] < by_program["packets"]


def test_features_by_wrong_choices(run: Run, made: Path, out: Path) -> None:
    command = ("features", made / "a.pcap", "-f", "hara2026", "-o", out / "t.parquet")
    refused(run(*command, "--at", "0"), "--at 0", "from 1")
    refused(run(*command, "--at", "1", "--at-end"), "choose one")
    refused(run(*command, "--interval", "often"), "often")
    refused(run(*command, "--reference", "--at-end"), "--reference")
    assert not any(out.iterdir())


@pytest.mark.parametrize("keep", [10, 30, 500])
def test_truncated_capture(run: Run, made: Path, tmp_path: Path, out: Path, keep: int) -> None:
    capture = tmp_path / "cut.pcap"
    capture.write_bytes((made / "a.pcap").read_bytes()[:keep])
    refused(run("features", capture, "-f", "hara2026", "-o", out / "t.parquet"), "cut.pcap")
    refused(run("explain", capture, "-n", 400, "-b", made / "m.wirewise", "--reference-only"), "cut.pcap")
    assert not any(out.iterdir())


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (None, "No such file"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"rules: [", "line 1"),
        (b"just text", "docs/labels.md"),
        (b"version: 1\nrules: [{label: a, colour: red}]", "colour"),
        (b"version: 1\nrules: [{label: a, proto: tcpp}]", "tcpp"),
    ],
)
def test_unreadable_labels(
    run: Run, made: Path, tmp_path: Path, out: Path, content: bytes | None, fragment: str
) -> None:
    labels = tmp_path / "bad.yaml"
    if content is not None:
        labels.write_bytes(content)
    said = run("features", made / "a.pcap", "-f", "hara2026", "-l", labels, "-o", out / "t.parquet")
    refused(said, "bad.yaml", fragment)
    assert not any(out.iterdir())


@pytest.mark.parametrize("where", [0, 100, 0.25, 0.5, 0.75, -1])
def test_bundle_with_one_changed_byte(run: Run, made: Path, tmp_path: Path, where: float) -> None:
    content = bytearray((made / "m.wirewise").read_bytes())
    content[int(where * len(content)) if 0 < abs(where) < 1 else int(where)] ^= 0x10
    bundle = tmp_path / "bad.wirewise"
    bundle.write_bytes(content)
    refused(run("inspect", bundle), "bad.wirewise")
    refused(run("evaluate", bundle, made / "a.parquet"), "bad.wirewise")
    refused(run("explain", made / "a.pcap", "-n", 1, "-b", bundle), "bad.wirewise")


def test_policy_with_an_unknown_class(run: Run, made: Path, tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("version: 1\nclasses: {atack: drop}\n")
    said = run("explain", made / "a.pcap", "-n", 1, "-b", made / "m.wirewise", "-p", policy)
    refused(said, "p.yaml", "'atack'", "benign, attack")


def test_model_with_200_features(run: Run, made: Path, tmp_path: Path, out: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (60, 200))
    model = tmp_path / "wide.pkl"
    model.write_bytes(pickle.dumps(RandomForestClassifier(3).fit(rows, rows[:, 0] > 4)))
    refused(run("compile", model, "-f", "hara2026", "-o", out / "b.wirewise"), "wide.pkl", "200", "128")
    refused(run("import", model, "-o", out / "b.json"), "wide.pkl", "200", "128")
    assert not any(out.iterdir())


@pytest.mark.parametrize("window", ["0", "0s", "0.0ms"])
def test_window_of_zero(run: Run, made: Path, tmp_path: Path, out: Path, window: str) -> None:
    features = tmp_path / "f.yaml"
    features.write_text(f'name: zero\nfeatures: ["mean(length, window={window})"]\n')
    refused(run("features", made / "a.pcap", "-f", features, "-o", out / "t.parquet"), "window", "500ms")
    refused(run("compile", made / "m.pkl", "-f", features, "-o", out / "b.wirewise"), "window", "500ms")
    assert not any(out.iterdir())


def test_parts_that_do_not_belong_together(run: Run, made: Path, tmp_path: Path, out: Path) -> None:
    refused(
        run("compile", made / "m.pkl", "-f", "hara2023", "-o", out / "b.wirewise"), "hara2023", "max_length"
    )
    refused(run("compile", made / "m.pkl", "--classes", "a,b,c", "-o", out / "b.wirewise"), "classes")
    refused(run("compile", made / "labels.yaml", "-f", "hara2026", "-o", out / "b.wirewise"), "labels.yaml")
    refused(run("compile", made / "m.pkl", "--shape", "round", "-o", out / "b.wirewise"), "round")
    alone = tmp_path / "alone.pkl"
    alone.write_bytes((made / "m.pkl").read_bytes())
    refused(run("compile", alone, "-o", out / "b.wirewise"), "--feature-set")
    assert not any(out.iterdir())


def test_other_bad_arguments(run: Run, made: Path, out: Path) -> None:
    refused(run("features", made / "nothing.pcap", "-f", "hara2026"), "nothing.pcap", "does not exist")
    refused(run("features", made / "a.pcap"), "hara2026")
    refused(run("features", made / "a.pcap", "-f", "hara2027"), "hara2027", "hara2026")
    refused(run("train", made / "a.pcap"), "a.pcap", "wirewise features")
    refused(run("train", made / "a.parquet", "-o", out / "m.txt"), "m.txt", ".pkl")
    refused(run("train", made / "a.parquet", "--class-weight", "benign"), "benign=3")
    refused(run("train", made / "a.parquet", "--test-share", "1"), "test share")
    refused(run("explain", made / "a.pcap", "-n", 10**6, "-b", made / "m.wirewise"), "has no packet 1000000")
    refused(run("inspect", made / "a.pcap"), "not a wirewise bundle")
    refused(run("inspect", out), "is not a file")
    assert not any(out.iterdir())
    assert run("compile").code == 2 and run("nonsense").code == 2


def test_a_bug_is_one_line_too(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> Bundle:
        raise KeyError("a\nb")

    monkeypatch.setattr(Bundle, "read", broken)
    refused(run("inspect", made / "m.wirewise"), "KeyError", "bug in wirewise", code=1)


# -- the package


def test_no_library_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, wirewise; wirewise.FeatureSet, wirewise.Bundle, wirewise.import_model, wirewise.compile;"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'sklearn', 'xgboost', 'lightgbm', 'onnx'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_public_names_exist() -> None:
    for name in wirewise.__all__:
        assert getattr(wirewise, name) is not None
    with pytest.raises(AttributeError):
        _ = wirewise.nothing


def test_one_version_for_the_repository() -> None:
    cargo = (ROOT / "Cargo.toml").read_text()
    assert f'version = "{wirewise.__version__}"' in cargo


def test_help_teaches_and_completion_completes(run: Run) -> None:
    for verb in ("features", "train", "import", "compile", "inspect", "evaluate", "explain"):
        said = run(verb, "--help")
        assert said.code == 0 and "--json" in said.out
    shell = run_process(_WIREWISE_COMPLETE="complete_bash", COMP_WORDS="wirewise comp", COMP_CWORD="1")
    assert "compile" in shell.out or "compile" in shell.err
