# SPDX-License-Identifier: Apache-2.0
"""Reference parser: what the data path reads of a frame, and why it may refuse it.

The same rules in C are bpf/classify/parse.h; docs/architecture.md ("Parsing") states them in words.
Written to be obvious: offsets are counted, nothing is shared with the C. What a length field says ends before
the frame does is cut off the frame before anything behind that field is read, so no reader sees padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wirewise.abi import Status
from wirewise.feature_sets import dns, probes

TUNNELS = ("gtp-u", "vxlan", "gre", "ip-in-ip")

MAX_VLAN_TAGS = 2
MAX_EXTENSIONS = 8
MAX_GTP_EXTENSIONS = 4
MAX_HOP_BY_HOP_OPTIONS = 8
"""Options in front of and with the one that gives a jumbogram's length."""
MAX_PAYLOAD_HEAD = 16
"""Bytes of the payload that fields read."""
MAX_FIELD = 0xFFFF
"""The largest number that a 16-bit length field holds."""
MAX_LENGTH = (1 << 20) - 1
"""The longest IP packet told apart: longer ones count as this long. Linux makes none of more than 512 KiB
(GSO_MAX_SIZE)."""

_VLAN_TYPES = {0x8100, 0x88A8, 0x9100}
_IPV4, _IPV6, _TRANSPARENT_ETHERNET, _PPPOE_SESSION = 0x0800, 0x86DD, 0x6558, 0x8864
_PPP_TYPES = {0x0021: _IPV4, 0x0057: _IPV6}
"""EtherTypes of what PPP carries under these protocols."""
_TCP, _UDP, _UDP_LITE, _SCTP, _DCCP, _ICMP, _ICMP6 = 6, 17, 136, 132, 33, 1, 58
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTH, _DESTINATION, _MOBILITY, _HIP, _SHIM6 = (
    0,
    43,
    44,
    51,
    60,
    135,
    139,
    140,
)
_EXTENSIONS = {_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTH, _DESTINATION, _MOBILITY, _HIP, _SHIM6}
_IP_IN_IP = {4: _IPV4, 41: _IPV6}
_PAD1, _JUMBO = 0, 0xC2
_GRE, _GTP_PORT, _VXLAN_PORT = 47, 2152, 4789
_PDU_SESSION = 0x85
"""The PDU session container among the extension headers of GTP-U."""

# Bytes of transport header that must be there; what comes after is not read.
_TRANSPORT_HEADER = {_TCP: 20, _UDP: 8, _UDP_LITE: 8, _ICMP: 8, _ICMP6: 8, _SCTP: 12, _DCCP: 12}
_WITH_PORTS = {_TCP, _UDP, _UDP_LITE, _SCTP, _DCCP}


@dataclass(slots=True)
class Packet:
    """The headers the flow key and the features are read from (the inner ones of a tunnel that is looked
    into).

    Addresses are 4 or 16 bytes in network order; lengths are bytes; fields of another protocol are 0.
    """

    ip_version: int
    source: bytes
    destination: bytes
    protocol: int
    length: int
    """IP length: IPv4 total length, IPv6 payload length + 40; of longer ones too, up to `MAX_LENGTH`."""
    network_header_length: int
    """IPv4 header with options; IPv6 header with extension headers."""
    ttl: int
    tos: int
    fragment: int
    """1 for every fragment, the first too."""
    fragment_offset: int = 0
    transport_length: int = 0
    """Bytes behind the network header, by the IP length, or by UDP's own if that says fewer."""
    source_port: int = 0
    destination_port: int = 0
    transport_header_length: int = 0
    tcp_flags: int = 0
    tcp_window: int = 0
    tcp_sequence: int = 0
    tcp_acknowledgment: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    vlan_id: int = 0
    """VLAN of the outermost tag."""
    inner_vlan_id: int = 0
    """VLAN of the next tag."""
    teid: int = 0
    """GTP-U tunnel endpoint, where gtp-u is looked into."""
    qfi: int = 0
    """QoS flow, of the PDU session container in front of it (3GPP TS 38.415)."""
    pdu_type: int = 0
    pdu_direction: int = 0
    """0 without a container, or with one of another type; 1 downlink, 2 uplink."""
    probe: probes.Probe | None = None
    question: dns.Question | None = None
    payload: bytes = b""
    """What is there of the first `MAX_PAYLOAD_HEAD` bytes behind the transport header."""
    tunnelled: bool = False
    """These are the headers inside a tunnel."""

    @property
    def payload_length(self) -> int:
        """Bytes behind the transport header, by the length fields; never negative."""
        return self.transport_length - self.transport_header_length

    @property
    def payload_head(self) -> int:
        return len(self.payload)

    @property
    def payload_printable(self) -> int:
        return sum(0x20 <= byte <= 0x7E for byte in self.payload)

    @property
    def payload_zero(self) -> int:
        return self.payload.count(0)

    @property
    def payload_high(self) -> int:
        return sum(byte > 0x7F for byte in self.payload)


