# SPDX-License-Identifier: Apache-2.0
"""Data frames in and out, and whole numbers of whatever type."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import needs
from wirewise.errors import InputError, MissingFeatureError
from wirewise.frames import give, integers, to_polars, whole
from wirewise.models import random_tree_ensemble

FRAME = pl.DataFrame({"a": [1, None, 3], "b": [0.5, 1.0, 2.0], "label": ["x", "y", ""]})


def test_frames_of_every_kind_come_in_alike() -> None:
    pandas, pyarrow = needs.package("pandas"), needs.package("pyarrow")
    as_pandas = pandas.DataFrame({"a": [1, None, 3], "b": [0.5, 1.0, 2.0], "label": ["x", "y", ""]})
    assert to_polars(FRAME) is FRAME
    assert to_polars(FRAME.lazy()).equals(FRAME)
    assert to_polars(pyarrow.table(FRAME.to_dict(as_series=False))).equals(FRAME)
    assert to_polars(as_pandas).with_columns(pl.col("a").cast(pl.Int64)).equals(FRAME)


def test_frames_of_pandas_keep_whole_numbers_whole() -> None:
    needs.package("pandas"), needs.package("pyarrow")
    large = pl.DataFrame({"t": [2**62 + 1, None, -1], "u": [1, 2, 3], "s": ["a", None, "c"]})
    out = give(large, "pandas")
    assert list(out.columns) == ["t", "u", "s"]
    assert (str(out["t"].dtype), str(out["u"].dtype)) == ("Int64", "int64")
    assert out["t"][0] == 2**62 + 1 and out["t"].isna().tolist() == [False, True, False]
    assert to_polars(out).equals(large)
    assert give(large, "polars") is large


def test_without_pandas_the_error_says_what_to_install() -> None:
    with (
        patch.dict(sys.modules, {"pandas": None}),
        pytest.raises(MissingFeatureError, match=r"pip install pandas pyarrow"),
    ):
        give(FRAME, "pandas")


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(InputError, match="rows: is of type list, which is no data frame"):
        to_polars([[1]], "rows")
    with pytest.raises(InputError, match="frame 'dask': is not known"):
        give(FRAME, "dask")  # type: ignore[arg-type]


def test_floating_point_that_holds_whole_numbers_is_taken() -> None:
    frame = pl.DataFrame({"a": [1.0, -(2.0**62)], "b": [True, False], "c": [7, 8]})
    rows = integers(frame, ["c", "a", "b"])
    assert rows.dtype == np.int64 and rows.flags.c_contiguous
    assert rows.tolist() == [[7, 1, 1], [8, -(2**62), 0]]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([1.0, 1.5], r"column 'a', row 1: is 1.5, which is no whole number"),
        ([2.0**63, 1.0], r"column 'a', row 0: is 9.22\d+e\+18, which is no whole"),
        ([1.0, float("inf")], r"column 'a', row 1: is inf"),
        ([1.0, float("nan")], r"column 'a', row 1: is missing \(NaN\); leave out its row"),
        ([1, None], r"column 'a' has no value in row 1; leave out its row"),
        (["1", "2"], r"column 'a' holds String and no numbers"),
    ],
)
def test_other_columns_are_refused_by_name_and_row(column: list[Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        integers(pl.DataFrame({"a": column}), ["a"])


def test_a_missing_column_and_large_unsigned_numbers() -> None:
    with pytest.raises(InputError, match=r"table\.parquet: has no column 'b'"):
        integers(pl.DataFrame({"a": [1]}), ["b"], "table.parquet")
    with pytest.raises(InputError, match="row 0: is 9223372036854775808"):
        integers(pl.DataFrame({"a": pl.Series([2**63], dtype=pl.UInt64)}), ["a"])


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_whole_gives_the_same_numbers_or_refuses(values: list[float]) -> None:
    array = np.array(values)
    try:
        taken = whole(array, lambda row: f"row {row}")
    except InputError as error:
        assert any(not v.is_integer() or not -(2**63) <= v < 2**63 for v in values), error
    else:
        assert taken.tolist() == [int(value) for value in values]


def test_models_take_rows_in_floating_point() -> None:
    model = random_tree_ensemble(np.random.default_rng(1), n_features=3, n_classes=2)
    rows = np.array([[1, 2, 3], [400, 5, 6]], np.int64)
    assert (model.predict(rows)[1] == model.predict(rows.astype(np.float64))[1]).all()
    with pytest.raises(InputError, match=r"row 1, feature 2: is 6.25"):
        model.predict(np.array([[1.0, 2.0, 3.0], [400.0, 5.0, 6.25]]))
