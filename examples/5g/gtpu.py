# SPDX-License-Identifier: Apache-2.0
"""GTP-U (3GPP TS 29.281): packets of devices in tunnels over UDP."""

from __future__ import annotations

import struct

PORT = 2152
GNB, UPF = "10.200.0.1", "10.200.0.2"
FIRST_SOURCE_PORT = 40000
"""Of the gNB; that of a tunnel is its TEID more, so each has a five-tuple of its own, as TS 29.281 allows."""

G_PDU = 255
_HAS_EXTENSION, _HAS_SEQUENCE, _HAS_ANY = 4, 2, 7
_UDP_PORT, _SESSION_CONTAINER = 0x40, 0x85  # kinds of extension headers
_CONTAINER = bytes([1, 0x10, 9, 0])  # uplink, QFI 9: the default QoS flow, whatever the packet is (TS 38.415)
_MOST_EXTENSIONS = 4


def tunnel_of(packet: bytes) -> int | None:
    """The TEID of the device that sends this IP packet; None if it is no device of the example."""
    version = packet[0] >> 4
    if version == 4 and packet[12:14] == b"\x0a\x3c":
        return packet[14] << 8 | packet[15]
    if version == 6 and packet[8:14] == b"\x20\x01\x0d\xb8\x00\x60":
        return packet[15] << 8 | packet[23]
    return None


def slice_of(source_port: int) -> int:
    """0 URLLC, 1 eMBB, or another number: which devices a tunnel's source port stands for."""
    return (source_port - FIRST_SOURCE_PORT >> 8) - 1


def encapsulate(packet: bytes, tunnel: int, sequence: int) -> bytes:
    """A G-PDU, in one of three forms, by tunnel: without options, with the PDU session container, and with a
    sequence number and two extension headers.
    """
    form = tunnel % 3
    if form == 0:
        return struct.pack(">BBHI", 0x30, G_PDU, len(packet), tunnel) + packet
    if form == 1:
        head = struct.pack(">HBB", 0, 0, _SESSION_CONTAINER) + _CONTAINER
        flags = 0x30 | _HAS_EXTENSION
    else:
        head = struct.pack(">HBB", sequence & 0xFFFF, 0, _UDP_PORT)
        head += struct.pack(">BHB", 1, 2152, _SESSION_CONTAINER) + _CONTAINER
        flags = 0x30 | _HAS_EXTENSION | _HAS_SEQUENCE
    return struct.pack(">BBHI", flags, G_PDU, len(head) + len(packet), tunnel) + head + packet


def begin_of_packet(message: bytes | memoryview) -> int:
    """Where the packet begins in a G-PDU. Raises ValueError if it is none, or breaks off."""
    if len(message) < 8 or message[0] >> 4 != 3 or message[1] != G_PDU:
        raise ValueError("no G-PDU")
    flags, at = message[0], 8
    if flags & _HAS_ANY:
        at, kind = 12, message[11] if len(message) > 11 and flags & _HAS_EXTENSION else 0
        for _ in range(_MOST_EXTENSIONS):
            if not kind:
                break
            length = 4 * message[at] if at < len(message) else 0
            if not length or at + length > len(message):
                raise ValueError("an extension header breaks off")
            kind, at = message[at + length - 1], at + length
        if kind:
            raise ValueError("too many extension headers")
    if at >= len(message):
        raise ValueError("nothing in it")
    return at