class Link(NamedTuple):
    """What is in front of a network header."""

    network_type: int
    """EtherType of what is behind; of PPP, that of the IP packet it carries, or of PPPoE."""
    offset: int
    """Where that begins."""
    vlan_id: int
    inner_vlan_id: int
    pppoe: bool


class _Gtp(NamedTuple):
    """What a GTP-U header says of the packet behind it; of other tunnels, nothing."""

    teid: int = 0
    qfi: int = 0
    pdu_type: int = 0
    pdu_direction: int = 0


class _Inside(NamedTuple):
    """What a tunnel carries, and where in the frame that begins."""

    network_type: int
    offset: int
    gtp: _Gtp = _Gtp()


class _Refused(Exception):
    def __init__(self, status: Status) -> None:
        self.status = status


def _number(frame: bytes, offset: int, size: int) -> int:
    return int.from_bytes(frame[offset : offset + size], "big")


def _need(frame: bytes, offset: int, size: int, status: Status) -> None:
    if offset + size > len(frame):
        raise _Refused(status)


def parse(frame: bytes, decapsulate: tuple[str, ...] = ()) -> tuple[Status, Packet | None]:
    """Status of an Ethernet frame, and its packet when the status is CLASSIFIED.

    frame : the frame from its destination address; may be cut behind the headers.
    decapsulate : of TUNNELS, those to look into.
    """
    try:
        link = _parse_link(frame, 0)
        if link.network_type not in (_IPV4, _IPV6):
            return Status.NOT_IP, None
        packet, offset, end = _parse_ip(frame, link.offset, link.network_type, len(frame) - link.offset)
        packet.vlan_id, packet.inner_vlan_id = link.vlan_id, link.inner_vlan_id
        inner = _tunnel(frame[:end], offset, packet, decapsulate) if not packet.fragment else None
        if inner is None:
            return Status.CLASSIFIED, packet
        try:
            network_type, offset, gtp = inner
            frame = frame[:end]
            if network_type == _TRANSPARENT_ETHERNET:
                network_type, offset, *_ = _parse_link(frame, offset)
                if network_type not in (_IPV4, _IPV6):
                    return Status.CLASSIFIED, packet
            inner_packet, offset, _ = _parse_ip(frame, offset, network_type, None)
            if offset - inner_packet.network_header_length + inner_packet.length > end:
                return Status.MALFORMED_TUNNEL, None
        except _Refused:
            return Status.MALFORMED_TUNNEL, None
        inner_packet.vlan_id, inner_packet.inner_vlan_id = link.vlan_id, link.inner_vlan_id
        inner_packet.tunnelled = True
        inner_packet.teid, inner_packet.qfi = gtp.teid, gtp.qfi
        inner_packet.pdu_type, inner_packet.pdu_direction = gtp.pdu_type, gtp.pdu_direction
        return Status.CLASSIFIED, inner_packet
    except _Refused as refused:
        return refused.status, None


def parse_link(frame: bytes) -> Link | None:
    """The headers in front of an Ethernet frame's own network header; None: they are malformed."""
    try:
        return _parse_link(frame, 0)
    except _Refused:
        return None


