# SPDX-License-Identifier: Apache-2.0
"""The catalogue of packet fields: what one packet says, before anything is accumulated.

Each field carries its reference (`read`) and its C (`c`), so that adding one is one entry here, or from
outside `FIELDS.add`. A value fits 32 bits without sign. Fields that need the flow besides the packet (`iat`,
`direction`, `duration`) read it from the `Context` that both the reference and the generated C provide under
the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from wirewise.abi import HASH_WORDS
from wirewise.feature_sets.dns import MAX_NAME
from wirewise.feature_sets.packet import MAX_LENGTH, MAX_PAYLOAD_HEAD, Packet
from wirewise.feature_sets.probes import LOST
from wirewise.registry import Registry

_U32_MAX = (1 << 32) - 1
IAT_MAX = _U32_MAX
BIDIRECTIONAL = "five-tuple-bidirectional"
"""The flow key under which both directions are one flow."""
VLAN = "+vlan"
"""Adds the ids of the VLAN tags to a key, since two VLANs may use the same addresses."""
TEID = "+teid"
"""Adds the GTP-U tunnel to a key, since two tunnels may use the same inner addresses."""


def ends_of_key(key: str) -> str:
    """A flow key without what it has beside addresses, ports and protocol."""
    return key.removesuffix(TEID).removesuffix(VLAN)


_MASK64 = (1 << 64) - 1


def mix(x: int, seed: Sequence[int]) -> int:
    """32 bits in, 32 bits out, by the load's secret seed (13 u64): what a sketch takes for random."""
    z = (x + seed[0]) * seed[HASH_WORDS] & _MASK64
    return ((z ^ z >> 32) * seed[HASH_WORDS] & _MASK64) >> 32


@dataclass(slots=True)
class Context:
    """What a field may read: the packet, and its place in its flow, or in an aggregate that it is part of."""

    packet: Packet
    packets: int
    """Packets of the flow or aggregate, with this one; saturates at 2^32 - 1."""
    elapsed_ns: int
    """Since the previous packet of the flow or aggregate; 0 for the first."""
    forward: int
    """1 if the packet goes the way of its flow's first packet."""
    age_ns: int
    """Since the first packet of the flow or aggregate."""
    flow_packets: int
    """Packets of the flow, with this one."""
    flow_hash: int
    """32-bit hash of the flow's key."""
    now_ns: int
    both: bool
    """Both directions are one flow."""
    seed: Sequence[int]
    """13 u64, of the load."""
    gap_ns: int | None = None
    """Since the latest flow of the aggregate began, if this packet begins another; else None."""
    own_ns: int | None = None
    """Since the flow's previous packet of the same direction; None without one."""

    def mix(self, x: int) -> int:
        """`mix` under this load's seed."""
        return mix(x, self.seed)

    def fold(self, value: bytes) -> int:
        """An IP address or a name as 32 bits: those of IPv4 as they are, the words of others mixed."""
        folded = 0
        for at in range(0, len(value), 4):
            word = int.from_bytes(value[at : at + 4], "little")
            folded = (self.mix(folded) if at else 0) ^ word
        return folded


@dataclass(frozen=True)
class Field:
    """One value of a packet.

    unit : what it counts. maximum : the largest value (the smallest is 0). c : C expression over
    `p` (struct ww_packet), `c` (struct ww_context). from_second : the first packet of a flow is no sample
    of it. of_aggregates : it is between flows that begin, so only these packets are samples, and only
    aggregates have it. needs_time : microseconds matter, so the fine clock is read. needs_age : the flow's
    first time is kept. needs_pdu_session : GTP-U's extension headers are read for it. needs_probe : likewise
    the payload of probes, and the fine clock. needs_payload : the first bytes of the payload are, and a
    packet without any is no sample of it. needs_question : likewise the question of a DNS message. constant :
    by the flow key, the value that every packet has under it; None: it varies. identity : it tells hosts
    or flows apart and says nothing else, so a feature may only count its distinct values. elapses : it is
    the time since the previous packet of the same flow or aggregate. of_way : it is of the packet's
    direction in its flow, so flows keep when each direction's latest packet came; a direction's first
    packet is no sample. serial : it goes round after its maximum, and each direction of a flow has its
    own.
    """

    name: str
    unit: str
    maximum: int
    doc: str
    c: str
    read: Callable[[Context], int]
    from_second: bool = False
    of_aggregates: bool = False
    needs_time: bool = False
    needs_age: bool = False
    needs_pdu_session: bool = False
    needs_probe: bool = False
    needs_payload: bool = False
    needs_question: bool = False
    constant: Callable[[str], int | None] = lambda key: None
    identity: bool = False
    elapses: bool = False
    of_way: bool = False
    serial: bool = False


