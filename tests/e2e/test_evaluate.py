# SPDX-License-Identifier: Apache-2.0
"""`wirewise evaluate` on captures, through the bundle's own program, and what it says to bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import needs
from tests.multiplicity import first
from wirewise import agent
from wirewise.abi import Action
from wirewise.cli import app
from wirewise.datasets import write_capture
from wirewise.errors import InputError
from wirewise.evaluate import evasion
from wirewise.policy import Policy
from wirewise.traffic import generate

pytestmark = pytest.mark.xdist_group("evaluate")

LABELS = """
version: 1
rules:
  - {label: attack, proto: tcp, flags: S}
  - {label: attack, proto: udp, sport: [53, 123, 1900, 11211]}
  - {label: benign/quic, proto: udp}
otherwise: benign
"""


def run(*arguments: object) -> Any:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


def evaluate(*arguments: object) -> Any:
    return json.loads(run("evaluate", *arguments, "--json").output)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four captures, a table of them, an estimator and a bundle."""
    folder = tmp_path_factory.mktemp("evaluate")
    for seed in range(4):
        traffic = generate(seed=seed, duration_s=3, packets=1200)
        write_capture(folder / f"{seed}.pcap", ((packet.time_ns, packet.frame) for packet in traffic))
    (folder / "labels.yaml").write_text(LABELS)
    table = folder / "t.parquet"
    run("features", *captures(folder), "-f", "hara2026", "-l", folder / "labels.yaml", "-o", table)
    run("train", table, "--trees", 3, "--depth", 4, "--folds", 0, "-o", folder / "m.pkl")
    run("compile", folder / "m.pkl", "--table", table, "-o", folder / "m.wirewise", "--no-verify")
    return folder


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("?.pcap"))


def test_a_class_that_has_no_score_is_judged_too(made: Path) -> None:
    """`unknown` is one class more than the model has scores."""
    bundle, table = made / "open.wirewise", made / "t.parquet"
    run("compile", made / "m.pkl", "--table", table, "-o", bundle, "--no-verify", "--unknown")
    on_rows = evaluate(bundle, table, "--all-rows")
    on_packets = evaluate(bundle, *captures(made), "-l", made / "labels.yaml")
    assert on_rows["classes"][-1]["name"] == "unknown" and on_rows["packets"] > 4000
    assert on_rows["confusion"] == on_packets["confusion"]
    assert run("evaluate", bundle, table, "--report", made / "open.html").exit_code == 0
    assert evaluate(made / "m.pkl", table)["packets"] > 1000


def test_packets_that_have_no_flow_count_as_none(tmp_path: Path) -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    (packet, *_) = generate(seed=1, duration_s=1, packets=10)
    write_capture(tmp_path / "arp.pcap", [(10**9, arp), (2 * 10**9, arp)])
    write_capture(tmp_path / "both.pcap", [(10**9, arp), (2 * 10**9, packet.frame)])
    flows = {
        name: json.loads(run("features", tmp_path / f"{name}.pcap", "-f", "hara2026", "--json").output)[
            "flows"
        ]
        for name in ("arp", "both")
    }
    assert flows == {"arp": 0, "both": 1}


@pytest.mark.parametrize("plane", ["engine", pytest.param("kernel", marks=needs.root)])
def test_the_program_says_what_the_integers_say(made: Path, plane: str) -> None:
    bundle = made / "m.wirewise"
    options = ["--kernel"] if plane == "kernel" else []
    real = evaluate(bundle, *captures(made), "-l", made / "labels.yaml", *options)
    integers = evaluate(bundle, made / "t.parquet", "--all-rows")
    assert (real["about"]["plane"], integers["about"]["plane"]) == (plane, "reference")
    assert real["confusion"] == integers["confusion"] and real["packets"] > 4000
    for name in ("classes", "attack", "by_packet", "by_period", "curves", "losses", "applications"):
        assert real["flows"][name] == integers["flows"][name]
    assert "wirewise cannot know" in real["verdict"]["but"]
    assert real["drift"] == integers["drift"] and real["drift"]["level"] == "like-training"
    assert len(real["drift"]["features"]) > 3 and real["drift"]["flows"] > 100
    assert {one["application"] for one in real["flows"]["applications"]} == {"quic", "(not named)"}


