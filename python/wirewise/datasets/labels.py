# SPDX-License-Identifier: Apache-2.0
"""Labels: rules that say of each packet of a capture what it is.

A label file for one's own captures:

    version: 1
    rules:                       # the first that holds decides
      - {label: syn-flood, dst: 192.0.2.10, proto: tcp, flags: S}
      - {label: scan, src: [198.51.100.0/24, "2001:db8::/32"], from: 12s, until: 1m}
      - {label: amplification, proto: udp, sport: [53, 123], capture: "attack-*.pcap"}
    otherwise: benign            # leave it out and the rest stays unlabelled, and out of training

All conditions of a rule must hold; they refer to the outermost IP header. Addresses are used to tell what the
truth is, never as features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatch
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from wirewise.datasets.captures import CapturedPacket
from wirewise.errors import InputError
from wirewise.feature_sets.packet import Packet
from wirewise.files import describe_validation_error, parse_yaml, read_text
from wirewise.units import parse_duration

UNLABELLED = ""
FLAG_LETTERS = "FSRPAUEC"
"""TCP flags from the lowest bit: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR."""
_PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132, "gre": 47}

Labeller = Callable[[CapturedPacket, "Packet | None"], str]
"""Label of a packet; its headers are None where they cannot be parsed or are not IP."""


class Labels(Protocol):
    """Where labels come from."""

    def labeller(self, capture: Path) -> Labeller:
        """The labeller of one capture; asked for before its first packet."""


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _network(value: Any) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no address or prefix ({error})") from None


def _ports(value: Any) -> tuple[int, int]:
    low, _, high = str(value).partition("-")
    if not low.isdigit() or (high and not high.isdigit()) or not 0 <= int(low) <= int(high or low) <= 65535:
        raise ValueError(f"{value!r} is no port (0 to 65535) or range of ports (1000-2000)")
    return int(low), int(high or low)


def _flags(value: Any) -> int:
    text = str(value).upper()
    if not text or set(text) - set(FLAG_LETTERS) or len(set(text)) < len(text):
        raise ValueError(f"{value!r} is no set of TCP flags; write letters of {FLAG_LETTERS}, such as SA")
    return sum(1 << FLAG_LETTERS.index(letter) for letter in text)


def _protocol(value: Any) -> int:
    number = _PROTOCOLS.get(str(value).lower(), value)
    if not isinstance(number, int) or not 0 <= number <= 255:
        raise ValueError(f"{value!r} is no protocol; write {', '.join(_PROTOCOLS)} or a number up to 255")
    return number


def _moment(value: Any) -> int | datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    if isinstance(value, int) and value == 0:
        return 0
    try:
        return parse_duration(value, what="time")
    except InputError as error:
        raise ValueError(
            f"{error} (since the capture's first packet), or a date such as 2026-03-01T12:00:00Z"
        ) from None


Networks = Annotated[list[Annotated[Any, BeforeValidator(_network)]], BeforeValidator(_listed)]
Ports = Annotated[list[Annotated[Any, BeforeValidator(_ports)]], BeforeValidator(_listed)]
Flags = Annotated[list[Annotated[Any, BeforeValidator(_flags)]], BeforeValidator(_listed)]
Moment = Annotated[Any, BeforeValidator(_moment)]


class Rule(BaseModel):
    """Conditions on one packet, all of which must hold.

    src, dst : address or prefix, or a list. src_not : none of these. sport, dport : port, range, or a list.
    flags : the set of TCP flags is exactly one of these. from, until : since the capture's first packet, or a
    date; `until` itself is outside. any : one of these rules holds. all : holds for every packet, IP or not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    all: Literal[True] | None = None
    any: list[Rule] | None = None
    src: Networks | None = None
    dst: Networks | None = None
    src_not: Networks | None = None
    proto: Annotated[Any, BeforeValidator(_protocol)] = None
    sport: Ports | None = None
    dport: Ports | None = None
    flags: Flags | None = None
    icmp_type: int | None = Field(default=None, ge=0, le=255)
    frag: Literal[True] | None = None
    arp_op: int | None = None
    arp_src_mac: str | None = None
    from_: Moment = Field(default=None, alias="from")
    until: Moment = None

    def compile(self, first_ns: int) -> Labelling:
        """The rule as a function; first_ns: time of the capture's first packet."""
        return Labelling.of(self, first_ns)


