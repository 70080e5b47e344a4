# SPDX-License-Identifier: Apache-2.0
"""What makes a model fit to enforce: each condition alone can forbid it, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from wirewise.errors import InputError
from wirewise.evaluate.held_out import Origin
from wirewise.evaluate.per_flow import ApplicationLoss, FlowReport, per_flow
from wirewise.evaluate.unseen import unseen
from wirewise.evaluate.verdict import Limits, Verdict, verdict

CLASSES = ["benign", "flood", "scan"]


def flows(benign: int = 1000, lost: int = 0, missed: int = 0) -> FlowReport:
    """Benign flows, of which some lose a packet, and as many of attacks, of which some are missed."""
    truth = np.concatenate([np.zeros(benign, np.int64), np.tile([1, 2], max(1, benign // 2))])
    said = truth.copy()
    said[:lost] = 1
    said[benign : benign + missed] = 0
    frame = pl.DataFrame(
        {
            "capture": [f"c{number % 10}" for number in range(len(truth))],
            "flow": [f"f{number}" for number in range(len(truth))],
            "time_ns": np.arange(len(truth)),
        }
    )
    return per_flow(frame, truth, said, CLASSES)


def judge(report: FlowReport, captures: tuple[int, int] = (10, 10), origin: Origin = "kept apart") -> Verdict:
    return verdict(report, captures, origin, Limits())


def test_a_good_model_may_enforce() -> None:
    said = judge(flows(lost=5))
    assert said.decision == "enforce" and all(one.met for one in said.criteria) and not said.but
    assert said.sentence == (
        "Enforce: it finds 100.00 % of attack flows at their packet 5, "
        "and 0.50 % of benign flows lose a packet."
    )


@pytest.mark.parametrize(
    ("report", "given", "reason"),
    [
        (flows(lost=30), {}, "3.00 % of benign flows lose a packet, more than 1 %"),
        (flows(missed=200), {}, "F1 is 0.8889, below 0.95"),
        (flows(benign=200), {}, "200 benign flows are too few to see 1 %"),
        (flows(), {"captures": (1, 10)}, "unknown: too few with benign flows"),
        (flows(), {"captures": (10, 1)}, "unknown: too few with attack flows"),
        (flows(), {"origin": "trained on"}, "it was trained on these very flows"),
        (
            replace(flows(), applications=[ApplicationLoss("voip", 20, 2, 1.0)]),
            {},
            "of voip it is 10.00 %, more than 3 %",
        ),
        (
            replace(flows(), intervals={"benign_losing": (0.0, 0.08)}),
            {},
            "on other captures it could be 8.00 %, more than 3 %",
        ),
    ],
)
def test_each_condition_alone_forbids_it(report: FlowReport, given: dict[str, Any], reason: str) -> None:
    said = judge(report, **given)
    assert said.decision == "observe only" and reason in said.sentence
    assert 1 <= sum(one.met is False for one in said.criteria) <= 2


def test_what_is_bad_is_not_even_to_observe() -> None:
    assert judge(flows(lost=200)).decision == "do not use"
    assert judge(flows(missed=1000)).decision == "do not use"
    assert judge(flows(missed=900)).decision == "observe only", "what it says is right, if little"


def test_nothing_is_said_of_what_is_not_there() -> None:
    frame = pl.DataFrame({"capture": ["a"] * 9, "flow": [str(n) for n in range(9)], "time_ns": range(9)})
    for label, missing in ((0, "attack"), (1, "benign")):
        truth = np.full(9, label)
        said = judge(per_flow(frame, truth, truth, CLASSES))
        assert said.decision == "do not use" and f"no flow of the table is {missing}" in said.sentence


def test_a_margin_is_judged_by_what_others_call_for() -> None:
    said = verdict(flows(lost=5), (10, 10), "kept apart", Limits(), 0.02)
    assert said.decision == "observe only" and "the other captures call for it is 2.00 %" in said.sentence
    assert verdict(flows(lost=5), (10, 10), "kept apart", Limits(), 0.006).decision == "enforce"


def test_few_flows_of_an_application_prove_nothing() -> None:
    report = replace(flows(), applications=[ApplicationLoss("rare", 3, 1, 1.0)])
    assert judge(report).decision == "enforce"


def test_missed_classes_and_unknown_origins_are_said() -> None:
    said = judge(flows(missed=80), origin="unknown")
    assert said.decision == "enforce" and "wirewise cannot know" in said.but
    assert [one.met for one in said.criteria].count(None) == 1
    other = judge(flows(), origin="other table")
    assert other.decision == "enforce" and "--trained-on TABLE tells" in other.but
    missed = replace(flows(), flagged={"benign": 0.0, "flood": 0.2, "scan": 1.0})
    assert judge(missed).but == "fewer than half of the flows of flood are found"


@pytest.mark.parametrize("limits", [{"f1": 0}, {"benign_loss": 0}, {"f1": 1.5}])
def test_limits_are_shares(limits: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be above 0"):
        Limits(**limits)


def rows(**columns: Any) -> pl.DataFrame:
    """Labelled rows of a table with the feature `length`."""
    count = len(columns["length"])
    frame: dict[str, Any] = {
        "capture": [f"c{number}" for number in range(count)],
        "flow": ["6 192.0.2.1|1 192.0.2.2|2"] * count,
        "time_ns": [10**12 * number for number in range(count)],
        "label": ["benign", "flood"] * (count // 2),
    }
    return pl.DataFrame(frame | columns)


def test_what_was_never_seen() -> None:
    tested = rows(length=[10, 200, 5, 99], application=["web", "", "dns", ""])
    learned = rows(length=[20, 100], application=["web", ""]).with_columns(
        label=pl.Series(["benign", "scan"])
    )
    found = unseen(tested, np.array([0, 1, 0, 1]), ["benign", "flood", "scan"], learned, ["length"])
    assert found.classes == ["scan"] and found.one_capture == ["scan"]
    assert found.families == ["ICMP", "UDP", "ICMPv6", "IPv6"]
    assert (found.applications, found.other_applications) == (["dns"], [])
    assert found.ranges is not None
    assert (found.ranges[0].learned, found.ranges[0].tested) == ((20, 100), (5, 200))
    assert found.ranges[0].outside == 0.75
    assert (found.benign_flows, found.benign_minutes) == (2, 2)
    text = " ".join(found.sentences)
    for part in ("the classes scan", "applications it has not learned from: dns", "75.00 % of the packets"):
        assert part in text
    alone = unseen(tested, np.array([0, 1, 0, 1]), ["benign", "flood"], None, ["length"])
    assert alone.ranges is None and "not known here" in alone.sentences[-1]


def test_versions_and_protocols_are_read_from_flows() -> None:
    flows_of = ["17 2001:db8::1|53 2001:db8::2|9", "1 192.0.2.1|0 192.0.2.2|0", "58 ::1|0 ::2|0", "made up"]
    tested = rows(length=[1, 2, 3, 4], flow=flows_of)
    found = unseen(tested, np.array([0, 1, 0, 1]), ["benign", "flood"], None, ["length"])
    assert found.families == ["TCP"]
    mine = rows(length=[1, 2], flow=["a", "b"])
    assert unseen(mine, np.array([0, 1]), ["benign", "flood"], None, ["length"]).families == []