def _packet_field(
    name: str, unit: str, maximum: int, doc: str, *, c: str = "", pdu_session: bool = False
) -> Field:
    return Field(
        name, unit, maximum, doc, c or f"p->{name}", lambda c: int(getattr(c.packet, name)),
        needs_pdu_session=pdu_session,
    )  # fmt: skip


def _of_payload(name: str, place: int, doc: str) -> Field:
    c = f"(p->payload >> {8 * place} & 255)" if place else "(p->payload & 255)"
    read = attrgetter(f"packet.payload_{name}")
    return Field(f"payload_{name}", "bytes", MAX_PAYLOAD_HEAD, doc, c, read, needs_payload=True)


def _of_question(name: str, unit: str, maximum: int, doc: str) -> Field:
    c = f"WW_QUESTION_{name.upper()}(p->question)"
    return Field(
        f"dns_{name}", unit, maximum, doc, c, lambda c: getattr(c.packet.question, name, 0),
        needs_question=True,
    )  # fmt: skip


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


def _handshake(c: Context) -> int:
    fin, syn, rst, ack = (c.packet.tcp_flags >> bit & 1 for bit in (0, 1, 2, 4))
    if syn and not ack and c.flow_packets == 1:
        return 1
    return 2 if ack and not (fin or syn or rst) and c.flow_packets == (3 if c.both else 2) else 0


def _tcp_end(c: Context) -> int:
    p = c.packet
    if p.protocol != 6 or not p.transport_header_length:
        return 0
    occupied = p.payload_length + (p.tcp_flags & 1) + (p.tcp_flags >> 1 & 1)
    return (p.tcp_sequence + occupied) & _U32_MAX if occupied else 0


def _identity(name: str, doc: str, c: str, read: Callable[[Context], int]) -> Field:
    return Field(name, "identity", _U32_MAX, doc, c, read, identity=True)


_FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr")