@pytest.mark.parametrize("flows", first([1, 3]))
def test_what_attackers_have_to_change_is_told_by_label_and_flow(
    made: Path, monkeypatch: pytest.MonkeyPatch, flows: int
) -> None:
    judged = (made / "m.wirewise", captures(made)[0], "-l", made / "labels.yaml")
    report = made / "evasion.html"
    found: list[evasion.Evasions] = []
    search = evasion.evasions

    def kept(*args: Any, **named: Any) -> evasion.Evasions:
        found.append(search(*args, **named))
        return found[0]

    monkeypatch.setattr(evasion, "evasions", kept)
    said = evaluate(*judged, "--evasion", "--evasion-flows", flows, "--report", report)["evasion"]
    families = {(one["family"], one["change"]): one for one in said["families"]}
    assert {change for _, change in families} == {"padding", "pace", "splitting", "extra"}
    assert all(one["flows"] == flows and 0 <= one["evaded"] <= flows for one in families.values())
    assert len(said["flows"]) == flows * len(families) and said["left_out"] == {}
    # As text it is the same, without a second search.
    monkeypatch.setattr(evasion, "evasions", lambda *args, **named: found[0])
    for text in (run("evaluate", *judged, "--evasion").output, report.read_text()):
        assert "What attackers have to change to be found no more at packet 5" in text
    assert evaluate(*judged)["evasion"] is None


def test_what_was_learned_from_is_left_out_where_it_is_known(made: Path) -> None:
    bundle, table = made / "m.wirewise", made / "t.parquet"
    kept = evaluate(bundle, table)
    labels = ("-l", made / "labels.yaml")
    real = evaluate(bundle, *captures(made), *labels, "--trained-on", table)
    assert real["confusion"] == kept["confusion"] and real["about"]["origin"] == "kept apart"
    assert real["left_out"]["to learn from or quantise with"] > 0
    assert real["unseen"]["ranges"] and kept["unseen"]["ranges"] == real["unseen"]["ranges"]
    one = captures(made)[0]
    learned = [str(path) for path in captures(made) if str(path) not in kept_captures(made, kept)]
    assert learned
    with pytest.raises(InputError, match="are those it was trained on"):
        refuse(bundle, learned[0], *labels, "--trained-on", table)
    other = made / "other.parquet"
    run("features", one, "-f", "hara2026", *labels, "-o", other)
    with pytest.raises(InputError, match="is not the table that the model was trained on"):
        refuse(bundle, *captures(made), *labels, "--trained-on", other)


def kept_captures(made: Path, kept: dict[str, Any]) -> set[str]:
    """The captures that training kept apart."""
    from wirewise.datasets import Table
    from wirewise.evaluate.held_out import parts
    from wirewise.formats import training_file

    table = made / "t.parquet"
    record = training_file.read(made / "m.pkl")
    assert record is not None
    digest = training_file.file_digest(table)
    split = parts(Table.read(table), record.training, digest=digest, name="t")
    found = set(split.test.frame["capture"].to_list())
    assert len(found) == kept["about"]["captures"]
    return found


def test_the_text_says_what_to_do_first(made: Path) -> None:
    text = run("evaluate", made / "m.wirewise", made / "t.parquet", "--max-benign-loss", "50%").output
    assert text.startswith(("Enforce for ", "Observe only: ", "Do not use it"))
    parts = ("By observation period", "Benign flows that lose a packet, by application", "may drop packets",
             "What it has never seen", "all thresholds", "at most 50 %")  # fmt: skip
    for part in parts:
        assert part in text
    several = run("evaluate", made / "m.wirewise", made / "m.pkl", made / "t.parquet").output
    assert "ns/packet" in several and several.count("m.") >= 2 and "What it has never seen" not in several


