# SPDX-License-Identifier: Apache-2.0
"""Parquet files that others wrote: refused in one line, whatever Polars does with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from wirewise.errors import InputError
from wirewise.files import open_file

# The most rows that a file may claim: rows of packets take more than a quarter of a byte each.
_ROWS, _ROWS_PER_BYTE = 1 << 20, 64
_MAX_COLUMNS = 4096


def read_parquet(path: str | Path, *, what: str) -> tuple[pl.DataFrame, dict[str, str]]:
    """A file's rows, and the texts in its footer. what: its kind, for the error. Raises InputError."""
    way_out = f"make a {what} with `wirewise features`"
    with open_file(path, what=what) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with _silent():
                # Not by name: Polars takes brackets for patterns, and wants UTF-8.
                scanned = pl.scan_parquet(file)
                columns = len(scanned.collect_schema())
                rows = scanned.select(pl.len()).collect().item()
                if columns > _MAX_COLUMNS or rows > _ROWS + _ROWS_PER_BYTE * size:
                    claimed = f"claims {rows:,} rows of {columns:,} columns in {size:,} bytes"
                    raise InputError(str(path), f"{claimed}, which no {what} has", way_out)
                file.seek(0)
                metadata = pl.read_parquet_metadata(file)
                file.seek(0)
                return pl.read_parquet(file), metadata
        except (PolarsError, PanicException, OSError, ValueError, OverflowError, MemoryError) as error:
            reason = (str(error).splitlines() or ["damaged"])[0][:200]
            raise InputError(str(path), f"is not Parquet, or damaged ({reason})", way_out) from error


@contextmanager
def _silent() -> Iterator[None]:
    """Polars writes on standard error what it panics on, before it raises that as an exception."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
