# SPDX-License-Identifier: Apache-2.0
"""The reference: parsing, feature sets, accumulators, presets, flow table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.parity import frames
from tests.parity.cases import random_comparison, random_feature, spelled
from wirewise.abi import HASH_SEEDS, HASH_WORDS, Status
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.feature_sets import ACCUMULATORS, FIELDS, KEYS, PRESETS, Extractor, Feature, FeatureSet, keeping
from wirewise.feature_sets.accumulators import CELLS, DISTINCT_MAX, SQUARE_MAX, SUM_MAX, Bounds
from wirewise.feature_sets.feature_set import AGGREGATES, CLIENT_AGGREGATES
from wirewise.feature_sets.fields import BIDIRECTIONAL, mix
from wirewise.feature_sets.flow import Lookup, hash_key, make_key, seed_from
from wirewise.feature_sets.packet import TUNNELS, Packet, parse
from wirewise.feature_sets.state import StateLayout
from wirewise.targets.ebpf import emit

A, B = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
A6, B6 = b"\x20\x01" + bytes(13) + b"\x01", b"\x20\x01" + bytes(13) + b"\x02"
MS = 1_000_000


def udp_frame(
    source: int = 1000, destination: int = 53, *, length: int = 100, hosts: tuple[bytes, bytes] = (A, B)
) -> bytes:
    transport = frames.udp(source, destination, max(8, length - 20))
    return frames.ethernet(frames.ipv4(*hosts, frames.UDP, transport, length=length), frames.IPV4)


def tcp_frame(flags: int, window: int, length: int) -> bytes:
    transport = frames.tcp(40000, 80, flags, window)
    return frames.ethernet(frames.ipv4(A, B, frames.TCP, transport, length=length), frames.IPV4)


def tunnel_of(gtp: bytes) -> bytes:
    """A frame with this in a datagram for GTP-U."""
    header = frames.udp(2152, 2152, 8 + len(gtp))
    return frames.ethernet(frames.ipv4(A, B, frames.UDP, header + gtp), frames.IPV4)


# -- parsing


def packet_of(frame: bytes, *decapsulate: str) -> Packet:
    status, packet = parse(frame, decapsulate)
    assert status is Status.CLASSIFIED and packet is not None
    return packet


@given(st.randoms(use_true_random=False))
def test_parsing_agrees_with_dpkt(random: Random) -> None:
    """An independent parser reads the same from well-formed packets."""
    source, destination = random.getrandbits(16), random.getrandbits(16)
    options, ttl, tos = bytes(4 * random.randrange(11)), random.getrandbits(8), random.getrandbits(8)
    flags, window = random.getrandbits(8), random.getrandbits(16)
    transport = frames.tcp(source, destination, flags, window, options) + bytes(random.randrange(50))
    if random.random() < 0.5:
        network = frames.ipv4(
            A, B, frames.TCP, transport, options=bytes(4 * random.randrange(11)), ttl=ttl, tos=tos
        )
        kind = frames.IPV4
    else:
        network = frames.ipv6(A6, B6, frames.TCP, transport, ttl=ttl, tos=tos)
        kind = frames.IPV6
    frame = frames.ethernet(network, kind)
    ours, theirs = packet_of(frame), dpkt.ethernet.Ethernet(frame).data
    assert (ours.source, ours.destination) == (theirs.src, theirs.dst)
    assert (ours.source_port, ours.destination_port) == (theirs.data.sport, theirs.data.dport)
    assert (ours.tcp_flags, ours.tcp_window) == (theirs.data.flags & 255, theirs.data.win)
    assert ours.payload_length == len(theirs.data.data)
    assert ours.length == len(network)
    if kind == frames.IPV4:
        assert (ours.ttl, ours.tos, ours.length) == (theirs.ttl, theirs.tos, theirs.len)
    else:
        assert (ours.ttl, ours.tos) == (theirs.hlim, theirs.fc)


@given(st.binary(max_size=200), st.sets(st.sampled_from(TUNNELS)))
def test_any_bytes_get_a_status(frame: bytes, tunnels: set[str]) -> None:
    status, packet = parse(frame, tuple(tunnels))
    assert (packet is not None) == (status is Status.CLASSIFIED)
    assert len(frame) >= 14 or status is Status.MALFORMED_ETHERNET


@given(st.integers(0, 1 << 32))
def test_damaged_packets_get_a_status(seed: int) -> None:
    for _, frame in frames.Fuzzer(Random(seed), damage=0.8).packets(20):
        for tunnels in ((), TUNNELS):
            status, packet = parse(frame, tunnels)
            if packet is None:
                assert status is not Status.CLASSIFIED
                continue
            for name, field in FIELDS.items():
                if hasattr(packet, name) and not field.identity:
                    assert 0 <= getattr(packet, name) <= field.maximum, name
            # Only headers are read, and the payload's first bytes: whatever else follows changes nothing.
            again, more = parse(frame + b"more", tunnels)
            assert more is not None and more.payload.startswith(packet.payload)
            assert (again, replace(more, payload=packet.payload)) == (status, packet)


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        (b"", Status.MALFORMED_ETHERNET),
        (bytes(13), Status.MALFORMED_ETHERNET),
        (frames.ethernet(b"", 0x8100), Status.MALFORMED_ETHERNET),
        (frames.ethernet(bytes(60), 0x0806), Status.NOT_IP),
        (frames.ethernet(bytes(60), frames.IPV4, [(0x88A8, 1), (0x8100, 2), (0x8100, 3)]), Status.NOT_IP),
        (frames.ethernet(bytes(60), frames.IPV4), Status.MALFORMED_IP),
        (udp_frame()[:33], Status.MALFORMED_IP),
        (udp_frame(length=19), Status.MALFORMED_IP),
        (udp_frame()[:41], Status.MALFORMED_TRANSPORT),
        (udp_frame()[:42], Status.CLASSIFIED),
        (frames.ethernet(frames.ipv6(A6, B6, 6, bytes(20)), frames.IPV6), Status.MALFORMED_TRANSPORT),
        (frames.ethernet(frames.ipv4(A6, B6, 6, bytes(20)), frames.IPV6), Status.MALFORMED_IP),
        (
            frames.ethernet(frames.ipv6(A6, B6, 59, b"", extensions=[(0, bytes(7))] * 8), frames.IPV6),
            Status.CLASSIFIED,
        ),
        (
            frames.ethernet(frames.ipv6(A6, B6, 59, b"", extensions=[(0, bytes(7))] * 9), frames.IPV6),
            Status.TOO_MANY_EXTENSIONS,
        ),
    ],
)
def test_status(frame: bytes, status: Status) -> None:
    assert parse(frame)[0] is status


V4, V6 = frames.ipv4(A, B, 17, frames.udp(1, 53)), frames.ipv6(A6, B6, 17, frames.udp(1, 53))


@pytest.mark.parametrize("tags", [[], [(0x8100, 7)], [(0x88A8, 9), (0x8100, 7)]])
@pytest.mark.parametrize(("network", "kind"), [(V4, frames.IPV4), (V6, frames.IPV6)], ids=["4", "6"])
def test_a_pppoe_session_is_read_as_if_it_were_not_there(
    network: bytes, kind: int, tags: list[tuple[int, int]]
) -> None:
    plain = frames.ethernet(network, kind, tags)
    behind = frames.ethernet(frames.pppoe(network, kind), frames.PPPOE, tags)
    assert packet_of(behind) == packet_of(plain)
    vxlan = frames.ipv4(B, A, 17, frames.udp(1, 4789, 16 + len(behind)) + b"\x08" + bytes(7) + behind)
    inner = packet_of(frames.ethernet(vxlan, frames.IPV4), "vxlan")
    assert (inner.source, inner.tunnelled) == (packet_of(plain).source, True)


@pytest.mark.parametrize(
    ("session", "status"),
    [
        (frames.pppoe(V4, frames.IPV4)[:5], Status.MALFORMED_ETHERNET),
        (frames.pppoe(V4, frames.IPV4)[:7], Status.MALFORMED_ETHERNET),
        (frames.pppoe(V4, frames.IPV4)[:27], Status.MALFORMED_IP),
        (frames.pppoe(V4, frames.IPV4)[:28], Status.MALFORMED_TRANSPORT),
        (frames.pppoe(V4, frames.IPV4) + b"padding", Status.CLASSIFIED),
        (frames.pppoe(V4 + b"trailer", frames.IPV4), Status.CLASSIFIED),
        (frames.pppoe(V4, frames.IPV4, length=1), Status.MALFORMED_ETHERNET),
        (frames.pppoe(V4, frames.IPV4, length=len(V4) + 1), Status.MALFORMED_ETHERNET),
        (frames.pppoe(V6, frames.IPV6, length=len(V6) + 1), Status.MALFORMED_ETHERNET),
        (frames.pppoe(V4, frames.IPV6, length=100), Status.MALFORMED_IP),
        (frames.pppoe(V4, frames.IPV4, version_and_type=0x21), Status.NOT_IP),
        (frames.pppoe(V4, frames.IPV4, code=9), Status.NOT_IP),
        (frames.pppoe(V4, frames.IPV4, protocol=0xC021), Status.NOT_IP),
        (frames.pppoe(V4, frames.IPV4, protocol=0x2145), Status.NOT_IP),
        (frames.pppoe(b"", frames.IPV4, protocol=0xC021, length=0), Status.MALFORMED_ETHERNET),
    ],
)
def test_status_of_pppoe_sessions(session: bytes, status: Status) -> None:
    assert parse(frames.ethernet(session, frames.PPPOE))[0] is status
    discovery = frames.ethernet(session, 0x8863)
    assert parse(discovery)[0] is Status.NOT_IP


def test_vlans_are_part_of_the_key_if_it_names_them() -> None:
    tagged = [[], [(0x8100, 7)], [(0x88A8, 9), (0x8100, 7)], [(0x88A8, 7), (0x8100, 9)], [(0x8100, 0)]]
    packets = [packet_of(frames.ethernet(V4, frames.IPV4, tags)) for tags in tagged]
    for ends in ("five-tuple", "source", "five-tuple-bidirectional"):
        assert len({make_key(packet, ends)[0] for packet in packets}) == 1
        keys = [make_key(packet, f"{ends}+vlan")[0] for packet in packets]
        # A tag of priority only names no VLAN.
        assert keys[0] == keys[4] and len(set(keys)) == 4
        assert [key.pack()[13:16] for key in keys[1:4]] == [b"\x07\0\0", b"\x09\x70\0", b"\x07\x90\0"]
        assert [str(key).partition(" vlan ")[2] for key in keys] == ["", "7", "9.7", "7.9", ""]
    there = packet_of(frames.ethernet(frames.ipv4(B, A, 17, frames.udp(53, 1)), frames.IPV4, [(0x8100, 7)]))
    both = "five-tuple-bidirectional+vlan"
    assert make_key(there, both)[0] == make_key(packets[1], both)[0]


def test_only_the_first_fragment_has_ports() -> None:
    def fragment(word: int) -> Packet:
        transport = frames.udp(1000, 53)
        return packet_of(
            frames.ethernet(frames.ipv4(A, B, frames.UDP, transport, fragment=word), frames.IPV4)
        )

    whole, first, later = fragment(0x4000), fragment(0x2000), fragment(0x2001)
    assert [p.fragment for p in (whole, first, later)] == [0, 1, 1]
    assert [p.source_port for p in (whole, first, later)] == [1000, 1000, 0]
    assert later.transport_header_length == 0


def test_extension_headers_count_as_network_header() -> None:
    extensions = [(0, b"\x01" + bytes(14)), (51, b"\x02" + bytes(14)), (44, b"\x00\x00\x01" + bytes(4))]
    network = frames.ipv6(A6, B6, frames.UDP, frames.udp(1, 2, 13) + bytes(5), extensions=extensions)
    packet = packet_of(frames.ethernet(network, frames.IPV6, [(0x88A8, 7), (0x8100, 9)]))
    assert packet.network_header_length == 40 + 16 + 16 + 8
    assert (packet.protocol, packet.fragment, packet.fragment_offset) == (17, 1, 0)
    assert (packet.payload_length, packet.vlan_id) == (5, 7)


@pytest.mark.parametrize(
    ("tunnel", "header", "protocol"),
    [
        ("gtp-u", frames.udp(2152, 2152, 56) + b"\x30\xff\0\x28\0\0\0\x2a", frames.UDP),
        # sequence number and one extension header of 4 bytes
        (
            "gtp-u",
            frames.udp(2152, 2152, 64) + b"\x36\xff\0\x30\0\0\0\x2a\0\0\0\x85\1\0\0\0",
            frames.UDP,
        ),
        (
            "vxlan",
            frames.udp(1, 4789, 70) + b"\x08" + bytes(7) + frames.ethernet(b"", frames.IPV4),
            frames.UDP,
        ),
        ("gre", b"\xb0\0\x08\0" + bytes(12), 47),
        ("gre", b"\0\0\x65\x58" + frames.ethernet(b"", frames.IPV4, [(0x8100, 3)]), 47),
        ("ip-in-ip", b"", 4),
    ],
)
def test_tunnels(tunnel: str, header: bytes, protocol: int) -> None:
    inner = frames.ipv4(B, A, frames.TCP, frames.tcp(5, 6, 2))
    frame = frames.ethernet(frames.ipv4(A, B, protocol, header + inner), frames.IPV4, [(0x8100, 77)])
    outer, looked_into = packet_of(frame), packet_of(frame, tunnel)
    assert (outer.source, outer.protocol) == (A, protocol)
    assert (looked_into.source, looked_into.protocol, looked_into.source_port) == (B, 6, 5)
    assert looked_into.vlan_id == 77
    assert looked_into.teid == (42 if tunnel == "gtp-u" else 0)
    cut = frame[: frame.index(inner) + 30]
    assert parse(cut)[0] is Status.CLASSIFIED
    assert parse(cut, (tunnel,))[0] is Status.MALFORMED_TUNNEL
    others = tuple(name for name in TUNNELS if name != tunnel)
    assert packet_of(frame, *others).source == A


# -- feature sets


@given(st.integers(0, 1 << 32))
def test_a_feature_is_read_back_from_its_spec(seed: int) -> None:
    random = Random(seed)
    feature = Feature.parse(random_comparison(random, random_feature(random, directed=True)))
    assert Feature.parse(feature.spec) == feature
    assert 0 == feature.minimum < feature.maximum < 1 << 63
    assert feature.fraction_bits in (0, 16)


def test_feature_sets_are_read_back_from_their_dict() -> None:
    for preset in PRESETS.values():
        again = FeatureSet.from_dict(preset.to_dict())
        assert again == preset and again.digest == preset.digest
        assert FeatureSet.load(preset.name) == preset


def test_names() -> None:
    specs = [
        "length",
        "last(length)",
        "mean(iat, window=0.5s, previous)",
        "count",
        "count(window=1m)",
        "count(tcp_syn)",
    ]
    names = [Feature.parse(spec).name for spec in specs]
    assert names == ["length", "length", "previous_mean_iat_500ms", "count", "count_1m", "count_tcp_syn"]
    placed = Feature.parse("at(length,  3, direction=backward)")
    assert (placed.name, placed.spec) == ("at_3_length_backward", "at(length, 3, direction=backward)")
    assert placed == Feature.parse(placed.spec) != Feature.parse("at(length, 2, direction=backward)")
    assert Feature.parse({"name": "x", "is": "max(ttl)"}).spec == "max(ttl)"


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("lenght", "no packet field 'lenght'"),
        ("median(length)", "no accumulator 'median'"),
        ("mean(size)", "no packet field 'size'"),
        ("mean(length, window=0)", "a window of 0"),
        ("mean(length, window=0ms)", "a window of 0"),
        ("mean(length, window=5)", "not a duration"),
        ("mean(length, window=0.1ns)", "whole number of nanoseconds"),
        ("mean(length, previous)", "behind it, previous"),
        (
            "mean(length, window=1s, window=2s)",
            "is not by=source|destination|service|pair|client-port|hosts, window=DURATION",
        ),
        ("mean(length, by=destination)", "so it needs a window; add window=1s"),
        ("count(by=host, window=1s)", "nothing is kept by 'host'"),
        ("count(window=1s, by=source, by=service)", "'by=service' is not by="),
        ("source", "count them: distinct(source"),
        ("mean(flow, by=source, window=1s)", "count them: distinct(flow"),
        ("flow_gap", "write mean(flow_gap, by=source, window=10m)"),
        ("max(flow_gap)", "one flow has none"),
        ("max(flow_gap, window=1s)", "one flow has none"),
        ("length(window=1s)", "no accumulator 'length'"),
        ("last(length, window=1s)", "own value has no window"),
        ("deviation_from_mean(length, window=1s, previous)", "drop `previous`"),
        ("at(length)", "write at(length, 3)"),
        ("at(length, window=1s)", "by its number from 1 to 32"),
        ("at(length, 0)", "by its number from 1 to 32"),
        ("at(length, 33)", "by its number from 1 to 32"),
        ("at(length, 1_0)", "by its number from 1 to 32"),
        ("at(source, 1)", "count them: distinct(source"),
        ("tcp_end", "tcp_end goes round; write repeats(tcp_end, direction=forward)"),
        ("max(tcp_end)", "tcp_end goes round"),
        ("distinct(tcp_end, by=source, window=1s)", "tcp_end goes round"),
        ("repeats(length)", "length is not a serial number"),
        ("max(iat, direction=forward)", "or take own_iat"),
        ("max(own_iat, by=source, window=1s)", "leave out by="),
        ("repeats(tcp_end, by=source, window=1s)", "leave out by="),
        ("mean length", "expected FIELD"),
        ("", "expected FIELD"),
        ({"name": "X", "is": "length"}, "lower-case"),
        ({"name": "x"}, "write {name: NAME, is: SPEC}"),
    ],
)
def test_bad_features(spec: str | dict[str, str], part: str) -> None:
    with pytest.raises(InputError) as error:
        Feature.parse(spec)
    assert part in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"features": []}, "1 to 128"),
        ({"features": "length"}, "must be a list"),
        ({"features": ["length", "last(length)"]}, "'length' stands twice"),
        ({"features": [f"count(window={n}ms)" for n in range(1, 201)]}, "200 features"),
        ({"key": "flow"}, "no flow key 'flow'"),
        ({"table_size": 100}, "power of two"),
        ({"table_size": 2}, "power of two"),
        ({"table_size": "many"}, "whole number"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"grace": "0s"}, "grace"),
        ({"proven_packets": 0}, "1 or more"),
        ({"flow_table": {"sharing": "none"}}, "no flow table sharing 'none'"),
        ({"flow_table": "shared"}, "{sharing: shared | per-cpu}"),
        ({"decapsulate": ["l2tp"]}, "cannot look into tunnel 'l2tp'"),
        ({"decapsulate": "gtp-u"}, "must be a list"),
        ({"versoin": 1}, "unknown key 'versoin'"),
        ({"version": 2}, "version 2"),
    ],
)
def test_bad_feature_sets(change: dict[str, object], part: str) -> None:
    with pytest.raises(InputError) as error:
        FeatureSet.from_dict({"name": "x", "features": ["length"]} | change)
    assert part in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- length", "features: [length", "name: x", "\0"])
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "features.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        FeatureSet.load(path)
    assert str(path) in str(error.value)


def test_a_name_that_is_neither_preset_nor_file() -> None:
    with pytest.raises(InputError, match="hara2023"):
        FeatureSet.load("hara2025")


# -- accumulators, recomputed from all samples


def run(features: Sequence[str], packets: Sequence[tuple[int, bytes]], **options: object) -> list[list[int]]:
    feature_set = FeatureSet.from_dict(
        {"name": "x", "idle_timeout": "1000h", "features": list(features)} | options
    )
    extractor = Extractor(feature_set)
    rows = [extractor.process(frame, time_ns).features for time_ns, frame in packets]
    assert all(row is not None for row in rows)
    return [row for row in rows if row is not None]


def expected(name: str, samples: list[int], current: int | None) -> int:
    """By the definition, over the whole list. Not for variance: its recurrence rounds."""
    n = len(samples)
    if name == "count":
        return sum(1 for x in samples if x)
    if name == "sum":
        return min(sum(samples), SUM_MAX)
    if n == 0:
        return 0
    means = [(sum(samples[: i + 1]) << 16) // (i + 1) for i in range(n)]
    return {
        "first": samples[0],
        "at": samples[1] if n > 1 else 0,
        "min": min(samples),
        "max": max(samples),
        "latest": samples[-1],
        "mean": means[-1],
        "mean_abs_deviation": sum(abs((x << 16) - m) for x, m in zip(samples, means, strict=True)) // n,
        "deviation_from_mean": 0 if current is None else abs((current << 16) - means[-1]),
        "pending": pending(samples),
    }[name]


def pending(samples: list[int]) -> int:
    left = 0
    for x in samples:
        left = left + 1 if x == 1 else max(0, left - (x == 2))
    return left


@pytest.mark.parametrize(("values", "error"), [(10, 0.1), (100, 0.14), (1000, 0.25), (4000, 0.25)])
def test_distinct_values_are_estimated(values: int, error: float) -> None:
    """Whatever the values are, under any secret: no bias, and the standard error that the docs state."""
    within, found = Bounds.of(FIELDS["length"], 10**9, 60 * 10**9), []
    for number in range(60):
        seed, state = seed_from(number), {"seen": 0, "seen_sampled": 0}
        for x in range(values):
            for _ in range(2):  # what comes again does not count
                CELLS["distinct"].update(state, mix(1000 + x * (number % 5 + 1), seed), 0, within)
        found.append(ACCUMULATORS["distinct"].read(state, None, 1, within) / values)
    assert abs(fmean(found) - 1) < 0.1
    assert pstdev(found) < error
    assert max(found) * values <= DISTINCT_MAX


# -- aggregates


HOSTS = [bytes([10, 0, 0, number]) for number in range(1, 5)]
MANY = st.lists(
    st.tuples(*(st.integers(*ends) for ends in ((0, 400), (0, 3), (0, 3), (1, 3), (60, 900)))),
    min_size=1,
    max_size=60,
)


@given(MANY)
def test_aggregates_are_over_all_packets_of_the_same_end(
    steps: list[tuple[int, int, int, int, int]],
) -> None:
    """By the definition, over the whole list: windows of 500 ms that begin with an end's first packet."""
    time_ns, packets, seen = 5, [], []
    for gap_ms, source, destination, port, length in steps:
        time_ns += gap_ms * MS
        hosts = HOSTS[source], HOSTS[destination]
        packets.append((time_ns, udp_frame(1000 + port, port, length=length, hosts=hosts)))
        seen.append((time_ns, source, destination, port, length))
    ends = {"source": lambda p: p[1], "destination": lambda p: p[2], "service": lambda p: p[2:4]}
    specs = ("count({})", "sum(length, {})", "sum(new_flow, {})", "max(iat_or_zero, {})")
    rows = run(
        [spec.format(f"by={by}, window=500ms") for by in ends for spec in specs], packets, table_size=4096
    )
    for index, row in enumerate(rows):
        wanted = []
        for end in ends.values():
            own = [(i, p) for i, p in enumerate(seen[: index + 1]) if end(p) == end(seen[index])]
            number = (seen[index][0] - own[0][1][0]) // (500 * MS)
            current = [(i, p) for i, p in own if (p[0] - own[0][1][0]) // (500 * MS) == number]
            new = sum(p[1:4] not in [q[1:4] for q in seen[:i]] for i, p in current)
            times = [p[0] for _, p in own]
            gaps = [0, *((b - a) // 1000 for a, b in pairwise(times))]
            wanted += [len(current), sum(p[4] for _, p in current), new, max(gaps[-len(current) :])]
        assert row == wanted, index


CLIENT_KEYS = ("five-tuple-bidirectional", "five-tuple-bidirectional+vlan")


@given(MANY, st.sampled_from(CLIENT_KEYS))
def test_what_is_kept_by_client_and_server_is_of_both_directions(
    steps: list[tuple[int, int, int, int, int]], key: str
) -> None:
    """By the definition: the client of a conversation is who sent its first packet."""
    time_ns, packets, seen, clients = 5, [], [], {}
    for gap_ms, source, destination, port, length in steps:
        time_ns += gap_ms * MS
        sender, receiver = (HOSTS[source], 1000 + port), (HOSTS[destination], port)
        if length % 2:
            sender, receiver = receiver, sender
        packets.append((time_ns, udp_frame(sender[1], receiver[1], length=length,
                                           hosts=(sender[0], receiver[0]))))  # fmt: skip
        conversation = frozenset((sender, receiver))
        new = conversation not in clients
        client = clients.setdefault(conversation, sender)
        server = sender if client == receiver else receiver
        seen.append((client, server, new, length))
    entries = {
        "pair": lambda p: (p[0][0], p[1]),
        "client-port": lambda p: (p[0][0], p[1][1]),
        "hosts": lambda p: (p[0][0], p[1][0]),
    }
    specs = ("count({})", "sum(length, {})", "sum(new_flow, {})", "distinct(server, {})",
             "distinct(client, {})", "distinct(server_port, {})", "max(server_port, {})")  # fmt: skip
    rows = run(
        [spec.format(f"by={by}, window=10m") for by in entries for spec in specs], packets,
        key=key, table_size=4096, aggregates_size=4096,
    )  # fmt: skip
    for index, row in enumerate(rows):
        wanted = []
        for entry in entries.values():
            own = [p for p in seen[: index + 1] if entry(p) == entry(seen[index])]
            servers, ports = {p[1][0] for p in own}, {p[1][1] for p in own}
            wanted += [len(own), sum(p[3] for p in own), sum(p[2] for p in own)]
            # A sketch is exact as long as no two values share a bit, so at most one less here.
            wanted += [len(servers), 1, len(ports), max(ports)]
        exact = [value for at, value in enumerate(row) if at % 7 not in (3, 5)]
        assert exact == [value for at, value in enumerate(wanted) if at % 7 not in (3, 5)], index
        for at, value in enumerate(wanted):
            assert at % 7 not in (3, 5) or 1 <= row[at] <= value + 1, (index, at)


GAPPED = [name for name in ACCUMULATORS if name not in ("variance", "distinct", "pending", "repeats")]


@given(MANY, st.sampled_from(("pair", "client-port", "hosts", "destination")))
def test_gaps_are_between_the_beginnings_of_flows(
    steps: list[tuple[int, int, int, int, int]], by: str
) -> None:
    """By the definition, in one window; only packets that begin a flow count."""
    time_ns, packets, began, gaps = 5, [], {}, {}
    wanted = []
    for gap_ms, source, destination, port, length in steps:
        time_ns += gap_ms * MS
        hosts = HOSTS[source], HOSTS[destination]
        packets.append((time_ns, udp_frame(1000 + length % 3, port, length=length, hosts=hosts)))
        flow = (*hosts, 1000 + length % 3, port)
        entry = {
            "pair": (*hosts, port), "client-port": (hosts[0], port), "hosts": hosts, "destination": hosts[1],
        }[by]  # fmt: skip
        starts, current = began.setdefault(entry, {}), None
        if flow not in starts:
            if starts:
                current = (time_ns - max(starts.values())) // 1000
                gaps.setdefault(entry, []).append(current)
            starts[flow] = time_ns
        samples = gaps.get(entry, [])
        wanted.append([expected(name, samples, current) for name in GAPPED])
    rows = run(
        [spelled(name, "flow_gap", f"by={by}", "window=10m") for name in GAPPED], packets,
        key="five-tuple-bidirectional", table_size=4096, aggregates_size=4096,
    )  # fmt: skip
    assert rows == wanted


@pytest.mark.parametrize("key", ["five-tuple", "source", "source-destination+vlan"])
@pytest.mark.parametrize("by", CLIENT_AGGREGATES)
def test_who_the_client_is_takes_a_key_of_both_directions(by: str, key: str) -> None:
    with pytest.raises(InputError, match=r"another client's packets.*five-tuple-bidirectional"):
        FeatureSet("x", [f"count(by={by}, window=1s)"], key=key)
    with pytest.raises(InputError, match=f"add key: {BIDIRECTIONAL}"):
        FeatureSet("x", ["length"], key=key, kept=[f"count(by={by}, window=1s)"])


@pytest.mark.parametrize("by", AGGREGATES)
def test_an_aggregate_stays_until_its_windows_are_over(by: str) -> None:
    """Flows time out after a minute, but what happened in ten minutes is not forgotten before they pass."""
    minutes = (0, 3, 8, 11, 35)
    packets = [(minute * 60_000 * MS + 5, udp_frame(1000 + minute, 53)) for minute in minutes]
    specs = [f"sum(new_flow, by={by}, window=10m)", f"count(by={by}, window=10m, previous)", "count"]
    rows = run(specs, packets, key="five-tuple-bidirectional", idle_timeout="1m")
    assert rows == [[1, 0, 1], [2, 0, 1], [3, 0, 1], [1, 3, 1], [1, 0, 1]]


EXACT = [name for name in ACCUMULATORS if name not in ("variance", "distinct", "repeats")]
STEPS = st.lists(st.tuples(st.integers(0, 300), st.integers(28, 65535)), min_size=1, max_size=40)


@given(STEPS)
def test_accumulators_over_the_flow(steps: list[tuple[int, int]]) -> None:
    time_ns, packets = 5, []
    for gap_ms, length in steps:
        time_ns += gap_ms * MS
        packets.append((time_ns, udp_frame(length=length)))
    lengths, gaps = [length for _, length in steps], [gap * 1000 for gap, _ in steps[1:]]
    fields = ("length", "iat", "iat_or_zero")
    row = run([spelled(name, field) for field in fields for name in EXACT], packets)[-1]
    wanted = [expected(name, lengths, lengths[-1]) for name in EXACT]
    wanted += [expected(name, gaps, gaps[-1] if gaps else None) for name in EXACT]
    with_zero = [0, *gaps]
    wanted += [expected(name, with_zero, with_zero[-1]) for name in EXACT]
    assert row == wanted


@given(STEPS)
def test_accumulators_over_windows(steps: list[tuple[int, int]]) -> None:
    """Windows of 500 ms that open with the flow; the previous one is the one just before, or else empty."""
    time_ns, packets, seen = 7, [], []
    for index, (gap_ms, length) in enumerate(steps):
        time_ns += gap_ms * MS
        packets.append((time_ns, udp_frame(length=length)))
        seen.append((time_ns, length, gap_ms * 1000 if index else None))
    number = [(t - seen[0][0]) // (500 * MS) for t, _, _ in seen]
    current = [s for s, w in zip(seen, number, strict=True) if w == number[-1]]
    before = [s for s, w in zip(seen, number, strict=True) if w == number[-1] - 1]
    without_current = [name for name in EXACT if not ACCUMULATORS[name].of_sample]
    features = [spelled(name, field, "window=500ms") for field in ("length", "iat") for name in EXACT]
    features += [
        spelled(name, field, "window=500ms, previous")
        for field in ("length", "iat")
        for name in without_current
    ]
    row = run([*features, "count(window=500ms)", "count(window=500ms, previous)"], packets)[-1]

    def gaps(part: list[tuple[int, int, int | None]]) -> list[int]:
        return [gap for _, _, gap in part if gap is not None]

    lengths = [length for _, length, _ in current]
    wanted = [expected(name, lengths, lengths[-1]) for name in EXACT]
    wanted += [expected(name, gaps(current), seen[-1][2]) for name in EXACT]
    wanted += [expected(name, [length for _, length, _ in before], None) for name in without_current]
    wanted += [expected(name, gaps(before), None) for name in without_current]
    assert row == [*wanted, len(current), len(before)]


@given(st.lists(st.integers(28, 65535), min_size=1, max_size=60))
def test_variance_is_close_to_the_exact_one(lengths: list[int]) -> None:
    packets = [(index * MS, udp_frame(length=length)) for index, length in enumerate(lengths)]
    value = Fraction(run(["variance(length)"], packets)[-1][0], 1 << 16)
    mean = Fraction(sum(lengths), len(lengths))
    exact = sum((x - mean) ** 2 for x in lengths) / len(lengths)
    # The running mean has 8 fractional bits, each step rounds it once.
    error_of_mean = Fraction(len(lengths), 256)
    assert abs(value - exact) <= 2 * (max(lengths) - min(lengths)) * error_of_mean + 1


def test_long_gaps_and_times_running_backwards() -> None:
    packets = [
        (10**9, udp_frame()),
        (10**9 + 72 * 60 * 10**9, udp_frame()),
        (0, udp_frame()),
        (1500, udp_frame()),
    ]
    rows = run(["iat", "duration", "max(iat)", "sum(iat)", "variance(iat)"], packets)
    assert [row[:4] for row in rows[:2]] == [[0, 0, 0, 0], [2**32 - 1] * 4]
    assert rows[2][:4] == [0, 0, 2**32 - 1, 2**32 - 1]
    assert rows[3][0] == 0, "the latest time is kept"
    assert 0 <= rows[3][4] <= SQUARE_MAX >> 8


def test_direction() -> None:
    there, back = udp_frame(), udp_frame(53, 1000, hosts=(B, A))
    packets = [(0, back), (1, there), (2, back)]
    both = run(["direction", "count", "sum(direction)"], packets, key="five-tuple-bidirectional")
    assert both == [[1, 1, 1], [0, 2, 1], [1, 3, 2]]
    assert run(["direction", "count", "sum(direction)"], packets) == [[1, 1, 1], [1, 1, 1], [1, 2, 2]]


def segment_frame(back: bool, flags: int, sequence: int, payload: int = 0) -> bytes:
    ends, ports = ((B, A), (80, 1000)) if back else ((A, B), (1000, 80))
    segment = frames.tcp(*ports, flags, numbers=(sequence % 2**32, 7)) + bytes(payload)
    return frames.ethernet(frames.ipv4(*ends, frames.TCP, segment), frames.IPV4)


def test_samples_by_their_number() -> None:
    """A handshake's two times are those between the first three packets."""
    packets = [
        (0, segment_frame(False, 2, 9)),
        (3_000_000, segment_frame(True, 18, 5)),
        (4_500_000, segment_frame(False, 16, 10)),
        (5_000_000, segment_frame(False, 24, 10, 100)),
    ]
    features = ["at(iat, 1)", "at(iat, 2)", "at(length, 1)", "at(length, 4)"]
    features += ["at(payload_length, 3, direction=forward)", "at(length, 2, direction=backward)"]
    rows = run(features, packets, key="five-tuple-bidirectional")
    assert rows == [
        [0, 0, 40, 0, 0, 0],
        [3000, 0, 40, 0, 0, 0],
        [3000, 1500, 40, 0, 0, 0],
        [3000, 1500, 40, 140, 100, 0],
    ]


def test_times_of_one_direction() -> None:
    packets = [
        (1_000_000, segment_frame(False, 2, 9)),
        (3_000_000, segment_frame(True, 18, 5)),
        (4_500_000, segment_frame(False, 16, 10)),
        (6_000_000, segment_frame(False, 24, 10, 100)),
        (5_000_000, segment_frame(False, 24, 110, 100)),  # a time that runs backwards
        (9_000_000, segment_frame(True, 16, 6)),
    ]
    features = [
        "own_iat",
        "sum(own_iat)",
        "mean(own_iat, direction=forward)",
        "max(own_iat, direction=backward)",
    ]
    rows = run(features, packets, key="five-tuple-bidirectional")
    assert rows == [
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [3500, 3500, 3500 << 16, 0],
        [1500, 5000, 2500 << 16, 0],
        [0, 5000, (5000 << 16) // 3, 0],
        [6000, 11000, (5000 << 16) // 3, 6000],
    ]
    with pytest.raises(InputError, match="has one direction; write iat"):
        FeatureSet("one way", ["max(own_iat)"])


@pytest.mark.parametrize("begin", [9, 2**32 - 60, 2**31 - 60])
def test_what_tcp_sends_again(begin: int) -> None:
    sent = [
        (False, 2, begin, 0, 0),  # SYN
        (False, 2, begin, 0, 1),  # again
        (True, 18, 5, 0, 1),
        (False, 16, begin + 1, 0, 1),  # an acknowledgment occupies nothing
        (False, 24, begin + 1, 50, 1),
        (False, 24, begin + 101, 50, 1),
        (False, 24, begin + 51, 50, 2),  # late: it was lost, or overtaken
        (True, 24, 6, 30, 2),
        (True, 24, 6, 30, 2),  # of the other direction
        (False, 17, begin + 151, 0, 2),  # FIN
        (False, 17, begin + 151, 0, 3),
    ]
    packets = [(number, segment_frame(*segment)) for number, (*segment, _) in enumerate(sent)]
    forward = run(["repeats(tcp_end, direction=forward)"], packets, key="five-tuple-bidirectional")
    assert forward == [[repeats] for *_, repeats in sent]
    backward = run(["repeats(tcp_end, direction=backward)"], packets, key="five-tuple-bidirectional")
    assert backward[-1] == [1]
    # Each direction is a flow.
    assert run(["repeats(tcp_end)"], packets)[-1] == [3]
    with pytest.raises(InputError, match="add direction=forward"):
        FeatureSet("mixed", ["repeats(tcp_end)"], key="five-tuple-bidirectional")


# -- presets, by hand


def test_hara2023() -> None:
    """Three datagrams of 100, 200 and 60 bytes, 1.5 ms and 2.5 ms apart."""
    extractor = Extractor(PRESETS["hara2023"])
    rows = [
        extractor.process(udp_frame(length=length), time_ns).features
        for time_ns, length in ((10**9, 100), (10**9 + 1_500_000, 200), (10**9 + 4_000_000, 60))
    ]
    q16 = 65536
    assert rows[0] == [1000, 53, 17, 100, 1, 0, 100 * q16, q16, 0, 0, 0, 0]
    assert rows[1] == [1000, 53, 17, 200, 1, 1500, 150 * q16, q16, 750 * q16, 50 * q16, 0, 750 * q16]
    # mean interval 4000 / 3 us = 87381333.3 / 65536
    assert rows[2] == [1000, 53, 17, 60, 1, 2500, 120 * q16, q16, 87381333, 60 * q16, 0, 163840000 - 87381333]


def test_hara2026() -> None:
    """SYN of 60 bytes, data of 1500, FIN of 52; 30 ms and 20 ms apart."""
    extractor = Extractor(PRESETS["hara2026"])
    rows = [
        extractor.process(tcp_frame(flags, window, length), time_ns).features
        for time_ns, flags, window, length in (
            (0, 0x02, 29200, 60), (30 * MS, 0x18, 229, 1500), (50 * MS, 0x11, 229, 52)
        )
    ]  # fmt: skip
    q16 = 65536
    assert rows[0] == [60, 60 * q16, 60, 29200, 0, 60, 0, 0, 0, 0, 1, 0]
    # variance of 60 and 1500: 720^2, but the recurrence's product is 1440 * 720 / 2
    assert rows[1] == [1500, 780 * q16, 60, 29200, 1, 1560, 0, 30000 * q16, 30000, 720 * 720 * q16, 1, 30000]
    # With 8 fractional bits: mean 15360, 199680, 137558; squares 0, 368640 * 184320, + 186368 * 124246; / 3.
    variance = (368640 * 184320 + 186368 * 124246) // 3
    assert rows[2] == [1500, 35214677, 52, 29200, 2, 1612, 1, 25000 * q16, 50000, variance, 1, 30000]
    assert abs(variance / q16 - 463374.2) < 1


def test_galvao2026() -> None:
    """Datagrams in a tunnel, 10 ms and 30.5 ms apart, then in the next window, at the end of that behind it,
    right after that, and beyond a window without any.
    """
    extractor = Extractor(PRESETS["galvao2026"])
    tunnel = tunnel_of(b"\x30\xff\0\x1c\0\0\0\x07" + udp_frame(length=28)[14:])
    rows = [
        extractor.process(tunnel, 10**15 + at * MS // 10).features for at in (0, 100, 405, 5000, 14990, 15000)
    ]
    q16 = 65536
    assert rows[:3] == [[0, 0, 0, 0], [10_000 * q16, 0, 0, 0], [20_250 * q16, 10_250**2, 0, 0]]
    assert rows[3] == [459_500 * q16, 0, 20_250 * q16, 10_250**2]
    assert rows[4] == [999_000 * q16, 0, 459_500 * q16, 0]
    assert rows[5] == [1_000 * q16, 0, 999_000 * q16, 0]
    assert extractor.process(tunnel, 10**15 + 2600 * MS).features == [1_100_000 * q16, 0, 0, 0]


# -- flow keys and table


def test_seeds_are_splitmix64() -> None:
    assert seed_from(0)[:2] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_keys() -> None:
    packet = packet_of(udp_frame(hosts=(B, A)))
    kinds = {
        "five-tuple": (B, A, 1000, 53, 17),
        "five-tuple-bidirectional": (A, B, 53, 1000, 17),
        "source": (B, bytes(4), 0, 0, 0),
        "destination": (bytes(4), A, 0, 0, 0),
        "source-destination": (B, A, 0, 0, 0),
    }
    for kind, (source, destination, source_port, destination_port, protocol) in kinds.items():
        key, swapped = make_key(packet, kind)
        assert (key.source, key.destination, key.source_port, key.destination_port, key.protocol) == (
            source, destination, source_port, destination_port, protocol,
        )  # fmt: skip
        assert swapped == (kind == "five-tuple-bidirectional")


def test_the_same_inner_addresses_in_two_tunnels_are_two_flows_if_the_key_says_so() -> None:
    packet = packet_of(udp_frame(hosts=(B, A)))
    packet.teid = 0xDEADBEEF
    for kind in (key for key in KEYS if key.endswith("+teid")):
        inner, key = make_key(packet, kind.removesuffix("+teid"))[0], make_key(packet, kind)[0]
        assert inner.teid is None and key == inner._replace(teid=0xDEADBEEF)
        assert key.pack() == inner.pack() + (0xDEADBEEF).to_bytes(8, "little")
        assert str(key) == f"{inner} teid 0xdeadbeef"
        packet.teid += 1
        assert hash_key(make_key(packet, kind)[0], seed_from(1)) != hash_key(key, seed_from(1))
        packet.teid -= 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"key": "five-tuple+teid"}, "add decapsulate: [gtp-u]"),
        ({"key": "five-tuple-bidirectional+teid", "decapsulate": ["gtp-u"]}, "take five-tuple+teid"),
    ],
)
def test_a_tunnel_in_the_key_that_cannot_be(change: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)):
        FeatureSet.from_dict({"name": "x", "features": ["length"]} | change)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (b"\1\x00\x89\0", (9, 0, 1)),  # downlink; PPP and RQI stand above the QFI
        (b"\1\x1f\x3f\0", (63, 1, 2)),  # uplink
        (b"\1\x20\x09\0", (0, 2, 0)),  # another type
        (b"\2\x10\x05\0\0\0\0\0", (5, 1, 2)),  # with time stamps
    ],
)
def test_the_pdu_session_container(container: bytes, expected: tuple[int, int, int]) -> None:
    inner = udp_frame(length=28)[14:]
    frame = tunnel_of(b"\x34\xff\0\x24\0\0\0\x07\0\0\0\x85" + container + inner)
    packet = packet_of(frame, "gtp-u")
    assert (packet.teid, packet.tunnelled) == (7, True)
    assert (packet.qfi, packet.pdu_type, packet.pdu_direction) == expected
    bare = packet_of(tunnel_of(b"\x30\xff\0\x1c\0\0\0\x07" + inner), "gtp-u")
    assert (bare.teid, bare.qfi, bare.pdu_type, bare.pdu_direction) == (7, 0, 0, 0)


