# SPDX-License-Identifier: Apache-2.0
"""The truth about each packet on the wire, carried where no feature looks, and counted by the kernel.

The last byte of the source MAC address names the kind of a packet. No packet field of the catalogue reads a
MAC address, and it survives until the far end. There, each kind has a packet socket with a filter on that
byte. Nobody reads from the sockets: the kernel counts what a filter let through, whether or not there was
room for it (PACKET_STATISTICS counts drops too), so no speed is too high to count at.
"""

from __future__ import annotations

import ctypes
import socket
import struct

SOURCE_MAC = bytes.fromhex("0257570000")
"""First five bytes of the source address of every packet that is sent; the tag is the sixth."""
DESTINATION_MAC = bytes.fromhex("025757ffffff")
"""An address nobody has: the receiving namespace's own stack leaves the packets alone, and answers none."""

_TAG_AT = 11
_SO_ATTACH_FILTER = 26
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_ETH_P_ALL = 3
_LOAD_BYTE, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x15, 0x06  # classic BPF


def tag(frame: bytes, number: int) -> bytes:
    """The frame with its addresses replaced and the tag, 0 to 255, written."""
    return DESTINATION_MAC + SOURCE_MAC + bytes([number]) + frame[12:]


class Counters:
    """Counts arriving packets of an interface by tag, from 0 to below tags.

    Open it inside the interface's namespace.
    """

    def __init__(self, interface: str, tags: int) -> None:
        self._sockets = [_open(interface, number) for number in range(tags)]
        self._counts = [0] * tags

    def read(self) -> list[int]:
        """Packets so far, by tag."""
        for number, counter in enumerate(self._sockets):
            packets, _ = struct.unpack("II", counter.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            self._counts[number] += packets  # reading sets the kernel's count back to 0
        return list(self._counts)

    def close(self) -> None:
        for counter in self._sockets:
            counter.close()


def _open(interface: str, number: int) -> socket.socket:
    """A socket that accepts one byte of each packet with this tag."""
    opened = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW, 0
    )  # protocol 0: nothing arrives before the filter is set
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (_LOAD_BYTE, 0, 0, _TAG_AT),
            (_JUMP_IF_EQUAL, 0, 1, number),
            (_RETURN, 0, 0, 1),
            (_RETURN, 0, 0, 0),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    opened.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    )
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the smallest there is
    opened.bind((interface, _ETH_P_ALL))
    return opened
