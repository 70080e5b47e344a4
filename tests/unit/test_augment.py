# SPDX-License-Identifier: Apache-2.0
"""Augmentation: rows are exactly what changed packets give, and nothing that is tested is augmented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from dpkt import pcap

import wirewise as ww
from wirewise.augment import AUGMENTATIONS, chosen, chosen_for_rows, vary, with_variants
from wirewise.augment.captures import rewritten
from wirewise.augment.draw import known_as, number, permutation
from wirewise.augment.frames import MOST_PADDING, Drawn, locate, padding
from wirewise.augment.rows import service_ports
from wirewise.datasets import Table, build_table, table_of, write_capture
from wirewise.datasets.captures import read_capture
from wirewise.errors import InputError
from wirewise.evaluate import train
from wirewise.evaluate.lesson import Lesson, Recipe
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.packet import parse
from wirewise.traffic import generate

MIX = {"web": 0.3, "dns": 0.2, "quic": 0.2, "syn-flood": 0.2, "udp-amplification": 0.1}
FEATURES = FeatureSet.from_dict({
    "name": "mixed",
    "features": [
        "source_port", "destination_port", "max(source_port)", "mean(destination_port)", "ttl", "mean(ttl)",
        "min(ttl)", "variance(ttl)", "deviation_from_mean(ttl)", "length", "mean(iat)", "count(tcp_psh)",
    ],
})  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("augment") / "some.pcap"
    write_capture(path, ((p.time_ns, p.frame) for p in generate(seed=5, duration_s=2, packets=1500, mix=MIX)))
    return path


@pytest.fixture(scope="module")
def table(capture: Path) -> Table:
    return build_table([capture], FEATURES, progress=False)


def variant(capture: Path, folder: Path, names: list[str], seed: int, pool: list[int]) -> Path:
    called = known_as([str(capture)])[str(capture)]
    drawn = Drawn(seed, called, permutation(pool, seed, "ports", called))
    path = folder / "variant.pcap"
    write_capture(path, rewritten(str(capture), chosen(names), drawn))
    return path


def test_rows_with_other_ports_are_those_of_packets_with_other_ports(
    capture: Path, table: Table, tmp_path: Path
) -> None:
    made = vary(table, chosen_for_rows(["ports"]), 1, seed=9)
    pool = service_ports(table.frame)
    path = variant(capture, tmp_path, ["ports"], number(9, "copy", 0), pool)
    real = build_table([path], FEATURES, progress=False).frame
    columns = FEATURES.feature_names
    differ = made.select(columns).with_row_index().join(real.select(columns).with_row_index(), on="index")
    differ = differ.filter(pl.col("source_port") != pl.col("source_port_right"))
    assert made.select(columns).equals(real.select(columns)), differ
    # Some seeds leave the usual ports in place.
    all_made = [vary(table, chosen_for_rows(["ports"]), 1, seed=seed) for seed in range(9, 25)]
    changed = [int((made["source_port"] != table.frame["source_port"]).sum()) for made in all_made]
    assert max(changed) > len(made) / 4
    assert real["flow"].n_unique() == table.frame["flow"].n_unique()  # no two became one


def test_rows_with_other_ttls_are_those_of_packets_with_other_ttls(
    capture: Path, table: Table, tmp_path: Path
) -> None:
    """Rows and packets draw differently; so the packets get the shifts that the rows got."""
    made = vary(table, chosen_for_rows(["ttl"]), 1, seed=2)
    shifts = (made["ttl"] - table.frame["ttl"]).to_list()
    assert len(set(shifts) - {None}) > 10

    def shifted() -> Any:
        for packet, shift in zip(read_capture(capture), shifts, strict=True):
            frame = bytearray(packet.frame)
            if shift is not None:
                kind = int.from_bytes(frame[12:14], "big")
                start = 18 if kind == 0x8100 else 14
                frame[start + (8 if frame[start] >> 4 == 4 else 7)] += shift
            yield packet.time_ns, bytes(frame)

    write_capture(tmp_path / "shifted.pcap", shifted())
    real = build_table([tmp_path / "shifted.pcap"], FEATURES, progress=False).frame
    assert made.select(FEATURES.feature_names).equals(real.select(FEATURES.feature_names))
    assert made["ttl"].min() >= 1 and made["ttl"].max() <= 255  # type: ignore[operator]


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_rewritten_capture_has_the_same_packets_but_for_what_was_asked(
    name: str, capture: Path, table: Table, tmp_path: Path
) -> None:
    path = variant(capture, tmp_path, [name], 3, service_ports(table.frame))
    before, after = list(read_capture(capture)), list(read_capture(path))
    assert len(before) == len(after)
    assert [packet.time_ns for packet in after] == sorted(packet.time_ns for packet in after)
    changed = set()
    for old, new in zip(before, after, strict=True):
        (status, was), (status_now, now) = parse(old.frame), parse(new.frame)
        assert status == status_now
        if was is None or now is None:
            assert old.frame == new.frame
            continue
        changed |= {field for field in was.__slots__ if getattr(was, field) != getattr(now, field)}
        assert (was.tcp_flags ^ now.tcp_flags) & 0x17 == 0  # nothing that opens, acknowledges or ends
        assert 0 <= now.length - was.length <= MOST_PADDING
    # Made payloads are drawn bytes: some read like a question of DNS under other ports, or with padding.
    assert changed == {
        "ports": {"source_port", "destination_port", "question"}, "ttl": {"ttl"}, "flags": {"tcp_flags"},
        "pace": set(), "padding": {"length", "transport_length", "question"},
    }[name]  # fmt: skip
    paced = before[-1].time_ns - before[0].time_ns != after[-1].time_ns - after[0].time_ns
    assert paced == (name == "pace")
    if place := locate(after[0].frame):
        header = after[0].frame[place.network : place.transport]
        total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
        assert place.version == 6 or (total & 0xFFFF) + (total >> 16) == 0xFFFF


@pytest.mark.parametrize("names", [["one.pcap"], ["one.pcap", "deep/er/two.pcap"]])
def test_the_same_captures_in_another_folder_have_the_same_variants(
    names: list[str], capture: Path, tmp_path: Path
) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b" / "c"):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(capture.read_bytes())
        table = build_table([folder / name for name in names], FEATURES, progress=False)
        varied = with_variants(table, chosen(list(AUGMENTATIONS)), 1, 7, progress=False).frame
        rows = vary(table, chosen_for_rows(["ports", "ttl"]), 1, seed=7)
        made.append([each.drop("capture") for each in (varied, rows)])
        if len(names) > 1:  # each draws for itself
            first, second = (
                part.drop("capture") for _, part in varied.group_by("capture", maintain_order=True)
            )
            assert not first.equals(second)
    assert made[0][0].equals(made[1][0]) and made[0][1].equals(made[1][1])


def test_variants_keep_what_is_known_of_captures_and_leave_out_what_is_not_ethernet(
    capture: Path, tmp_path: Path
) -> None:
    raw = tmp_path / "raw.pcap"
    with raw.open("wb") as file:
        writer = pcap.Writer(file, linktype=101)
        for packet in list(read_capture(capture))[:50]:
            if packet.frame[12:14] == b"\x08\x00":
                writer.writepkt(packet.frame[14:], packet.time_ns / 1e9)
    table, _ = table_of([capture, raw], FEATURES, progress=False)
    sources = pl.col("capture").replace_strict({str(capture): "one/network", str(raw): "another"})
    table = Table(table.frame.with_columns(source=sources), FEATURES)
    varied = with_variants(table, chosen(["padding"]), 2, 1, progress=False).frame
    varied = varied.filter(pl.col("variant") != "")
    assert varied["source"].unique().to_list() == ["one/network"]
    assert varied["capture"].unique().to_list() == [str(capture)]
    assert len(varied) == 2 * len(table.frame.filter(pl.col("capture") == str(capture)))
    alone = Table(table.frame.filter(pl.col("capture") == str(raw)), FEATURES)
    with pytest.raises(InputError, match="no capture that is Ethernet"):
        with_variants(alone, chosen(["padding"]), 1, 1, progress=False)


def test_variants_stay_where_their_original_is_and_are_never_tested(capture: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.pcap"
    write_capture(
        second, ((p.time_ns, p.frame) for p in generate(seed=6, duration_s=2, packets=800, mix=MIX))
    )
    both = build_table([capture, second], FEATURES, progress=False)
    label = pl.when(pl.col("destination_port") == 80).then(pl.lit("attack")).otherwise(pl.lit("benign"))
    both = Table(both.frame.with_columns(label=label), FEATURES)
    varied = with_variants(both, chosen(["ports", "pace"]), 2, 1, progress=False)
    assert len(varied.frame) == 3 * len(both.frame) and len(varied.labelled.frame) == len(both.labelled.frame)
    for name in ("capture", "packet", "flow", "label"):
        assert varied.frame[name].to_list() == 3 * both.frame[name].to_list()
    plain, taught = train(both, "tree", folds=0), train(varied, "tree", folds=0)
    assert taught.report.packets == plain.report.packets
    assert (taught.split.test == plain.split.test).all()
    assert taught.facts["variants"] == ["1: ports, pace; seed 1", "2: ports, pace; seed 1"]
    usable = varied.labelled
    rows, labels = np.arange(len(usable.frame))[:, None], np.zeros(len(usable.frame), np.int64)
    lesson = Lesson.of(
        varied,
        rows,
        labels,
        ["benign", "attack"],
        class_weights=lambda of, weights: weights,
        augment=(),
        copies=1,
        seed=0,
        recipe=Recipe(),
    )
    on = taught.split.learn
    own = usable.frame[on].select("capture", "flow").unique()
    expected = varied.variants.frame.join(own, on=["capture", "flow"], how="semi")
    assert 0 < len(expected) < len(varied.variants.frame)
    assert np.isin(lesson.variants[2], on).sum() == len(expected)
    left_out = ww.judge(ww.compile(taught), varied).left_out
    assert left_out["of variants"] == 2 * len(both.frame)
    assert left_out["unlabelled"] == len(both.frame) - len(both.labelled.frame)


@pytest.mark.parametrize(
    ("features", "key", "name", "said"),
    [
        (["length"], "five-tuple", "ttl", "no feature reads ttl"),
        (["ttl"], "source", "ttl", "flow key source"),
        (["sum(ttl)"], "five-tuple", "ttl", "how many samples"),
        (["max(ttl, window=1s)"], "five-tuple", "ttl", "how many samples"),
        (["source_port"], "five-tuple-bidirectional", "ports", "flow key"),
        (["length"], "five-tuple", "pace", "windows and idle times"),
        (["length"], "five-tuple", "prots", "did you mean 'ports'"),
    ],
)
def test_what_rows_cannot_say_is_refused(features: list[str], key: str, name: str, said: str) -> None:
    own = FeatureSet.from_dict({"name": "own", "key": key, "features": features})
    column = own.feature_names[0]
    frame = pl.DataFrame(
        {column: [1, 2, 3, 4], "flow": list("aabb"), "label": ["benign", "benign", "x", "x"]}
    )
    table = Table.of(frame.with_columns(time_ns=pl.int_range(4)), own)
    with pytest.raises(InputError, match=said):
        train(table, "tree", augment=[name], folds=0)


def test_padding_never_makes_what_would_be_fragmented() -> None:
    for traffic in generate(seed=1, duration_s=1, packets=400, mix={"quic": 1.0}):
        frame = bytearray(traffic.frame)
        if place := locate(frame):
            padding(frame, place, Drawn(1, "", {}))
            again = locate(frame)
            assert again and place.length <= again.length <= max(1500, place.length)
