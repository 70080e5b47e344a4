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
from tests import needs
from wirewise import agent
from wirewise.cli import main
from wirewise.datasets import write_capture
from wirewise.formats import model_file
from wirewise.formats.bundle import Bundle
from wirewise.importers import Imported
from wirewise.models import Tree, TreeEnsemble
from wirewise.traffic import generate

# One worker runs them all: what they start from is made once.
pytestmark = pytest.mark.xdist_group("cli")

ROOT = Path(__file__).parents[2]
NO_PRIVILEGES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]

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


@needs.root
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
    assert [p.name for p in tmp_path.iterdir()] == ["t.pkl"]


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
    for part in (
        "max(length)",
        "Flow table",
        "MiB, shared by all CPUs",
        "not asked",
        "RandomForestClassifier",
    ):
        assert part in text
    assert run("inspect", made / "m.wirewise", "--card").out.startswith("# m\n")


def test_compile_ends_with_the_agreement(run: Run, made: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.wirewise"
    text = run("compile", made / "m.pkl", "-t", made / "a.parquet", "-o", output, "--no-verify").out
    assert re.search(r"shape +inline \(small enough", text) and "predicted" not in text
    assert text.splitlines()[-1].startswith("agreement: all ")
    fidelity = Bundle.read(output).manifest.fidelity
    assert fidelity is not None and fidelity["rows"] == fidelity["agree"] > 3000


def test_swapped_and_missing_class_names_are_noticed(run: Run, made: Path, tmp_path: Path) -> None:
    command = (
        "compile",
        made / "m.pkl",
        "-t",
        made / "a.parquet",
        "-o",
        tmp_path / "x.wirewise",
        "--no-verify",
    )
    right = run(*command)
    assert "warning" not in right.err and right.out.count("agreement") == 1
    swapped = run(*command, "--classes", "attack,benign")
    assert "warning: accuracy " in swapped.err and "--classes benign,attack" in swapped.err
    named = run(*command, "--classes", "0,1")
    assert "a.parquet has the labels benign, attack" in named.err and "called 0, 1" in named.err
    (warning,) = run(*command, "--classes", "attack,benign", "--json").json["warnings"]
    assert "wrong order" in warning
    judged = run("evaluate", tmp_path / "x.wirewise", made / "a.parquet")
    assert judged.code == 0 and "wrong order" in judged.err


def test_what_is_known_of_the_rows_measured_on_is_said(run: Run, made: Path, tmp_path: Path) -> None:
    def measured(model: Path, table: Path) -> str:
        output = tmp_path / "x.wirewise"
        assert run("compile", model, "-t", table, "-o", output, "--no-verify").code == 0
        bundle = Bundle.read(output)
        assert bundle.manifest.fidelity is not None
        how = str(bundle.manifest.fidelity["held_out"]["how"])
        assert how in bundle.card
        return how

    assert measured(made / "m.pkl", made / "a.parquet") == "flows of a.parquet that training has not seen"
    other = tmp_path / "other.parquet"
    command = ("features", made / "a.pcap", "-f", "hara2026", "-l", made / "labels.yaml")
    made_again = run(*command, "--at", "1,2,4", "-o", other)
    assert made_again.code == 0, made_again.err
    assert measured(made / "m.pkl", other) == "rows of other.parquet; it was trained on another table"
    with (made / "m.pkl").open("rb") as file:
        (tmp_path / "again.pkl").write_bytes(pickle.dumps(pickle.load(file)))
    assert measured(tmp_path / "again.pkl", made / "a.parquet") == (
        "rows of a.parquet; wirewise cannot know whether the model was trained on them"
    )


def test_a_model_copied_alone_keeps_its_training_record(run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.pkl").write_bytes((made / "m.pkl").read_bytes())
    output = tmp_path / "x.wirewise"
    assert run("compile", tmp_path / "copy.pkl", "-o", output, "--no-verify").code == 0
    assert run("import", tmp_path / "copy.pkl", "-o", tmp_path / "m.json").code == 0
    assert run("compile", tmp_path / "m.json", "-o", output, "--no-verify").code == 0
    assert Bundle.read(output).manifest.training == Bundle.read(made / "m.wirewise").manifest.training
    changed = bytearray((made / "m.pkl").read_bytes())
    changed[100] ^= 1
    (tmp_path / "changed.pkl").write_bytes(changed)
    refused(run("compile", tmp_path / "changed.pkl", "-o", output), "changed.pkl", "was changed since")


def test_nothing_is_cut_where_there_is_no_terminal(made: Path) -> None:
    said = run_process("inspect", made / "m.wirewise", COLUMNS="40")
    lines = said.out.splitlines()
    assert any("variance(length)" in line and "bytes^2 / 2^16" in line for line in lines)
    assert "…" not in said.out and all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_folds_and_leaves_columns_out(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from wirewise import console

    terminal = io.StringIO()
    shown = console._Console(file=terminal, force_terminal=True, color_system=None, _environ={})
    shown._width, shown._height = width, 25
    monkeypatch.setattr(console, "console", shown)
    monkeypatch.setattr(console, "progress_console", shown)
    names = [f"class-number-{index}" for index in range(9)]
    rows = [("scikit-learn", "a text that may be folded anywhere", *(f"{1335 * 10**i:,}" for i in range(9)))]
    console.listing(("library", "what", *names), rows, right=range(2, 11))
    said = terminal.getvalue()
    assert "…" not in said and "scikit-learn" in said
    assert all(len(line) <= width for line in said.splitlines())
    table, _, left_out = said.replace("\n", " ").partition("too narrow for")
    named = re.findall(r"[\w-]+", left_out)
    for name, number in zip(names, rows[0][2:], strict=True):
        assert (name in table.split()) == (number in table.split()) != (name in named)


def test_disagreement_is_counted_and_shown(made: Path) -> None:
    """An estimator that changed after the import stands for a rounding that goes wrong."""
    from dataclasses import replace

    from wirewise.evaluate.fidelity import agreement
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
    # Only what training kept apart is used, unless all is asked for.
    assert bundle["left_out"]["to learn from or quantise with"] > bundle["packets"]
    everything = run("evaluate", made / "m.wirewise", made / "a.parquet", "--all-rows", "--json").json
    assert everything["packets"] == sum(bundle["left_out"].values()) + bundle["packets"]
    flows = bundle["flows"]["classes"]
    assert 0 < flows["packets"] < bundle["packets"] and bundle["flows"]["attack"]["accuracy"] > 0.9
    text = run("evaluate", made / "m.wirewise", made / "a.parquet", "--at", "3").out
    assert "Flows, judged at packet 3" in text and "Attacks against benign traffic" in text
    refused(run("evaluate", made / "m.wirewise", made / "a.parquet", "--at", "0"), "counts packets from 1")


def test_a_margin_keeps_benign_flows(run: Run, made: Path, tmp_path: Path) -> None:
    output = tmp_path / "careful.wirewise"
    asked = ("compile", made / "m.pkl", "-t", made / "a.parquet", "-o", output, "--no-verify")
    point = run(*asked, "--max-benign-loss", "1%", "--json").json["fidelity"]["operating_point"]
    assert point["wish"] == 0.01 >= point["loss"] and point["by"] >= 0
    flows = run("evaluate", output, made / "a.parquet", "--json").json["flows"]
    assert flows["benign_losing"] == pytest.approx(point["loss"])
    if point["elsewhere"] is not None:  # it was chosen on what it is judged by
        criteria = run("evaluate", output, made / "a.parquet", "--json").json["verdict"]["criteria"]
        assert any("margin" in criterion["what"] for criterion in criteria)
    assert flows["detection"]["share"] == pytest.approx(point["recall"])
    assert "benign flows lose a packet" in run("inspect", output).out
    best = run(*asked, "--max-benign-loss", "1%", "--after", "best", "--json").json["fidelity"][
        "operating_point"
    ]
    assert best["recall"] == max(best["recall"], *(other["recall"] for other in best["compared"]))
    twice = run(*asked, "--max-benign-loss", "1%", "--after", "2", "--json").json["fidelity"][
        "operating_point"
    ]
    assert twice["after"] == 2 and twice["by"] <= point["by"]
    flows = run("evaluate", output, made / "a.parquet", "--json").json["flows"]
    assert flows["benign_losing"] == pytest.approx(twice["loss"])
    assert flows["detection"]["share"] == pytest.approx(twice["recall"])
    assert "in a row" in run("inspect", output).out
    refused(run(*asked, "--max-benign-loss", "1%", "--after", "twice"), "write 1 to 15, or best")
    refused(run(*asked, "--max-benign-loss", "1%", "--after", "16"), "must be from 1 to 15")
    refused(run(*asked, "--max-benign-loss", "much"), "write 0.1% or 0.001")
    refused(run(*asked[:2], "-f", "hara2026", *asked[4:], "--max-benign-loss", "1%"), "add --table TABLE")
    refused(run(*asked, "--majority", "--max-benign-loss", "1%"), "leave out --majority")


def test_a_model_says_what_it_does_not_know(run: Run, made: Path, tmp_path: Path) -> None:
    output = tmp_path / "open.wirewise"
    asked = ("compile", made / "m.pkl", "-t", made / "a.parquet", "-o", output, "--no-verify", "--unknown")
    said = run(*asked, "--json").json
    assert said["classes"][-1] == "unknown" and said["fidelity"]["open_set"]["rows"] > 100
    assert said["fidelity"]["agree"] == said["fidelity"]["rows"], "the model inside is the estimator"
    assert "with a feature outside what" in run("inspect", output).out
    flows = run("evaluate", output, made / "a.parquet", "--json").json["flows"]
    # A class like any other, which passes where the policy does not name it.
    before = run("evaluate", made / "m.wirewise", made / "a.parquet", "--json").json["flows"]
    assert flows["benign_losing"] <= before["benign_losing"]
    refused(run("compile", made / "m.pkl", "-f", "hara2026", "-o", output, "--unknown"), "add --table TABLE")


def test_a_bundle_says_how_training_looked(run: Run, made: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.wirewise"
    asked = ("compile", made / "m.pkl", "-t", made / "a.parquet", "-o", output, "--no-verify")
    assert "for `wirewised stats --drift`" in run(*asked).out
    manifest = Bundle.read(output).manifest
    reference = manifest.reference
    assert reference and sum(reference.flows) > 100 and sum(reference.packets) > sum(reference.flows)
    assert {feature.name for feature in reference.features} <= {f.name for f in manifest.flow.features}
    assert len(reference.features) > 3
    replay = [agent.find(), "replay", made / "a.pcap", "--bundle", output]
    read = subprocess.run(replay, capture_output=True, text=True)
    assert read.returncode == 0, f"the agent checks it: {read.stderr}"
    assert Bundle.read(made / "m.wirewise").manifest.reference is None, "compiled without a table"


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
    assert said["rule"] == ("attack: drop" if said["class"] == "attack" else "benign: pass")
    for path in said["paths"]:
        for test in path["tests"]:
            assert test["left"] == (test["value"] <= test["threshold"])
            assert test["value"] == said["features"][test["feature"]]
    text = run(*arguments, "--reference-only").out
    for part in ("Headers", "max_length", "Verdict", "tree "):
        assert part in text
    assert re.search(r"^tree \d: speaks for (benign|attack), score -?[\d,]+$", text, re.MULTILINE)
    object_s = subprocess.run(
        [agent.find(), *map(str, arguments), "--plane", "engine"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^  tree 0: speaks for (benign|attack), score -?[\d,]+$", object_s, re.MULTILINE)


def test_a_leaf_names_the_class_it_speaks_for() -> None:
    from dataclasses import dataclass

    from wirewise.cli.explain import speaks_for

    @dataclass
    class Shape:
        votes: str
        n_outputs: int

    classes = ["benign", "scan", "flood"]
    for shape, leaf, output, said in (
        (Shape("majority", 3), [2], None, "votes for flood"),
        (Shape("sum", 1), [-5000], None, "speaks for benign, score -5,000"),
        (Shape("sum", 1), [7], 0, "speaks for scan, score 7"),
        (Shape("sum", 3), [-7], 2, "speaks against flood, score -7"),
        (Shape("sum", 3), [5, 9, 9], None, "speaks for scan, scores 5, 9, 9"),
    ):
        path = {"leaf": leaf, "output": output}
        assert speaks_for(shape, path, classes) == said  # type: ignore[arg-type]


@needs.root
@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_explain_agrees_with_the_object(run: Run, made: Path, mode: str) -> None:
    for packet in (1, 700, 2900):
        said = run(
            "explain", made / "a.pcap", "-n", packet, "-b", made / "m.wirewise", "-p", made / "policy.yaml",
            "--mode", mode, "--json",
        )  # fmt: skip
        assert said.code == 0, said.err
        assert said.json["agree"] is True, said.json["differences"]


@needs.root
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


@needs.root
def test_the_verifier_is_asked(run: Run, made: Path, tmp_path: Path) -> None:
    said = run("compile", made / "m.pkl", "-o", tmp_path / "v.wirewise", "--verify", "--json")
    assert said.code == 0, said.err
    verifier = said.json["program"]["verifier"]
    assert verifier["verified_instructions"] > 100 and verifier["load_ms"] > 0
    assert Bundle.read(tmp_path / "v.wirewise").manifest.program.verifier == verifier


@needs.root
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


def test_names_of_files_need_not_be_text(run: Run, made: Path, tmp_path: Path) -> None:
    capture, table, model, bundle, page = (
        tmp_path / os.fsdecode(b"\xe9" + suffix)
        for suffix in (b"[1].pcap", b".parquet", b".pkl", b".wirewise", b".html")
    )
    shutil.copy(made / "a.pcap", capture)
    run("features", capture, "-f", "hara2026", "-l", made / "labels.yaml", "-o", table)
    run("train", table, "-o", model, "-e", "tree", "--folds", "0")
    run("compile", model, "-t", table, "-o", bundle)
    assert run("inspect", bundle, "--json").json["name"] == r"\udce9"
    run("evaluate", bundle, table, "--all-rows", "--report", page)
    assert r"\udce9.parquet" in page.read_text()
    by_packets = run("evaluate", bundle, capture, "--labels", made / "labels.yaml", "--all-rows")
    refused(by_packets, r"\udce9[1].pcap", "not UTF-8", "wirewise features")


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
        (None, "does not exist"),
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
    with (made / "m.pkl").open("rb") as file:
        alone.write_bytes(pickle.dumps(pickle.load(file)))
    refused(run("compile", alone, "-o", out / "b.wirewise"), "no training record", "--feature-set")
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
    refused(run("inspect", out), "is a folder, not a file")
    refused(run("compile", out / "none.pkl", "-o", out / "b.wirewise"), "none.pkl: does not exist")
    assert not any(out.iterdir())
    refused(run("compile"), "Missing", "compile --help")
    for wrong, meant in (("compil", "compile"), ("explian", "explain")):
        refused(run(wrong), wrong, f"did you mean '{meant}'?")
    refused(run("train", "t.parquet", "--tress", "3"), "--tress", "did you mean '--trees'?")
    refused(run("compile", "m.pkl", "--shap", "inline"), "--shap", "did you mean '--shape'?")
    refused(run("train", "t.parquet", "--trees"), "--trees")
    refused(run("features", made / "a.pcap", "--labels", "a", "-l", "b"), "--labels", "2 times")
    refused(run("compile", "m.pkl", "--shape", "inline", "--shape", "inline"), "--shape", "2 times")
    refused(run("compile", "m.pkl", "--fine-tune", "--no-fine-tune"), "--fine-tune", "2 times")
    weights = ("--class-weight", "a=1", "--class-weight", "b=2")
    refused(run("train", "t.parquet", *weights, "--refit", "--refit"), "t.parquet")


def test_what_was_probably_meant_is_named(run: Run, made: Path, tmp_path: Path, out: Path) -> None:
    output = ("-o", out / "x.wirewise")
    refused(run("features", made / "a.pcap", "-f", "hara2062"), "did you mean 'hara2026'?")
    for text, meant in (
        ("features: [mena(length)]", "mean"), ("features: [lenght]", "length"), ("fetures: []", "features"),
        ("features: [count]\nkey: five-tupel", "five-tuple"),
        ("features: [count]\ndecapsulate: [gtpu]", "gtp-u"),
    ):  # fmt: skip
        (tmp_path / "f.yaml").write_text(text)
        refused(run("features", "-f", tmp_path / "f.yaml"), "f.yaml", f"did you mean '{meant}'?")
    refused(run("train", made / "a.parquet", "-e", "forrest"), "did you mean 'forest'?")
    refused(run("train", made / "a.parquet", "--class-weight", "bening=2"), "did you mean 'benign'?")
    refused(run("compile", made / "m.pkl", *output, "--shape", "fuctions"), "did you mean 'functions'?")
    refused(run("compile", made / "m.pkl", *output, "--target", "ebfp"), "did you mean 'ebpf'?")
    for text, meant in (
        ("clases: {attack: drop}", "classes"), ("classes: {atack: drop}", "attack"),
        ("allow: {prefxes: []}", "prefixes"),
    ):  # fmt: skip
        (tmp_path / "p.yaml").write_text(f"version: 1\n{text}\n")
        arguments = ("-n", 1, "-b", made / "m.wirewise", "-p", tmp_path / "p.yaml")
        refused(run("explain", made / "a.pcap", *arguments), "p.yaml", f"did you mean '{meant}'?")
    (tmp_path / "l.yaml").write_text("version: 1\nrules:\n  - {label: a, flgs: S}\n")
    labelled = run("features", made / "a.pcap", "-f", "hara2026", "-l", tmp_path / "l.yaml", "-o", out / "t")
    refused(labelled, "l.yaml: line 3, column 16", "did you mean 'flags'?")
    assert not any(out.iterdir())


def test_a_missing_folder_is_named_before_the_work(run: Run, made: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for command in (
        ("features", made / "a.pcap", "-f", "hara2026", "-o", nowhere / "t.parquet"),
        ("train", made / "a.parquet", "-o", nowhere / "m.pkl"),
        ("import", made / "m.pkl", "-o", nowhere / "m.json"),
        ("compile", made / "m.pkl", "-o", nowhere / "m.wirewise"),
        ("emit", made / "m.wirewise", "-o", nowhere / "sources"),
    ):
        refused(run(*command), str(nowhere), "does not exist", "mkdir -p")
    assert not nowhere.exists()
    agent_s = subprocess.run(
        [agent.find(), "trace", made / "a.pcap", "--bundle", made / "m.wirewise", "-o", nowhere / "t.jsonl"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert agent_s.returncode == 2 and f"the folder {nowhere} does not exist" in agent_s.stderr


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


def test_compile_keeps_the_flow_state_of_the_bundle_that_runs(run: Run, tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text("name: two\nfeatures: ['sum(length)', 'max(length)']\n")

    def model(*read: int) -> Path:
        path = tmp_path / f"reads-{'-'.join(map(str, read))}.json"
        stumps = [Tree((i, -1, -1), (80, 0, 0), (1, -1, -1), (2, -1, -1), ((), (0,), (1,))) for i in read]
        ensemble = TreeEnsemble(2, 2, "majority", tuple(stumps), 2, (0, 0))
        imported = Imported(
            ensemble, ["benign", "attack"], "by hand", [], (), lambda rows: np.zeros(len(rows), np.int64)
        )
        model_file.write(imported, path)
        return path

    def layout(path: Path) -> tuple[str, list[str]]:
        flow = Bundle.read(path).manifest.flow
        return flow.layout_digest, [variable.name for variable in flow.state]

    running, narrow, kept = (tmp_path / f"{name}.wirewise" for name in ("running", "narrow", "kept"))
    again = ("--keep-state-of", running)
    for path, which, options in ((running, (0, 1), ()), (narrow, (1,), ()), (kept, (1,), again)):
        done = run("compile", model(*which), "-f", features, "-o", path, "--no-verify", *options)
        assert done.code == 0, done.err
    assert layout(kept) == layout(running) != layout(narrow)
    assert layout(narrow)[1] == ["max_length"]
    rebuilt = run("inspect", kept, "--rebuild")
    assert rebuilt.code == 0, rebuilt.err
    refused(
        run("compile", model(0), "-f", features, "-o", kept, "--no-verify", "--keep-state-of", narrow),
        "no state for sum_length", "--reset-flows",
    )  # fmt: skip


def test_captures_that_are_left_out_are_a_short_table(run: Run, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "a.pcap").write_bytes((made / "a.pcap").read_bytes())
    kinds = [("a", "ETHERNET", "benign"), *((f"odd{n}", "ETHERNET", "odd") for n in range(1200))]
    entries = [
        {"path": f"{name}.pcap", "link_type": link, "packets": 1, "class": "x", "label": label}
        for name, link, label in (*kinds, ("s", "SLIP", "attack"))
    ]
    (folder / "manifest.json").write_text(json.dumps(entries))
    said = run("features", folder, "-f", "hara2026")
    head, *rows = said.err.splitlines()[:3]
    assert re.fullmatch(r"captures left out +reason +for example", head)
    assert [row.split() for row in rows] == [
        ["1,200", "marked", "as", "odd", "odd0.pcap"],
        ["1", "link", "type", "SLIP", "s.pcap"],
    ]
    assert "odd1.pcap" not in said.err + said.out
    found = run("features", folder, "-f", "hara2026", "--json").json["captures_left_out"]
    assert found == [
        {"reason": "marked as odd", "captures": 1200, "example": "odd0.pcap"},
        {"reason": "link type SLIP", "captures": 1, "example": "s.pcap"},
    ]
    with pytest.warns(
        UserWarning, match=r"1,201 captures left out: 1,200 marked as odd \(such as odd0.pcap\), 1"
    ):
        wirewise.features(folder, "hara2026")