def _parse_link(frame: bytes, offset: int) -> Link:
    """Ethernet, VLAN tags, and a PPPoE session."""
    _need(frame, offset, 14, Status.MALFORMED_ETHERNET)
    network_type, offset, vlans = _number(frame, offset + 12, 2), offset + 14, [0, 0]
    for tag in range(MAX_VLAN_TAGS):
        if network_type not in _VLAN_TYPES:
            break
        _need(frame, offset, 4, Status.MALFORMED_ETHERNET)
        vlans[tag] = _number(frame, offset, 2) & 0x0FFF
        network_type, offset = _number(frame, offset + 2, 2), offset + 4
    pppoe = network_type == _PPPOE_SESSION
    if pppoe:
        network_type, offset = _parse_pppoe(frame, offset)
    return Link(network_type, offset, vlans[0], vlans[1], pppoe)


def _parse_pppoe(frame: bytes, offset: int) -> tuple[int, int]:
    """EtherType of the IP packet in a PPPoE session (RFC 2516), and its offset; of what is not IP, that of
    PPPoE.

    The packet may not be longer than the session's header says.
    """
    bad = Status.MALFORMED_ETHERNET
    _need(frame, offset, 6, bad)
    if frame[offset] != 0x11 or frame[offset + 1] != 0:  # version and type 1; code 0, session data
        return _PPPOE_SESSION, offset
    length = _number(frame, offset + 4, 2)
    _need(frame, offset + 6, 2, bad)
    if length < 2:
        raise _Refused(bad)
    network_type, offset = _PPP_TYPES.get(_number(frame, offset + 6, 2), _PPPOE_SESSION), offset + 8
    at, fixed = {_IPV4: (offset + 2, 0), _IPV6: (offset + 4, 40)}.get(network_type, (len(frame), 0))
    # Where the frame ends before the packet's length, its own header is malformed.
    if at + 2 <= len(frame) and fixed + _number(frame, at, 2) > length - 2:
        raise _Refused(bad)
    return network_type, offset


def _parse_ip(frame: bytes, offset: int, network_type: int, room: int | None) -> tuple[Packet, int, int]:
    """The packet at an IP header, the offset of its transport header, and the offset where its datagram ends,
    which may be beyond a frame that is cut.

    room : bytes of the frame from the IP header on; None inside a tunnel, where no packet is longer than its
    length field can say.
    """
    start = offset
    if network_type == _IPV4:
        packet, offset = _parse_ipv4(frame, offset, room)
    else:
        packet, offset = _parse_ipv6(frame, offset, room)
    packet.transport_length = packet.length - packet.network_header_length
    if not packet.fragment_offset:
        _parse_transport(frame[: start + packet.length], offset, packet)
    behind = offset + packet.transport_header_length
    packet.payload = frame[behind : behind + min(packet.payload_length, MAX_PAYLOAD_HEAD)]
    return packet, offset, offset + packet.transport_length


def _parse_ipv4(frame: bytes, offset: int, room: int | None) -> tuple[Packet, int]:
    bad = Status.MALFORMED_IP
    _need(frame, offset, 20, bad)
    header_length = (frame[offset] & 15) * 4
    length = _number(frame, offset + 2, 2)
    if length == 0 and room is not None and room > MAX_FIELD:
        length = min(room, MAX_LENGTH)
    if frame[offset] >> 4 != 4 or header_length < 20 or header_length > length:
        raise _Refused(bad)
    _need(frame, offset, header_length, bad)
    fragment_word = _number(frame, offset + 6, 2)
    return Packet(
        ip_version=4,
        source=frame[offset + 12 : offset + 16],
        destination=frame[offset + 16 : offset + 20],
        protocol=frame[offset + 9],
        length=length,
        network_header_length=header_length,
        ttl=frame[offset + 8],
        tos=frame[offset + 1],
        fragment=int(fragment_word & 0x3FFF != 0),
        fragment_offset=fragment_word & 0x1FFF,
    ), offset + header_length


