# SPDX-License-Identifier: Apache-2.0
"""The band of unsure scores where it is known, what it is worth to ask about them, and who is denied."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from tests.examples import examples
from wirewise.compiler import compile
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.moments import At
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.second.band import Band, choose
from wirewise.second.calibration import calibrate
from wirewise.second.live import Answer, Place, Second
from wirewise.second.models import Pair

FEATURES = FeatureSet("lengths", ["length", "ttl"])
SHORT, LONG = 100, 200
"""Lengths below which a flow is surely benign, and from which surely an attack; in between ttl tells."""


def small() -> TreeEnsemble:
    """-100, 7 and 100; -2 in place of 7 where ttl is above 50."""
    tree = Tree(
        feature=(0, LEAF, 0, 1, LEAF, LEAF, LEAF),
        threshold=(SHORT - 1, 0, LONG - 1, 50, 0, 0, 0),
        left=(1, LEAF, 3, 4, LEAF, LEAF, LEAF),
        right=(2, LEAF, 6, 5, LEAF, LEAF, LEAF),
        value=((), (-100,), (), (), (7,), (-2,), (100,)),
        output=None,
    )
    return TreeEnsemble(2, 2, "sum", (tree,), 1, (0,))


def flows(count: int, seed: int = 0) -> pl.DataFrame:
    """A packet each. One in ten is between SHORT and LONG, and there the small model is always wrong."""
    rng = np.random.default_rng(seed)
    kind = np.arange(count) % 20
    length = np.where(kind < 9, rng.integers(40, SHORT, count), rng.integers(LONG, 1500, count))
    length = np.where(kind >= 18, rng.integers(SHORT, LONG, count), length)
    ttl = np.where(kind == 18, 60, np.where(kind == 19, 40, rng.integers(1, 255, count)))
    attack = ((kind >= 9) & (kind < 18)) | (kind == 18)
    names = [f"flow {number}" for number in range(count)]
    return pl.DataFrame({"flow": names, "length": length, "ttl": ttl}).with_columns(
        capture=pl.Series([f"{number % 39}.pcap" for number in range(count)]),
        label=pl.Series(np.where(attack, "attack", "benign")),
        time_ns=pl.int_range(pl.len()),
        packet=pl.lit(1, pl.Int64),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("second")
    made = compile(small(), FEATURES, name="small", classes=["benign", "attack"], verify="never")
    made.bundle.write(folder / "small.wirewise")
    learned = flows(2000, seed=1)
    tree = DecisionTreeClassifier(random_state=0)
    big = CalibratedClassifierCV(tree, cv=3).fit(learned["length", "ttl"].to_numpy(), learned["label"])
    joblib.dump(big, folder / "big.joblib")
    return folder


@pytest.fixture(scope="module")
def pair(folder: Path) -> Pair:
    return Pair.read(folder / "small.wirewise", folder / "big.joblib")


@examples(200)
@given(
    st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([0.05, 0.2, 0.5, 0.99]),
)
def test_no_band_of_as_many_flows_has_more_errors(given: list[tuple[int, bool]], share: float) -> None:
    ahead = np.array([score for score, _ in given])
    wrong = np.array([error for _, error in given])
    room = int(share * len(given))
    bands = [Band(low, high) for low in range(-6, 7) for high in range(low, 7)]
    fitting = [band for band in bands if band.holds(ahead).sum() <= room]
    most = max((int(wrong[band.holds(ahead)].sum()) for band in fitting), default=0)
    if not most:
        with pytest.raises(InputError, match=r"errs on none|each score at which"):
            choose(ahead, wrong, share)
        return
    chosen = choose(ahead, wrong, share)
    held = chosen.holds(ahead)
    assert held.sum() <= room and wrong[held].sum() == most
    assert held.sum() == min(
        band.holds(ahead).sum() for band in fitting if wrong[band.holds(ahead)].sum() == most
    )


def test_a_band_is_read_as_it_is_written() -> None:
    assert Band.parse(str(Band(-20, 10))) == Band(-20, 10)
    for text in ("5", "5:", "10:-20", "a:b", "1:2:3", "9" * 30 + ":1"):
        with pytest.raises(InputError, match="write LOW:HIGH"):
            Band.parse(text)


def calibrated(pair: Pair, path: Path, **more: Any) -> Any:
    Table.of(flows(1000), FEATURES).write(path)
    given = {"share": 0.12, "at": At.parse("5"), "at_least": 0.9} | more
    return calibrate(pair, Table.read(path), path, **given)


def test_the_band_is_where_the_small_model_errs_and_the_big_one_mends_it(pair: Pair, tmp_path: Path) -> None:
    found = calibrated(pair, tmp_path / "table.parquet")
    assert found.band == Band(-2, 7)
    assert (found.chosen_by + found.tried_on, found.caught) == (1000, 1.0)
    assert found.unsure == pytest.approx(0.1, abs=0.03)
    assert found.small.accuracy == pytest.approx(0.9, abs=0.03)
    assert (found.both.accuracy, found.both.found, found.both.flagged) == (1.0, 1.0, 0.0)
    assert "cannot know whether big.joblib was trained on these flows" in found.warnings[0]
    # Half of it: one of the two scores.
    assert calibrated(pair, tmp_path / "half.parquet", share=0.06).band in (Band(-2, -2), Band(7, 7))


def test_what_cannot_be_calibrated_is_refused(pair: Pair, tmp_path: Path) -> None:
    for more, why in (
        ({"share": 0.01}, "each score at which the model errs has"),
        ({"at": At.parse("5,30")}, "give one moment"),
        ({"at": At.parse("every")}, "give one moment"),
    ):
        with pytest.raises(InputError, match=why):
            calibrated(pair, tmp_path / "table.parquet", **more)


def test_models_that_cannot_be_a_pair_are_refused(folder: Path, tmp_path: Path) -> None:
    rows = flows(200)
    bundle = folder / "small.wirewise"

    def refused(estimator: Any, why: str) -> None:
        joblib.dump(estimator, tmp_path / "big.joblib")
        with pytest.raises(InputError, match=why):
            Pair.read(bundle, tmp_path / "big.joblib")

    values, labels = rows["length", "ttl"].to_numpy(), rows["label"].to_list()
    refused(LinearSVC().fit(values, labels), "gives no probabilities")
    refused(DecisionTreeClassifier(), "is not trained")
    refused(DecisionTreeClassifier().fit(values[:, :1], labels), "reads 1 features and does not name them")
    named = DecisionTreeClassifier().fit(values, labels)
    named.feature_names_in_ = np.array(["length", "tos"], object)
    refused(named, "reads 'tos', which small.wirewise does not have")
    with pytest.raises(InputError, match="no suffix of a scikit-learn or ONNX model"):
        Pair.read(bundle, bundle)
    unread = FeatureSet("more", ["length", "ttl", "tos"])
    model = TreeEnsemble(3, 2, "sum", small().trees, 1, (0,))
    made = compile(model, unread, name="more", classes=["benign", "attack"], verify="never")
    made.bundle.write(tmp_path / "more.wirewise")
    joblib.dump(
        DecisionTreeClassifier().fit(np.column_stack([values, values[:, 0]]), labels), tmp_path / "3.joblib"
    )
    with pytest.raises(InputError, match=r"reads tos, .* no event has them; train it on length, ttl"):
        Pair.read(tmp_path / "more.wirewise", tmp_path / "3.joblib")


@dataclass(frozen=True)
class Recorded(Place):
    """A place that remembers who was denied."""

    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    denied: list[str] = field(default_factory=list)

    def running(self, pair: Pair) -> dict[str, Any]:
        return {}

    def allows(self, source: str) -> bool:
        return source in self.allowed

    def deny(self, source: str, time_s: int) -> None:
        if source in self.refused:
            raise InputError(source, "is from where you are logged in")
        self.denied.append(source)


def event(number: int, *, length: int = 150, ttl: int = 60, proven: bool = True) -> dict[str, Any]:
    said: dict[str, Any] = {"class": "benign", "features": {"length": length, "ttl": ttl}}
    said |= {"source": f"192.0.2.{number}"} | ({"proven": True} if proven else {})
    return {"timestamp": "now", "flow_id": number, "src_ip": "198.51.100.1", "wirewise": said}


def fates(answers: list[Answer]) -> list[tuple[str, str]]:
    return [(answer.source.rpartition(".")[2], answer.fate) for answer in answers]


def test_who_is_denied(pair: Pair) -> None:
    now = [0.0]
    place = Recorded("eth0", allowed=("192.0.2.4",), refused=("192.0.2.5",))
    asking = Second(pair, Band(-2, 7), place, per_minute=2, enforce=True, clock=lambda: now[0])
    events = [
        event(1, ttl=40),  # which the big model takes for benign
        event(2, length=50),  # sure
        event(3, proven=False),
        event(4),
        event(5),
        event(6),
        event(6),
        event(7),
        event(8),
    ]
    assert fates(list(asking.answers(events))) == [
        ("1", "passes"), ("3", "unproven"), ("4", "allowed"), ("5", "refused"), ("6", "denied"),
        ("7", "denied"), ("8", "over the rate"),
    ]  # fmt: skip
    assert place.denied == ["192.0.2.6", "192.0.2.7"]
    assert (asking.counts["sure"], asking.counts["denied already"]) == (1, 1)
    now[0] = 60.0
    assert fates(list(asking.answers([event(6), event(8)]))) == [("6", "denied"), ("8", "denied")]
    without = event(9)
    del without["wirewise"]["features"]
    assert list(asking.answers([without])) == []
    assert asking.counts["without features"] == 1


def test_who_observes_or_trusts_addresses(pair: Pair) -> None:
    place = Recorded("eth0")
    asking = Second(pair, Band(-2, 7), place, spoofable=True)
    assert fates(list(asking.answers([event(1, proven=False)]))) == [("1", "would deny")]
    assert place.denied == []
