# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.judge`: what was said of families and what came true, on made rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench import judge
from wirewise.errors import InputError
from wirewise.evaluate.verdict import Limits, Verdict

LABELS = ("benign", "flood", "scan")


def made(honest: bool) -> pl.DataFrame:
    """Twenty sources with flows of two packets of three classes, which a value tells apart; unless it is
    honest, half of the sources have scans that look benign.
    """
    rows = [
        (f"s{source}", f"c{source}", f"f{flow}", LABELS[flow % 3], value + packet, 10**9 * flow + packet)
        for source in range(20)
        for flow in range(90)
        for value in (0 if flow % 3 == 2 and source % 2 and not honest else 10 * (flow % 3),)
        for packet in range(2)
    ]
    schema = ["source", "capture", "flow", "label", "value", "time_ns"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_what_is_said_of_alike_sources_comes_true() -> None:
    whole, statements, policies = judge.judged(made(honest=True), ["value"], [0])
    report = judge.summary(whole, statements, policies)
    assert report["statements"] == 2 * judge.FOLDS and report["true"] == 1.0
    assert report["informative"] == report["statements"], "sixteen alike sources say something of four others"
    assert all(one.advice == "enforce" and one.found == 1 for one in statements)
    assert report["policies_that_drop"] == judge.FOLDS == report["policies_within_what_was_said"]
    assert all(one.lost <= one.worst and one.found == 1 for one in policies)
    assert all("enforce; 20 sources, found 1.00" in line for line in report["collection"].values())


@pytest.mark.slow
def test_what_differs_by_source_is_not_promised() -> None:
    _, statements, _ = judge.judged(made(honest=False), ["value"], [0, 1])
    scans = [one for one in statements if one.family == "scan"]
    assert {one.advice for one in statements if one.family == "flood"} == {"enforce"}
    assert all(one.said < 0.95 for one in scans) and len({one.found for one in scans}) > 1
    assert np.mean([one.true for one in scans]) >= 0.8


@pytest.mark.slow
def test_policies_drop_more_the_less_they_have_to_find() -> None:
    _, _, asked = judge.judged(made(honest=False), ["value"], [0])
    _, _, less = judge.judged(made(honest=False), ["value"], [0], Limits(recall=0.1))
    assert all(one.may_drop == ["flood"] for one in asked)
    assert all(one.may_drop == ["flood", "scan"] for one in less)
    assert all(one.found is not None and 0.5 < one.found < 1 for one in less)


def test_a_statement_that_fails_is_counted_as_false() -> None:
    wrong = judge.Statement(0, 0, "scan", "enforce", 1.0, 16, 0.75, 1.0, 4, 0.5)
    lost = judge.Policy(0, 0, ["scan"], 0.01, 0.02)
    report = judge.summary(Verdict("observe only", "", []), [wrong], [lost])
    assert report["true"] == 0 and report["policies_within_what_was_said"] == 0
    assert report["policies_that_drop_within_what_was_said"] == 0
    assert report["families"] == {"scan": "0 of 1 true; said 1.00, found 0.50"}


def test_too_few_sources_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="fewer than 5 sources"):
        judge.judged(made(honest=True).filter(pl.col("source") < "s12"), ["value"], [0])
    assert judge.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
