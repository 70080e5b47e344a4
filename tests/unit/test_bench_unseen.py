# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.unseen`: ways of training, compared on sources that they have not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench import unseen
from tests.unit.test_out_of_fold import drawn
from wirewise.errors import InputError
from wirewise.evaluate import out_of_fold
from wirewise.evaluate.apart import Apart
from wirewise.evaluate.lesson import Recipe


@pytest.mark.slow
def test_each_way_is_measured_once_for_each_dealing() -> None:
    table = drawn(np.random.default_rng(3))
    for way in (
        unseen.Way("forest", 4, 4, False, Recipe()),
        unseen.Way("boosting", 4, 4, True, unseen.RECIPE),
    ):
        steps = unseen.measured(table, way, "source", 2)
        assert [step["wish"] for step in steps] == list(unseen.SHOWN)
        names = ("elsewhere", "families", "sources", "captures", "recall")
        assert all(len(step[name]) == 2 for step in steps for name in names)
        for name in ("families", "sources", "captures"):
            found = [sum(step[name]) for step in steps]
            rounded = [round(share, 9) for share in found]
            assert rounded == sorted(rounded), "the more may be lost, the more is found"


def test_sources_and_captures_weigh_the_same_however_many_flows_they_have() -> None:
    lead = [4, 1, 1, 1, 3, 9]
    flows = pl.DataFrame(
        {
            "capture": ["one", "one", "one", "one", "two", "benign"],
            "unit": ["a", "a", "b", "b", "b", "c"],
            "attack": [True] * 5 + [False],
            "1": [margin * out_of_fold.FINE for margin in lead],
            "late 1": [margin * out_of_fold.FINE for margin in (0, 7, 0, 0, 2, 9)],
        }
    )

    def found(by: float, late: float | None = None, column: str = "capture") -> float:
        return unseen.mean_over(column, flows, out_of_fold.Point(0.1, 1, by, 0, None, 0, 0, late))

    assert found(2) == (1 / 4 + 1) / 2
    assert found(2, column="unit") == (1 / 2 + 1 / 3) / 2
    assert found(3) == 1 / 8
    assert found(3, 5) == (2 / 4) / 2 and found(3, 1) == (2 / 4 + 1) / 2


def test_trees_that_alone_learn_from_what_is_beside_are_measured_too() -> None:
    rng = np.random.default_rng(3)
    table, beside = drawn(rng), drawn(rng)
    way = unseen.Way("forest", 4, 4, True, Recipe())
    both = unseen.measured(table, way, "source", 1, beside, Apart("flood", 4))
    assert [step["wish"] for step in both] == list(unseen.SHOWN)
    assert both != unseen.measured(table, way, "source", 1, beside)
    for step in both:
        of_kinds = [shares[0] for shares in step["kinds"].values()]
        assert np.mean(of_kinds) == pytest.approx(step["families"][0])


def test_what_has_no_scores_is_an_error() -> None:
    table = drawn(np.random.default_rng(3))
    with pytest.raises(InputError, match="cannot be cross-validated"):
        unseen.measured(table, unseen.Way("mlp", 1, 1, True, Recipe()), "source", 1)


def test_ranges_are_in_percent() -> None:
    assert unseen.spread([0.1, 0.2]) == "15.0 (10.0 to 20.0)"


def test_a_folder_without_captures_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unseen.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
