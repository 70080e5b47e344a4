# SPDX-License-Identifier: Apache-2.0
"""Packets as rows of a table, and the bytes of their Ethernet frames.

Building one frame at a time in Python is slow. Rows with headers of the same shape are built together
instead, as a matrix of bytes, checksums included; only the last step, cutting the matrix into frames, goes
row by row.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Rows = NDArray[np.void]
"""Rows of type ROW."""

ROW = np.dtype(
    [
        ("time_ns", "i8"),
        ("kind", "u1"),  # index into profiles.ALL_KINDS
        ("outgoing", "?"),  # sent by the protected side
        ("reply", "?"),  # the victim's answer to an attack: neither attack nor ordinary traffic
        ("version", "u1"),  # 4 or 6
        ("source", "u4"),  # host number: the IPv4 address, or the middle of the IPv6 address
        ("destination", "u4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("protocol", "u1"),
        ("ttl", "u1"),
        ("ip_id", "u2"),
        ("fragment", "u2"),  # IPv4: flags and offset as in the header
        ("options", "u1"),  # Options
        ("tcp_flags", "u1"),  # ICMP: the type
        ("window", "u2"),  # ICMP: the identifier
        ("seq", "u4"),
        ("ack", "u4"),
        ("vlan", "u2"),  # 0: no tag
        ("payload", "u4"),  # where it starts in PAYLOADS; even
        ("payload_length", "u2"),
        ("datagram_length", "u2"),  # UDP: payload of the whole datagram, all its fragments
        ("tunnel", "u4"),  # TEID of the GTP-U tunnel around the packet; 0: none
    ]
)

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
DONT_FRAGMENT, MORE_FRAGMENTS = 0x4000, 0x2000
MINIMUM_FRAME = 60
"""Bytes of the shortest Ethernet frame, without its check sequence; a NIC hands over the padding too."""


class Options(IntEnum):
    """TCP options of a packet, as common stacks order them."""

    NONE = 0
    STAMP = 1  # data of a stack that uses timestamps
    LINUX = 2  # SYN
    WINDOWS = 3  # SYN
    APPLE = 4  # SYN
    MSS = 5  # SYN of embedded stacks and scanners


_STAMP = "080a0000000000000000"
_OPTION_BYTES: dict[Options, bytes] = {
    Options.NONE: b"",
    Options.STAMP: bytes.fromhex("0101" + _STAMP),
    Options.LINUX: bytes.fromhex("020405b4" + "0402" + _STAMP + "01" + "030307"),
    Options.WINDOWS: bytes.fromhex("020405b4" + "01" + "030308" + "0101" + "0402"),
    Options.APPLE: bytes.fromhex("020405b4" + "01" + "030306" + "0101" + _STAMP + "0402" + "0000"),
    Options.MSS: bytes.fromhex("020405b4"),
}
_STAMP_AT = {Options.STAMP: 4, Options.LINUX: 8, Options.APPLE: 12}

GTP_PORT = 2152
_GNBS, _UPF = 0x0AC80000, 0x0AC90001  # 10.200.0.0/16, 10.201.0.1

_GATEWAY_OUTSIDE = bytes.fromhex("024777000001")
_GATEWAY_INSIDE = bytes.fromhex("024777000002")


class Content(IntEnum):
    """Where the payloads of an application start in PAYLOADS."""

    REQUEST = 0
    HEADER_LINE = 2 * 65536
    TLS = 4 * 65536  # records of many connections: see `tls`
    DNS = 6 * 65536
    RANDOM = 8 * 65536  # see `noise`
    RECORDS = 10 * 65536  # each 512 bytes as of another protocol: see `records`


def _payloads() -> bytes:
    """Text and random bytes that payloads are cut from, for packet viewers: no application sends them."""
    noise = np.random.Generator(np.random.PCG64(7)).integers(0, 256, 2 * 65536, np.uint8).tobytes()
    request = b"GET /catalogue/item?id=1 HTTP/1.1\r\nHost: www.example.org\r\nAccept: */*\r\nCookie: "
    request += b"session=" + b"0123456789abcdef" * (2 * 65536 // 16)
    answer = bytes.fromhex("1a2b8180000100010000000003777777076578616d706c65036f726700")
    answer += bytes.fromhex("00010001c00c0001000100000e10")
    sections = {
        Content.REQUEST: request,
        Content.HEADER_LINE: b"X-a: 4711\r\n" * (2 * 65536 // 11 + 1),
        Content.TLS: b"".join(
            bytes.fromhex("1703034000") + noise[at : at + _TLS_BYTES - 5]
            for at in range(0, 2 * 65536, _TLS_BYTES)
        ),
        Content.DNS: answer + noise,
        Content.RANDOM: noise,
        Content.RECORDS: _records(),
    }
    return b"".join(sections[content][: 2 * 65536] for content in Content)


_RECORD_BYTES, _MOST_RECORDS = 512, 4096
"""Bytes of a stretch of Content.RECORDS, and of the longest payload that is cut from them."""

_TLS_BYTES = 2048
"""Bytes of a stretch of Content.TLS: a full segment and more."""


def _records() -> bytes:
    """Stretches that differ in their shares of zeros, of text, of small and of any numbers, as the binary
    messages of services do.
    """
    rng = np.random.Generator(np.random.PCG64(11))
    parts = []
    for _ in range(2 * 65536 // _RECORD_BYTES):
        what = rng.choice(4, _RECORD_BYTES, p=rng.dirichlet(np.full(4, 0.6)))
        drawn = rng.integers(0, 256, _RECORD_BYTES)
        parts.append(np.choose(what, [drawn * 0, 0x20 + drawn % 0x5F, drawn % 0x20, drawn]))
    return np.concatenate(parts).astype(np.uint8).tobytes()


def records(number: int) -> int:
    """Where payloads of a service begin, of up to _MOST_RECORDS bytes. number : any, of the service."""
    stretches = (2 * 65536 - _MOST_RECORDS) // _RECORD_BYTES
    return Content.RECORDS + number % stretches * _RECORD_BYTES


def tls(number: int) -> int:
    """Where the segments of a TLS connection begin. number : any, of the flow."""
    return Content.TLS + number % (2 * 65536 // _TLS_BYTES) * _TLS_BYTES


def noise(number: int) -> int:
    """Where random payloads begin, of up to _MOST_RECORDS bytes. number : any, of the flow."""
    return Content.RANDOM + number % (65536 - _MOST_RECORDS) * 2


PAYLOADS = _payloads()
_PAYLOAD_BYTES = np.frombuffer(PAYLOADS, np.uint8)
_PAYLOAD_SUMS = np.concatenate(([0], np.cumsum(_PAYLOAD_BYTES.view(">u2").astype(np.int64))))
"""Sum of the 16-bit words before each word of PAYLOADS: the checksum of any stretch is one subtraction."""


def _sum_of_payload(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    words = start // 2
    total = _PAYLOAD_SUMS[words + length // 2] - _PAYLOAD_SUMS[words]
    last = _PAYLOAD_BYTES[np.minimum(start + length - 1, len(PAYLOADS) - 1)].astype(np.int64) << 8
    return np.asarray(total + np.where(length % 2 == 1, last, 0))


def _fold(total: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Ones' complement of a sum of 16-bit words (RFC 1071)."""
    for _ in range(3):
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).astype(np.uint16)


