# SPDX-License-Identifier: Apache-2.0
"""Judging flows: against the obvious loop, and intervals that hold what they should."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.evaluate import intervals
from wirewise.evaluate.moments import At
from wirewise.evaluate.per_flow import DECISIONS, PERIODS, UNNAMED, per_flow

CLASSES = ["benign", "flood", "scan"]

# (capture, flow, class said) of each packet, in order of time; a flow's class follows from its number.
packets = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=80
)


@examples(50)
@given(packets, st.lists(st.integers(0, 90_000), min_size=80, max_size=80))
def test_a_period_is_judged_by_the_last_packet_in_it(
    seen: list[tuple[int, int, int]], steps: list[int]
) -> None:
    times = np.cumsum(steps[: len(seen)]) * 1_000_000
    frame = pl.DataFrame(
        {
            "capture": [f"c{capture}" for capture, _, _ in seen],
            "flow": [f"f{flow}" for _, flow, _ in seen],
            "time_ns": times,
        }
    )
    truth, said = np.array([flow % 3 for _, flow, _ in seen]), np.array([verdict for _, _, verdict in seen])
    flows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for time, (capture, flow, verdict) in zip(times.tolist(), seen, strict=True):
        flows.setdefault((capture, flow), []).append((time, verdict))
    report = per_flow(frame, truth, said, CLASSES)
    assert set(report.by_period) == set(PERIODS)
    for period, decision in report.by_period.items():
        right = 0
        for (_, flow), verdicts in flows.items():
            first = verdicts[0][0]
            last = [verdict for time, verdict in verdicts if time - first <= period * 10**9][-1]
            right += (last > 0) == (flow % 3 > 0)
        assert decision.accuracy == pytest.approx(right / len(flows))


def test_losses_are_told_by_application() -> None:
    frame, truth, said = made(4, 0.8)
    names = ["web" if row % 3 else "dns" for row in range(len(frame))]
    found = per_flow(frame.with_columns(application=pl.Series(names)), truth, said, ["benign", "attack"])
    assert not per_flow(frame, truth, said, ["benign", "attack"]).applications, "none is named"
    for loss in found.applications:
        mine = (truth == 0) & (np.array(names) == loss.application)
        assert (loss.flows, loss.flagged) == (mine.sum(), (mine & (said > 0)).sum())
        assert loss.per_hour == pytest.approx(60 * loss.flagged / 4), "four captures of a minute each"
    assert [loss.share for loss in found.applications] == sorted(
        (loss.share for loss in found.applications), reverse=True
    )
    assert {loss.application for loss in found.applications} == {"web", "dns"}
    some = ["" if name == "dns" else name for name in names]
    found = per_flow(frame.with_columns(application=pl.Series(some)), truth, said, ["benign", "attack"])
    assert {loss.application for loss in found.applications} == {"web", UNNAMED}


def test_intervals_of_classes_hold_their_numbers() -> None:
    frame, truth, said = made(40, 0.9)
    report = per_flow(frame, truth, said, ["benign", "attack", "never"], at=At((1,)))
    assert set(report.class_intervals) == {"benign", "attack"}, "of what is not there nothing is known"
    for row in report.classes.classes[:2]:
        for name in ("precision", "recall", "f1"):
            low, high = report.class_intervals[row.name][name]
            assert low < getattr(row, name) < high < low + 0.1
    # Both are drawn alike, so of two classes they say the same.
    assert report.class_intervals["attack"]["f1"] == pytest.approx(report.intervals["f1"])
    # So they do where a class that no label names finds some of the attacks.
    some = np.where((said == 1) & (np.arange(len(said)) % 3 == 0), 2, said)
    found = per_flow(frame, truth, some, ["benign", "attack", "flood"], at=At((1,)))
    assert found.classes.nameless == ["flood"] and found.class_intervals == report.class_intervals


@examples(100)
@given(packets, st.integers(1, 9))
def test_flows_are_judged_as_a_loop_would(seen: list[tuple[int, int, int]], at: int) -> None:
    frame = pl.DataFrame(
        {
            "capture": [f"c{capture}" for capture, _, _ in seen],
            "flow": [f"f{flow}" for _, flow, _ in seen],
            "time_ns": [1000 * number for number in range(len(seen))],
        }
    )
    truth = np.array([flow % 3 for _, flow, _ in seen])
    said = np.array([verdict for _, _, verdict in seen])
    flows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, (capture, flow, verdict) in enumerate(seen):
        flows.setdefault((capture, flow), []).append((number, verdict))

    report = per_flow(frame, truth, said, CLASSES, at=At((at,)))
    expected = np.zeros((3, 3), int)
    for (_, flow), verdicts in flows.items():
        expected[flow % 3, verdicts[min(at, len(verdicts)) - 1][1]] += 1
    assert report.classes.confusion == expected.tolist()
    assert report.attack.confusion[1] == [int(expected[1:, 0].sum()), int(expected[1:, 1:].sum())]
    assert set(report.by_packet) == set(DECISIONS)

    benign = {key: verdicts for key, verdicts in flows.items() if key[1] % 3 == 0}
    losing = sum(any(verdict for _, verdict in verdicts) for verdicts in benign.values())
    assert sum(loss.flagged for loss in report.losses) == losing
    assert report.benign_losing == pytest.approx(losing / max(1, len(benign)))

    after = [
        next(rank for rank, (_, verdict) in enumerate(verdicts, 1) if verdict)
        for key, verdicts in flows.items()
        if key[1] % 3 and any(verdict for _, verdict in verdicts)
    ]
    if after:
        assert report.detection is not None
        assert report.detection.packets[0] == pytest.approx(float(np.median(after)))
    else:
        assert report.detection is None


def made(captures: int, right: float) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """One packet a flow, 50 flows a capture, of which this share is told apart right."""
    rng = np.random.default_rng(0)
    count = 50 * captures
    truth = rng.integers(0, 2, count)
    said = np.where(rng.random(count) < right, truth, 1 - truth)
    frame = pl.DataFrame(
        {
            "capture": [f"c{row // 50}" for row in range(count)],
            "flow": [f"f{row}" for row in range(count)],
            "time_ns": np.arange(count),
        }
    )
    return frame, truth, said


def test_intervals_hold_the_number_and_shrink_with_more_captures() -> None:
    width = {}
    for captures in (8, 256):
        report = per_flow(*made(captures, 0.9), ["benign", "attack"], at=At((1,)))
        low, high = report.intervals["f1"]
        assert low <= report.attack.classes[1].f1 <= high and low > 0.8 and high < 1
        width[captures] = high - low
    assert width[256] < width[8] / 2
    assert not per_flow(*made(1, 0.9), ["benign", "attack"]).intervals, "one capture says nothing of others"


def test_flows_an_hour_do_not_count_the_time_between_packets() -> None:
    frame, truth, said = made(1, 0.5)
    months = frame.with_columns(time_ns=pl.int_range(pl.len()) * 30 * 86_400 * 10**9)
    found = per_flow(months, truth, said, ["benign", "attack"])
    flagged, benign = int(((truth == 0) & (said > 0)).sum()), int((truth == 0).sum())
    assert found.flagged_per_hour == pytest.approx(60 * flagged / benign)


def test_moments_are_read_from_text() -> None:
    second = 1_000_000_000
    assert At.parse("5") == At((5,)) and At.parse("every") == At(every=True)
    assert At.parse("100, 5,30,10s") == At((5, 30, 100), (10 * second,))
    texts = {"5": "packet 5", "5,30,100": "packets 5, 30 and 100", "10s": "after 10s", "every": "any packet"}
    assert {given: str(At.parse(given)) for given in texts} == texts
    assert str(At.parse("5,30,10s")) == "packets 5 and 30 and after 10s"
    for wrong in ("0", "5,x", "", "-1", "5;6", "1.5"):
        with pytest.raises(InputError, match="--at"):
            At.parse(wrong)


@examples(100)
@given(
    packets, st.sets(st.integers(1, 9), max_size=3), st.sets(st.integers(1, 30), max_size=2), st.booleans()
)
def test_of_several_moments_any_verdict_counts(
    seen: list[tuple[int, int, int]], numbers: set[int], times: set[int], every: bool
) -> None:
    if not (numbers or times or every):
        numbers = {5}
    frame = pl.DataFrame(
        {
            "capture": [f"c{capture}" for capture, _, _ in seen],
            "flow": [f"f{flow}" for _, flow, _ in seen],
            "time_ns": [1000 * number for number in range(len(seen))],
        }
    )
    truth, said = np.array([flow % 3 for _, flow, _ in seen]), np.array([verdict for _, _, verdict in seen])
    at = At(every=True) if every else At(tuple(sorted(numbers)), tuple(1000 * time for time in sorted(times)))
    flows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, (capture, flow, verdict) in enumerate(seen):
        flows.setdefault((capture, flow), []).append((1000 * number, verdict))
    verdicts = per_flow(frame, truth, said, CLASSES, at=at).verdicts
    assert len(verdicts.truth) == len(flows)
    for place, ((_, flow), life) in enumerate(flows.items()):
        here = {life[min(number, len(life)) - 1][1] for number in at.packets}
        here |= {[one for time, one in life if time - life[0][0] <= limit][-1] for limit in at.times_ns}
        ever = {one for _, one in life}
        assert set(np.flatnonzero(verdicts.at[place])) == (ever if every else here)
        assert set(np.flatnonzero(verdicts.ever[place])) == ever
        assert verdicts.truth[place] == flow % 3


def test_the_loss_elsewhere_holds_for_sources_that_differ() -> None:
    rng = np.random.default_rng(1)
    held, held_by_draws = 0, 0
    for _ in range(200):
        shares = rng.beta(0.2, 19.8, 40)  # 1 % in all; most sources lose nothing
        lost = rng.random((40, 100)) < shares[:, None]
        sources = np.repeat(np.arange(12), 100).astype(str).tolist()
        met = lost[12:].mean()
        held += met <= intervals.elsewhere(sources, lost[:12].ravel())
        drawn = rng.integers(0, 12, (1000, 12))
        held_by_draws += met <= np.quantile(lost[:12].mean(axis=1)[drawn].mean(axis=1), 0.975)
    assert held >= 185 > 170 > held_by_draws, "95 %, which a bootstrap does not reach with few sources"


def test_the_loss_elsewhere_is_small_only_with_enough_sources_and_flows() -> None:
    def worst(sources: int, flows: int, lost: int = 0) -> float:
        losing = np.zeros((sources, flows), bool)
        losing[:, :lost] = True
        return intervals.elsewhere(np.repeat(np.arange(sources), flows).astype(str).tolist(), losing.ravel())

    assert worst(2, 150) > worst(5, 300) > worst(20, 1000) > 0
    assert 0.01 < worst(20, 1000, lost=10) < 0.014, "alike sources say what others will lose"
    assert worst(2, 10, lost=10) <= 0.5, "the model ends at one half"