def _parse_ipv6(frame: bytes, offset: int, room: int | None) -> tuple[Packet, int]:
    bad, start = Status.MALFORMED_IP, offset
    _need(frame, offset, 40, bad)
    first_word = _number(frame, offset, 4)
    if first_word >> 28 != 6:
        raise _Refused(bad)
    protocol, offset = frame[start + 6], offset + 40
    length = _ipv6_length(frame, start, room)
    frame = frame[: start + length]
    fragment = fragment_offset = extensions = 0
    while protocol in _EXTENSIONS and not fragment_offset:
        if extensions == MAX_EXTENSIONS:
            raise _Refused(Status.TOO_MANY_EXTENSIONS)
        extensions += 1
        _need(frame, offset, 8, bad)
        size = (frame[offset + 1] + 1) * 8
        if protocol == _AUTH:
            size = (frame[offset + 1] + 2) * 4
        elif protocol == _FRAGMENT:
            size = 8
            fragment, fragment_offset = 1, _number(frame, offset + 2, 2) >> 3
        _need(frame, offset, size, bad)
        protocol, offset = frame[offset], offset + size
    return Packet(
        ip_version=6,
        source=frame[start + 8 : start + 24],
        destination=frame[start + 24 : start + 40],
        protocol=protocol,
        length=length,
        network_header_length=offset - start,
        ttl=frame[start + 7],
        tos=first_word >> 20 & 255,
        fragment=fragment,
        fragment_offset=fragment_offset,
    ), offset


def _ipv6_length(frame: bytes, start: int, room: int | None) -> int:
    """Bytes of the packet whose fixed header, which is there, is at `start`.

    A payload length of 0 means more than the field can say if a jumbo payload option says how much (RFC
    2675), or if the frame is that long: later kernels leave the option out of packets that they merge.
    """
    payload = _number(frame, start + 4, 2)
    if payload or room is None:
        return payload + 40
    if frame[start + 6] == _HOP_BY_HOP:
        payload = _jumbo_payload(frame, start + 40)
    if not payload and room - 40 > MAX_FIELD:
        payload = room - 40
    return min(payload + 40, MAX_LENGTH)


def _jumbo_payload(frame: bytes, offset: int) -> int:
    """The jumbo payload length in the hop-by-hop header at `offset`; 0 without that option, and where it says
    what the 16-bit field could have said.
    """
    if offset + 8 > len(frame):
        return 0
    end, at = offset + (frame[offset + 1] + 1) * 8, offset + 2
    for _ in range(MAX_HOP_BY_HOP_OPTIONS):
        if at + 6 > min(end, len(frame)):
            return 0
        if frame[at] == _JUMBO:
            payload = _number(frame, at + 2, 4)
            return payload if frame[at + 1] == 4 and payload > MAX_FIELD else 0
        at += 1 if frame[at] == _PAD1 else 2 + frame[at + 1]
    return 0


def _parse_transport(frame: bytes, offset: int, packet: Packet) -> None:
    protocol, bad = packet.protocol, Status.MALFORMED_TRANSPORT
    size = _TRANSPORT_HEADER.get(protocol)
    if size is None:
        return
    _need(frame, offset, size, bad)
    if protocol in _WITH_PORTS:
        packet.source_port = _number(frame, offset, 2)
        packet.destination_port = _number(frame, offset + 2, 2)
    if protocol == _TCP:
        size = (frame[offset + 12] >> 4) * 4
        if size < 20:
            raise _Refused(bad)
        packet.tcp_flags, packet.tcp_window = frame[offset + 13], _number(frame, offset + 14, 2)
        packet.tcp_sequence = _number(frame, offset + 4, 4)
        packet.tcp_acknowledgment = _number(frame, offset + 8, 4)
    elif protocol == _UDP:
        packet.transport_length = _udp_length(frame, offset, packet)
    elif protocol in (_ICMP, _ICMP6):
        packet.icmp_type, packet.icmp_code = frame[offset], frame[offset + 1]
    if size > packet.transport_length:
        raise _Refused(bad)
    packet.transport_header_length = size
    if protocol != _UDP:
        return
    payload = frame[offset + size : offset + size + packet.payload_length]
    if packet.destination_port == probes.PORT and not packet.fragment:
        packet.probe = probes.Probe.read(payload)
    if dns.PORT in (packet.source_port, packet.destination_port):
        packet.question = dns.Question.read(payload)


