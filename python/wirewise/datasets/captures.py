# SPDX-License-Identifier: Apache-2.0
"""Captures: pcap and pcapng files in, packets out, and the other way for pcap.

dpkt knows the formats. Its readers are not used as they are: they give times as floats, which cannot hold the
nanoseconds of today's date, leave out the length on the wire, read every pcapng packet as if it came from the
first interface, and take a record that breaks off for a short packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dpkt import pcap, pcapng
from dpkt.dpkt import Error as DpktError

from wirewise.errors import InputError
from wirewise.files import open_file, replacing

ETHERNET = 1
_LINK_NAMES = {
    0: "NULL", 1: "ETHERNET", 8: "SLIP", 9: "PPP", 12: "RAW", 50: "PPP_HDLC", 51: "PPP_ETHER",
    101: "RAW", 104: "C_HDLC", 105: "IEEE802_11", 107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL",
    127: "IEEE802_11_RADIOTAP", 228: "IPV4", 229: "IPV6", 276: "LINUX_SLL2",
}  # fmt: skip
_MAX_RECORD = 1 << 24  # bytes; a record that claims more is damage, not a packet
_MAX_INTERFACES = 1 << 16  # of a section
_SNAP_LENGTH = 1 << 18  # bytes; what the readers of captures take

# The first four bytes as they stand in the file: byte order, nanoseconds per tick, bytes of a record header.
_PCAP_MAGIC = {
    magic.to_bytes(4, order): ("<" if order == "little" else ">", tick_ns, header)
    for magic, tick_ns, header in (
        (pcap.TCPDUMP_MAGIC, 1000, 16),
        (pcap.TCPDUMP_MAGIC_NANO, 1, 16),
        (pcap.MODPCAP_MAGIC, 1000, 24),
    )
    for order in ("little", "big")
}
_PCAPNG_MAGIC = pcapng.PCAPNG_BT_SHB.to_bytes(4, "big")


class CapturedPacket(NamedTuple):
    time_ns: int  # since 1970
    frame: bytes  # as captured; may be cut
    wire_length: int  # bytes on the wire
    link_type: int  # LINKTYPE_ number; 1: Ethernet


READABLE_LINKS = frozenset((
    "ETHERNET", "RAW", "IPV4", "IPV6", "LINUX_SLL", "LINUX_SLL2", "NULL", "LOOP",
    "PPP", "PPP_HDLC", "PPP_ETHER",
))  # fmt: skip
"""Names of the link types that the agent reads (`LinkType::is_known`)."""


def link_name(link_type: int) -> str:
    """The name of a link type: `ETHERNET`, `LINUX_SLL`, or `LINKTYPE_182` where we know no better."""
    return _LINK_NAMES.get(link_type, f"LINKTYPE_{link_type}")


@dataclass
class _Source:
    """A file that knows where it is, for errors."""

    path: Path
    file: BinaryIO
    offset: int = 0
    ahead: bytes = b""  # read, but not taken

    def put_back(self, data: bytes) -> None:
        self.ahead = data + self.ahead
        self.offset -= len(data)

    def take(self, size: int, what: str, *, may_end: bool = False) -> bytes:
        """The next size bytes; at the end of the file b"" if `may_end`. Raises InputError if cut off."""
        data, self.ahead = self.ahead[:size], self.ahead[size:]
        data += self.file.read(size - len(data))
        if len(data) < size and (data or not may_end):
            raise self.error(
                f"is cut off: {what} at byte {self.offset} needs {size} bytes, {len(data)} are left",
                "repair it (for example with `editcap`) or capture again",
            )
        self.offset += len(data)
        return data

    def error(self, rule: str, way_out: str = "give a pcap or pcapng file") -> InputError:
        return InputError(str(self.path), rule, way_out)


def read_capture(path: str | Path) -> Iterator[CapturedPacket]:
    """The packets of a pcap or pcapng file, or of several one behind the other, in file order.

    Raises InputError when the file cannot be read or is no capture, and, behind its last whole packet, when
    it breaks off.
    """
    path = Path(path)
    try:
        # A pipe gives what another program writes.
        with open_file(path, what="pcap or pcapng file", pipe=True) as file:
            source = _Source(path, file)
            magic = source.take(4, "the file header", may_end=True)
            if not magic:
                raise source.error("is empty, not a capture")
            while magic:  # of each of the captures that `cat` joined
                if magic in _PCAP_MAGIC:
                    yield from _read_pcap(source, *_PCAP_MAGIC[magic])
                elif magic == _PCAPNG_MAGIC:
                    yield from _read_pcapng(source)
                else:
                    raise source.error("is not a capture")
                magic = source.take(4, "the header of the next capture", may_end=True)
    except OSError as error:
        rule = f"cannot be read: {error.strerror}"
        raise InputError(str(path), rule, "give a pcap or pcapng file") from error


def read_ethernet(path: str | Path) -> Iterator[CapturedPacket]:
    """As `read_capture`, but raises InputError at a packet that is not Ethernet."""
    for number, packet in enumerate(read_capture(path), 1):
        if packet.link_type != ETHERNET:
            raise InputError(
                str(path), f"packet {number} has link type {link_name(packet.link_type)}, not ETHERNET",
                "capture on an Ethernet interface; wirewise reads packets as an XDP program sees them",
            )  # fmt: skip
        yield packet


def _read_pcap(source: _Source, order: str, tick_ns: int, header_length: int) -> Iterator[CapturedPacket]:
    header = source.take(pcap.FileHdr.__hdr_len__ - 4, "the file header")
    link_type = struct.unpack_from(order + "I", header, 16)[0] & 0xFFFF  # above: about check sequences
    record = struct.Struct(order + "IIII")
    while head := source.take(header_length, "a packet header", may_end=True):
        if _begins_capture(head):
            source.put_back(head)
            return
        seconds, ticks, captured, wire_length = record.unpack_from(head)
        if captured > _MAX_RECORD:
            raise source.error(f"is damaged: the packet at byte {source.offset} claims {captured} bytes")
        frame = source.take(captured, "a packet")
        yield CapturedPacket(seconds * 1_000_000_000 + ticks * tick_ns, frame, wire_length, link_type)


def _begins_capture(record: bytes) -> bool:
    """Whether another capture begins here: as a record's time, its magic number would be in 1975 or 2055,
    with the version as microseconds.
    """
    if record[:4] == _PCAPNG_MAGIC:
        return record[8:12] in (pcapng.BYTE_ORDER_MAGIC.to_bytes(4, order) for order in ("little", "big"))
    if record[:4] not in _PCAP_MAGIC or any(record[8:12]):
        return False
    order = _PCAP_MAGIC[record[:4]][0]
    return struct.unpack_from(order + "HH", record, 4) == (2, 4)


@dataclass(frozen=True)
class _Interface:
    link_type: int
    snap_length: int
    ticks_per_second: int
    offset_s: int

    def time_ns(self, high: int, low: int) -> int:
        return (high << 32 | low) * 1_000_000_000 // self.ticks_per_second + self.offset_s * 1_000_000_000


def _read_pcapng(source: _Source) -> Iterator[CapturedPacket]:
    order, interfaces = "<", list[_Interface]()
    kind_bytes = _PCAPNG_MAGIC  # already read
    while kind_bytes:
        if kind_bytes in _PCAP_MAGIC:
            source.put_back(kind_bytes)
            return
        start = source.offset - 4
        head = source.take(4, "a block header")
        if kind_bytes == _PCAPNG_MAGIC:  # a section: its byte order decides how its own length is read
            head += source.take(4, "a section header")
            order = "<" if int.from_bytes(head[4:8], "little") == pcapng.BYTE_ORDER_MAGIC else ">"
            interfaces = []
        kind, length = struct.unpack(order + "II", kind_bytes + head[:4])
        if length < 12 or length % 4 or length > _MAX_RECORD:
            raise source.error(f"is damaged: the block at byte {start} claims {length} bytes")
        block = kind_bytes + head
        block += source.take(length - len(block), f"the block that begins at byte {start}, which")
        try:
            if kind == pcapng.PCAPNG_BT_IDB:
                interfaces.append(_interface(block, order))
                if len(interfaces) > _MAX_INTERFACES:
                    raise source.error(f"is damaged: it describes more than {_MAX_INTERFACES} interfaces")
            elif kind == pcapng.PCAPNG_BT_EPB:
                index, high, low, captured, wire_length = struct.unpack_from(order + "IIIII", block, 8)
                yield _packet(block, 28, captured, wire_length, interfaces[index], high, low)
            elif kind == pcapng.PCAPNG_BT_PB:  # obsolete
                index, high, low, captured, wire_length = struct.unpack_from(order + "HxxIIII", block, 8)
                yield _packet(block, 28, captured, wire_length, interfaces[index], high, low)
            elif kind == pcapng.PCAPNG_BT_SPB:  # has no time, and was cut to the interface's snap length
                (wire_length,) = struct.unpack_from(order + "I", block, 8)
                captured = min(wire_length, interfaces[0].snap_length or wire_length)
                yield _packet(block, 12, captured, wire_length, interfaces[0], 0, 0)
        except (IndexError, struct.error, DpktError, ValueError) as error:
            raise source.error(f"is damaged: the block at byte {start} does not hold together") from error
        kind_bytes = source.take(4, "a block header", may_end=True)


def _packet(
    block: bytes, start: int, captured: int, wire_length: int, interface: _Interface, high: int, low: int
) -> CapturedPacket:
    if start + captured + 4 > len(block):
        raise ValueError("a packet longer than its block")
    frame = block[start : start + captured]
    return CapturedPacket(interface.time_ns(high, low), frame, wire_length, interface.link_type)


def _interface(block: bytes, order: str) -> _Interface:
    little = order == "<"
    idb = (pcapng.InterfaceDescriptionBlockLE if little else pcapng.InterfaceDescriptionBlock)(block)
    ticks, offset = 1_000_000, 0
    for option in idb.opts:
        if option.code == pcapng.PCAPNG_OPT_IF_TSRESOL:
            exponent = option.data[0]
            ticks = (2 if exponent & 0x80 else 10) ** (exponent & 0x7F)
        elif option.code == pcapng.PCAPNG_OPT_IF_TSOFFSET:
            offset = int.from_bytes(option.data[:8], "little" if little else "big", signed=True)
    return _Interface(idb.linktype, idb.snaplen, ticks, offset)


def write_capture(path: str | Path, packets: Iterable[tuple[int, bytes]]) -> int:
    """Write (time_ns, Ethernet frame) as a pcap with nanosecond times; gives the number of packets.

    The file appears when it is complete. Raises InputError where it cannot be written, or a time not be held.
    """
    count = 0
    with replacing(path) as temporary, temporary.open("wb", buffering=1 << 20) as file:
        header = pcap.FileHdr(magic=pcap.TCPDUMP_MAGIC_NANO, snaplen=_SNAP_LENGTH, linktype=ETHERNET)
        file.write(bytes(header))
        record = struct.Struct(">IIII")
        for time_ns, frame in packets:
            seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
            if not 0 <= seconds < 1 << 32:
                raise InputError(
                    str(path), f"packet {count + 1} is from a time that pcap cannot hold (1970 to 2106)"
                )
            file.write(record.pack(seconds, nanoseconds, len(frame), len(frame)) + frame)
            count += 1
    return count
