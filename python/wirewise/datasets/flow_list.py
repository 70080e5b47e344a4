# SPDX-License-Identifier: Apache-2.0
"""Sorted lists of flows (`.flows`): labels of millions of flows, which the agent reads along with captures.

The layout is that of crates/wirewised/src/labels/sorted.rs. Flows come in any order and number; they are
sorted in runs on disk, which are then merged, so memory does not grow with their number.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise import ending
from wirewise.errors import InputError
from wirewise.files import open_file, replacing
from wirewise.places import find_place

RECORD = np.dtype(
    [
        ("from_ns", "<u8"),
        ("until_ns", "<u8"),
        ("source", "u1", 16),
        ("destination", "u1", 16),
        ("source_port", "<u2"),
        ("destination_port", "<u2"),
        ("label", "<u2"),
        ("version", "u1"),
        ("protocol", "u1"),
        ("rest", "u1", 8),
    ]
)
COLUMNS = {
    "from_ns": pl.Int64,
    "until_ns": pl.Int64,
    "src": pl.String,
    "sport": pl.Int64,
    "dst": pl.String,
    "dport": pl.Int64,
    "protocol": pl.Int64,
    "label": pl.String,
}
"""What readers give. Times in ns since 1970, `until_ns` outside; protocol 0: any without ports."""
_MAGIC = b"WWFLOWS1"
_HEADER = struct.Struct("<8sQQQ32x")
_RUN = 1 << 19  # flows sorted at once: 32 MiB
_PIECE = 1 << 14  # flows of each run in memory while runs are merged
_MAX_LABELS = 4096
_MAX_NAMES = 1 << 20  # bytes
_DOTTED = r"^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$"
_WITH_PORTS = (6, 17, 33, 132, 136)


@dataclass
class Skipped:
    """Rows that became no flow, by reason, with the first place of each."""

    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, count: int, place: str) -> None:
        if count:
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.places.setdefault(reason, place)

    def merge(self, other: Skipped) -> None:
        self.rows += other.rows
        for reason, count in other.counts.items():
            self.add(reason, count, other.places[reason])

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class FlowList:
    """What a list holds. labels : flows of each; first_ns, last_ns : times that its flows cover."""

    flows: int
    labels: dict[str, int]
    first_ns: int
    last_ns: int

    @classmethod
    def read(cls, path: str | Path) -> FlowList:
        """Counts the flows of a list, a piece at a time. Raises InputError if it is none."""
        path = Path(path)
        with open_file(path, what="sorted list of flows") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or not head.startswith(_MAGIC):
                raise InputError(str(path), "is no sorted list of flows", "make it with `wirewise datasets`")
            _, count, _, length = _HEADER.unpack(head)
            size = os.fstat(file.fileno()).st_size
            if length > _MAX_NAMES or size != _HEADER.size + count * RECORD.itemsize + length:
                raise InputError(
                    str(path), "is cut off, or was changed", "make it again with `wirewise datasets`"
                )
            counts = np.zeros(_MAX_LABELS, np.int64)
            first, last = 2**63 - 1, 0
            for records in records_of(path):
                if (records["label"] >= _MAX_LABELS).any():
                    raise InputError(str(path), "has a label without a name", "make it again")
                counts += np.bincount(records["label"], minlength=_MAX_LABELS)
                first = min(first, int(records["from_ns"][0]))
                last = max(last, int(records["until_ns"].max()))
            file.seek(_HEADER.size + count * RECORD.itemsize)
            names = file.read(length).decode("utf-8", "replace").splitlines()
        return cls(count, dict(zip(names, counts.tolist(), strict=False)), first if count else 0, last)


def records_of(path: Path) -> Iterator[NDArray[Any]]:
    """The flows of a list, a piece at a time."""
    with path.open("rb") as file:
        left = _HEADER.unpack(file.read(_HEADER.size))[1]
        while left:
            records = np.fromfile(file, RECORD, min(left, _RUN))
            if not len(records):
                raise InputError(str(path), "is cut off", "make it again")
            left -= len(records)
            yield records


class Run:
    """Flows of one source, sorted in runs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.names = folder, list[Path](), dict[str, int]()
        self._parts, self._held = list[NDArray[Any]](), 0

    def add(self, frame: pl.DataFrame, skipped: Skipped, place: str) -> None:
        """Frame : COLUMNS, with null where a value could not be read; those rows are skipped and counted."""
        frame = _checked(frame, skipped, place)
        if frame.is_empty():
            return
        sources, destinations = _packed(frame["src"]), _packed(frame["dst"])
        right = (sources[0] > 0) & (sources[0] == destinations[0])
        skipped.add("an address is none, or the two are of different versions", int((~right).sum()), place)
        records = np.zeros(len(frame), RECORD)
        records["from_ns"], records["until_ns"] = frame["from_ns"].to_numpy(), frame["until_ns"].to_numpy()
        records["version"], records["source"] = sources
        records["destination"] = destinations[1]
        records["protocol"] = frame["protocol"].to_numpy()
        ports = np.isin(records["protocol"], _WITH_PORTS)
        records["source_port"] = np.where(ports, frame["sport"].to_numpy(), 0)
        records["destination_port"] = np.where(ports, frame["dport"].to_numpy(), 0)
        records["label"] = self._numbers(frame["label"])
        self._parts.append(records[right])
        self._held += int(right.sum())
        if self._held >= _RUN:
            self.flush()

    def _numbers(self, labels: pl.Series) -> NDArray[np.int64]:
        for name in labels.unique(maintain_order=True):
            self.names.setdefault(name, len(self.names))
        if len(self.names) > _MAX_LABELS:
            raise InputError(
                f"{len(self.names):,} different labels", f"are more than {_MAX_LABELS:,}",
                "choose another column for labels",
            )  # fmt: skip
        numbers = labels.replace_strict(self.names, return_dtype=pl.Int64).to_numpy()
        return np.asarray(numbers, np.int64)

    def flush(self) -> None:
        if self._held:
            records = np.concatenate(self._parts)
            file = self.folder / f"run-{len(self.files):05}"
            records[np.argsort(records["from_ns"], kind="stable")].tofile(file)
            self.files.append(file)
        self._parts, self._held = [], 0


