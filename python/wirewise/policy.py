# SPDX-License-Identifier: Apache-2.0
"""Policies: what happens to packets of each class, when the model runs, who always passes.

The file is YAML; docs/policy.md describes it. The agent's reader (crates/wirewised/src/policy) is the one
that counts; this one gives the same answers to the toolkit: `explain`, the demo and the parity tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from wirewise.abi import MAX_AFTER, TRIGGER_WORDS, Action, Outcome, Status
from wirewise.balancing import Pool, parse_pools
from wirewise.errors import InputError, choose, did_you_mean
from wirewise.feature_sets.packet import Packet
from wirewise.files import describe_validation_error, parse_yaml, read_text
from wirewise.steering import ACTIONS, KEYS, Steering
from wirewise.tunnels import Table
from wirewise.units import parse_duration

VERSION = 1
MAX_TRIGGER_PACKET = 64 * TRIGGER_WORDS - 1
MAX_BURST = 1_000_000
DEFAULT_BURST = 20
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Limit:
    """A rate limit (GCRA): one packet costs interval_ns, and the cost may be burst_ns ahead of the clock.

    `burst` packets may pass at once, so burst_ns is (burst - 1) intervals. interval_ns 0: no packet passes.
    """

    interval_ns: int
    burst_ns: int

    @classmethod
    def of(cls, interval_ns: int, burst: int) -> Limit:
        return cls(interval_ns, interval_ns * (burst - 1))


@dataclass(frozen=True)
class ClassPolicy:
    """What the policy asks for one class; limit only with RATE_LIMIT, steering only with ACT.

    after : how many verdicts in a row a flow needs for this class, 1 to MAX_AFTER.
    """

    action: Action = Action.PASS
    limit: Limit | None = None
    named: bool = False
    """False: the policy does not name the class, so it passes."""
    after: int = 1
    steering: Steering | None = None

    @property
    def takes_away(self) -> bool:
        """Whether packets may be kept from their receiver: dropped, or sent elsewhere."""
        if self.steering is not None:
            return self.steering.takes_away
        return self.action in (Action.DROP, Action.RATE_LIMIT)

    @property
    def keys(self) -> str:
        """What a policy file calls it, without what it is given."""
        return str(self.action) if self.steering is None else self.steering.keys

    def __str__(self) -> str:
        return str(self.action if self.steering is None else self.steering)


@dataclass(frozen=True)
class Trigger:
    """When a flow's packet is inferred; exactly one attribute is set, or none: every packet."""

    packets: frozenset[int] = frozenset()
    interval_ns: int = 0
    first_n: int = 0

    def fires(self, packets: int, now_ns: int, elapsed_ns: int) -> bool:
        """Whether the model runs on a packet: the `packets`-th of its flow, elapsed_ns after the one before.

        interval_ns divides the clock, not the flow's age: the first packet in each interval is inferred.
        """
        if self.packets:
            return packets in self.packets
        if self.interval_ns:
            previous_ns = now_ns - elapsed_ns
            return packets == 1 or now_ns // self.interval_ns != previous_ns // self.interval_ns
        return not self.first_n or packets <= self.first_n


@dataclass(frozen=True)
class Port:
    """An allowed destination or source port, of TCP, of UDP or of both."""

    number: int
    tcp: bool
    udp: bool

    def matches(self, protocol: int, port: int | None) -> bool:
        """Whether it is this port; None, of fragments but the first, is none."""
        return self.number == port and ((protocol == 6 and self.tcp) or (protocol == 17 and self.udp))


def is_essential(packet: Packet) -> bool:
    """What a host loses its network without: path MTU discovery, neighbour discovery from its own link, DHCP.

    ARP is no IP, so it passes anyway. Nothing of a host's own network comes through a tunnel. RFC 4861:
    neighbour discovery has a hop limit of 255, which no router lets through.
    """
    if packet.fragment_offset or packet.tunnelled:
        return False
    if packet.protocol == 17:
        client, server = (68, 67) if packet.ip_version == 4 else (546, 547)
        ports = (packet.source_port, packet.destination_port)
        return ports in ((server, client), (client, server), (server, server))
    if packet.ip_version == 4:
        return packet.protocol == 1 and (packet.icmp_type, packet.icmp_code) == (3, 4)
    if packet.protocol != 58:
        return False
    return packet.icmp_type == 2 or (133 <= packet.icmp_type <= 137 and packet.ttl == 255)