def test_the_hash_is_multilinear_and_finished() -> None:
    key, _ = make_key(packet_of(udp_frame()), "five-tuple")
    s = list(range(3, 3 + HASH_SEEDS))
    words = [int.from_bytes(key.pack()[i : i + 4], "little") for i in range(0, 16, 4)]
    total = (s[0] + words[0]) * (s[1] + words[1]) + (s[2] + words[2]) * (s[3] + words[3])
    mixed = (total ^ total >> 32) * s[HASH_WORDS] % 2**64
    assert hash_key(key, s) == (mixed ^ mixed >> 32) % 2**32


def test_cpus_share_the_table_unless_a_flow_keeps_to_one() -> None:
    def of(**change: object) -> FeatureSet:
        return FeatureSet.from_dict({"name": "x", "features": ["length"]} | change)

    assert {key: of(key=key, decapsulate=["gtp-u"]).sharing for key in KEYS} == {
        key: "per-cpu" if key.split("+")[0] == "five-tuple" else "shared" for key in KEYS
    }
    assert of(flow_table={"sharing": "shared"}).shared
    assert not of(key="source", flow_table={"sharing": "per-cpu"}).shared
    for sharing in ("shared", "per-cpu"):
        made = of(flow_table={"sharing": sharing})
        assert FeatureSet.from_dict(made.to_dict()) == made


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_as_a_file_is_the_preset(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    done = CliRunner().invoke(app, ["preset", name, "-o", str(file)])
    assert done.exit_code == 0, done.output
    loaded, preset = FeatureSet.load(file), PRESETS[name]
    assert loaded == preset and loaded.digest == preset.digest
    assert emit(None, loaded).files == emit(None, preset).files
    assert CliRunner().invoke(app, ["preset", name]).output == file.read_text()


def test_every_line_of_a_set_as_a_file_is_read_back(tmp_path: Path) -> None:
    """Also what no preset has; names that YAML would take for something else."""
    specs = [{"name": name, "is": "length"} for name in ("yes", "null", "on", "with_mean")]
    document = {
        "name": "no", "key": "source", "idle_timeout": "90s", "table_size": 4096, "grace": "250ms",
        "flow_table": {"sharing": "per-cpu"}, "decapsulate": ["gtp-u", "gre"], "proven_packets": 9,
        "aggregates_size": 64, "keeps": ["mean(length)", "max(iat, window=500ms)"],
        "features": [*specs, "count(by=destination, window=1s)"],
    }  # fmt: skip
    written = FeatureSet.from_dict(document)
    file = tmp_path / "mine.yaml"
    file.write_text(written.to_yaml())
    assert FeatureSet.load(file) == written


def test_an_unknown_preset_is_refused_with_the_known() -> None:
    done = CliRunner().invoke(app, ["preset", "hara2025"])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("preset 'hara2025': does not exist; did you mean 'hara202")


def test_presets_are_whole_flows_on_any_interface() -> None:
    assert all(preset.shared for preset in PRESETS.values())


def test_the_flow_table_replaces_by_its_rules() -> None:
    feature_set = FeatureSet.from_dict(
        {
            "name": "x",
            "table_size": 4,
            "idle_timeout": "1s",
            "grace": "100ms",
            "proven_packets": 2,
            "features": ["count"],
        }
    )
    extractor = Extractor(feature_set)

    def see(port: int, time_ms: int) -> tuple[Lookup | None, int]:
        seen = extractor.process(udp_frame(port), time_ms * MS)
        return seen.lookup, seen.packets

    assert [see(port, port)[0] for port in (1, 2, 3, 4)] == [Lookup.NEW] * 4
    assert [see(port, 4 + port) for port in (1, 2, 3)] == [(Lookup.HIT, 2)] * 3
    assert see(5, 10) == (Lookup.EVICTED, 1)  # 4 gives way: the only one that has not proved itself
    assert see(4, 11) == (Lookup.EVICTED, 1)  # 5
    assert see(4, 12) == (Lookup.HIT, 2)
    assert see(6, 13) == (Lookup.REFUSED, 1)
    assert see(6, 14) == (Lookup.REFUSED, 1)
    assert see(6, 106) == (Lookup.EVICTED, 1)  # the grace time of 1 is over
    assert see(2, 1006) == (Lookup.HIT, 3)  # idle for exactly the timeout
    assert see(2, 2007) == (Lookup.EXPIRED, 1)
    assert see(7, 5000)[0] is Lookup.EXPIRED


RUNNING = FeatureSet.from_dict(
    {
        "name": "running",
        "features": [
            "length",
            "iat",
            "mean(length)",
            "duration",
            "max(iat, window=1s, previous)",
            "variance(ttl)",
        ],
    }
)


def test_a_model_that_reads_less_can_have_the_layout_of_the_one_that_runs() -> None:
    wanted = StateLayout.of(RUNNING, range(6))
    for used in ((0,), (2,), (3, 2), (4, 5), range(6)):
        kept = keeping(RUNNING, used, RUNNING, range(6))
        assert StateLayout.of(kept, used) == wanted, used
        assert StateLayout.of(RUNNING, used) != wanted or used == range(6)
        # It goes on so from one to the next, and does not grow.
        again = keeping(RUNNING, (2,), kept, used)
        assert StateLayout.of(again, (2,)) == wanted and len(again.kept) == len(kept.kept)
        assert FeatureSet.from_dict(kept.to_dict()) == kept
    assert keeping(RUNNING, (0,), RUNNING, range(6)).needs_time((0,))
    assert not keeping(RUNNING, (0,), RUNNING, (1, 2)).needs_time((0,)), "iat itself has no state"


def test_another_feature_set_may_go_on_with_the_state_too() -> None:
    other = FeatureSet.from_dict({"name": "other", "features": ["sum(length)", "protocol", "variance(ttl)"]})
    kept = keeping(other, range(3), RUNNING, range(6))
    assert StateLayout.of(kept, range(3)) == StateLayout.of(RUNNING, range(6))


@pytest.mark.parametrize(
    ("changes", "used", "reason"),
    [
        (
            {"features": ["mean(length)", "min(length)", "sum(tos)"]},
            (0, 1, 2),
            "no state for min_length, sum_tos",
        ),
        ({"features": ["mean(length, window=1s)"]}, (0,), "no state for mean_length_1s"),
        ({"key": "source", "flow_table": {"sharing": "per-cpu"}}, (2,), "its flow key is source"),
        ({"table_size": 64}, (2,), "its table_size is 64, that of the running bundle 65536"),
        ({"flow_table": {"sharing": "shared"}}, (2,), "its flow table sharing is shared"),
        ({"decapsulate": ["gre"]}, (2,), "its decapsulate is"),
    ],
)
def test_what_cannot_go_on_is_refused(changes: dict[str, object], used: tuple[int, ...], reason: str) -> None:
    other = FeatureSet.from_dict(RUNNING.to_dict() | changes)
    with pytest.raises(InputError, match=reason) as refused:
        keeping(other, used, RUNNING, range(6))
    assert "--reset-flows" in str(refused.value)
