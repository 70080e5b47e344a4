# SPDX-License-Identifier: Apache-2.0
"""The functions at the top of the package, from captures to verdicts, as a scikit-learn user calls them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wirewise as ww
from tests import needs
from wirewise.datasets import read_ethernet, write_capture
from wirewise.errors import InputError, MissingFeatureError, WirewiseError
from wirewise.traffic import generate

pytestmark = pytest.mark.xdist_group("api")

ROOT = Path(__file__).parents[2]
LABELS = {
    "version": 1,
    "rules": [
        {"label": "attack", "proto": "tcp", "flags": "S"},
        {"label": "attack", "proto": "udp", "sport": [53, 123]},
    ],
    "otherwise": "benign",
}
POLICY = {"version": 1, "classes": {"attack": "drop"}, "allow": {"ports": [22]}}
NAMES = ww.PRESETS["hara2026"].feature_names


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("api")
    traffic = generate(seed=1, duration_s=4, packets=3000)
    write_capture(made / "a.pcap", ((packet.time_ns, packet.frame) for packet in traffic))
    return made


@pytest.fixture(scope="module")
def table(folder: Path) -> pl.DataFrame:
    return ww.features(folder / "a.pcap", "hara2026", LABELS)


@pytest.fixture(scope="module")
def compiled(table: pl.DataFrame) -> ww.Compiled:
    forest = RandomForestClassifier(5, max_depth=6, random_state=0).fit(table[NAMES], table["label"])
    return ww.compile(forest, "hara2026", table=table, verify="never")


# -- features


def test_features_are_a_frame_to_fit_on(table: pl.DataFrame) -> None:
    assert len(table) > 3000 and set(table["label"]) == {"attack", "benign"}
    assert all(table[name].dtype == pl.Int64 and not table[name].null_count() for name in NAMES)


def test_features_of_pandas_and_polars_are_the_same(folder: Path, table: pl.DataFrame) -> None:
    needs.package("pandas"), needs.package("pyarrow")
    frame = ww.features(str(folder), ww.PRESETS["hara2026"], LABELS, frame="pandas")
    assert {str(frame[name].dtype) for name in NAMES} == {"int64"}
    assert pl.from_pandas(frame).equals(table)


def test_packets_that_were_not_classified_are_left_out(tmp_path: Path) -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    write_capture(tmp_path / "arp.pcap", [(0, arp)])
    assert len(ww.features(tmp_path / "arp.pcap", "hara2026")) == 0
    everything = ww.features([tmp_path / "arp.pcap"], "hara2026", unclassified=True)
    assert everything["status"].to_list() == [1] and everything["max_length"].null_count() == 1


def test_rows_of_some_packets_of_a_flow(folder: Path, table: pl.DataFrame) -> None:
    first = ww.features(folder / "a.pcap", "hara2026", at=[1])
    assert 0 < len(first) < len(table) and set(first["label"]) == {""}
    with pytest.raises(InputError, match="choose one"):
        ww.features(folder / "a.pcap", "hara2026", at=[1], at_end=True)


def test_a_capture_that_breaks_off_is_a_warning_on_request(folder: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((folder / "a.pcap").read_bytes()[:-5])
    with pytest.raises(WirewiseError, match=r"cut\.pcap"):
        ww.features(cut, "hara2026")
    with pytest.warns(UserWarning, match=r"cut\.pcap"):
        assert len(ww.features(cut, "hara2026", keep_going=True)) > 3000


def test_wrong_features(folder: Path) -> None:
    for captures, said in (([], "no capture"), (folder / "no.pcap", "does not exist")):
        with pytest.raises(InputError, match=said):
            ww.features(captures, "hara2026")
    with pytest.raises(InputError, match="hara2026"):
        ww.features(folder / "a.pcap", "hara")
    with pytest.raises(InputError, match="frame 'arrow': is not known"):
        ww.features(folder / "a.pcap", "hara2026", frame="arrow")  # type: ignore[call-overload]


# -- models


def test_an_estimator_becomes_a_bundle(compiled: ww.Compiled, table: pl.DataFrame) -> None:
    bundle = compiled.bundle
    assert bundle.classes == ["benign", "attack"] and bundle.feature_set.name == "hara2026"
    fidelity = bundle.manifest.fidelity
    assert fidelity and fidelity["agree"] == fidelity["rows"] == len(table)
    assert fidelity["held_out"]["packets"] > 100


def test_a_margin_needs_no_other_order_of_labels(table: pl.DataFrame) -> None:
    """scikit-learn makes `attack` class 0, and a margin is what other classes are ahead of class 0."""
    forest = RandomForestClassifier(5, max_depth=6, random_state=0).fit(table[NAMES], table["label"])
    assert forest.classes_.tolist() == ["attack", "benign"]
    bundle = ww.compile(forest, "hara2026", table=table, max_benign_loss=0.01, verify="never").bundle
    fidelity = bundle.manifest.fidelity
    assert (
        fidelity
        and fidelity["operating_point"]["loss"] <= 0.01
        and fidelity["operating_point"]["recall"] > 0.5
    )
    assert fidelity["agree"] == fidelity["rows"]
    assert [
        note for note in bundle.manifest.model.notes if note.startswith("class 0 is benign, class 1 of the")
    ]


def test_columns_in_floating_point_make_the_same_bundle(compiled: ww.Compiled, table: pl.DataFrame) -> None:
    floats = table.with_columns(pl.col(NAMES).cast(pl.Float64))
    forest = RandomForestClassifier(5, max_depth=6, random_state=0).fit(floats[NAMES], floats["label"])
    same = ww.compile(forest, "hara2026", table=floats, verify="never")
    assert same.bundle.model.digest == compiled.bundle.model.digest
    assert same.bundle.manifest.fidelity == compiled.bundle.manifest.fidelity
    scaled = floats.with_columns(pl.col("mean_iat") / 65536)
    with pytest.raises(InputError, match=r"column 'mean_iat', row \d+: is .* no whole number"):
        ww.compile(forest, "hara2026", table=scaled, verify="never")


def test_pandas_all_the_way(folder: Path) -> None:
    needs.package("pandas"), needs.package("pyarrow")
    frame = ww.features(folder / "a.pcap", "hara2026", LABELS, frame="pandas")
    training = ww.train(frame, RandomForestClassifier(3, max_depth=4), feature_set="hara2026")
    assert set(training.estimator.predict(frame[NAMES])) <= {"attack", "benign"}
    compiled = ww.compile(training.estimator, "hara2026", table=frame, verify="never")
    verdicts = ww.replay(folder / "a.pcap", compiled, POLICY, frame="pandas")
    assert verdicts["passed"].all() and len(verdicts) == len(frame)


def test_a_training_is_compiled_as_it_is(table: pl.DataFrame) -> None:
    training = ww.train(table, "tree", feature_set="hara2026", depth=5)
    manifest = ww.compile(training, verify="never").bundle.manifest
    assert manifest.classes == training.classes == ["benign", "attack"]
    assert manifest.accuracy == training.report.to_dict()
    assert manifest.training == training.facts and manifest.training["split"] == "by flow"
    # The rows that are held out are those that training kept apart.
    assert manifest.fidelity and manifest.fidelity["held_out"]["packets"] == len(training.split.test)
    assert manifest.fidelity["held_out"]["estimator"] == training.report.to_dict() | {}


def test_what_a_training_learned_from_is_not_judged(table: pl.DataFrame) -> None:
    training = ww.train(table, "tree", feature_set="hara2026", depth=5)
    own = ww.judge(ww.compile(training, verify="never"), table)
    assert own.about.how.endswith("it has learned from none of them")
    assert own.packets.packets == len(training.split.test)
    again = ww.train(table, "tree", feature_set="hara2026", depth=5, refit=True)
    every = ww.judge(ww.compile(again, verify="never"), table)
    assert every.about.how.endswith("it was trained on them") and every.packets.packets == len(table)


def test_a_feature_set_is_written_as_it_is_read(table: pl.DataFrame) -> None:
    short = ww.FeatureSet("x", ["length", "mean(iat)"])
    assert short == ww.FeatureSet.from_dict({"name": "x", "features": ["length", "mean(iat)"]})
    assert ww.FeatureSet("x", list(short.features)) == short
    tree = RandomForestClassifier(1, max_depth=1).fit(table[NAMES[:2]], table["label"])
    named = ww.FeatureSet("two", [f.spec for f in ww.PRESETS["hara2026"].features[:2]])
    assert ww.compile(tree, named, verify="never").bundle.feature_set == named
    with pytest.raises(InputError, match=r"feature set 'x': features is of type str; give a list such as"):
        ww.FeatureSet("x", "length")
    with pytest.raises(InputError, match="no packet field 'lenght'"):
        ww.FeatureSet("x", ["lenght"])


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ww.__file__).parent / "py.typed").is_file()


def test_a_search_and_a_network(table: pl.DataFrame) -> None:
    search = GridSearchCV(RandomForestClassifier(3, random_state=0), {"max_depth": [3]}, cv=2)
    search.fit(table[NAMES], table["label"])
    manifest = ww.compile(search, "hara2026", verify="never").bundle.manifest
    assert manifest.model.notes[0] == "the best_estimator_ of GridSearchCV was taken: max_depth=3"
    network = ww.train(table, "mlp", feature_set="hara2026", hidden=[4])
    assert ww.compile(network, verify="never").bundle.model.family == "int8-mlp"
    with pytest.raises(InputError, match="no rows were given"):
        ww.compile(network.estimator, "hara2026", verify="never")


def test_models_from_files(table: pl.DataFrame, tmp_path: Path) -> None:
    import pickle

    forest = RandomForestClassifier(3, max_depth=3).fit(table[NAMES], table["label"])
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(forest))
    by_path = ww.compile(tmp_path / "m.pkl", "hara2026", verify="never").bundle
    by_model = ww.compile(by_path.model, "hara2026", classes=by_path.classes, verify="never").bundle
    assert by_model.model.digest == by_path.model.digest


def test_what_compile_must_be_told(table: pl.DataFrame) -> None:
    forest = RandomForestClassifier(2, max_depth=2).fit(table[NAMES], table["label"])
    with pytest.raises(InputError, match="the feature set: was not given"):
        ww.compile(forest)
    with pytest.raises(InputError, match="data frame, which does not say its feature set"):
        ww.train(table)
    with pytest.raises(InputError, match="of type list, which is no data frame"):
        ww.train([[1]], feature_set="hara2026")
    with pytest.raises(InputError, match="feature set 'hara2026', not 'hara2023'"):
        ww.train(ww.Table.of(table, ww.PRESETS["hara2026"]), feature_set="hara2023")
    with pytest.raises(InputError, match="has no column 'flow'"):
        ww.train(table.drop("flow"), feature_set="hara2026")
    with pytest.raises(InputError, match="feature 0 is 'source_port', the model was trained on 'max_length'"):
        ww.compile(forest, "hara2023", verify="never")
    with pytest.raises(InputError, match="option 'verfy': is none of target ebpf"):
        ww.compile(forest, "hara2026", verfy="never")


@pytest.mark.parametrize(
    "last",
    [LogisticRegression(max_iter=2000), RandomForestClassifier(5, max_depth=6, random_state=0)],
    ids=str,
)
def test_a_pipeline_with_a_scaler_gives_the_estimators_verdicts(
    folder: Path, table: pl.DataFrame, last: Any
) -> None:
    pipeline = make_pipeline(StandardScaler(), last).fit(table[NAMES], table["label"])
    compiled = ww.compile(pipeline, "hara2026", table=table)
    fidelity = compiled.bundle.manifest.fidelity
    assert fidelity and fidelity["agree"] >= 0.999 * fidelity["rows"]
    verdicts = ww.replay(folder / "a.pcap", compiled, seed=1)
    said = table.with_columns(said=pl.Series(pipeline.predict(table[NAMES]), dtype=pl.String))
    joined = verdicts.join(said.select("packet", "said"), on="packet")
    assert len(joined) == len(table) and (joined["class"] == joined["said"]).mean() >= 0.999


# -- replay and explain


def test_verdicts_are_a_frame(
    folder: Path, compiled: ww.Compiled, table: pl.DataFrame, tmp_path: Path
) -> None:
    verdicts = ww.replay(
        folder / "a.pcap", compiled, POLICY, mode="enforce", dropped=tmp_path / "dropped.pcap", seed=1
    )
    assert len(verdicts) == len(table)
    joined = verdicts.join(table.select("packet", "label"), on="packet")
    assert (joined["class"] == joined["label"]).mean() > 0.9
    dropped = verdicts.filter(~pl.col("passed"))
    assert set(dropped["class"]) == {"attack"}
    assert len(list(read_ethernet(tmp_path / "dropped.pcap"))) == len(dropped)
    # From a file, with a policy from a file.
    compiled.write(tmp_path / "m.wirewise")
    (tmp_path / "policy.yaml").write_text("{version: 1, classes: {attack: drop}, allow: {ports: [22]}}")
    again = ww.replay(
        [folder / "a.pcap"], tmp_path / "m.wirewise", tmp_path / "policy.yaml", mode="enforce", seed=1
    )
    assert again.equals(verdicts)


def test_verdicts_of_flows(folder: Path, compiled: ww.Compiled) -> None:
    flows = ww.replay(folder / "a.pcap", compiled.bundle, per="flow")
    assert {"first_ns", "packets", "end"} <= set(flows.columns)


def test_wrong_replays(folder: Path, compiled: ww.Compiled) -> None:
    with pytest.raises(WirewiseError, match="mode"):
        ww.replay(folder / "a.pcap", compiled, mode="drop")
    with pytest.raises(InputError, match="bundle of type int"):
        ww.replay(folder / "a.pcap", 3)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="attak"):
        ww.replay(folder / "a.pcap", compiled, {"version": 1, "classes": {"attak": "drop"}})


def test_a_packet_is_explained(folder: Path, compiled: ww.Compiled) -> None:
    verdicts = ww.replay(folder / "a.pcap", compiled, POLICY, mode="enforce", seed=0)
    for packet in (1, 1500):
        found = ww.explain(folder / "a.pcap", packet, compiled, POLICY, mode="enforce", plane="engine")
        assert found.agree is True and found.differences == []
        assert found.reference["class"] == verdicts["class"][packet - 1]
        assert found.reference["passed"] == verdicts["passed"][packet - 1]
        assert found.to_dict()["packet"] == packet and f"packet {packet:,}" in repr(found)
        assert "max_length" in found._repr_html_()
    alone = ww.explain(folder / "a.pcap", 1, compiled, reference_only=True)
    assert alone.object is None and alone.agree is None
    for packet, said in ((0, "count from 1"), (10**6, "has no packet")):
        with pytest.raises(InputError, match=said):
            ww.explain(folder / "a.pcap", packet, compiled)


@pytest.mark.slow
def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "notebook.py"))
    said = capsys.readouterr().out
    assert "program and reference agree" in said and "rows agree" in said


# -- cost


def test_cost_by_instructions(compiled: ww.Compiled) -> None:
    found = ww.cost(compiled, measure=False)
    assert found.ns is None and all(stage.instructions > 0 for stage in found.stages)
    assert sum(stage.instructions for stage in found.stages) == compiled.bundle.manifest.program.instructions


@needs.root
def test_cost_by_time(compiled: ww.Compiled, tmp_path: Path) -> None:
    found = ww.cost(compiled, measure=True)
    assert found.ns is not None and 5 < found.ns < 100_000
    features = found.stages[1].ns
    assert features is not None and features > 0  # the clock alone costs more than the noise
    assert "ns" in repr(found)


@needs.root
def test_cost_without_the_privilege(compiled: ww.Compiled, tmp_path: Path) -> None:
    compiled.write(tmp_path / "m.wirewise")
    code = (
        "import sys, wirewise; found = wirewise.cost(sys.argv[1]); print(found.ns, found.measured);"
        "wirewise.cost(sys.argv[1], measure=True)"
    )
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    done = subprocess.run(
        [*command, str(tmp_path / "m.wirewise")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.stdout.startswith("None instructions") and "CAP_" in done.stdout
    assert MissingFeatureError.__name__ in done.stderr


# -- judge


def test_a_bundle_is_judged_and_a_page_written(
    table: pl.DataFrame, compiled: ww.Compiled, tmp_path: Path
) -> None:
    found = ww.judge(compiled, table)
    assert found.packets.packets == len(table) and found.about.origin == "unknown"
    assert found.cost is not None and found.cost.instructions > 100 and found.cost.ns is None
    assert "Evaluation of model" in repr(found) and found.verdict.decision in repr(found)
    assert found.verdict.sentence.split(":")[0] in found._repr_html_()
    ww.write_report(tmp_path / "r.html", found, found)
    assert "The best of 2 models" in (tmp_path / "r.html").read_text()
    with pytest.raises(InputError, match="must end in"):
        ww.write_report(tmp_path / "r.png", found)
    with pytest.raises(InputError, match="are those it was trained on"):
        ww.judge(compiled, table, trained_on=table)
    with pytest.raises(InputError, match="or leave out trained_on to use them anyway"):
        ww.judge(compiled, table, trained_on=table)
    trained = ww.train(table, "tree", feature_set="hara2026", depth=4)
    own = ww.judge(ww.compile(trained, "hara2026", verify="never"), table, trained_on=trained)
    assert own.about.origin == "kept apart" and own.packets == trained.report
    assert own.unseen.ranges is not None
