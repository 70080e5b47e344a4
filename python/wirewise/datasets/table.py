# SPDX-License-Identifier: Apache-2.0
"""Feature tables: one row for each packet of some captures, with its features and its label.

Columns: time_ns, capture, packet (1-based number in the capture), flow (the same text for both directions),
sender (which of the two ends in `flow` sent the packet, 1 or 2; 0 of what is not IP), one column a feature
by name, label ("" is unlabelled), status (`abi.Status`), application where labels such as `benign/web` name
it, source where a manifest says it, and where captures were augmented `variant`, see VARIANT. A packet that
is not classified has a row without features. The feature set travels in the file's metadata.

A label belongs to a flow, see `whole_flows`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from wirewise.abi import Status
from wirewise.advice import in_python_terms
from wirewise.datasets import applications
from wirewise.datasets.captures import CapturedPacket, read_ethernet
from wirewise.datasets.labels import UNLABELLED, Labeller, Labels
from wirewise.datasets.parquet import read_parquet
from wirewise.errors import InputError
from wirewise.feature_sets import Extractor, FeatureSet
from wirewise.feature_sets.packet import Packet, parse
from wirewise.files import parse_json, replacing
from wirewise.frames import Frame, to_polars
from wirewise.parallel import processors
from wirewise.text import address_text

_METADATA = "wirewise.feature_set"
_ELEMENTS = 1 << 15  # values in a feature set
SOURCE = "source"
"""Column of tables made with a manifest: where each capture comes from, "" where that is not known."""
VARIANT = "variant"
"""Column of tables with variants of captures: "" for a row of an original, else which variant it is of."""
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
    def classified(self) -> Table:
        """The rows that have features, without those of variants."""
        return self._rows(pl.col("status") == Status.CLASSIFIED, of_variants=False)

    @property
    def originals(self) -> Table:
        """The rows of captures as they are, without those of variants."""
        return self._rows(pl.lit(True), of_variants=False)

    @property
    def variants(self) -> Table:
        """The labelled rows of variants of captures (`wirewise features --augment`): to learn from, only."""
        known = (pl.col("status") == Status.CLASSIFIED) & (pl.col("label") != UNLABELLED)
        return self._rows(known, of_variants=True)

    def _rows(self, wanted: pl.Expr, *, of_variants: bool) -> Table:
        if VARIANT in self.frame.columns:
            wanted &= (pl.col(VARIANT) != "") == of_variants
        elif of_variants:
            wanted = pl.lit(False)
        return Table(self.frame.filter(wanted), self.feature_set)

    @property
    def labelled(self) -> Table:
        """The rows that can be learned from: classified, with a label."""
        classified = self.classified
        return Table(classified.frame.filter(pl.col("label") != UNLABELLED), self.feature_set)

    def reading(self, feature_set: FeatureSet) -> Table:
        """The same rows for a model that reads only some of the features, as `search` makes them; itself
        where these are not features of the table.
        """
        own = {feature.name: feature.spec for feature in self.feature_set.features}
        same = all(own.get(feature.name) == feature.spec for feature in feature_set.features)
        if not same or self.feature_set.key != feature_set.key:
            return self
        return Table(self.frame, feature_set)

    def relabel(self, names: Callable[[str], str]) -> Table:
        """The same table with every label replaced by names(label)."""
        mapping = {old: names(old) for old in self.frame["label"].unique().to_list()}
        column = pl.col("label").replace_strict(mapping, return_dtype=pl.String)
        return Table(self.frame.with_columns(column), self.feature_set)

    def write(self, path: str | Path) -> None:
        """Write Parquet in one step. Raises InputError where it cannot be written."""
        metadata = {_METADATA: json.dumps(self.feature_set.to_dict())}
        # Polars takes names in UTF-8 only.
        with replacing(path) as temporary, temporary.open("wb") as file:
            self.frame.write_parquet(file, metadata=metadata)

    def __repr__(self) -> str:
        rows, labels = len(self.frame), self.frame["label"].n_unique()
        return f"<Table: {rows:,} packets with {labels} labels, {self.feature_set!r}>"

    @classmethod
    def of(cls, frame: Frame, feature_set: FeatureSet, *, what: str = "the table") -> Table:
        """A table from a data frame, see `wirewise.frames`.

        The frame needs the feature set's columns and `flow`, by which rows are kept apart for tests. Without
        `label` it is unlabelled, without `status` every packet is classified, and without `capture` all of
        them are of one. what : its name in errors. Raises InputError for a column that is missing.
        """
        given = to_polars(frame, what)
        if missing := [name for name in ("flow", *feature_set.feature_names) if name not in given.columns]:
            raise InputError(
                what, f"has no column {missing[0]!r}", "keep the columns that `wirewise.features` gives"
            )
        label = pl.col("label") if "label" in given.columns else pl.lit(UNLABELLED)
        status = pl.col("status") if "status" in given.columns else pl.lit(int(Status.CLASSIFIED))
        capture = pl.col("capture") if "capture" in given.columns else pl.lit("")
        columns = (
            capture.cast(pl.String).alias("capture"),
            label.cast(pl.String).fill_null(UNLABELLED).alias("label"),
            status.cast(pl.Int32).alias("status"),
        )
        return cls(_labelled(given.with_columns(columns)), feature_set)

    @classmethod
    @in_python_terms
    def read(cls, path: str | PathLike[str]) -> Table:
        """Of a file, or of a folder of parts as `wirewise datasets` writes it.

        Raises InputError for anything that is not a feature table.
        """
        path = Path(path)
        if path.is_dir():
            return cls._read_parts(path)
        if not path.is_file():
            raise InputError(
                str(path), "does not exist or is no file", "make a table with `wirewise features`"
            )
        frame, metadata = read_parquet(path, what="table")
        if _METADATA not in metadata:
            raise InputError(
                str(path), "does not say its feature set", "make the table with `wirewise features`"
            )
        try:
            document = parse_json(metadata[_METADATA].encode(), elements=_ELEMENTS)
        except ValueError as error:
            raise InputError(
                str(path), f"its feature set is not JSON ({error})", "make the table with `wirewise features`"
            ) from error
        feature_set = FeatureSet.from_dict(document, source=str(path))
        missing = [name for name in [*_FIXED, *feature_set.feature_names] if name not in frame.columns]
        if missing:
            raise InputError(
                str(path), f"has no column {missing[0]!r}", "make the table with `wirewise features`"
            )
        return cls(_labelled(frame), feature_set)

    @classmethod
    def _read_parts(cls, folder: Path) -> Table:
        parts = sorted(folder.glob("*.parquet"))
        if not parts:
            raise InputError(
                str(folder), "holds no part of a table (.parquet)", "give a table, or a folder of parts"
            )
        tables = [cls.read(part) for part in parts]
        feature_set = tables[0].feature_set
        for part, table in zip(parts, tables, strict=True):
            if table.feature_set != feature_set:
                raise InputError(str(part), "is of another feature set than the other parts", "remove it")
        return cls(pl.concat([table.frame for table in tables], how="vertical_relaxed"), feature_set)

    @classmethod
    def joined(cls, tables: Sequence[Table]) -> Table:
        """Several of the same features as one. Raises InputError where captures of two have the same name:
        their flows would be taken for each other.
        """
        met: set[str] = set()
        for table in tables:
            named = set(table.frame["capture"].unique().to_list())
            if both := sorted(met & named):
                raise InputError(
                    f"two tables have a capture {both[0]!r}", way_out="give captures names of their own"
                )
            met |= named
        rows = pl.concat([table.frame for table in tables], how="diagonal_relaxed")
        return cls(rows, tables[0].feature_set)


def whole_flows(frame: pl.DataFrame) -> pl.DataFrame:
    """Unlabelled packets of a labelled flow get its label: that of the labelled packet before them, or of the
    first one.

    Labels often name one direction only, such as what the attacker sent. If the answers stayed unlabelled,
    the fifth labelled packet of an attack would be a later packet than the fifth of a benign flow, and a
    model could tell the two apart by the count alone.

    frame : with the columns `capture`, `flow`, `label`, in the order of each capture's packets.
    """
    stated = pl.when(pl.col("label") != UNLABELLED).then(pl.col("label"))
    if not frame.select(stated.is_null().any() & stated.is_not_null().any()).item():
        return frame
    flow = [name for name in ("capture", "flow", VARIANT) if name in frame.columns]
    carried = pl.coalesce(stated.forward_fill().over(flow), stated.backward_fill().over(flow))
    label = pl.when(pl.col("flow") == "").then(stated).otherwise(carried)
    return frame.with_columns(label.fill_null(UNLABELLED).alias("label"))


def _labelled(frame: pl.DataFrame) -> pl.DataFrame:
    return applications.by_labels(whole_flows(frame))


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
    tasks = [(path, feature_set.to_dict(), labels) for path in paths]
    return Table(pl.concat(_each(_extract, tasks, jobs, progress, "extracting features")), feature_set)


def build_table_from(
    source: Callable[..., tuple[str, Iterable[CapturedPacket], Sequence[str]]],
    arguments: Sequence[tuple[Any, ...]],
    feature_set: FeatureSet,
    *,
    what: str = "extracting features",
    jobs: int | None = None,
    progress: bool = True,
) -> Table:
    """As `build_table`, from packets that are not in files.

    source : a module-level function, called once with each of the arguments, in several processes. It gives
    a name for the column `capture`, packets in time order and a label for each. what : shown beside the
    progress bar.
    """
    tasks = [(source, each, feature_set.to_dict()) for each in arguments]
    return Table(pl.concat(_each(_extract_from, tasks, jobs, progress, what)), feature_set)


def _each(
    work: Callable[..., Columns],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None,
    progress: bool,
    what: str,
) -> list[pl.DataFrame]:
    """The rows of every task, in order, worked on by several processes."""
    workers = min(jobs or processors(), len(tasks))
    with _bar(what, len(tasks), progress) as advance:
        if workers == 1:
            return [_frame(work(*task), advance) for task in tasks]
        with ProcessPoolExecutor(workers) as pool:
            futures = [pool.submit(work, *task) for task in tasks]
            try:
                return [_frame(future.result(), advance) for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


@dataclass(frozen=True)
class Columns:
    """Rows as they leave a worker. Polars has threads, which a forked process must not touch."""

    capture: str
    time_ns: list[int]
    flow: list[str]
    sender: list[int]
    features: NDArray[np.int64]  # (n, n_features); 0 where not classified
    feature_names: list[str]
    label: list[str]
    status: list[int]


def _extract(capture: Path, feature_set: dict[str, Any], labels: Labels | None) -> Columns:
    label = labels.labeller(capture) if labels else None
    return observe(read_ethernet(capture), str(capture), FeatureSet.from_dict(feature_set), label)


def _extract_from(
    source: Callable[..., tuple[str, Iterable[CapturedPacket], Sequence[str]]],
    arguments: tuple[Any, ...],
    feature_set: dict[str, Any],
) -> Columns:
    name, packets, labels = source(*arguments)
    following = iter(labels)
    return observe(packets, name, FeatureSet.from_dict(feature_set), lambda captured, packet: next(following))


def observe(
    packets: Iterable[CapturedPacket], capture: str, feature_set: FeatureSet, label: Labeller | None
) -> Columns:
    """Run packets through the reference extractor, with an empty flow table; capture: where they are from."""
    extractor = Extractor(feature_set)
    times, flows, senders, rows, names, statuses = [], [], [], [], [], []
    blank = [0] * len(feature_set.features)
    for captured in packets:
        _, outer = parse(captured.frame)
        if outer is None or feature_set.decapsulate:
            seen = extractor.process(captured.frame, captured.time_ns)
        else:
            seen = extractor.process_packet(outer, captured.time_ns)
        times.append(captured.time_ns)
        flows.append(flow_id(outer) if outer else "")
        senders.append(sender(outer) if outer else 0)
        rows.append(seen.features or blank)
        names.append(label(captured, outer) if label else UNLABELLED)
        statuses.append(int(seen.status))
    features = np.array(rows, np.int64).reshape(len(rows), len(blank))
    return Columns(capture, times, flows, senders, features, feature_set.feature_names, names, statuses)


def _frame(columns: Columns, advance: Callable[[], None]) -> pl.DataFrame:
    count = len(columns.time_ns)
    frame = pl.DataFrame(
        {
            "time_ns": pl.Series(columns.time_ns, dtype=pl.Int64),
            "capture": pl.repeat(columns.capture, count, dtype=pl.String, eager=True),
            "packet": pl.int_range(1, count + 1, dtype=pl.Int64, eager=True),
            "flow": pl.Series(columns.flow, dtype=pl.String),
            "sender": pl.Series(columns.sender, dtype=pl.Int32),
            **{name: columns.features[:, index] for index, name in enumerate(columns.feature_names)},
            "label": pl.Series(columns.label, dtype=pl.String),
            "status": pl.Series(columns.status, dtype=pl.Int32),
        }
    )
    advance()
    classified = pl.col("status") == Status.CLASSIFIED
    features = (pl.when(classified).then(pl.col(name)) for name in columns.feature_names)
    return whole_flows(frame.with_columns(features))


def flow_id(packet: Packet) -> str:
    """Text that is equal for all packets of a conversation, in both directions, and for no others."""
    ends = sorted([(packet.source, packet.source_port), (packet.destination, packet.destination_port)])
    return f"{packet.protocol} " + " ".join(f"{_address(address)}|{port}" for address, port in ends)


def sender(packet: Packet) -> int:
    """Which of the two ends in `flow_id` sent it: 1 or 2."""
    source, destination = (packet.source, packet.source_port), (packet.destination, packet.destination_port)
    return 2 if source > destination else 1


@lru_cache(maxsize=65536)
def _address(address: bytes) -> str:
    return address_text(address)


@contextmanager
def _bar(what: str, total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar, on a terminal only; yields what moves it on."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (shown and console.is_terminal)
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
