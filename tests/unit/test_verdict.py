# SPDX-License-Identifier: Apache-2.0
"""Which classes a model may drop: each condition alone can forbid it, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from wirewise.errors import InputError
from wirewise.evaluate.drift import Drift, FeatureDrift
from wirewise.evaluate.families import between, predicted
from wirewise.evaluate.held_out import Origin
from wirewise.evaluate.per_flow import FlowReport, per_flow
from wirewise.evaluate.unseen import unseen
from wirewise.evaluate.verdict import Limits, Verdict, verdict

CLASSES = ["benign", "flood", "scan"]


def flows(
    benign: int = 1000,
    lost: int = 0,
    missed: int = 0,
    *,
    captures: int = 10,
    lost_to: tuple[int, ...] = (1, 2),
    missed_captures: int = 0,
    **columns: Any,
) -> FlowReport:
    """Benign flows, of which some lose a packet to the classes `lost_to`, in turn, and as many of attacks, of
    which the first are missed, or all floods of some captures. columns : of the table, by number of flow.
    """
    truth = np.concatenate([np.zeros(benign, np.int64), np.tile([1, 2], max(1, benign // 2))])
    said = truth.copy()
    said[:lost] = np.resize(lost_to, lost)
    said[benign : benign + missed] = 0
    capture = np.arange(len(truth)) // 2 % captures
    said[(truth == 1) & (capture < missed_captures)] = 0
    frame = pl.DataFrame(
        {
            "capture": [f"c{number}" for number in capture],
            "flow": [f"f{number}" for number in range(len(truth))],
            "time_ns": np.arange(len(truth)),
            **{name: [of(number) for number in range(len(truth))] for name, of in columns.items()},
        }
    )
    return per_flow(frame, truth, said, CLASSES)


def _few_benign(number: int) -> str:
    """Two captures with benign flows, of which one is small."""
    if number < 1000:
        return "small" if number < 10 else "large"
    return f"c{number // 2 % 10}"


def judge(
    report: FlowReport, captures: tuple[int, int] = (10, 10), origin: Origin = "kept apart", **given: Any
) -> Verdict:
    return verdict(report, captures, origin, Limits(), dealings={"flood": [1, 0.9], "scan": [1, 1]} | given)


def test_a_good_model_may_enforce() -> None:
    said = judge(flows(lost=5))
    assert said.decision == "enforce" and all(one.met for one in said.criteria) and not said.but
    assert said.sentence == "Enforce for flood and scan. 0.50 % of benign flows lose a packet."
    assert said.may_drop == ["flood", "scan"]


@pytest.mark.parametrize(
    ("report", "given", "reason"),
    [
        (flows(lost=60), {}, "6.00 % of benign flows lose a packet, more than 1 %"),
        (flows(missed=800), {}, "as little as"),
        (flows(captures=2), {}, "of other captures as little as 33.32 % may be found, less than 50 %"),
        (flows(captures=1), {}, "it is of one capture"),
        (flows(benign=200), {}, "200 benign flows are too few to see 1 %"),
        (flows(), {"captures": (1, 10)}, "unknown: too few with benign flows"),
        (flows(), {"captures": (10, 1)}, "unknown: too few with attack flows"),
        (flows(), {"origin": "trained on"}, "it was trained on these very flows"),
        (
            flows(lost=4, application=lambda number: "voip" if number < 20 else "web"),
            {},
            "of voip it is 20.00 %, more than 3 %",
        ),
        (flows(lost=10, capture=_few_benign), {}, "on other captures it could be 28.98 %"),
        (flows(), {"flood": [1, 0.4], "scan": [0.3, 1]}, "in one dealing of 2 training found 40.00 %"),
    ],
)
def test_each_condition_alone_forbids_it(report: FlowReport, given: dict[str, Any], reason: str) -> None:
    said = judge(report, **given)
    assert said.decision == "observe only" and reason in said.sentence
    assert not said.may_drop and "drop" not in said.policy(CLASSES).partition("\n")[2]


def test_a_family_that_is_not_surely_found_is_observed() -> None:
    """Nine tenths of all attack flows are found, and half of the floods' captures are missed: no total hides
    that.
    """
    report = flows(missed_captures=4)
    assert report.attack.classes[1].recall == pytest.approx(0.8)
    said = judge(report)
    assert said.decision == "enforce" and said.may_drop == ["scan"]
    assert said.sentence.startswith("Enforce for scan. Observe flood.")
    flood, scan = said.families
    assert (flood.advice, scan.advice) == ("observe", "enforce")
    assert flood.of_captures == pytest.approx(0.6) and flood.between[0] < 0.5 < flood.between[1]


def test_a_class_that_costs_too_many_benign_flows_is_observed() -> None:
    said = judge(flows(lost=50, lost_to=(2,)))
    assert said.may_drop == ["flood"] and said.losing == 0
    assert "5.00 % of benign flows would lose a packet by it" in said.families[1].why
    assert yaml.safe_load(said.policy(CLASSES)) == {
        "version": 1, "classes": {"benign": "pass", "flood": "drop", "scan": "count"},
    }  # fmt: skip
    after = yaml.safe_load(said.policy(CLASSES, 3))["classes"]
    assert after == {"benign": "pass", "flood": {"action": "drop", "after": 3}, "scan": "count"}


def test_a_family_that_is_not_found_is_not_visible() -> None:
    said = judge(flows(missed_captures=10), flood=[0.0, 0.05])
    assert said.sentence.startswith("Enforce for scan. Not visible to these features at packet 5: flood.")
    found = judge(flows(missed_captures=10), flood=[0.0, 0.9])
    assert found.families[0].advice == "observe", "in another dealing it was seen"


def test_sources_count_and_not_their_captures_or_flows() -> None:
    """Of five sources one has nine tenths of the captures."""
    source = lambda number: "big" if number // 2 % 40 > 3 else f"s{number // 2 % 40}"  # noqa: E731
    report = flows(captures=40, missed_captures=4, source=source)
    flood = judge(report).families[0]
    assert (flood.sources, flood.captures) == (5, 40)
    assert flood.of_captures == pytest.approx(0.9) and flood.of_sources == pytest.approx(0.2)
    assert flood.advice == "observe"


def apart(*, found: int, alone: bool = True) -> FlowReport:
    """Benign flows, and one of a SYN flood and of a guessed login from each of ten sources, under a model
    of attacks and, apart, floods. found : logins found. alone : SYN floods are found as floods, else as
    attacks.
    """
    benign, names = 1000, ["benign", "attack", "flood"]
    number = np.arange(benign + 20)
    source = np.where(number < benign, number // 100, (number - benign) // 2)
    syn, login = ((number >= benign) & (number % 2 == side) for side in (0, 1))
    said = np.where(syn, 2 if alone else 1, np.where(login & (source < found), 1, 0))
    said[0] = 2
    frame = pl.DataFrame(
        {
            "capture": [f"c{of}" for of in source],
            "source": [f"s{of}" for of in source],
            "flow": [f"f{of}" for of in number],
            "time_ns": number,
            "label": np.where(syn, "syn-flood", np.where(login, "guessed-login", "benign")),
        }
    )
    return per_flow(frame, (syn | login).astype(np.int64), said, names)


def test_a_class_that_no_label_names_is_dropped_for_the_kinds_that_it_finds() -> None:
    report = apart(found=0)
    said = verdict(report, (10, 10), "kept apart", Limits())
    assert said.decision == "enforce" and said.may_drop == ["flood"]
    assert said.sentence.startswith(
        "Enforce for flood (syn-flood). Observe attack. Of it: Surely found: syn-"
    )
    attack, flood = said.families
    assert (flood.kinds, flood.flows, flood.recall, attack.kinds) == (("syn-flood",), 10, 1, ())
    assert said.losing == 0.001
    classes = yaml.safe_load(said.policy(["benign", "attack", "flood"]))["classes"]
    assert classes == {"benign": "pass", "attack": "count", "flood": "drop"}

    both = verdict(apart(found=10), (10, 10), "kept apart", Limits())
    assert both.may_drop == ["attack", "flood"]
    dealt = {"syn-flood": [1.0, 0.3], "guessed-login": [0.1, 0.1]}
    unsure = verdict(report, (10, 10), "kept apart", Limits(), dealings=dealt)
    assert not unsure.may_drop and "in one dealing of 2 training found 30.00 %" in unsure.families[1].why


def test_what_is_measured_is_what_the_policy_drops() -> None:
    """Floods are found by the other trees, so their own class costs a benign flow for nothing."""
    said = verdict(apart(found=10, alone=False), (10, 10), "kept apart", Limits())
    assert [family.name for family in said.families] == ["attack"]
    assert said.may_drop == ["attack"] and said.losing == 0


def test_flows_unlike_those_of_training_forbid_it() -> None:
    far = Drift("out-of-depth", 1000, 1000, [FeatureDrift("length", "out-of-depth", 3.0, 0.1, 0.9, 0, 9)])
    said = verdict(flows(), (10, 10), "kept apart", Limits(), drift=far)
    assert said.decision == "observe only" and "most of all length" in said.sentence
    assert verdict(flows(), (10, 10), "kept apart", Limits(), drift=replace(far, level="watch")).may_drop
    tested, learned = rows(length=[10, 200, 5, 99]), rows(length=[20, 100])
    new = unseen(tested, np.array([0, 1, 0, 1]), CLASSES, learned, ["length"])
    said = verdict(flows(), (10, 10), "kept apart", Limits(), unseen=new)
    assert said.decision == "observe only" and "75.00 % of a capture's packets are outside" in said.sentence


def test_an_interval_holds_the_mean_of_all_sources() -> None:
    """Nineteen times of twenty, however the shares of sources are spread, and for some others as well."""
    rng = np.random.default_rng(0)
    for spread in ((0.3, 0.3), (2, 2), (0.5, 0.05), (8, 1)):
        truth = spread[0] / sum(spread)
        for count in (2, 5, 20):
            shares = rng.beta(*spread, (400, count))
            others = rng.beta(*spread, (400, 3)).mean(axis=1)
            held = [low <= truth <= high for low, high in (between(one.mean(), count) for one in shares)]
            kept = [
                low <= other <= high
                for other, (low, high) in zip(
                    others, (predicted(one.mean(), count, 3) for one in shares), strict=True
                )
            ]
            assert np.mean(held) >= 0.93 and np.mean(kept) >= 0.93
    assert between(1.0, 4)[0] > 0.5 > between(1.0, 3)[0], "four sources in which all is found are enough"


def test_what_is_bad_is_not_even_to_observe() -> None:
    assert judge(flows(lost=200)).decision == "do not use"
    assert judge(flows(missed=1000)).decision == "do not use"


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
    report = flows(lost=1, application=lambda number: "rare" if number < 3 else "web")
    assert judge(report).decision == "enforce"


def test_unknown_origins_and_a_single_split_are_said() -> None:
    said = judge(flows(), origin="unknown")
    assert said.decision == "enforce" and "wirewise cannot know" in said.but
    assert [one.met for one in said.criteria].count(None) == 1
    other = judge(flows(), origin="other table")
    assert other.decision == "enforce" and "--trained-on TABLE tells" in other.but
    assert "--seeds 3" in verdict(flows(), (10, 10), "kept apart", Limits()).but


@pytest.mark.parametrize("limits", [{"recall": 0}, {"benign_loss": 0}, {"recall": 1.5}])
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
