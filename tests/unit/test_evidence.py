# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of evidence by sender: what is kept after many flows, and when it is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wirewise.policy.evidence import SCORE_MAX, Evidence, Senders

RULE = Evidence("source", last=4, flows=2, threshold=128, within_ns=10**9, text="")
WHO = ("client",)


def after(said: str, rule: Evidence = RULE) -> Senders:
    """Flows of one sender, 1 ms apart: x attacks, - benign."""
    senders = Senders(rule)
    for number, one in enumerate(said):
        senders.judge(WHO, number * 10**6, first=True, before=False, acts=one == "x")
    return senders


@pytest.mark.parametrize(
    ("said", "flows", "total"),
    [
        ("", 0, 0),
        ("x", 1, 255),
        ("x-x", 3, 510),
        ("xxxx", 4, 1020),
        ("xxxxxxxx", 4, 1020),
        # Each flow beyond four takes the place of the mean of those before: 1020 - 255, 765 - 191, 574 - 143.
        ("xxxx---", 4, 431),
        # Rounded down, so what is left of old attacks stops at less than one score of each flow.
        ("xxxx" + "-" * 100, 4, 3),
    ],
)
def test_the_sum_of_the_last_flows(said: str, flows: int, total: int) -> None:
    weighed = after(said).weigh(WHO, len(said) * 10**6)
    assert (weighed.flows, weighed.total, weighed.least) == (flows, total, max(flows, RULE.flows))


def test_a_sum_never_leaves_its_range() -> None:
    senders = after("xxxx----")
    for _ in range(9):  # turns to and fro of flows that counted before
        senders.judge(WHO, 10**7, first=False, before=True, acts=False)
    assert senders.weigh(WHO, 10**7).total == 0
    for _ in range(9):
        senders.judge(WHO, 10**7, first=False, before=False, acts=True)
    assert senders.weigh(WHO, 10**7).total == 4 * SCORE_MAX


def test_the_threshold_is_reached_exactly() -> None:
    assert not after("x").weigh(WHO, 0).enough  # 255 of 2 * 128
    assert after("x", replace(RULE, threshold=127)).weigh(WHO, 0).enough
    assert not after("", replace(RULE, threshold=1)).weigh(WHO, 0).enough


def test_benign_verdicts_of_old_flows_change_nothing() -> None:
    senders = after("xx")
    senders.judge(WHO, 900 * 10**6, first=False, before=False, acts=False)
    assert senders.weigh(WHO, 1001 * 10**6).enough
    assert senders.weigh(WHO, 1002 * 10**6).flows == 0
    # A verdict against the sender keeps what is known.
    senders = after("xx")
    senders.judge(WHO, 900 * 10**6, first=False, before=True, acts=True)
    assert senders.weigh(WHO, 1900 * 10**6).enough


def test_explain_says_how_much_there_is() -> None:
    assert str(after("x").weigh(WHO, 0)) == "50 % of 2 flows, 50 % asked: too little"
    assert str(after("xx").weigh(WHO, 0)) == "100 % of 2 flows, 50 % asked: enough"
