# SPDX-License-Identifier: Apache-2.0
"""The catalogue of packet fields: what one packet says, before anything is accumulated.

Each field carries its reference (`read`) and its C (`c`), so that adding one is one entry here. A value
fits 32
bits without sign. Fields that need the flow besides the packet (`iat`, `direction`, `duration`) read it
from the
`Context` that both the reference and the generated C provide under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wirewise.features.packet import Packet

IAT_MAX = (1 << 32) - 1


@dataclass(slots=True)
class Context:
    """What a field may read: the packet, and its place in its flow."""

    packet: Packet
    packets: int
    """Packets of the flow, with this one; saturates at 2^32 - 1."""
    elapsed_ns: int
    """Since the flow's previous packet; 0 for the first."""
    forward: int
    """1 if the packet goes the way of the flow's first packet."""
    age_ns: int
    """Since the flow's first packet."""


@dataclass(frozen=True)
class Field:
    """One value of a packet.

    unit : what it counts. maximum : the largest value (the smallest is 0). c : C expression over
    `p` (struct ww_packet), `c` (struct ww_context). from_second : the first packet of a flow is no sample
    of it.
    needs_time : microseconds matter, so the fine clock is read. needs_age : the flow's first time is kept.
    """

    name: str
    unit: str
    maximum: int
    doc: str
    c: str
    read: Callable[[Context], int]
    from_second: bool = False
    needs_time: bool = False
    needs_age: bool = False


def _packet_field(name: str, unit: str, maximum: int, doc: str) -> Field:
    return Field(name, unit, maximum, doc, f"p->{name}", lambda c: int(getattr(c.packet, name)))


def _flag(bit: int, name: str) -> Field:
    return Field(
        f"tcp_{name}",
        "flag",
        1,
        f"1 if the TCP {name.upper()} flag is set",
        f"(p->tcp_flags >> {bit} & 1)",
        lambda c: c.packet.tcp_flags >> bit & 1,
    )


def _microseconds(nanoseconds: int) -> int:
    return min(nanoseconds // 1000, IAT_MAX)


_FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr")

FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        _packet_field("length", "bytes", 65575, "IP length (IPv6: payload length + 40)"),
        _packet_field(
            "payload_length", "bytes", 65575, "bytes behind the transport header, by the IP length"
        ),
        _packet_field(
            "network_header_length", "bytes", 65575, "IPv4 header with options, IPv6 with extensions"
        ),
        _packet_field("transport_header_length", "bytes", 60, "TCP header with options; 8 for UDP and ICMP"),
        _packet_field("source_port", "port", 65535, "0 without ports"),
        _packet_field("destination_port", "port", 65535, "0 without ports"),
        _packet_field("protocol", "IP protocol", 255, "6 TCP, 17 UDP, ...; behind IPv6 extension headers"),
        _packet_field("ip_version", "version", 6, "4 or 6"),
        _packet_field("ttl", "hops", 255, "TTL or hop limit"),
        _packet_field("tos", "byte", 255, "type of service or traffic class, with the ECN bits"),
        _packet_field("fragment", "flag", 1, "1 for every fragment"),
        _packet_field("tcp_flags", "bits", 255, "the flag byte, FIN lowest"),
        *(_flag(bit, name) for bit, name in enumerate(_FLAGS)),
        _packet_field("tcp_window", "window", 65535, "window field, not scaled"),
        _packet_field("icmp_type", "type", 255, "ICMP or ICMPv6"),
        _packet_field("icmp_code", "code", 255, "ICMP or ICMPv6"),
        _packet_field("vlan_id", "VLAN", 4095, "outermost tag; 0 without, or where the card has removed it"),
        _packet_field("teid", "TEID", (1 << 32) - 1, "GTP-U tunnel, where gtp-u is looked into"),
        Field(
            "direction",
            "flag",
            1,
            "1 if the packet goes the way of the flow's first packet (always, with a directional key)",
            "c->forward",
            lambda c: c.forward,
        ),
        Field(
            "iat",
            "us",
            IAT_MAX,
            "time since the flow's previous packet; the first packet is no sample",
            "c->iat_us",
            lambda c: _microseconds(c.elapsed_ns),
            from_second=True,
            needs_time=True,
        ),
        Field(
            "iat_or_zero",
            "us",
            IAT_MAX,
            "as iat, but the first packet counts as a sample of 0",
            "c->iat_us",
            lambda c: _microseconds(c.elapsed_ns),
            needs_time=True,
        ),
        Field(
            "duration",
            "us",
            IAT_MAX,
            "time since the flow's first packet",
            "c->age_us",
            lambda c: _microseconds(c.age_ns),
            needs_time=True,
            needs_age=True,
        ),
    )
}
