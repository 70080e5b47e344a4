# SPDX-License-Identifier: Apache-2.0
"""Feature tables: one row for each packet of some captures, with its features and its label.

Columns: time_ns, capture, packet (1-based number in the capture), flow (the same text for both directions),
one column a feature by name, label ("" is unlabelled), status (`features.packet.Status`). A packet that is
not classified has a row without features. The feature set travels in the file's metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from wirewise.datasets.captures import CapturedPacket, read_ethernet
from wirewise.datasets.labels import UNLABELLED, Labels
from wirewise.errors import InputError
from wirewise.features import Extractor, FeatureSet
from wirewise.features.packet import Packet, Status, parse
from wirewise.files import replacing

_METADATA = "wirewise.feature_set"
_FIXED = {
    "time_ns": pl.Int64,
    "capture": pl.String,
    "packet": pl.Int64,
    "flow": pl.String,
    "label": pl.String,
    "status": pl.Int32,
}


@dataclass(frozen=True)
class Table:
    """A feature table and the feature set that computed it."""

    frame: pl.DataFrame
    feature_set: FeatureSet

    @property
    def labelled(self) -> Table:
        """The rows that can be learned from: classified, with a label."""
        wanted = (pl.col("status") == Status.CLASSIFIED) & (pl.col("label") != UNLABELLED)
        return Table(self.frame.filter(wanted), self.feature_set)

    def relabel(self, names: Callable[[str], str]) -> Table:
        """The same table with every label replaced by names(label)."""
        mapping = {old: names(old) for old in self.frame["label"].unique().to_list()}
        column = pl.col("label").replace_strict(mapping, return_dtype=pl.String)
        return Table(self.frame.with_columns(column), self.feature_set)

    def write(self, path: str | Path) -> None:
        """Write Parquet in one step. Raises InputError where it cannot be written."""
        with replacing(path) as temporary:
            self.frame.write_parquet(temporary, metadata={_METADATA: json.dumps(self.feature_set.to_dict())})

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """Raises InputError for anything that is not a feature table."""
        if not Path(path).is_file():
            raise InputError(
                str(path), "does not exist or is no file", "make a table with `wirewise features`"
            )
        try:
            frame = pl.read_parquet(path)
            metadata = pl.read_parquet_metadata(path)
        except (PolarsError, OSError) as error:
            raise InputError(
                str(path), f"is not Parquet ({error})", "make a table with `wirewise features`"
            ) from error
        if _METADATA not in metadata:
            raise InputError(
                str(path), "does not say its feature set", "make the table with `wirewise features`"
            )
        feature_set = FeatureSet.from_dict(json.loads(metadata[_METADATA]), source=str(path))
        missing = [name for name in [*_FIXED, *feature_set.feature_names] if name not in frame.columns]
        if missing:
            raise InputError(
                str(path), f"has no column {missing[0]!r}", "make the table with `wirewise features`"
            )
        return cls(frame, feature_set)


def build_table(
    captures: Sequence[str | Path],
    feature_set: FeatureSet,
    labels: Labels | None = None,
    *,
    jobs: int | None = None,
    progress: bool = True,
) -> Table:
    """Run captures through the reference extractor, each with an empty flow table.

    captures : Ethernet pcap or pcapng files. labels : what each packet is; None leaves all unlabelled. jobs :
    processes; None is one a CPU. progress : show a bar on a terminal, on stderr.

    Raises InputError for a capture that cannot be read to its end, or that is not Ethernet.
    """
    paths = [Path(capture) for capture in captures]
    if not paths:
        raise InputError("no capture was given", way_out="name at least one pcap or pcapng file")
    workers = min(jobs or os.cpu_count() or 1, len(paths))
    frames: dict[Path, pl.DataFrame] = {}
    with _bar(len(paths), progress) as advance:
        if workers == 1:
            for path in paths:
                frames[path] = extract(path, feature_set, labels)
                advance()
        else:
            with ProcessPoolExecutor(workers) as pool:
                tasks = {pool.submit(extract, path, feature_set, labels): path for path in paths}
                try:
                    for task in as_completed(tasks):
                        frames[tasks[task]] = task.result()
                        advance()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
    return Table(pl.concat([frames[path] for path in paths]), feature_set)


def extract(capture: Path, feature_set: FeatureSet, labels: Labels | None) -> pl.DataFrame:
    """The rows of one capture."""
    return observe(
        read_ethernet(capture), str(capture), feature_set, labels.labeller(capture) if labels else None
    )


def observe(
    packets: Iterable[CapturedPacket],
    name: str,
    feature_set: FeatureSet,
    label: Callable[[CapturedPacket, Packet | None], str] | None,
) -> pl.DataFrame:
    """The rows of some packets; name goes into the column `capture`."""
    extractor = Extractor(feature_set)
    times, flows, features, names, statuses = [], [], [], [], []
    blank = [None] * len(feature_set.features)
    for captured in packets:
        _, outer = parse(captured.frame)
        if outer is None or feature_set.decapsulate:
            seen = extractor.process(captured.frame, captured.time_ns)
        else:
            seen = extractor.process_packet(outer, captured.time_ns)
        times.append(captured.time_ns)
        flows.append(flow_id(outer) if outer else "")
        features.append(seen.features if seen.features is not None else blank)
        names.append(label(captured, outer) if label else UNLABELLED)
        statuses.append(int(seen.status))
    count = len(times)
    columns: dict[str, pl.Series] = {
        "time_ns": pl.Series(times, dtype=pl.Int64),
        "capture": pl.repeat(name, count, dtype=pl.String, eager=True),
        "packet": pl.int_range(1, count + 1, dtype=pl.Int64, eager=True),
        "flow": pl.Series(flows, dtype=pl.String),
    }
    for index, feature in enumerate(feature_set.feature_names):
        columns[feature] = pl.Series([row[index] for row in features], dtype=pl.Int64)
    columns["label"] = pl.Series(names, dtype=pl.String)
    columns["status"] = pl.Series(statuses, dtype=pl.Int32)
    return pl.DataFrame(columns)


def flow_id(packet: Packet) -> str:
    """Text that is equal for all packets of a conversation, in both directions, and for no others."""
    ends = sorted([(packet.source, packet.source_port), (packet.destination, packet.destination_port)])
    return f"{packet.protocol} " + " ".join(f"{_address(address)}|{port}" for address, port in ends)


@lru_cache(maxsize=65536)
def _address(address: bytes) -> str:
    return str(ip_address(address))


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar over captures, on a terminal only; yields what moves it on."""
    console = Console(stderr=True)
    columns = (TextColumn("extracting features"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (shown and console.is_terminal)
    ) as progress:
        task = progress.add_task("captures", total=total)
        yield lambda: progress.advance(task)