@dataclass(frozen=True)
class Policy:
    """A policy for the classes of one bundle. Durations are nanoseconds."""

    classes: tuple[str, ...]
    actions: tuple[ClassPolicy, ...]
    trigger: Trigger = field(default_factory=Trigger)
    prefixes: tuple[IPv4Network | IPv6Network, ...] = ()
    ports: tuple[Port, ...] = ()
    enforce_for_ns: int | None = None
    drop_malformed: bool = False
    source_ports: tuple[Port, ...] = ()
    drop_essential: bool = False
    """What `is_essential` says is judged like every packet."""
    events: Limit = field(default_factory=lambda: Limit.of(_SECOND // 100, DEFAULT_BURST))
    established: bool = False
    """Packets of connections that the host has begun or accepted are never dropped."""

    @classmethod
    def all_pass(cls, classes: Sequence[str]) -> Policy:
        """What holds when no policy is given: every class passes and every packet is inferred."""
        return cls(tuple(classes), (ClassPolicy(),) * len(classes))

    @classmethod
    def load(cls, path: str | Path, classes: Sequence[str]) -> Policy:
        """A policy from its file, for the classes of a bundle (index = class id). Raises InputError."""
        return cls.parse(read_text(path, what="policy file", limit=1 << 20), classes, source=str(path))

    @classmethod
    def parse(cls, text: str, classes: Sequence[str], *, source: str = "policy") -> Policy:
        """As `load`, from the file's text; source: its name in errors."""
        try:
            document = parse_yaml(text, _Loader)
        except ValueError as error:
            raise InputError(source, f"is not YAML: {error}") from error
        return cls.from_dict(document, classes, source=source)

    @classmethod
    def from_dict(cls, document: object, classes: Sequence[str], *, source: str = "policy") -> Policy:
        """As `load`, from the file's content as Python values."""
        if not isinstance(document, dict):
            raise InputError(
                source, "is not a mapping", "start with `version: 1` and `classes: {NAME: drop}`"
            )
        if str(document.get("version")) != str(VERSION):
            raise InputError(
                source, f"version {document.get('version')!r} is unknown", f"write `version: {VERSION}`"
            )
        unknown = sorted(set(map(str, document)) - set(_File.model_fields))
        if unknown:
            raise InputError(source, f"unknown key {unknown[0]!r}", choose(unknown[0], _File.model_fields))
        try:
            file = _File.model_validate(document)
        except ValidationError as error:
            raise InputError(source, describe_validation_error(error, _File), "see docs/policy.md") from error
        for name in file.classes:
            if name not in classes:
                raise InputError(
                    source,
                    f"classes: unknown class {name!r}",
                    f"{did_you_mean(name, classes)}the bundle has: {', '.join(classes)}",
                )
        if classes and file.classes.get(classes[0], ClassPolicy()).after > 1:
            raise InputError(
                source,
                f"classes: {classes[0]}: after: this is the class that flows count as until another has "
                "enough verdicts in a row",
                "give `after` to the other classes",
            )
        for name, rule in file.classes.items():
            if rule.steering is not None and rule.steering.backend is not None:
                file.classes[name] = replace(
                    rule, steering=_with_pool(rule.steering, file.pools, name, source)
                )
        used = {rule.steering.backend for rule in file.classes.values() if rule.steering is not None}
        for name in file.pools:
            if name not in used:
                raise InputError(
                    source,
                    f"pools: {name}: no class goes there",
                    f"give one `backend: {name}`, or leave the pool out",
                )
        if file.tunnels is not None:
            _give_tunnels(file, source)
        allow = file.allow or _Allow()
        return cls(
            tuple(classes),
            tuple(file.classes.get(name, ClassPolicy()) for name in classes),
            file.trigger,
            tuple(allow.prefixes),
            tuple(allow.ports),
            file.enforce_for,
            file.malformed == "drop",
            tuple(allow.source_ports),
            file.essential == "drop",
            Limit.of(file.events.rate, file.events.burst),
            allow.established,
        )

    # -- meaning

    def allows(self, packet: Packet) -> tuple[Status, str] | None:
        """Why a packet is let through before anything is inferred: status and rule, or None."""
        address = ip_address(packet.source)
        for prefix in self.prefixes:
            if address in prefix:
                return Status.ALLOWED_PREFIX, f"prefix {prefix}"
        protocol = "tcp" if packet.protocol == 6 else "udp"
        # Fragments but the first have no ports.
        whole = not packet.fragment_offset
        for port in self.ports:
            if port.matches(packet.protocol, packet.destination_port if whole else None):
                return Status.ALLOWED_PORT, f"port {protocol}/{port.number}"
        for port in self.source_ports:
            if port.matches(packet.protocol, packet.source_port if whole else None):
                return Status.ALLOWED_PORT, f"source port {protocol}/{port.number}"
        if self.takes_away and not self.drop_essential and is_essential(packet):
            return Status.ALLOWED_ESSENTIAL, "essential: pass"
        return None

    def counted(self, class_id: int, streak: int) -> int:
        """What a flow's verdict counts as, the `streak`-th in a row for this class: class_id, or class 0."""
        return class_id if streak >= self.actions[class_id].after else 0

    @property
    def takes_away(self) -> bool:
        """Whether there is a class of which packets may be kept from their receiver."""
        return any(policy.takes_away for policy in self.actions)

    def rule(self, class_id: int) -> str:
        """The rule for a class, for people: `attack: drop`, or that there is none."""
        policy, name = self.actions[class_id], self.classes[class_id]
        if not policy.named:
            return f"{name}: pass (not named in the policy)"
        return f"{name}: {policy}" + (f" after {policy.after}" if policy.after > 1 else "")


class Decider:
    """The reference of what the data path does with a class: action and outcome, with the rate limits' state.

    enforce : the mode; observe counts limits in the same way and lets everything pass.
    enforce_until_ns : from this time on it is observe whatever was asked; None: never.
    """

    def __init__(self, policy: Policy, *, enforce: bool, enforce_until_ns: int | None = None) -> None:
        self.policy = policy
        self.enforce = enforce
        self.enforce_until_ns = enforce_until_ns
        self._tat_ns = [0] * len(policy.classes)

    def enforces(self, now_ns: int) -> bool:
        """Whether drops happen at this time."""
        return self.enforce and (self.enforce_until_ns is None or now_ns < self.enforce_until_ns)

    def decide(self, class_id: int, now_ns: int, *, connected: bool = False) -> tuple[Action, Outcome]:
        """Action and outcome of one packet of a class at a time; advances the class's rate limit.

        connected : whether the packet is of a connection of the host; captured packets never are. That saves
        it from drops only.
        """
        policy = self.policy.actions[class_id]
        if policy.steering is not None:
            return policy.action, policy.steering.outcome if self.enforces(now_ns) else Outcome.WOULD_ACT
        if policy.action is Action.DROP:
            dropped = Outcome.DROP if self.enforces(now_ns) else Outcome.WOULD_DROP
        elif policy.limit is not None and not self._conforms(class_id, policy.limit, now_ns):
            dropped = Outcome.LIMITED if self.enforces(now_ns) else Outcome.WOULD_LIMIT
        else:
            return policy.action, Outcome.PASS
        return policy.action, Outcome.ESTABLISHED if self.policy.established and connected else dropped

    def _conforms(self, class_id: int, limit: Limit, now_ns: int) -> bool:
        """Generic cell rate algorithm, virtual scheduling (ITU-T I.371, annex A)."""
        arrival = max(now_ns, self._tat_ns[class_id])
        if arrival - now_ns > limit.burst_ns:
            return False
        self._tat_ns[class_id] = arrival + limit.interval_ns
        return True


# -- the file


class _Loader(yaml.BaseLoader):
    """YAML in which every scalar is text (a class may be called `no`) and no key may stand twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted(key for key, count in Counter(keys).items() if count > 1)
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {twice[0]!r} stands twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def _duration(value: object) -> int:
    try:
        return parse_duration(str(value), what="")
    except InputError as error:
        raise ValueError(str(error).removeprefix(": ")) from error


def _rate(value: object) -> int:
    """Nanoseconds a packet costs, 0 for the rate 0."""
    text = str(value).strip()
    match = re.fullmatch(r"(\d{1,20})\s*/\s*([sm])", text, re.ASCII)
    if text == "0":
        return 0
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write packets a second or minute, such as 100/s or 30/m")
    count, period_ns = int(match[1]), _SECOND if match[2] == "s" else 60 * _SECOND
    if count > period_ns:
        raise ValueError(f"{text!r} is above the largest rate, {_SECOND}/s")
    return period_ns // count if count else 0


def _class_policy(value: object) -> ClassPolicy:
    known = [str(action) for action in Action if action is not Action.ACT] + list(ACTIONS)
    if isinstance(value, str):
        value = {"action": value}
    keys = {"action", "rate", "burst", "after", *KEYS}
    if not isinstance(value, Mapping) or set(value) - keys or not {"action", *KEYS} & set(value):
        raise ValueError(
            f"write one of {', '.join(known)}, {{action: drop, after: 3}}, "
            "{action: rate-limit, rate: 100/s, burst: 20} or {dscp: AF41, redirect: {interface: eth2}}"
        )
    if (steering := Steering.parse(value)) is not None:
        other = [key for key in ("rate", "burst") if key in value]
        if value.get("action", ACTIONS[0]) not in ACTIONS:
            other = [str(value["action"])]
        if other:
            raise ValueError(
                f"'{steering}' does not go together with {other[0]!r}: a class that is dropped, limited or "
                "counted has no other action; leave one out"
            )
        after = _after(value.get("after", "1"))
        return ClassPolicy(Action.ACT, named=True, after=after, steering=steering)
    if value["action"] not in known:
        raise ValueError(f"unknown action {value['action']!r}; known: {', '.join(known)}")
    action = Action(known.index(str(value["action"])))
    after = _after(value.get("after", "1"))
    if action is not Action.RATE_LIMIT:
        if {"rate", "burst"} & set(value):
            raise ValueError(f"rate and burst belong to the action rate-limit, not to {str(action)!r}")
        return ClassPolicy(action, named=True, after=after)
    if "rate" not in value:
        raise ValueError("rate-limit needs a rate: {action: rate-limit, rate: 100/s, burst: 20}")
    interval_ns = _rate(value["rate"])
    if interval_ns == 0:
        raise ValueError("rate 0 lets nothing through; use the action drop")
    limit = Limit.of(interval_ns, _burst(value.get("burst", DEFAULT_BURST)))
    return ClassPolicy(action, limit, named=True, after=after)


def _with_pool(steering: Steering, pools: Mapping[str, Pool], name: str, source: str) -> Steering:
    """The same, with the pool that it names. name : of the class."""
    asked = str(steering.backend)
    if asked not in pools:
        raise InputError(
            source,
            f"classes: {name}: backend: there is no pool {asked!r}",
            choose(asked, pools)
            if pools
            else f"write pools: {{{asked}: {{backends: [{{address: 10.0.0.11}}]}}}}",
        )
    return replace(steering, pool=pools[asked])


def _give_tunnels(file: _File, source: str) -> None:
    """Lets the classes that go through tunnels know those of the file."""
    try:
        table = Table.parse(file.tunnels, Path(source).parent)
    except ValueError as error:
        raise InputError(source, f"tunnels: {error}", "see docs/tunnels.md") from error
    through = {
        name: rule.steering
        for name, rule in file.classes.items()
        if rule.steering is not None and (rule.steering.decapsulate or rule.steering.encapsulate)
    }
    if not through:
        raise InputError(
            source,
            "tunnels: no class goes through them",
            "give one `decapsulate: gtp-u` or `encapsulate: gtp-u`, or leave them out",
        )
    for name, steering in through.items():
        file.classes[name] = replace(file.classes[name], steering=replace(steering, tunnels=table))


def _after(value: object) -> int:
    text = str(value)
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= MAX_AFTER:
        raise ValueError(f"after {text!r} is out of range; 1 to {MAX_AFTER} verdicts in a row")
    return int(text)


def _burst(value: object) -> int:
    text = str(value)
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= MAX_BURST:
        raise ValueError(f"burst {text!r} is out of range; 1 to {MAX_BURST}")
    return int(text)


def _trigger(value: object) -> Trigger:
    forms = "every, {packets: [1, 2, 4]}, {interval: 100ms} or {first-n: 8}"
    if value == "every":
        return Trigger()
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"needs exactly one of its forms: {forms}")
    kind, argument = next(iter(value.items()))
    if kind == "interval":
        return Trigger(interval_ns=_duration(argument))
    if kind == "first-n":
        return Trigger(first_n=_whole(argument, (1 << 32) - 1))
    if kind == "packets" and isinstance(argument, list) and argument:
        return Trigger(packets=frozenset(_whole(packet, MAX_TRIGGER_PACKET) for packet in argument))
    raise ValueError(f"needs exactly one of its forms: {forms}")


def _whole(value: object, maximum: int) -> int:
    text = str(value)
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII) or not 1 <= int(text) <= maximum:
        raise ValueError(f"{text!r} is out of range; packets of a flow are 1 to {maximum}")
    return int(text)


def _prefix(value: object) -> IPv4Network | IPv6Network:
    text = str(value)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a prefix; write 10.0.0.0/8 or 2001:db8::/32") from None
    if network.network_address != ip_address(text.partition("/")[0]):
        raise ValueError(f"{text!r} has bits set behind the prefix; did you mean {network}?")
    return network


def _port(value: object) -> Port:
    match = re.fullmatch(r"(?:(tcp|udp)/)?(\d{1,5})", str(value), re.ASCII)
    if match is None or int(match[2]) > 65535:
        raise ValueError(
            f"{str(value)!r} is not a port (0 to 65535); write 22 (TCP and UDP), tcp/179 or udp/53"
        )
    return Port(int(match[2]), tcp=match[1] != "udp", udp=match[1] != "tcp")


def _switch(value: object) -> bool:
    """`true` or `false`, and none of the other words that some readers of YAML take for them."""
    if value not in ("true", "false"):
        raise ValueError(f"{str(value)!r} is neither true nor false")
    return value == "true"


def _one_of(*choices: str) -> BeforeValidator:
    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(f"unknown choice {value!r}; known: {', '.join(choices)}")
        return value

    return BeforeValidator(check)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class _Allow(_Part):
    prefixes: list[Annotated[Any, BeforeValidator(_prefix)]] = []
    ports: list[Annotated[Any, BeforeValidator(_port)]] = []
    source_ports: list[Annotated[Any, BeforeValidator(_port)]] = []
    established: Annotated[bool, BeforeValidator(_switch)] = False


class _Events(_Part):
    rate: Annotated[int, BeforeValidator(_rate)] = _SECOND // 100
    burst: Annotated[int, BeforeValidator(_burst)] = DEFAULT_BURST


class _File(_Part):
    version: int
    classes: dict[str, Annotated[ClassPolicy, BeforeValidator(_class_policy)]] = {}
    trigger: Annotated[Trigger, BeforeValidator(_trigger)] = Field(default_factory=Trigger)
    allow: _Allow | None = None
    enforce_for: Annotated[int, BeforeValidator(_duration)] | None = None
    malformed: Annotated[str, _one_of("pass", "drop")] = "pass"
    essential: Annotated[str, _one_of("pass", "drop")] = "pass"
    events: _Events = Field(default_factory=_Events)
    pools: Annotated[dict[str, Pool], BeforeValidator(parse_pools)] = {}
    tunnels: Any = None