def _checked(frame: pl.DataFrame, skipped: Skipped, place: str) -> pl.DataFrame:
    """The rows that have everything; the others are counted by what they lack."""
    skipped.rows += len(frame)
    port = pl.col("sport").is_between(0, 65535) & pl.col("dport").is_between(0, 65535)
    lacks = {
        "no label": pl.col("label").is_null() | (pl.col("label") == ""),
        "no time, or one that cannot be read": ~pl.col("from_ns").is_between(0, 2**62),
        "an unknown protocol": ~pl.col("protocol").is_between(0, 255),
        "a port is none": ~port,
        "no address": pl.col("src").is_null() | pl.col("dst").is_null(),
        "ends before it begins": pl.col("until_ns") <= pl.col("from_ns"),
    }
    for reason, broken in lacks.items():
        whole = frame.filter(~broken.fill_null(True))
        skipped.add(reason, len(frame) - len(whole), place)
        frame = whole
    return frame


def _packed(addresses: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """IP versions (0: no address) and bytes, (n, 16), of addresses as text."""
    table = np.zeros((len(addresses), 16), np.uint8)
    versions = np.zeros(len(addresses), np.uint8)
    parts = addresses.str.extract_groups(_DOTTED).struct.unnest()
    numbers = parts.select(pl.all().cast(pl.UInt8, strict=False))
    four = numbers.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    for index, name in enumerate(numbers.columns):
        table[:, index] = np.where(four, numbers[name].fill_null(0).to_numpy(), 0)
    versions[four] = 4
    six = {text: places for text, places in _places(addresses, ~four).items() if ":" in text}
    for text, places in six.items():
        if packed := _six(text):
            table[places] = np.frombuffer(packed, np.uint8)
            versions[places] = 6
    return versions, table


def _six(text: str) -> bytes:
    """The bytes of an IPv6 address; none if it is no address."""
    try:
        return socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return b""


def _places(texts: pl.Series, among: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Where each text stands, of those that are meant."""
    chosen = pl.DataFrame({"text": texts, "at": np.arange(len(texts))}).filter(pl.Series(among))
    return dict(chosen.group_by("text").agg("at").rows())


def write_list(path: str | Path, runs: Iterable[Run]) -> FlowList:
    """Merges runs into one list; the file appears when it is complete. Raises InputError without a flow."""
    names: dict[str, int] = {}
    sources = []
    for run in runs:
        run.flush()
        numbers = [names.setdefault(name, len(names)) for name in run.names]
        sources += [(file, np.array(numbers, np.uint16)) for file in run.files]
    if not sources:
        raise InputError(str(path), "would hold no flow: no row of the labels could be used")
    if len(names) > _MAX_LABELS:
        raise InputError(f"{len(names):,} different labels", f"are more than {_MAX_LABELS:,}")
    counts, longest, first, last, total = np.zeros(len(names), np.int64), 0, None, 0, 0
    text = "".join(f"{name}\n" for name in names).encode()
    with replacing(path) as temporary, temporary.open("wb", buffering=1 << 20) as out:
        out.write(bytes(_HEADER.size))
        for records in _merged(sources):
            records.tofile(out)
            counts += np.bincount(records["label"], minlength=len(names))
            longest = max(longest, int((records["until_ns"] - records["from_ns"]).max()))
            first = int(records["from_ns"][0]) if first is None else first
            last = max(last, int(records["until_ns"].max()))
            total += len(records)
        out.write(text)
        out.seek(0)
        out.write(_HEADER.pack(_MAGIC, total, longest, len(text)))
    return FlowList(total, dict(zip(names, counts.tolist(), strict=True)), first or 0, last)


def _merged(sources: list[tuple[Path, NDArray[np.uint16]]]) -> Iterator[NDArray[Any]]:
    """The records of sorted files, sorted; a piece of each is in memory."""
    done = [0] * len(sources)

    def more(index: int) -> NDArray[Any]:
        path, numbers = sources[index]
        records = np.fromfile(path, RECORD, _PIECE, offset=done[index] * RECORD.itemsize)
        done[index] += len(records)
        records["label"] = numbers[records["label"]]
        return records

    pieces = {index: more(index) for index in range(len(sources))}
    while pieces:
        # Up to the lowest end of a piece, nothing that has not been read can come before.
        limit = min(piece["from_ns"][-1] for piece in pieces.values())
        ready = []
        for index, piece in list(pieces.items()):
            cut = int(np.searchsorted(piece["from_ns"], limit, side="right"))
            ready.append(piece[:cut])
            rest = piece[cut:] if cut < len(piece) else more(index)
            if len(rest):
                pieces[index] = rest
            else:
                del pieces[index]
        records = np.concatenate(ready)
        yield records[np.argsort(records["from_ns"], kind="stable")]


def temporary_runs(path: Path) -> AbstractContextManager[Path]:
    """A folder for the runs of a list, on the disk that gets the list."""
    place = find_place(path)
    return ending.temporary_folder(None if place.is_stream else place.path.parent)
