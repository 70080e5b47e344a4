# SPDX-License-Identifier: Apache-2.0
"""Suricata's EVE log as labels: flows are those of `event_type` flow, and alerts say what they are.

A flow whose flow_id an alert has is of that alert's category (or signature: `--label-column signature`), by
the alert with the highest priority (the lowest `severity`), else the first; all others are benign. Alerts and
flows may stand in one file or in several. Memory: some 20 bytes for each flow with an alert.
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
    moment_ns,
    protocol,
    slug,
)
from wirewise.errors import InputError

_BY = ("category", "signature", "signature_id", "gid")
_FLOW = {
    "flow_id": pl.UInt64, "start": pl.String, "end": pl.String, "src": pl.String, "sport": pl.Int64,
    "dst": pl.String, "dport": pl.Int64, "proto": pl.String,
}  # fmt: skip
_ENDS_NS = 1_000_000


def _read(path: Path, options: LabelOptions, skipped: Skipped) -> Iterator[pl.DataFrame]:
    by = options.label_column or "category"
    if by not in _BY:
        raise InputError(f"--label-column {by}", "is none of an alert", f"choose one of {', '.join(_BY)}")
    alerts = _alerts((path, *options.alerts), by)
    ids = pl.DataFrame(
        {"flow_id": list(alerts), "name": [name for _, name in alerts.values()]},
        schema={"flow_id": pl.UInt64, "name": pl.String},
    )
    del alerts
    seen = False
    for line, piece in chunks_of_lines(path):
        place = f"{path.name}, from line {line:,}"
        rows = [row for row in map(_flow, _events(piece, b"flow", skipped, place)) if row]
        seen |= bool(rows)
        frame = pl.DataFrame(
            rows, orient="row",
            schema=_FLOW,
        )  # fmt: skip
        frame = frame.join(ids, on="flow_id", how="left", maintain_order="left")
        start, end = moment_ns("start"), moment_ns("end")
        yield frame.select(
            start.alias("from_ns"),
            (pl.coalesce(end, start) + _ENDS_NS).alias("until_ns"),
            "src", "sport", "dst", "dport",
            protocol("proto").alias("protocol"),
            slug("name").fill_null(BENIGN).alias("label"),
        ).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())  # fmt: skip
    if not seen:
        raise InputError(
            str(path), "has no event of type flow",
            "have Suricata log flows (eve-log, types: [alert, flow]); alerts alone say nothing of the rest",
        )  # fmt: skip


def _events(piece: bytes, kind: bytes, skipped: Skipped, place: str) -> Iterator[dict[str, Any]]:
    """The events of a type; every line is one JSON object."""
    for line in piece.splitlines():
        if not line.strip():
            continue
        if b'"' + kind + b'"' not in line:
            if not line.lstrip().startswith(b"{"):
                skipped.rows += 1
                skipped.add("no JSON object", 1, place)
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            skipped.rows += 1
            skipped.add("no JSON object", 1, place)
        elif event.get("event_type") == kind.decode():
            yield event


def _flow(event: dict[str, Any]) -> tuple[Any, ...]:
    flow = event.get("flow") if isinstance(event.get("flow"), dict) else {}
    identity = event.get("flow_id")

    def number(value: Any) -> int | None:
        return value if isinstance(value, int) and 0 <= value < 2**63 else None

    def text(value: Any) -> str | None:
        return value if isinstance(value, str) else None

    assert isinstance(flow, dict)
    return (
        number(identity), text(flow.get("start")), text(flow.get("end")), text(event.get("src_ip")),
        number(event.get("src_port")) or 0, text(event.get("dest_ip")), number(event.get("dest_port")) or 0,
        text(event.get("proto")),
    )  # fmt: skip


def _alerts(paths: tuple[Path, ...], by: str) -> dict[int, tuple[int, str]]:
    """Severity and name for each flow with an alert."""
    found: dict[int, tuple[int, str]] = {}
    names: dict[str, str] = {}
    for path in paths:
        for line, piece in chunks_of_lines(path):
            for event in _events(piece, b"alert", Skipped(), f"{path.name}, from line {line:,}"):
                alert, identity = event.get("alert"), event.get("flow_id")
                if not isinstance(alert, dict) or not isinstance(identity, int) or identity < 0:
                    continue
                severity = alert.get("severity")
                name = str(alert.get(by) or "alert")
                ranked = (severity if isinstance(severity, int) else 255, names.setdefault(name, name))
                known = found.get(identity)
                if known is None or ranked[0] < known[0]:
                    found[identity] = ranked
    return found


READERS.add(
    Reader(
        "suricata", "Suricata: flows of an EVE log, labelled by its alerts", _read, (".json", ".jsonl"),
        "https://docs.suricata.io/en/latest/output/eve/eve-json-format.html",
    )
)  # fmt: skip
