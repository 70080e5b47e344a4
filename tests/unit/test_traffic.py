# SPDX-License-Identifier: Apache-2.0
"""The traffic generator: same seed same bytes, right lengths and checksums, and classes that overlap."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from wirewise.abi import Status
from wirewise.errors import InputError
from wirewise.feature_sets.packet import parse
from wirewise.traffic import KINDS, LABELS, MIX, Traffic, generate

SMALL = {"duration_s": 6.0, "packets": 12_000}


@pytest.fixture(scope="module")
def both() -> Traffic:
    return generate(3, both_directions=True, **SMALL)


def digest(traffic: Traffic) -> str:
    total = hashlib.sha256()
    for packet in traffic:
        total.update(packet.time_ns.to_bytes(8, "big") + packet.frame + packet.kind.encode())
    return total.hexdigest()


def ones_complement(data: bytes) -> int:
    """RFC 1071, a word at a time: what a right checksum makes of the data it covers is 0xFFFF."""
    total = 0
    for index in range(0, len(data), 2):
        total += int.from_bytes(data[index : index + 2].ljust(2, b"\0"), "big")
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def network_header(frame: bytes) -> bytes:
    """The packet without Ethernet, VLAN tag and padding."""
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    packet = frame[at:]
    if packet[0] >> 4 == 4:
        return packet[: int.from_bytes(packet[2:4], "big")]
    return packet[: 40 + int.from_bytes(packet[4:6], "big")]


def test_same_seed_gives_the_same_bytes() -> None:
    assert digest(generate(5, **SMALL)) == digest(generate(5, **SMALL))
    assert digest(generate(5, **SMALL)) != digest(generate(6, **SMALL))


def test_a_kind_does_not_depend_on_the_others() -> None:
    alone = generate(5, duration_s=6, packets=round(12_000 * MIX["dns"]), mix={"dns": 1})
    among = [packet for packet in generate(5, **SMALL) if packet.kind == "dns"]
    assert [p.frame for p in alone] == [p.frame for p in among]


def test_every_frame_parses_and_lengths_fit(both: Traffic) -> None:
    for packet in both:
        status, parsed = parse(packet.frame)
        assert status is Status.CLASSIFIED
        assert parsed is not None
        assert 60 <= len(packet.frame) <= 1518
        assert len(network_header(packet.frame)) == parsed.length <= 1500


def test_checksums_are_right(both: Traffic) -> None:
    datagrams: dict[tuple[bytes, bytes, bytes], bytes] = {}
    checked = {"tcp": 0, "udp": 0, "fragmented": 0}
    for frame in (packet.frame for packet in both):
        packet = network_header(frame)
        if packet[0] >> 4 == 4:
            assert ones_complement(packet[:20]) == 0xFFFF
            addresses, protocol, body = packet[12:20], packet[9], packet[20:]
            word = int.from_bytes(packet[6:8], "big")
            if word & 0x3FFF:
                key = (addresses, packet[4:6], bytes([protocol]))
                datagrams[key] = datagrams.get(key, b"").ljust((word & 0x1FFF) * 8, b"\0") + body
                if word & 0x2000:
                    continue
                body = datagrams.pop(key)
                if len(body) != int.from_bytes(body[4:6], "big"):
                    continue  # its first fragment was sent before the observed interval
                checked["fragmented"] += 1
        else:
            addresses, protocol, body = packet[8:40], packet[6], packet[40:]
        pseudo = addresses + len(body).to_bytes(4, "big") + bytes([0, 0, 0, protocol])
        assert ones_complement(pseudo + body) == 0xFFFF
        checked["tcp" if protocol == 6 else "udp"] += 1
    assert min(checked.values()) > 20, checked


def test_times_rise_and_stay_in_the_interval(both: Traffic) -> None:
    times = both.rows["time_ns"]
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 6_000_000_000


def test_only_what_arrives_unless_asked(both: Traffic) -> None:
    assert both.rows["outgoing"].any()
    assert not generate(3, **SMALL).rows["outgoing"].any()


def test_shares_are_as_asked() -> None:
    counts = generate(3, **SMALL).counts()
    total = sum(MIX.values())
    for kind in KINDS:
        wanted = 12_000 * MIX[kind] / total
        assert counts[kind] >= 0.9 * wanted - 1, (
            kind
        )  # the last conversation goes on to its end, so more is fine


def test_versions_tags_and_fragments_occur() -> None:
    rows = generate(3, **SMALL).rows
    assert {4, 6} <= set(rows["version"].tolist())
    assert 0.02 < (rows["vlan"] > 0).mean() < 0.3
    assert (rows["fragment"] & 0x1FFF > 0).any()


def test_answers_to_attacks_have_no_label(both: Traffic) -> None:
    labels = {packet.label for packet in both}
    assert labels == {"", *LABELS.values()}
    for packet, reply in zip(both, both.rows["reply"].tolist(), strict=True):
        assert (packet.label == "") == reply


def test_first_packets_overlap() -> None:
    """A flood's, a scan's and a slow client's SYN can look exactly like a visitor's."""
    rows = generate(3, duration_s=6, packets=40_000).rows
    syn = rows[rows["tcp_flags"] == 2]
    seen = {
        kind: set(zip(of_kind["options"].tolist(), of_kind["window"].tolist(), strict=True))
        for number, kind in enumerate(KINDS)
        if len(of_kind := syn[syn["kind"] == number])
    }
    for attack in ("syn-flood", "port-scan", "slow-http"):
        assert seen["web"] & seen[attack], attack


@pytest.mark.parametrize(
    "wrong", [{"mix": {"webb": 1}}, {"packets": 0}, {"duration_s": 0}, {"mix": {"web": -1}}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        generate(1, **wrong)  # type: ignore[arg-type]
