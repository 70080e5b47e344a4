# SPDX-License-Identifier: Apache-2.0
"""Reading and writing captures, and refusing what breaks off."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.datasets import CaptureFolder, read_capture, read_ethernet, write_capture
from wirewise.datasets.captures import CapturedPacket, link_name
from wirewise.errors import InputError
from wirewise.feature_sets.packet import parse

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "captures"
FRAME = bytes(range(64))


def pcap(order: str, magic: int, records: list[tuple[int, int, bytes, int]], link_type: int = 1) -> bytes:
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for seconds, ticks, frame, wire_length in records:
        data += struct.pack(order + "IIII", seconds, ticks, len(frame), wire_length) + frame
    return data


def block(order: str, kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def option(order: str, code: int, data: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(data)) + data + bytes(-len(data) % 4)


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(
    order: str, *, link_type: int = 1, resolution: int | None = None, offset: int | None = None
) -> bytes:
    options = option(order, 9, bytes([resolution])) if resolution is not None else b""
    options += option(order, 14, struct.pack(order + "q", offset)) if offset is not None else b""
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, 0) + options + option(order, 0, b""))


def packet(order: str, number: int, ticks: int, frame: bytes, wire_length: int) -> bytes:
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), wire_length)
    return block(order, 6, head + frame + bytes(-len(frame) % 4))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "tick_ns"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_byte_orders_and_resolutions(tmp_path: Path, order: str, magic: int, tick_ns: int) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(order, magic, [(1_700_000_000, 123_457, FRAME, 1500)]))
    expected = 1_700_000_000 * 10**9 + 123_457 * tick_ns
    assert list(read_capture(path)) == [CapturedPacket(expected, FRAME, 1500, 1)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_interfaces_have_their_own_clock_and_link(tmp_path: Path, order: str) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(
        section(order)
        + interface(order)
        + interface(order, link_type=113, resolution=9, offset=5)
        + interface(order, resolution=0x80 | 10)
        + packet(order, 0, 1_700_000_000_123_456, FRAME, 64)
        + block(order, 5, bytes(8))  # statistics: passed over
        + packet(order, 1, 1_700_000_000_123_456_789, FRAME[:61], 99)
        + packet(order, 2, 3 * 1024 + 1, FRAME, 64)
    )
    first, second, third = read_capture(path)
    assert first == CapturedPacket(1_700_000_000_123_456_000, FRAME, 64, 1)
    assert second == CapturedPacket(1_700_000_005_123_456_789, FRAME[:61], 99, 113)
    assert third.time_ns == 3 * 10**9 + 10**9 // 1024


def test_pcapng_second_section_may_have_another_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    parts = [section(order) + interface(order) + packet(order, 0, 7, FRAME, 64) for order in "<>"]
    path.write_bytes(b"".join(parts))
    assert [p.time_ns for p in read_capture(path)] == [7000, 7000]


@examples(50)
@given(
    records=st.lists(st.tuples(st.integers(0, 2**62), st.binary(min_size=1, max_size=80)), max_size=5),
    cut=st.integers(1, 200),
)
def test_written_captures_read_back_and_cut_ones_are_refused(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, bytes]], cut: int
) -> None:
    records = [(time_ns % (2**32 * 10**9), frame) for time_ns, frame in records]
    path = tmp_path_factory.mktemp("captures") / "a.pcap"
    assert write_capture(path, records) == len(records)
    assert [(p.time_ns, p.frame) for p in read_capture(path)] == records
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    ends = [24]
    for _, frame in records:
        ends.append(ends[-1] + 16 + len(frame))
    if len(data) - cut in ends:
        assert len(list(read_capture(path))) < len(records)
    else:
        with pytest.raises(InputError, match=str(path)):
            list(read_capture(path))


def test_truncation_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap("<", 0xA1B2C3D4, [(1, 1, FRAME, 64), (2, 2, FRAME, 64)])[:-10])
    reader = read_capture(path)
    assert next(reader).frame == FRAME  # what is whole is given first
    at = 24 + 16 + 64 + 16
    with pytest.raises(
        InputError, match=rf"a\.pcap: is cut off: a packet at byte {at} needs 64 bytes, 54 are left"
    ):
        next(reader)


@examples(100)
@given(data=st.binary(max_size=120), known=st.sampled_from([b"", b"\xd4\xc3\xb2\xa1", b"\x0a\x0d\x0d\x0a"]))
def test_anything_else_is_refused_and_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, known: bytes
) -> None:
    path = tmp_path_factory.mktemp("captures") / "x"
    path.write_bytes(known + data)
    try:
        list(read_capture(path))
    except InputError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("damage", range(28, 140, 4))
def test_damaged_pcapng_is_refused_or_read(tmp_path: Path, damage: int) -> None:
    data = bytearray(section("<") + interface("<", resolution=9) + packet("<", 0, 7, FRAME, 64))
    data[damage : damage + 4] = b"\xff\xff\xff\xff"
    path = tmp_path / "a.pcapng"
    path.write_bytes(data)
    try:
        list(read_capture(path))
    except InputError as error:
        assert "a.pcapng" in str(error)


def test_interfaces_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(section("<") + interface("<") * 65_536)
    assert list(read_capture(path)) == []
    path.write_bytes(section("<") + interface("<") * 65_537)
    with pytest.raises(InputError, match="describes more than 65536 interfaces"):
        list(read_capture(path))


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; give the path of a pcap"):
        list(read_capture(tmp_path / "no.pcap"))
    with pytest.raises(InputError, match="is a folder, not a file"):
        list(read_capture(tmp_path))
    (tmp_path / "sll.pcap").write_bytes(pcap("<", 0xA1B2C3D4, [(1, 1, FRAME, 64)], link_type=113))
    with pytest.raises(InputError, match="packet 1 has link type LINUX_SLL, not ETHERNET"):
        list(read_ethernet(tmp_path / "sll.pcap"))


def test_writing_leaves_nothing_half_done(tmp_path: Path) -> None:
    def packets():  # type: ignore[no-untyped-def]
        yield 1, FRAME
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_capture(tmp_path / "a.pcap", packets())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="captures: ../shared/data/captures is not there")
def test_real_captures_are_read_as_their_manifest_says() -> None:
    folder = CaptureFolder.read(SHARED)
    assert len(folder.entries) > 400
    for entry in folder.entries:
        packets = list(read_capture(folder.file(entry)))
        assert len(packets) == entry.packets, entry.path
        assert "/".join(sorted({link_name(p.link_type) for p in packets})) == entry.link_type, entry.path
        times = [p.time_ns for p in packets]
        assert (max(times) - min(times)) / 1e9 == pytest.approx(entry.duration_s, abs=2e-6), entry.path
        if entry.attack_rule:
            label = entry.labeller()
            labels = [label(p, parse(p.frame)[1]) for p in packets]
            assert labels.count(entry.group.replace("_", "-")) == entry.attack_packets, entry.path


@given(st.data())
@examples(60)
def test_captures_joined_by_cat_are_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    frames = [(1_700_000_000, 5, FRAME, 64), (1_700_000_001, 6, FRAME[:20], 20)]
    kinds = [
        *(pcap(order, magic, frames) for order in "<>" for magic in (0xA1B2C3D4, 0xA1B23C4D)),
        *(section(order) + interface(order) + packet(order, 0, 7, FRAME, 64) for order in "<>"),
        pcap("<", 0xA1B2C3D4, [(1_700_000_000, 0, b"", 0)], 101),
        pcap(">", 0xA1B2C3D4, []),
    ]
    chosen = data.draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4))
    folder = tmp_path_factory.mktemp("joined")
    expected = []
    for number, kind in enumerate(chosen):
        (folder / f"{number}.pcap").write_bytes(kind)
        expected += read_capture(folder / f"{number}.pcap")
    (folder / "all.pcap").write_bytes(b"".join(chosen))
    assert list(read_capture(folder / "all.pcap")) == expected
    (folder / "cut.pcap").write_bytes(b"".join(chosen) + kinds[0][:10])
    with pytest.raises(InputError, match="cut off"):
        list(read_capture(folder / "cut.pcap"))
