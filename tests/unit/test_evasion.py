# SPDX-License-Identifier: Apache-2.0
"""What attackers change: packets that stay right, and the least strength, which is known beforehand here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import dpkt
import pytest

from tests.multiplicity import first
from wirewise.augment.frames import TCP, UDP, locate
from wirewise.compiler import compile
from wirewise.datasets import Truth, write_capture
from wirewise.evaluate import on_captures
from wirewise.evaluate.evasion import CHANGES, Least, evasions
from wirewise.evaluate.evasion.changes import Sent
from wirewise.evaluate.evasion.rewriting import Original
from wirewise.evaluate.moments import At
from wirewise.feature_sets import FeatureSet
from wirewise.formats.bundle import Bundle
from wirewise.models.tree import Tree, TreeEnsemble
from wirewise.traffic import generate

MS = 1_000_000
CLIENT, SERVER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
MIX = {"web": 0.5, "dns": 0.2, "brute-force": 0.2, "udp-amplification": 0.1}


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> list[list[Sent]]:
    path = tmp_path_factory.mktemp("evasion") / "some.pcap"
    packets = [(p.time_ns, p.frame) for p in generate(seed=3, duration_s=2, packets=1500, mix=MIX)]
    write_capture(path, packets)
    found = Original.read(path, frozenset(range(len(packets))))
    assert len(found.conversations) > 20
    return found.conversations


def ip(frame: bytes) -> Any:
    return dpkt.ethernet.Ethernet(frame).data


def stream(packets: list[Sent], own: bool) -> dict[int, int]:
    """Bytes of one side of a TCP connection by their sequence numbers."""
    found: dict[int, int] = {}
    for one in packets:
        if one.own == own and one.place.protocol == TCP:
            segment = ip(one.frame).data
            found |= {(segment.seq + at) % 2**32: byte for at, byte in enumerate(segment.data)}
    return found


def right(frame: bytes) -> bool:
    """Whether lengths and checksums are."""
    packet = ip(frame)
    again = type(packet)(bytes(packet))
    sums = []
    for it in (packet, again):
        if isinstance(it, dpkt.ip.IP):
            it.sum = 0
        if isinstance(it.data, dpkt.tcp.TCP | dpkt.udp.UDP | dpkt.icmp.ICMP):
            it.data.sum = 0
    again = type(packet)(bytes(again))
    place = locate(frame)
    assert place is not None
    if place.fragment:
        return True
    if isinstance(packet, dpkt.ip.IP):
        sums.append(bytes(again)[10:12] == frame[place.network + 10 : place.network + 12])
        assert packet.len == place.length
    if place.protocol == TCP:
        sums.append(again.data.sum == ip(frame).data.sum)
    if place.protocol == UDP:
        assert ip(frame).data.ulen == place.length - (place.transport - place.network)
        sums.append(ip(frame).data.sum in (0, again.data.sum))
    return all(sums)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_packets_stay_right_and_only_the_attackers_change(
    change: Any, conversations: list[list[Sent]]
) -> None:
    differ = 0
    for strength in (change.strengths[0], change.strengths[1], change.strengths[-1]):
        for before in conversations:
            after = change.rewrite(before, strength)
            times = [one.time_ns for one in after]
            assert times == sorted(times)
            assert {one.origin for one in after} == {one.origin for one in before}
            theirs = [one for one in after if not one.own]
            assert len(theirs) == sum(not one.own for one in before)
            assert stream(after, own=False) == stream(before, own=False)
            differ += [one.frame for one in after] != [one.frame for one in before]
            if change.name != "pace":
                assert all(right(one.frame) for one in after if one.own)
            if change.name in ("splitting", "extra"):
                assert stream(after, own=True) == stream(before, own=True)
            assert all(locate(one.frame) == one.place for one in after)
            longest = max(one.place.length for one in before)
            assert all(one.place.length <= max(1500, longest) for one in after)
    assert differ > 10 or change.name == "pace"


def test_padding_moves_sequence_numbers_and_what_acknowledges_them(conversations: list[list[Sent]]) -> None:
    gaps = 0
    for before in conversations:
        after = CHANGES["padding"].rewrite(before, 100)
        for one, was in zip(after, before, strict=True):
            if was.place.protocol == TCP and was.own and (old := ip(was.frame).data).data:
                segment = ip(one.frame).data
                assert bytes(segment.data) == bytes(old.data) + bytes(min(100, 1500 - was.place.length))
        sent, had = stream(after, own=True), stream(before, own=True)
        if had and len(had) == max(had) - min(had) + 1:
            assert len(sent) == max(sent) - min(sent) + 1, "what had no gap has none"
            gaps += 1
    assert gaps > 5


def test_what_is_sent_again_is_padded_as_before_and_acknowledged_with_its_padding() -> None:
    """Sequence numbers wrap around. The second segment of 10 bytes is sent twice; all is acknowledged."""
    start = 2**32 - 15
    sent = [start, start + 10, start + 10, start + 20]
    frames = [(tcp(number % 2**32, 0, 10), True) for number in sent]
    frames += [(tcp(7, (start + 10 * count) % 2**32, 0, own=False), False) for count in (0, 1, 2, 3)]
    places = [locate(frame) for frame, _ in frames]
    packets = [
        Sent(number, frame, number, own, place)
        for number, ((frame, own), place) in enumerate(zip(frames, places, strict=True))
        if place
    ]
    after = [ip(one.frame).data for one in CHANGES["padding"].rewrite(packets, 5)]
    moved = [(segment.seq - start) % 2**32 for segment in after[:4]]
    assert moved == [0, 15, 15, 30]
    assert [(segment.ack - start) % 2**32 for segment in after[4:]] == [0, 15, 30, 45]
    assert [len(segment.data) for segment in after] == [15] * 4 + [0] * 4


def test_a_datagram_that_was_merged_is_not_padded() -> None:
    frame = udp(1, 3000)
    place = locate(frame)
    assert place is not None
    (after,) = CHANGES["padding"].rewrite([Sent(1, frame, 0, True, place)], 5)
    assert after.place.length == place.length and ip(after.frame).data.ulen == 3008


def test_no_frame_however_broken_ends_in_an_error(conversations: list[list[Sent]]) -> None:
    random = Random(1)
    for _ in range(3000):
        packets = list(random.choice(conversations)[:6])
        broken = []
        for one in packets:
            frame = bytearray(one.frame)
            for _ in range(random.choice([0, 1, 3])):
                frame[random.randrange(len(frame))] = random.choice([0, 1, 0x45, 0x4F, 0xF0, 0xFF])
            cut = bytes(frame[: random.choice([len(frame), random.randrange(30, 80)])])
            place = locate(cut)
            if place is not None:
                broken.append(Sent(one.time_ns, cut, one.origin, one.own, place))
        if broken:
            for change in CHANGES.values():
                change.rewrite(broken, random.choice(change.strengths))


# -- the least


def udp(number: int, size: int) -> bytes:
    length = 28 + size
    head = bytes([0x45, 0, *length.to_bytes(2, "big"), 0, number, 0, 0, 64, UDP, 0, 0]) + CLIENT + SERVER
    return (
        bytes(12)
        + b"\x08\x00"
        + head
        + bytes([0x9C, 0x40, 0, 53, *(8 + size).to_bytes(2, "big"), 0, 0])
        + bytes(size)
    )


def tcp(sequence: int, acknowledged: int, size: int, *, own: bool = True) -> bytes:
    length = 40 + size
    ends = CLIENT + SERVER if own else SERVER + CLIENT
    ports = bytes([0x9C, 0x40, 0, 80]) if own else bytes([0, 80, 0x9C, 0x40])
    head = bytes([0x45, 0, *length.to_bytes(2, "big"), 0, 0, 0, 0, 64, TCP, 0, 0]) + ends
    numbers = sequence.to_bytes(4, "big") + acknowledged.to_bytes(4, "big")
    return (
        bytes(12) + b"\x08\x00" + head + ports + numbers + bytes([0x50, 0x18, 1, 0, 0, 0, 0, 0]) + bytes(size)
    )


def stump(threshold: int, *, above: bool) -> TreeEnsemble:
    """An attack is what lies above, or not above, a threshold."""
    low, high = ((0,), (1,)) if above else ((1,), (0,))
    tree = Tree((0, -1, -1), (threshold, 0, 0), (1, -1, -1), (2, -1, -1), ((), low, high))
    return TreeEnsemble(1, 2, "majority", (tree,), 2, (0, 0))


def least(
    folder: Path, feature: str, model: TreeEnsemble, frames: list[tuple[int, bytes]], at: str = "5"
) -> dict[str, Least]:
    write_capture(folder / "a.pcap", frames)
    (folder / "labels.yaml").write_text("version: 1\nrules: []\notherwise: attack\n")
    features = FeatureSet.from_dict({"name": "one", "key": "five-tuple", "features": [feature]})
    made = compile(model, features, name="m", classes=["benign", "attack"], verify="never")
    made.bundle.write(folder / "m.wirewise")
    bundle = Bundle.read(folder / "m.wirewise")
    truth = Truth(folder / "labels.yaml")
    table, _ = on_captures.labelled(bundle, [folder / "a.pcap"], truth, progress=False)
    rows = on_captures.run(folder / "m.wirewise", bundle, table, kernel=False)
    found = evasions(folder / "m.wirewise", bundle, table, rows, at=At.parse(at), flows=5)
    assert not found.left_out
    assert {one.family for one in found.found} <= {"attack"}
    return {one.change: one for one in found.found}


def every(gap: int, make: Callable[[int], bytes], count: int = 8) -> list[tuple[int, bytes]]:
    return [(10**9 + number * gap, make(number)) for number in range(count)]


def outcome(one: Least) -> tuple[int | None, bool]:
    return one.strength, one.exact


@pytest.mark.parametrize("threshold", first([300, 1499, 129, 130, 1027], 2))
def test_the_least_padding_is_what_passes_the_threshold(tmp_path: Path, threshold: int) -> None:
    found = least(
        tmp_path, "length", stump(threshold, above=False), every(MS, lambda number: udp(number, 100))
    )
    assert outcome(found["padding"]) == (threshold - 128 + 1, True)
    assert outcome(found["pace"]) == outcome(found["splitting"]) == (None, True)
    # At the fifth packet there are empty ones now, which are as short.
    assert outcome(found["extra"]) == (None, True)


def test_what_no_padding_reaches_is_known_to_be_out_of_reach(tmp_path: Path) -> None:
    found = least(tmp_path, "length", stump(1500, above=False), every(MS, lambda number: udp(number, 100)))
    assert outcome(found["padding"]) == (None, True)


def test_the_least_pace_is_what_passes_the_threshold(tmp_path: Path) -> None:
    """Gaps of 1 ms; an attack is what has gaps of up to 10: 2^(13/4) is 9.51, 2^(14/4) 11.3."""
    model = stump(10_000, above=False)
    found = least(tmp_path, "iat", model, every(MS, lambda number: udp(number, 100)))
    assert outcome(found["pace"]) == (14, True)


def test_the_least_pieces_and_packets(tmp_path: Path) -> None:
    """An attack is what has segments of more than 100 bytes; 400 in four pieces are 140 with headers."""
    model = stump(140, above=True)
    found = least(tmp_path, "length", model, every(MS, lambda number: tcp(400 * number, 0, 400)))
    assert outcome(found["splitting"]) == (3, True)
    # With one behind each, the fifth packet is the third of these; with two, an empty one.
    assert outcome(found["extra"]) == (2, True)
    assert outcome(found["padding"]) == (None, True)


def test_answers_are_not_the_attackers_to_change(tmp_path: Path) -> None:
    model = stump(300, above=True)
    frames = every(MS, lambda number: tcp(number, number, 400 if number % 2 else 10, own=not number % 2))
    found = least(tmp_path, "length", model, frames, at="every")
    assert {name: one.strength for name, one in found.items()} == dict.fromkeys(CHANGES)