def _sum_of_words(block: Bytes) -> NDArray[np.int64]:
    return np.asarray(block.view(">u2").astype(np.int64).sum(axis=1))


def _put(block: Bytes, at: int, values: NDArray[np.generic] | int, kind: str) -> None:
    """Write one header field of every row, in network byte order."""
    width = np.dtype(kind).itemsize
    column = np.broadcast_to(np.asarray(values), len(block)).astype(kind)
    block[:, at : at + width] = np.ascontiguousarray(column).view(np.uint8).reshape(-1, width)


def _addresses(hosts: NDArray[np.uint32], version: int) -> Bytes:
    """Network byte order. IPv6: 2001:db8::/32, the host number, and an interface identifier made from it."""
    four = hosts.astype(">u4").view(np.uint8).reshape(-1, 4)
    if version == 4:
        return four
    identifier = (hosts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8")
    prefix = np.tile(np.frombuffer(bytes.fromhex("20010db8"), np.uint8), (len(hosts), 1))
    return np.hstack([prefix, four, identifier.view(np.uint8).reshape(-1, 8)])


def _headers(rows: Rows, version: int, tagged: bool, transport: int, options: Options) -> Bytes:
    """Ethernet to transport headers of rows of one shape; transport 0: a fragment other than the first."""
    count = len(rows)
    option_bytes = _OPTION_BYTES[options]
    network = 18 if tagged else 14
    network_length = 20 if version == 4 else 40
    transport_at = network + network_length
    transport_length = {TCP: 20 + len(option_bytes), UDP: 8, ICMP: 8, ICMPV6: 8, 0: 0}[transport]
    block = np.zeros((count, transport_at + transport_length), np.uint8)
    payload = rows["payload_length"].astype(np.int64)

    macs = np.frombuffer(_GATEWAY_INSIDE + _GATEWAY_OUTSIDE, np.uint8)
    swapped = np.frombuffer(_GATEWAY_OUTSIDE + _GATEWAY_INSIDE, np.uint8)
    block[:, :12] = np.where(rows["outgoing"][:, None], swapped, macs)
    if tagged:
        _put(block, 12, 0x8100, ">u2")
        _put(block, 14, rows["vlan"], ">u2")
    _put(block, network - 2, 0x0800 if version == 4 else 0x86DD, ">u2")

    source = _addresses(rows["source"], version)
    destination = _addresses(rows["destination"], version)
    if version == 4:
        _put(block, network, 0x4500, ">u2")
        _put(block, network + 2, 20 + transport_length + payload, ">u2")
        _put(block, network + 4, rows["ip_id"], ">u2")
        _put(block, network + 6, rows["fragment"], ">u2")
        _put(block, network + 8, rows["ttl"], "u1")
        _put(block, network + 9, rows["protocol"], "u1")
        block[:, network + 12 : network + 16] = source
        block[:, network + 16 : network + 20] = destination
        _put(block, network + 10, _fold(_sum_of_words(block[:, network:transport_at].copy())), ">u2")
    else:
        _put(block, network, 0x60000000, ">u4")
        _put(block, network + 4, transport_length + payload, ">u2")
        _put(block, network + 6, rows["protocol"], "u1")
        _put(block, network + 7, rows["ttl"], "u1")
        block[:, network + 8 : network + 24] = source
        block[:, network + 24 : network + 40] = destination
    if transport == 0:
        return block
    payload_at = rows["payload"].astype(np.int64)
    if transport in (ICMP, ICMPV6):
        _put(block, transport_at, rows["tcp_flags"], "u1")
        _put(block, transport_at + 4, rows["window"], ">u2")
        _put(block, transport_at + 6, rows["seq"] & 0xFFFF, ">u2")
        total = _sum_of_words(block[:, transport_at:].copy()) + _sum_of_payload(payload_at, payload)
        if transport == ICMPV6:
            total += _sum_of_words(source) + _sum_of_words(destination) + ICMPV6 + transport_length + payload
        _put(block, transport_at + 2, _fold(total), ">u2")
        return block

    _put(block, transport_at, rows["source_port"], ">u2")
    _put(block, transport_at + 2, rows["destination_port"], ">u2")
    covered = payload
    if transport == TCP:
        _put(block, transport_at + 4, rows["seq"], ">u4")
        _put(block, transport_at + 8, rows["ack"], ">u4")
        _put(block, transport_at + 12, (transport_length // 4) << 4, "u1")
        _put(block, transport_at + 13, rows["tcp_flags"], "u1")
        _put(block, transport_at + 14, rows["window"], ">u2")
        if option_bytes:
            block[:, transport_at + 20 :] = np.frombuffer(option_bytes, np.uint8)
        if options in _STAMP_AT:
            now_ms = rows["time_ns"] // 1_000_000
            stamp_at = transport_at + 20 + _STAMP_AT[options]
            _put(block, stamp_at, (now_ms + rows["source"]) & 0xFFFFFFFF, ">u4")
            echo = np.where(rows["tcp_flags"] & ACK > 0, now_ms + rows["destination"] - 20, 0)
            _put(block, stamp_at + 4, echo & 0xFFFFFFFF, ">u4")
    else:
        covered = rows["datagram_length"].astype(np.int64)
        _put(block, transport_at + 4, 8 + covered, ">u2")
    pseudo = _sum_of_words(source) + _sum_of_words(destination) + transport + transport_length + covered
    total = pseudo + _sum_of_words(block[:, transport_at:].copy())
    checksum = _fold(total + _sum_of_payload(payload_at, covered))
    if transport == UDP:
        checksum = np.where(checksum == 0, 0xFFFF, checksum)  # 0 would say "no checksum" (RFC 768)
    _put(block, transport_at + (16 if transport == TCP else 6), checksum, ">u2")
    return block


def build(rows: Rows) -> list[bytes]:
    """The Ethernet frame of every row, in the order of the rows."""
    transport = np.where((rows["version"] == 4) & (rows["fragment"] & 0x1FFF > 0), 0, rows["protocol"])
    shape = np.stack([rows["version"], rows["vlan"] > 0, transport, rows["options"]], axis=1)
    shapes, member = np.unique(shape, axis=0, return_inverse=True)
    frames: list[bytes] = [b""] * len(rows)
    for index, (version, tagged, protocol, options) in enumerate(shapes):
        chosen = np.flatnonzero(member.reshape(-1) == index)
        block = _headers(rows[chosen], int(version), bool(tagged), int(protocol), Options(options))
        width = block.shape[1]
        headers = block.tobytes()
        starts = rows["payload"][chosen].tolist()
        lengths = rows["payload_length"][chosen].tolist()
        for position, (row, start, length) in enumerate(zip(chosen.tolist(), starts, lengths, strict=True)):
            frame = headers[position * width : (position + 1) * width] + PAYLOADS[start : start + length]
            frames[row] = frame.ljust(MINIMUM_FRAME, b"\0")
    inside = np.flatnonzero(rows["tunnel"])
    for row, ends in zip(inside.tolist(), ends_of(rows[inside]) if len(inside) else (), strict=True):
        frames[row] = _in_tunnel(int(rows["tunnel"][row]), bool(rows["outgoing"][row]), ends, frames[row])
    return frames


class Ends(NamedTuple):
    """The outermost five-tuple of a packet. source, destination : addresses as in the header."""

    source: bytes
    source_port: int
    destination: bytes
    destination_port: int
    protocol: int


def ends_of(rows: Rows) -> list[Ends]:
    """The outermost five-tuple of every row, as its frame has it; fragments but the first have ports 0."""
    rows = _outside(rows)
    later = (rows["version"] == 4) & (rows["fragment"] & 0x1FFF > 0)
    ports = [np.where(later, 0, rows[name]).tolist() for name in ("source_port", "destination_port")]
    texts = []
    for name in ("source", "destination"):
        four, six = (_addresses(rows[name], version).tobytes() for version in (4, 6))
        versions = rows["version"].tolist()
        texts.append(
            [four[4 * i : 4 * i + 4] if v == 4 else six[16 * i : 16 * i + 16] for i, v in enumerate(versions)]
        )
    parts = zip(texts[0], ports[0], texts[1], ports[1], rows["protocol"].tolist(), strict=True)
    return [Ends(*part) for part in parts]


def _outside(rows: Rows) -> Rows:
    """Rows with the outermost addresses and ports: those in a tunnel have its ends.

    The gNB and its port follow from the tunnel, so each has a five-tuple of its own, as TS 29.281 allows.
    """
    inside = rows["tunnel"] > 0
    if not inside.any():
        return rows
    rows = rows.copy()
    out, tunnel = rows["outgoing"], rows["tunnel"]
    gnb, port = _GNBS + (tunnel & 0xFFFF), 49152 + (tunnel >> 16 & 0x3FFF)
    for name, there, back in (
        ("source", gnb, _UPF), ("destination", _UPF, gnb), ("source_port", port, GTP_PORT),
        ("destination_port", GTP_PORT, port), ("version", 4, 4), ("protocol", UDP, UDP), ("fragment", 0, 0),
    ):  # fmt: skip
        rows[name] = np.where(inside, np.where(out, back, there), rows[name])
    return rows


def _in_tunnel(tunnel: int, downlink: bool, ends: Ends, frame: bytes) -> bytes:
    """An Ethernet frame whose IPv4 packet is carried by GTP-U (TS 29.281), with a PDU session container."""
    inner = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
    gtp = struct.pack(">BBHIHBB", 0x34, 255, len(inner) + 8, tunnel, 0, 0, 0x85)
    gtp += bytes([1, 0x00 if downlink else 0x10, 9, 0])  # TS 38.415
    body = gtp + inner
    # No checksum, which IPv4 allows.
    udp = struct.pack(">HHHH", ends.source_port, ends.destination_port, 8 + len(body), 0)
    header = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(body), 0, DONT_FRAGMENT, 63, ends.protocol, 0)
    header += ends.source + ends.destination
    words = _sum_of_words(np.frombuffer(header, np.uint8).reshape(1, -1))
    header = header[:10] + int(_fold(words)[0]).to_bytes(2, "big") + header[12:]
    return frame[:14] + header + udp + body