def _udp_length(frame: bytes, offset: int, packet: Packet) -> int:
    """Bytes of the UDP header and payload in this packet. The field of a fragment is about all fragments; of
    a jumbogram it is 0.
    """
    size = _number(frame, offset + 4, 2)
    if size == 0 and packet.transport_length > MAX_FIELD:
        return packet.transport_length
    if size < 8 or (size > packet.transport_length and not packet.fragment):
        raise _Refused(Status.MALFORMED_TRANSPORT)
    return min(size, packet.transport_length)


def _tunnel(frame: bytes, offset: int, packet: Packet, decapsulate: tuple[str, ...]) -> _Inside | None:
    """What a tunnel header at `offset` carries; None where there is no tunnel. frame : up to where the packet
    around the tunnel ends, or less of it.
    """
    if packet.protocol == _UDP and packet.destination_port == _GTP_PORT and "gtp-u" in decapsulate:
        return _gtp(frame, offset + 8)
    if packet.protocol == _UDP and packet.destination_port == _VXLAN_PORT and "vxlan" in decapsulate:
        _need(frame, offset + 8, 8, Status.MALFORMED_TUNNEL)
        return _Inside(_TRANSPARENT_ETHERNET, offset + 16) if frame[offset + 8] & 0x08 else None
    if packet.protocol == _GRE and "gre" in decapsulate:
        return _gre(frame, offset)
    if packet.protocol in _IP_IN_IP and "ip-in-ip" in decapsulate:
        return _Inside(_IP_IN_IP[packet.protocol], offset)
    return None


def _gtp(frame: bytes, offset: int) -> _Inside | None:
    bad = Status.MALFORMED_TUNNEL
    _need(frame, offset, 8, bad)
    flags = frame[offset]
    if flags >> 4 != 0b0011 or frame[offset + 1] != 255:
        return None
    gtp = _Gtp(teid=_number(frame, offset + 4, 4))
    offset += 8
    if flags & 7:
        _need(frame, offset, 4, bad)
        extension = frame[offset + 3] if flags & 4 else 0
        offset += 4
        for _ in range(MAX_GTP_EXTENSIONS):
            if extension == 0:
                break
            _need(frame, offset, 4, bad)
            size = frame[offset] * 4
            if size == 0:
                raise _Refused(bad)
            _need(frame, offset, size, bad)
            if extension == _PDU_SESSION:
                gtp = _pdu_session(gtp.teid, frame[offset + 1], frame[offset + 2])
            extension, offset = frame[offset + size - 1], offset + size
        if extension:
            raise _Refused(bad)
    _need(frame, offset, 1, bad)
    inner = {4: _IPV4, 6: _IPV6}.get(frame[offset] >> 4)
    return None if inner is None else _Inside(inner, offset, gtp)


def _pdu_session(teid: int, first: int, second: int) -> _Gtp:
    """What the container's first two octets say. Other types than 0, downlink, and 1, uplink, have no QoS
    flow that we know of.
    """
    pdu_type = first >> 4
    if pdu_type > 1:
        return _Gtp(teid, 0, pdu_type, 0)
    return _Gtp(teid, second & 63, pdu_type, 1 + pdu_type)


def _gre(frame: bytes, offset: int) -> _Inside | None:
    _need(frame, offset, 4, Status.MALFORMED_TUNNEL)
    flags, inner = _number(frame, offset, 2), _number(frame, offset + 2, 2)
    if flags & 0x4007 or inner not in (_IPV4, _IPV6, _TRANSPARENT_ETHERNET):
        return None
    optional = 4 * (flags >> 15) + 4 * (flags >> 13 & 1) + 4 * (flags >> 12 & 1)
    return _Inside(inner, offset + 4 + optional)