@dataclass(frozen=True)
class Labelling:
    """A rule made ready for many packets."""

    rule: Rule
    some: tuple[Labelling, ...]
    from_ns: int | None
    until_ns: int | None

    @classmethod
    def of(cls, rule: Rule, first_ns: int) -> Labelling:
        def nanoseconds(moment: int | datetime | None) -> int | None:
            if isinstance(moment, datetime):
                return round(moment.timestamp() * 1_000_000) * 1000
            return None if moment is None else first_ns + moment

        some = tuple(cls.of(part, first_ns) for part in rule.any or ())
        return cls(rule, some, nanoseconds(rule.from_), nanoseconds(rule.until))

    def holds(self, captured: CapturedPacket, packet: Packet | None) -> bool:
        """Whether every condition holds for this packet."""
        rule = self.rule
        if self.from_ns is not None and captured.time_ns < self.from_ns:
            return False
        if self.until_ns is not None and captured.time_ns >= self.until_ns:
            return False
        if self.some and not any(part.holds(captured, packet) for part in self.some):
            return False
        if (rule.arp_op is not None or rule.arp_src_mac is not None) and not _arp_holds(rule, captured.frame):
            return False
        return not _needs_ip(rule) if packet is None else _ip_holds(rule, packet)


_OF_IP = ("src", "dst", "src_not", "proto", "sport", "dport", "flags", "icmp_type", "frag")


def _needs_ip(rule: Rule) -> bool:
    return any(getattr(rule, name) is not None for name in _OF_IP)


def _arp_holds(rule: Rule, frame: bytes) -> bool:
    if frame[12:14] != b"\x08\x06" or len(frame) < 42:
        return False
    if rule.arp_op is not None and int.from_bytes(frame[20:22], "big") != rule.arp_op:
        return False
    return rule.arp_src_mac is None or frame[22:28].hex(":") == rule.arp_src_mac.lower()


def _ip_holds(rule: Rule, packet: Packet) -> bool:
    if rule.proto is not None and packet.protocol != rule.proto:
        return False
    if rule.flags is not None and (packet.protocol != 6 or packet.tcp_flags not in rule.flags):
        return False
    if rule.sport is not None and not _within(packet.source_port, rule.sport):
        return False
    if rule.dport is not None and not _within(packet.destination_port, rule.dport):
        return False
    if rule.frag and not packet.fragment:
        return False
    if rule.icmp_type is not None and (packet.protocol not in (1, 58) or packet.icmp_type != rule.icmp_type):
        return False
    if rule.src is not None and not _inside(packet.source, rule.src):
        return False
    if rule.src_not is not None and _inside(packet.source, rule.src_not):
        return False
    return rule.dst is None or _inside(packet.destination, rule.dst)


def _within(port: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= port <= high for low, high in ranges)


def _inside(address: bytes, networks: list[IPv4Network | IPv6Network]) -> bool:
    number = int.from_bytes(address, "big")
    return any(
        network.max_prefixlen == 8 * len(address)
        and number >> (network.max_prefixlen - network.prefixlen)
        == int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
        for network in networks
    )


class LabelRule(Rule):
    """A rule of a label file: the label it gives, and the captures it is about (a pattern for file names)."""

    label: str = Field(min_length=1)
    capture: str = "*"


class LabelFile(BaseModel):
    """A label file, read and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    rules: list[LabelRule] = []
    otherwise: str = UNLABELLED

    @classmethod
    def read(cls, path: str | Path) -> LabelFile:
        """Raises InputError, one line, for anything that is not a label file."""
        text = read_text(path, what="label file")
        try:
            document = parse_yaml(text)
        except ValueError as error:
            mark = getattr(error.__cause__, "problem_mark", None)
            where = f"line {mark.line + 1}: " if mark else ""
            raise InputError(str(path), f"{where}is not YAML", "see docs/labels.md for an example") from error
        if not isinstance(document, dict):
            raise InputError(
                str(path), "is not a label file", "it must begin with `version: 1` and have `rules:`"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise InputError(
                str(path), describe_validation_error(error, cls), "see docs/labels.md"
            ) from error

    def labeller(self, capture: Path) -> Labeller:
        rules = [rule for rule in self.rules if fnmatch(capture.name, rule.capture)]
        ready: list[tuple[str, Labelling]] | None = None

        def label(captured: CapturedPacket, packet: Packet | None) -> str:
            nonlocal ready
            if ready is None:  # the first packet: times count from here
                ready = [(rule.label, rule.compile(captured.time_ns)) for rule in rules]
            return next((name for name, rule in ready if rule.holds(captured, packet)), self.otherwise)

        return label