def test_inspect_names_the_report_of_the_very_model(made: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.wirewise"
    bundle.write_bytes((made / "m.wirewise").read_bytes())
    assert f"--report {tmp_path}/b.html" in run("inspect", bundle).output
    said = evaluate(bundle, made / "t.parquet", "--report", tmp_path / "b.html")
    assert json.loads((tmp_path / "b.json").read_text()) == said
    decision = said["verdict"]["decision"]
    assert f"b.html: {decision}" in run("inspect", bundle).output
    assert json.loads(run("inspect", bundle, "--json").output)["report"]["decision"] == decision
    for other in ('{"about": {"model_digest": "0"}}', "[]", "no JSON", "\xff"):
        (tmp_path / "b.json").write_text(other, encoding="latin-1")
        assert "none yet" in run("inspect", bundle).output


def test_the_policy_drops_what_may_be_dropped(made: Path, tmp_path: Path) -> None:
    """And the agent and the toolkit read it."""
    bundle, policy = made / "m.wirewise", tmp_path / "p.yaml"
    options = ("--max-benign-loss", "90%", "--min-recall", "0.01", "--policy", policy)
    said = evaluate(bundle, *captures(made), "-l", made / "labels.yaml", *options)
    may = said["verdict"]["may_drop"]
    read = Policy.load(policy, ["benign", "attack"])
    assert read.actions[1].action == (Action.DROP if may else Action.COUNT)
    assert said["verdict"]["decision"] == "enforce" and may == ["attack"]
    counts = agent.call("replay", captures(made)[0], "--bundle", bundle, "--policy", policy)
    assert counts["packets"] > 1000
    said = evaluate(bundle, made / "t.parquet", "--at", "every", "--policy", policy)
    assert said["flows"]["at"] == "any packet" and not said["verdict"]["may_drop"]
    assert Policy.load(policy, ["benign", "attack"]).actions[1].action == Action.COUNT


def test_moments_change_what_is_found(made: Path) -> None:
    found = {
        at: evaluate(made / "m.wirewise", made / "t.parquet", "--at", at, "--all-rows")
        for at in ("1", "5", "1,5", "10s", "every")
    }
    recall = {at: one["verdict"]["families"][0]["recall"] for at, one in found.items()}
    assert max(recall["1"], recall["5"]) <= recall["1,5"] <= recall["every"]
    assert {one["verdict"]["losing"] for one in found.values()} == {found["5"]["verdict"]["losing"]}
    for at in ("1", "5"):
        family = found[at]["verdict"]["families"][0]
        assert family["recall"] == pytest.approx(family["by_packet"][at])


def test_a_table_of_other_features_is_named(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    run("features", captures(made)[0], "-f", "flood", "-l", made / "labels.yaml", "-o", other)
    for verb in (
        ["evaluate", made / "m.pkl", other],
        ["compile", made / "m.pkl", "-t", other, "-o", other.with_suffix(".wirewise")],
    ):
        done = CliRunner().invoke(app, [str(argument) for argument in verb])
        assert isinstance(done.exception, InputError)
        assert "its features are not those m.pkl reads, of 'hara2026'" in str(done.exception)


def test_errors_are_json_where_json_is_asked_for(made: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "wirewise",
        "evaluate",
        str(made / "none.wirewise"),
        str(made / "t.parquet"),
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    said = json.loads(done.stderr)["error"]
    assert "none.wirewise: does not exist" in said["message"] and said["exit_code"] == done.returncode == 2
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.startswith("error: ")


def refuse(*arguments: object) -> None:
    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert done.exception is not None
    raise done.exception


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["m.wirewise", "0.pcap"], "have no labels; say what each packet is: --labels"),
        (["m.pkl", "0.pcap", "-l", "labels.yaml"], "is no bundle, and only the program"),
        (["m.wirewise", "t.parquet", "--kernel"], "--kernel: is for captures"),
        (["m.wirewise", "t.parquet", "-l", "labels.yaml"], "--labels: is for captures"),
        (["m.wirewise", "t.parquet", "--evasion"], "--evasion: is for captures"),
        (["m.wirewise", "t.parquet", "t.parquet"], "stands behind the table"),
        (["m.wirewise", "0.pcap", "m.pkl"], "stands behind the data"),
        (["t.parquet"], "no model was given"),
        (["m.wirewise"], "no model was given"),
        (["m.wirewise", "none.parquet"], "none.parquet: does not exist"),
        (["m.wirewise", "none"], "none: does not exist"),
        (["none.wirewise", "t.parquet"], "none.wirewise: does not exist"),
        (["m.wirewise", "t.parquet", "--report", "r.txt"], "must end in .html"),
        (["m.wirewise", "t.parquet", "--report", "nowhere/r.html"], "the folder"),
        (["m.wirewise", "t.parquet", "--min-recall", "0"], "must be above 0"),
        (["m.wirewise", "t.parquet", "--at", "5,soon"], "is not a duration"),
        (["m.wirewise", "m.pkl", "t.parquet", "--policy", "p.yaml"], "is the policy of one model"),
        (["m.wirewise", "t.parquet", "--max-benign-loss", "much"], "is no share"),
        (["m.wirewise", "t.parquet", "--applications", "."], "manifest.json"),
        (["m.pkl", "t.parquet", "--measure"], "--measure: is for bundles"),
        (["m.wirewise", "broken.pcap", "-l", "labels.yaml", "--report", "r.html"], "broken.pcap"),
    ],
)
def test_bad_input_is_named(
    made: Path, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    Path("broken.pcap").write_bytes(Path("0.pcap").read_bytes()[:-7])
    before = sorted(Path().iterdir())
    with pytest.raises(InputError, match=says):
        refuse(*arguments)
    assert sorted(Path().iterdir()) == before, "nothing is left behind"
