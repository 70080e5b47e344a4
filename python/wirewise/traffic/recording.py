# SPDX-License-Identifier: Apache-2.0
"""Made traffic as a capture, with a list of flows that says what each packet is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from wirewise.datasets.captures import write_capture
from wirewise.datasets.flow_list import Run, Skipped, temporary_runs, write_list
from wirewise.files import check_place, replacing
from wirewise.text import address_text

from .frames import Rows, build, ends_of
from .profiles import ALL_KINDS, KINDS_BY_NAME
from .stream import Variation, stream

_GAP_NS = 10 * 10**9
"""A five-tuple that is silent for longer begins a new flow in the list."""


@dataclass(frozen=True)
class Recorded:
    """kinds : packets of each kind. flows : in the list of labels."""

    packets: int
    bytes: int
    flows: int
    kinds: dict[str, int]


def record(
    capture: Path,
    labels: Path,
    *,
    seed: int,
    mix: Mapping[str, float],
    duration_s: float,
    rate: float,
    start_ns: int,
    both_directions: bool = False,
    variation: Variation | None = None,
    progress: Callable[[int], None] | None = None,
) -> Recorded:
    """Write a pcap, and its labels as a sorted list of flows (.flows) or as CSV.

    start_ns : time of the beginning, since 1970. progress : told how much time (ns) has been written. Both
    files appear when they are complete. Raises InputError where they cannot be written.
    """
    for path in (capture, labels):
        check_place(path)
    kinds = np.zeros(len(ALL_KINDS), np.int64)
    size = 0
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_runs(labels))
        part, capture_part = stack.enter_context(replacing(labels)), stack.enter_context(replacing(capture))
        book = _Book(Run(folder))

        def packets() -> Iterator[tuple[int, bytes]]:
            nonlocal kinds, size
            pieces = stream(
                seed,
                mix=mix,
                duration_s=duration_s,
                rate=rate,
                both_directions=both_directions,
                variation=variation,
            )
            for rows in pieces:
                frames = build(rows)
                rows["time_ns"] += start_ns
                book.enter(rows)
                kinds += np.bincount(rows["kind"], minlength=len(kinds))
                size += sum(map(len, frames))
                yield from zip(rows["time_ns"].tolist(), frames, strict=True)
                if progress:
                    progress(int(rows["time_ns"][-1]) - start_ns)

        count = write_capture(capture_part, packets())
        flows = book.write(part, as_text=labels.suffix == ".csv")
    return Recorded(count, size, flows, {k: n for k, n in zip(ALL_KINDS, kinds.tolist(), strict=True) if n})


class _Book:
    """The flows seen, as long as they may go on."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.open = dict[tuple[Any, ...], list[int]]()
        self.skipped = Skipped()
        self._swept_ns = 0

    def enter(self, rows: Rows) -> None:
        done: list[tuple[Any, ...]] = []
        for time_ns, kind, ends in zip(
            rows["time_ns"].tolist(), rows["kind"].tolist(), ends_of(rows), strict=True
        ):
            there, back = (ends.source, ends.source_port), (ends.destination, ends.destination_port)
            key = (ends.protocol, *((there, back) if there <= back else (back, there)), kind)
            known = self.open.get(key)
            if known is None:
                self.open[key] = [time_ns, time_ns]
            elif time_ns - known[1] > _GAP_NS:
                done.append((key, *known))
                known[:] = [time_ns, time_ns]
            else:
                known[1] = time_ns
        now = int(rows["time_ns"][-1])
        if now - self._swept_ns > _GAP_NS:
            self._swept_ns = now
            over = [key for key, (_, last) in self.open.items() if now - last > _GAP_NS]
            done += [(key, *self.open.pop(key)) for key in over]
        self._list(done)

    def _list(self, done: list[tuple[Any, ...]]) -> None:
        if not done:
            return
        rows = [
            (first, last + 1, address_text(a), a_port, address_text(b), b_port, protocol,
             KINDS_BY_NAME[ALL_KINDS[kind]].label)
            for (protocol, (a, a_port), (b, b_port), kind), first, last in done
        ]  # fmt: skip
        frame = pl.DataFrame(rows, orient="row", schema=_SCHEMA)
        self.run.add(frame, self.skipped, "made")

    def write(self, path: Path, *, as_text: bool) -> int:
        self._list([(key, *times) for key, times in self.open.items()])
        listed = write_list(path, [self.run])
        if as_text:
            _as_csv(path)
        return listed.flows


_SCHEMA = {
    "from_ns": pl.Int64, "until_ns": pl.Int64, "src": pl.String, "sport": pl.Int64, "dst": pl.String,
    "dport": pl.Int64, "protocol": pl.Int64, "label": pl.String,
}  # fmt: skip


def _as_csv(path: Path) -> None:
    from wirewise.datasets.flow_list import FlowList, records_of

    names = list(FlowList.read(path).labels)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        out.write("src,sport,dst,dport,proto,from,until,label\n")
        for records in records_of(path):
            for flow in records:
                size = 4 if flow["version"] == 4 else 16
                ends = [address_text(bytes(flow[end][:size])) for end in ("source", "destination")]
                times = [
                    f"{int(flow[t]) // 10**9}.{int(flow[t]) % 10**9:09d}" for t in ("from_ns", "until_ns")
                ]
                cells = [
                    ends[0],
                    flow["source_port"],
                    ends[1],
                    flow["destination_port"],
                    flow["protocol"],
                    *times,
                ]
                out.write(",".join(map(str, [*cells, names[flow["label"]]])) + "\n")