FIELDS: Registry[Field] = Registry(
    "packet field",
    lambda field: field.name,
    (
        _packet_field("length", "bytes", MAX_LENGTH, "IP length (IPv6: payload length + 40)"),
        _packet_field(
            "payload_length", "bytes", MAX_LENGTH,
            "bytes behind the transport header, by the IP length, or UDP's if that is less",
        ),
        _of_payload(
            "head", 0,
            "payload bytes that the next three look at: the first 16, or as many as are there; "
            "a packet without any is no sample of these four",
        ),
        _of_payload("printable", 1, "of these, printable ASCII: 0x20 to 0x7e"),
        _of_payload("zero", 2, "of these, zero"),
        _of_payload("high", 3, "of these, above 0x7f"),
        _of_question(
            "name_length", "bytes", MAX_NAME,
            "of the name that a DNS message over UDP asks for, in the packet: 1 is the root; "
            "a packet without a question is no sample of these four",
        ),
        _of_question("labels", "labels", MAX_NAME // 2, "of that name"),
        _of_question("type", "type", 65535, "of the question: 1 A, 16 TXT, 28 AAAA, ..."),
        Field(
            "dns_name", "identity", _U32_MAX, "that name, in any case of its letters; only for `distinct`",
            "p->question_name", lambda c: c.fold(c.packet.question.lower) if c.packet.question else 0,
            needs_question=True, identity=True,
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
        Field(
            "tcp_end",
            "sequence number",
            _U32_MAX,
            "that behind the payload, SYN and FIN of a TCP packet; 0 of one without; only for `repeats`",
            "ww_tcp_end(p)",
            _tcp_end,
            serial=True,
        ),
        _packet_field("icmp_type", "type", 255, "ICMP or ICMPv6"),
        _packet_field("icmp_code", "code", 255, "ICMP or ICMPv6"),
        _packet_field("vlan_id", "VLAN", 4095, "outermost tag; 0 without, or where the card has removed it",
                      c="(p->link & WW_VLAN_ID)"),
        _packet_field("teid", "TEID", (1 << 32) - 1, "GTP-U tunnel, where gtp-u is looked into"),
        _packet_field("qfi", "QoS flow", 63, "of GTP-U's PDU session container (TS 38.415); 0 without",
                      pdu_session=True),
        _packet_field("pdu_type", "type", 15, "the container's: 0 downlink, 1 uplink; 0 without too",
                      pdu_session=True),
        _packet_field("pdu_direction", "direction", 2,
                      "by the container: 1 downlink, 2 uplink; 0 without, or with another type",
                      pdu_session=True),
        Field(
            "probe_delay",
            "units",
            LOST,
            "time under way of a probe, in its own units; 255 is as much or more; 0 of other packets",
            "ww_probe_delay(p, c)",
            lambda c: c.packet.probe.delay(c.now_ns) if c.packet.probe else 0,
            needs_probe=True,
        ),
        Field(
            "direction",
            "flag",
            1,
            "1 if the packet goes the way of the flow's first packet (always, with a directional key)",
            "c->forward",
            lambda c: c.forward,
            constant=lambda key: None if ends_of_key(key) == BIDIRECTIONAL else 1,
        ),
        Field(
            "server_port",
            "port",
            65535,
            "of the end to which the flow's first packet went (with a directional key, the destination port)",
            "(__u32)ww_either(c->forward, p->destination_port, p->source_port)",
            lambda c: c.packet.destination_port if c.forward else c.packet.source_port,
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
            elapses=True,
        ),
        Field(
            "iat_or_zero",
            "us",
            IAT_MAX,
            "as iat, but the first packet counts as a sample of 0",
            "c->iat_us",
            lambda c: _microseconds(c.elapsed_ns),
            needs_time=True,
            elapses=True,
        ),
        Field(
            "own_iat",
            "us",
            IAT_MAX,
            "time since the flow's previous packet of the same direction, from each direction's second on",
            "c->own_us",
            lambda c: _microseconds(c.own_ns or 0),
            of_way=True,
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
        Field(
            "new_flow",
            "flag",
            1,
            "1 for the first packet of its flow, and for every packet of one without a place in the table",
            "ww_equal(c->flow_packets, 1)",
            lambda c: int(c.flow_packets == 1),
        ),
        Field(
            "flow_gap",
            "us",
            IAT_MAX,
            "since the aggregate's flow before began; sampled when another begins; only with `by`",
            "c->gap_us",
            lambda c: _microseconds(c.gap_ns or 0),
            of_aggregates=True,
            needs_time=True,
        ),
        Field(
            "handshake",
            "step",
            2,
            "1: a SYN begins the flow; 2: who sent it goes on with an ACK, so it was answered; else 0",
            "ww_handshake(p, c)",
            _handshake,
        ),
        _identity("source", "source address; only for `distinct`", "ww_fold(p, c, 0)",
                  lambda c: c.fold(c.packet.source)),
        _identity("destination", "destination address; only for `distinct`", "ww_fold(p, c, 1)",
                  lambda c: c.fold(c.packet.destination)),
        _identity("client", "address of the sender of the flow's first packet; only for `distinct`",
                  "(c->forward ? ww_fold(p, c, 0) : ww_fold(p, c, 1))",
                  lambda c: c.fold(c.packet.source if c.forward else c.packet.destination)),
        _identity("server", "address of the flow's other end; only for `distinct`",
                  "(c->forward ? ww_fold(p, c, 1) : ww_fold(p, c, 0))",
                  lambda c: c.fold(c.packet.destination if c.forward else c.packet.source)),
        _identity("flow", "the packet's flow; only for `distinct`", "c->flow_hash",
                  lambda c: c.flow_hash),
    ),
)  # fmt: skip
