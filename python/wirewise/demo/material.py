# SPDX-License-Identifier: Apache-2.0
"""What the demo learns from and what it sends: packets made here, or the captures of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from wirewise import ending
from wirewise.datasets.captures import ETHERNET, CapturedPacket, link_name, read_capture
from wirewise.datasets.extraction import Truth, extract_table
from wirewise.datasets.manifest import BENIGN, CaptureFolder, left_out_text
from wirewise.datasets.table import Table, build_table_from
from wirewise.demo.counters import tag
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.packet import parse
from wirewise.traffic import KINDS, LABELS, generate

HERE = Path(__file__).parent
MAX_FRAME = 1514
"""Bytes of the longest frame that is sent; longer ones are cut, which changes nothing: only headers are
read.
"""
_LEARN_SHARE = 0.6
_TRAINING_RUNS = 8

Split = Literal["time", "files"]


@dataclass(frozen=True)
class Lesson:
    """What a forest learns from: labelled packets, none of which are sent."""

    feature_set: FeatureSet
    table: Table
    class_weight: Mapping[str, float]


@dataclass(frozen=True)
class Material:
    """What is sent.

    kinds : what the packets are, finer than classes; label_of says the class of each. packets : (time_ns from
    the start, frame, kind number), in time order. made : by the generator, not captured. notes : what was
    left out, and why.
    """

    kinds: list[str]
    label_of: dict[str, str]
    packets: list[tuple[int, bytes, int]]
    made: bool
    notes: list[str]

    def attacks(self, kind: str) -> bool:
        return self.label_of[kind] != BENIGN

    @cached_property
    def tags(self) -> list[int]:
        """Two a kind: 2 * kind, plus 1 if the packet is the first of its flow that asks for a TCP connection.
        Later ones ask for the same connection again.
        """
        asked: set[tuple[bytes, bytes, int, int]] = set()
        return [2 * kind + _asks_anew(frame, asked) for _, frame, kind in self.packets]

    def tagged(self) -> list[tuple[int, bytes]]:
        """The packets with their truth in the source address (see `counters`)."""
        packets = zip(self.packets, self.tags, strict=True)
        return [(time_ns, tag(frame, number)) for (time_ns, frame, _), number in packets]


def _asks_anew(frame: bytes, asked: set[tuple[bytes, bytes, int, int]]) -> bool:
    _, packet = parse(frame)
    if packet is None or packet.protocol != 6 or packet.tcp_flags & 0x17 != 0x02:
        return False
    flow = packet.source, packet.destination, packet.source_port, packet.destination_port
    if flow in asked:
        return False
    asked.add(flow)
    return True


def synthetic(seed: int, *, duration_s: float, packets: int) -> Material:
    """Traffic of the generator: one long run, of another seed than those of `lesson`."""
    traffic = generate(1000 * seed, duration_s=duration_s, packets=packets)
    numbers = traffic.rows["kind"].tolist()
    sent = [(packet.time_ns, packet.frame, kind) for packet, kind in zip(traffic, numbers, strict=True)]
    return Material(list(KINDS), dict(LABELS), sent, True, [])


def lesson(seed: int, *, duration_s: float, packets: int, features: str = "features.yaml") -> Lesson:
    """Several short runs of the generator, because each has its own tools and hosts: a single one would teach
    the forest a single flood.

    packets : of what is sent. features : which of the demo's feature sets.
    """
    feature_set = FeatureSet.load(HERE / features)
    size = min(15_000, packets // 4)
    runs = [(1000 * seed + run + 1, duration_s, size) for run in range(_TRAINING_RUNS)]
    table = build_table_from(_training_run, runs, feature_set, what="making and reading training packets")
    # A visitor turned away costs more than an attack packet let through.
    return Lesson(feature_set, table, {BENIGN: 6.0})


def _training_run(seed: int, duration_s: float, packets: int) -> tuple[str, list[CapturedPacket], list[str]]:
    traffic = list(generate(seed, duration_s=duration_s, packets=packets))
    captured = [CapturedPacket(p.time_ns, p.frame, len(p.frame), ETHERNET) for p in traffic]
    return f"seed {seed}", captured, [packet.label for packet in traffic]


def from_captures(folder: str | Path, *, split: Split, duration_s: float | None) -> tuple[Material, Lesson]:
    """The captures of a folder with a manifest: one part of each class to send, the other to learn from.

    split : "time" learns from the first 60 % of each capture and sends what follows, without the flows that
    were seen; "files" learns from some captures and sends others, as far as a class has several. Packets
    without a label, and those that no program could classify (no IP), are left out of both.

    They are sent in `duration_s` seconds (None: 10,000 a second), each capture spread evenly over them, its
    order kept. Raises InputError.
    """
    captures = CaptureFolder.read(folder)
    feature_set = FeatureSet.load(HERE / "features-captures.yaml")
    usable, left_out = captures.usable(frozenset((link_name(ETHERNET),)))
    if not usable:
        raise InputError(str(folder), "has no Ethernet capture to learn from", "see its manifest.json")
    with ending.temporary_folder() as temporary:
        table_file = temporary / "table.parquet"
        files = [captures.file(entry) for entry in usable]
        extract_table(files, feature_set, table_file, truth=Truth(Path(folder)))
        every = Table.read(table_file)
    known = every.labelled.frame
    learned, sent = _split_time(known) if split == "time" else _split_files(known)
    if not len(learned) or not len(sent) or learned["label"].n_unique() < 2:
        raise InputError(
            str(folder), f"is too small to be split by {split}", "add captures, or split the other way"
        )
    kinds = [BENIGN, *sorted(set(known["label"].unique().to_list()) - {BENIGN})]
    notes = [
        *([left_out_text(left_out)] if left_out else []),
        f"{len(every.frame) - len(known)} packets left out: no label, or not IP",
        f"{len(known) - len(learned) - len(sent)} packets left out: of flows that were learned from",
    ]
    missing = sorted(set(kinds) - set(sent["label"].unique().to_list()))
    if missing:
        notes.append(f"not sent, for want of a second part: {', '.join(missing)}")
    packets = _read_again(sent, kinds, duration_s or max(2.0, len(sent) / 10_000))
    label_of = {kind: kind for kind in kinds}
    lesson = Lesson(feature_set, Table(learned, feature_set), {BENIGN: 5.0})
    return Material(kinds, label_of, packets, False, notes), lesson


def _split_time(known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    order = known.sort("time_ns", maintain_order=True)
    place = pl.int_range(pl.len()).over("capture") / pl.len().over("capture")
    order = order.with_columns(early=place < _LEARN_SHARE)
    learned = order.filter("early")
    sent = order.filter(~pl.col("early")).join(learned.select("flow").unique(), on="flow", how="anti")
    return learned.drop("early"), sent.drop("early")


def _split_files(known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """About every third capture of each class is sent; a class with one capture is only learned."""
    captures = known.group_by("capture").agg(pl.col("label").mode().sort().first()).sort("label", "capture")
    rank = pl.int_range(pl.len()).over("label")
    several = pl.len().over("label") > 1
    held_out = captures.filter(several & (rank % 3 == 1)).select("capture")
    learned = known.join(held_out, on="capture", how="anti", maintain_order="left")
    sent = known.join(held_out, on="capture", how="semi", maintain_order="left")
    return learned, sent.join(learned.select("flow").unique(), on="flow", how="anti", maintain_order="left")


def _read_again(sent: pl.DataFrame, kinds: list[str], duration_s: float) -> list[tuple[int, bytes, int]]:
    """The frames of some rows of a table, with the times at which they are sent."""
    number_of = {kind: number for number, kind in enumerate(kinds)}
    packets: list[tuple[int, bytes, int]] = []
    for (capture,), rows in sent.group_by(["capture"], maintain_order=True):
        wanted = dict(zip(rows["packet"].to_list(), rows["label"].to_list(), strict=True))
        frames = [
            (captured.time_ns, captured.frame[:MAX_FRAME], number_of[wanted[number]])
            for number, captured in enumerate(read_capture(str(capture)), 1)
            if number in wanted
        ]
        frames.sort(key=lambda packet: packet[0])
        times = ((np.arange(len(frames)) + 0.5) / len(frames) * duration_s * 1e9).astype(np.int64).tolist()
        packets += [(time, frame, kind) for time, (_, frame, kind) in zip(times, frames, strict=True)]
    packets.sort(key=lambda packet: packet[0])
    return packets
