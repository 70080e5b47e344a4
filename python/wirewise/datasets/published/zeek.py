# SPDX-License-Identifier: Apache-2.0
"""Zeek's conn.log as labels: tab-separated with `#fields`, or JSON lines with any of its times; plain or .gz.

What ships logs on often renames their fields: `id.orig_h` may be `id_orig_h`, or `orig_h` of an object `id`.

The class is a column (`label`, as IoT-23 adds it, or one that is named), or follows from Zeek's notices: a
connection that notice.log names by its uid has the notice's name, the others are benign.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from wirewise.datasets.flow_list import COLUMNS, Skipped
from wirewise.datasets.published.reader import (
    BENIGN,
    READERS,
    LabelOptions,
    Reader,
    chunks_of_lines,
    duration_ns,
    moment_ns,
    open_text,
    protocol,
    slug,
)
from wirewise.errors import InputError, choose

_FIELDS = ("ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "duration")
_DOTTED = {name.replace(".", "_"): name for name in _FIELDS}
_LABELS = ("label", "detailed-label", "attack", "class")
_ENDS_NS = 1_000_000  # the log has microseconds, and in part fewer digits
_UNSET = ("-", "(empty)", "")


def _read(path: Path, options: LabelOptions, skipped: Skipped) -> Iterator[pl.DataFrame]:
    notices = _notices(options.alerts) if options.alerts else None
    wanted = [options.label_column] if options.label_column else list(_LABELS)
    for _, frame in _rows(path, (*_FIELDS, *(wanted if notices is None else ())), skipped):
        if missing := [name for name in _FIELDS if name not in frame.columns]:
            raise InputError(str(path), f"is no conn.log: it has no field {missing[0]!r}")
        column = next((name for name in wanted if name in frame.columns), None)
        if notices is not None:
            name = pl.col("uid").replace_strict(notices, default=BENIGN, return_dtype=pl.String)
        elif column is None:
            raise InputError(
                str(path), f"has no field that names a class ({', '.join(wanted)})",
                "name it with --label-column, or give Zeek's notice.log with --alerts",
            )  # fmt: skip
        else:
            name = pl.when(pl.col(column).is_in(_UNSET)).then(None).otherwise(slug(column))
        start = moment_ns("ts")
        yield frame.select(
            start.alias("from_ns"),
            (start + duration_ns("duration") + _ENDS_NS).alias("until_ns"),
            pl.col("id.orig_h").alias("src"),
            pl.col("id.orig_p").cast(pl.Int64, strict=False).alias("sport"),
            pl.col("id.resp_h").alias("dst"),
            pl.col("id.resp_p").cast(pl.Int64, strict=False).alias("dport"),
            _protocol().alias("protocol"),
            name.alias("label"),
        ).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


def _protocol() -> pl.Expr:
    """Zeek calls ICMP and ICMPv6 the same."""
    six = pl.col("id.orig_h").str.contains(":", literal=True)
    return pl.when((pl.col("proto") == "icmp") & six).then(58).otherwise(protocol("proto"))


def _notices(paths: tuple[Path, ...]) -> dict[str, str]:
    """The name of the first notice of each connection."""
    found: dict[str, str] = {}
    for path in paths:
        for _, frame in _rows(path, ("uid", "note"), Skipped()):
            if missing := {"uid", "note"} - set(frame.columns):
                raise InputError(str(path), f"is no notice.log: it has no field {min(missing)!r}")
            frame = frame.filter(~pl.col("uid").is_in(_UNSET)).with_columns(slug("note"))
            for uid, note in frame.select("uid", "note").iter_rows():
                found.setdefault(uid, note)
    return found


def _rows(path: Path, wanted: tuple[str, ...], skipped: Skipped) -> Iterator[tuple[str, pl.DataFrame]]:
    """The wanted fields that a log has, as text."""
    with open_text(path) as file:
        start = file.read(1)
    if start == b"{":
        yield from _json(path, wanted, skipped)
    elif start == b"#":
        yield from _separated(path, wanted, skipped)
    else:
        raise InputError(
            str(path), "is no log of Zeek: it begins neither with `#separator` nor with `{`",
            "give conn.log, as text with its header or as JSON",
        )  # fmt: skip


def _separated(path: Path, wanted: tuple[str, ...], skipped: Skipped) -> Iterator[tuple[str, pl.DataFrame]]:
    fields: list[str] = []
    for line, piece in chunks_of_lines(path):
        place = f"{path.name}, from line {line:,}"
        rows: list[list[str]] = []
        for text in piece.decode("utf-8", "replace").splitlines():
            if text.startswith("#"):
                if text.startswith("#separator") and text.split()[-1] not in ("\\x09", "\\t"):
                    raise InputError(
                        str(path), "is not separated by tabs", "write the log with Zeek's defaults"
                    )
                if text.startswith("#fields"):
                    fields = [_DOTTED.get(field, field) for field in _split(text)[1:]]
                continue
            if text:
                cells = _split(text)
                if len(cells) == len(fields):
                    rows.append(cells)
                else:
                    skipped.rows += 1
                    skipped.add("not as many values as #fields names", 1, place)
        if not fields:
            raise InputError(str(path), "has no line `#fields`", "give a whole log of Zeek")
        if not set(wanted) & set(fields):
            raise InputError(
                str(path), f"has none of the fields {', '.join(wanted)}", choose(wanted[0], fields)
            )
        have = {name: fields.index(name) for name in wanted if name in fields}
        yield (
            place,
            pl.DataFrame(
                {name: [row[index] for row in rows] for name, index in have.items()},
                schema=dict.fromkeys(have, pl.String),
            ),
        )


def _split(line: str) -> list[str]:
    """The fields of a line; what IoT-23 appends to them is separated by three blanks."""
    cells = line.split("\t")
    return [*cells[:-1], *cells[-1].split("   ")] if "   " in cells[-1] else cells


def _json(path: Path, wanted: tuple[str, ...], skipped: Skipped) -> Iterator[tuple[str, pl.DataFrame]]:
    for line, piece in chunks_of_lines(path):
        place = f"{path.name}, from line {line:,}"
        columns: dict[str, list[str | None]] = {name: [] for name in wanted}
        broken = 0
        for text in piece.splitlines():
            if not text.strip():
                continue
            try:
                row = json.loads(text, parse_float=str)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                broken += 1
                continue
            for name, values in columns.items():
                value = _value(row, name)
                values.append(None if value is None else str(value))
        skipped.rows += broken
        skipped.add("no JSON object", broken, place)
        # A field that no line has is none of the log's.
        present = {
            name: values
            for name, values in columns.items()
            if name in _FIELDS or any(v is not None for v in values)
        }
        yield place, pl.DataFrame(present, schema=dict.fromkeys(present, pl.String))


def _value(row: dict[str, Any], name: str) -> Any:
    """A field of a JSON line, under its name, an underscored one, or as objects in each other."""
    if name in row or "." not in name:
        return row.get(name)
    outer, _, inner = name.partition(".")
    nested = row.get(outer)
    return nested.get(inner) if isinstance(nested, dict) else row.get(name.replace(".", "_"))


READERS.add(
    Reader(
        "zeek", "Zeek: conn.log (text or JSON), by a column or by notice.log", _read,
        ("conn.log", ".log", ".labeled"), "https://docs.zeek.org/en/current/logs/conn.html",
    )
)  # fmt: skip
