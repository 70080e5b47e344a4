# SPDX-License-Identifier: Apache-2.0
"""Tables with variants of captures: each capture is rewritten, packet by packet, and its features computed
anew by the same program.

A variant's rows have the original's capture, flow and label, so that every split keeps them where their
original is; the column `variant` says their number from 1, what was varied, and the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import polars as pl

from wirewise import ending
from wirewise.augment.draw import known_as, number, permutation
from wirewise.augment.frames import Drawn, locate, pace, right_checksum
from wirewise.augment.kinds import Augmentation
from wirewise.augment.rows import service_ports
from wirewise.datasets import Table, read_capture, read_ethernet, table_of, write_capture
from wirewise.datasets.captures import ETHERNET
from wirewise.errors import InputError

MOST_COPIES = 20


def with_variants(
    table: Table, what: Sequence[Augmentation], copies: int, seed: int, *, progress: bool = True
) -> Table:
    """The table, and behind its rows those of `copies` variants of its captures.

    table : of captures that are still where its column `capture` says. A variant has a row for each row of
    the table: those of the same packets. A capture that is not Ethernet has no variants. The captures of one
    variant at a time are on disk, in a temporary folder.

    Raises InputError for a capture that is packed, or Ethernet at first and something else later, and where
    none is Ethernet.
    """
    if not 1 <= copies <= MOST_COPIES:
        raise InputError(f"{copies} variants", f"must be 1 to {MOST_COPIES}")
    pool = service_ports(table.frame)
    parts = [table.frame.with_columns(variant=pl.lit(""))]
    known = known_as(table.frame["capture"].unique(maintain_order=True).to_list())
    varied = [capture for capture in known if _is_ethernet(capture)]
    if not varied:
        raise InputError("the table", "has no capture that is Ethernet", "make variants of others")
    for copy in range(1, copies + 1):
        own = number(seed, "copy", copy - 1)
        said = f"{copy}: {', '.join(entry.name for entry in what)}; seed {seed}"
        with ending.temporary_folder() as folder:
            names = {}
            for index, capture in enumerate(varied):
                called = known[capture]
                drawn = Drawn(own, called, permutation(pool, own, "ports", called))
                path = folder / f"{index}.pcap"
                write_capture(path, rewritten(capture, what, drawn))
                names[str(path)] = capture
            made, _ = table_of([Path(name) for name in names], table.feature_set, progress=progress)
        parts.append(_named(made.frame, table.frame, names).with_columns(variant=pl.lit(said)))
    return Table(pl.concat(parts, how="diagonal"), table.feature_set)


def rewritten(capture: str, what: Sequence[Augmentation], drawn: Drawn) -> Iterator[tuple[int, bytes]]:
    """Times and frames of a capture's variant: as many packets, in the same order."""
    stretch = pace(drawn) if any(entry.name == "pace" for entry in what) else None
    rewrites = [entry.rewrite for entry in what if entry.rewrite]
    first = None
    for packet in read_ethernet(capture):
        time_ns = packet.time_ns
        first = time_ns if first is None else first
        if stretch is not None:
            time_ns = first + round((time_ns - first) * stretch)
        place = locate(packet.frame) if rewrites else None
        if place is None:
            yield time_ns, packet.frame
            continue
        frame = bytearray(packet.frame)
        for rewrite in rewrites:
            rewrite(frame, place, drawn)
        right_checksum(frame, place)
        yield time_ns, bytes(frame)


def _named(made: pl.DataFrame, original: pl.DataFrame, names: dict[str, str]) -> pl.DataFrame:
    """A variant's rows under the names of the original's, which says what they are."""
    about = [name for name in original.columns if name not in made.columns or name in ("flow", "label")]
    known = original.select("capture", "packet", *about)
    renamed = made.drop("flow", "label").with_columns(pl.col("capture").replace_strict(names))
    return renamed.join(known, on=["capture", "packet"], how="inner", maintain_order="left").select(
        original.columns
    )


def _is_ethernet(capture: str) -> bool:
    """By its first packet."""
    return all(packet.link_type == ETHERNET for packet in islice(read_capture(capture), 1))
