# SPDX-License-Identifier: Apache-2.0
"""Data frames of other libraries, in and out, and the whole numbers in them.

In come frames of polars, of pandas, and of whatever else speaks Arrow (`__arrow_c_stream__`: PyArrow,
DuckDB); out go frames of polars, which wirewise needs anyway, or of pandas, which is never imported unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError, MissingFeatureError

if TYPE_CHECKING:
    import polars as pl

Frame: TypeAlias = Any
"""A data frame of pandas or polars, or anything that offers `__arrow_c_stream__`."""

Kind = Literal["polars", "pandas"]
"""The library of the frames that are given back."""

_WHOLE = "features are whole numbers, as `wirewise features` computes them: do not scale or round them"
_MISSING = "leave out its row: a packet that was not classified has no features"


def to_polars(frame: Frame, what: str = "the table") -> pl.DataFrame:
    """The same columns as a polars frame; what is missing in pandas (NaN) is null.

    what : its name in errors. Raises InputError for what is no data frame, MissingFeatureError without
    PyArrow, by which pandas gives its columns.
    """
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if not hasattr(frame, "__arrow_c_stream__") and _origin(frame) != "pandas":
        raise InputError(
            what, f"is of type {type(frame).__name__}, which is no data frame",
            "give one of pandas or polars, or an object with __arrow_c_stream__",
        )  # fmt: skip
    try:
        return pl.from_pandas(frame) if _origin(frame) == "pandas" else pl.DataFrame(frame)
    except ImportError as error:
        raise _without_pandas(error) from None
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(what, f"cannot be read as columns ({reason})", "give one row a packet") from error


def give(frame: pl.DataFrame, kind: Kind) -> Any:
    """A polars frame as it is, or as one of pandas.

    In pandas a column of whole numbers with gaps is of the type Int64, which keeps them whole. Raises
    InputError for another kind, MissingFeatureError without pandas and PyArrow.
    """
    if kind == "polars":
        return frame
    if kind != "pandas":
        raise InputError(f"frame {kind!r}", "is not known", "give polars or pandas")
    try:
        import pandas

        gaps = [name for name in frame.columns if frame[name].dtype.is_integer() and frame[name].null_count()]
        made = frame.drop(gaps).to_pandas()
        for name in gaps:
            mask = frame[name].is_null().to_numpy()
            values = frame[name].fill_null(0).to_numpy().copy()
            made[name] = pandas.arrays.IntegerArray(values, np.array(mask, np.bool_))
        return made[frame.columns]
    except ImportError as error:
        raise _without_pandas(error) from None


def integers(frame: pl.DataFrame, names: Sequence[str], what: str = "the table") -> NDArray[np.int64]:
    """The columns named, in that order, as int64 of shape (n rows, n names).

    A column of floating point is taken if it holds whole numbers only: pandas makes such ones where values
    were missing. Raises InputError that names the column and the first row (from 0) of anything else.
    """
    import polars as pl

    rows = np.empty((len(frame), len(names)), np.int64)
    for index, name in enumerate(names):
        if name not in frame.columns:
            raise InputError(what, f"has no column {name!r}", "give all features of its feature set")
        column = frame[name]
        if gap := column.null_count():
            first = int(column.is_null().arg_true()[0])
            counted = f" ({gap:,} rows have none)" if gap > 1 else ""
            raise InputError(what, f"column {name!r} has no value in row {first}{counted}", _MISSING)
        if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
            raise InputError(what, f"column {name!r} holds {column.dtype} and no numbers", _WHOLE)
        rows[:, index] = whole(
            column.to_numpy(), lambda row, name=name: f"{what}, column {name!r}, row {row}"
        )
    return np.ascontiguousarray(rows)


def whole(values: NDArray[Any], where: Callable[..., str]) -> NDArray[np.int64]:
    """An array of any shape as int64, unchanged in value.

    where : names an element for errors, given its index in each dimension. Raises InputError for the first
    element that is no whole number of 64 bits with sign.
    """
    values = np.asarray(values)
    if np.can_cast(values.dtype, np.int64):
        return values.astype(np.int64, copy=False)
    if values.dtype.kind not in "fu":
        raise InputError(f"rows of type {values.dtype}", "features are signed 64-bit integers", _WHOLE)
    if values.dtype.kind == "u":
        wrong = values > np.uint64(2**63 - 1)
    else:
        with np.errstate(invalid="ignore"):
            wrong = ~((values == np.floor(values)) & (values >= -(2.0**63)) & (values < 2.0**63))
    if wrong.any():
        first = tuple(int(part) for part in np.argwhere(wrong)[0])
        value = values[first]
        rule = "is missing (NaN)" if value != value else f"is {value}, which is no whole number of 64 bits"
        raise InputError(where(*first), rule, _MISSING if value != value else _WHOLE)
    return values.astype(np.int64)


def _origin(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _without_pandas(error: ImportError) -> MissingFeatureError:
    return MissingFeatureError(
        f"data frames of pandas need pandas and PyArrow ({error}); pip install pandas pyarrow, or use polars"
    )
