# SPDX-License-Identifier: Apache-2.0
"""Policies: what happens to packets of each class, when the model runs, who always passes.

docs/policy.md describes the file. The agent reads it and says what is wrong with it; here is what its normal
form (`wirewised policy --json`) means, for `explain`, the demo and the parity tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

from wirewise import agent, ending
from wirewise.abi import Action, Each, Outcome, Status
from wirewise.errors import InputError
from wirewise.feature_sets.packet import Packet
from wirewise.policy.act.backend import Pool
from wirewise.policy.act.steering import Steering
from wirewise.policy.act.tunnels import Table, Tunnel
from wirewise.policy.bans import Ban
from wirewise.policy.evidence import Evidence

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
    after: int = 1
    steering: Steering | None = None
    severity: int | None = None
    """Severity of its events, 1 (high) to 3."""
    keys: str = str(Action.PASS)
    """What a policy file calls it, without what it is given: `dscp, redirect`."""
    text: str = str(Action.PASS)
    """With what it is given: `dscp AF41, redirect to eth2`."""
    ban: Ban | None = None
    """Only of a class that is dropped or limited."""

    @property
    def takes_away(self) -> bool:
        """Whether packets may be kept from their receiver: dropped, or sent elsewhere."""
        if self.steering is not None:
            return self.steering.takes_away
        return self.action in (Action.DROP, Action.RATE_LIMIT)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Selector:
    """Packets by their headers: those that have all that is not None. A later fragment has neither ports nor
    flags.

    port : of either end. tcp_flags : those that are looked at, and which of them are set, as bits.
    """

    port: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
    protocol: int | None = None
    tcp_flags: tuple[int, int] | None = None

    def selects(self, packet: Packet) -> bool:
        if self.protocol not in (None, packet.protocol):
            return False
        ends = (packet.source_port, packet.destination_port)
        asked = [
            wanted in ports
            for wanted, ports in (
                (self.port, ends),
                (self.source_port, ends[:1]),
                (self.destination_port, ends[1:]),
            )
            if wanted is not None
        ]
        if asked and (packet.fragment_offset or packet.protocol not in (6, 17) or not all(asked)):
            return False
        if self.tcp_flags is None:
            return True
        mask, flags = self.tcp_flags
        return packet.protocol == 6 and not packet.fragment_offset and packet.tcp_flags & mask == flags


@dataclass(frozen=True)
class Trigger:
    """When a flow's packet is inferred; exactly one attribute is set, or none: every packet. But `any` and
    `every` go together.

    any : a packet that one of these selects. every : each packet of a flow whose number it divides; 0: none.
    """

    packets: frozenset[int] = frozenset()
    interval_ns: int = 0
    first_n: int = 0
    any: tuple[Selector, ...] = ()
    every: int = 0

    def fires(self, packets: int, now_ns: int, elapsed_ns: int, packet: Packet) -> bool:
        """Whether the model runs on a packet: the `packets`-th of its flow, elapsed_ns after the one before.

        interval_ns divides the clock, not the flow's age: the first packet in each interval is inferred.
        """
        if self.any or self.every:
            by_number = bool(self.every) and packets % self.every == 0
            return by_number or any(selector.selects(packet) for selector in self.any)
        if self.packets:
            return packets in self.packets
        if self.interval_ns:
            previous_ns = now_ns - elapsed_ns
            return packets == 1 or now_ns // self.interval_ns != previous_ns // self.interval_ns
        return not self.first_n or packets <= self.first_n


@dataclass(frozen=True)
class Port:
    """An allowed or denied port, a destination or source port, of TCP, of UDP or of both."""

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
class Deny:
    """Who is dropped before anything is computed: source prefixes and destination ports."""

    prefixes: tuple[IPv4Network | IPv6Network, ...] = ()
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """A classified packet as other programs see it, if the policy has `metadata` or `verdicts`.

    class_id : what the packet counts as. score : of that class (`models.scores`), None if the model did not
    run on this packet or gives none. flow_hash : 32 bits, of the flow's key. changed : from this packet on
    the flow counts as another class than before, or it has its first.
    """

    class_id: int
    score: int | None
    flow_hash: int
    changed: bool


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
    each: Each = Each.PACKET
    """What an event is of: a flow or source has one for each class and outcome."""
    event_update_ns: int = 10 * _SECOND
    """How often a flow or source that goes on has another event."""
    deny: Deny | None = None
    """None: there is no list. An empty one can be filled by `wirewised deny`."""
    metadata: bool = False
    """Packets that pass have their `Metadata` in front."""
    verdicts: bool = False
    """The map ww_verdicts has the class of each flow."""
    evidence: Evidence | None = None
    """What it takes of a sender's other flows before a class counts; None: nothing."""

    @classmethod
    def all_pass(cls, classes: Sequence[str]) -> Policy:
        """What holds when no policy is given: every class passes and every packet is inferred."""
        return cls(tuple(classes), (ClassPolicy(),) * len(classes))

    @classmethod
    def load(cls, path: str | Path, classes: Sequence[str]) -> Policy:
        """A policy from its file, for the classes of a bundle (index = class id), as the agent reads it.

        Raises InputError, with the agent's words, and MissingFeatureError without the agent.
        """
        given = [f"--class={name}" for name in classes]
        return cls.of(agent.call("policy", path, *given)["policy"])

    @classmethod
    def parse(cls, text: str, classes: Sequence[str]) -> Policy:
        """As `load`, from the file's text."""
        with ending.temporary_folder() as folder:
            path = folder / "policy"
            path.write_bytes(text.encode())
            try:
                return cls.load(path, classes)
            except InputError as error:
                raise InputError(str(error).replace(f"{path}: ", "policy: ")) from None

    @classmethod
    def of(cls, normal: Mapping[str, Any]) -> Policy:
        """From the normal form."""
        tunnels = Table.of([Tunnel.of(tunnel) for tunnel in normal["tunnels"] or ()])
        pools = {pool["name"]: Pool.of(pool) for pool in normal["pools"]}
        allow, deny = normal["allow"], normal["deny"]
        return cls(
            tuple(rule["name"] for rule in normal["classes"]),
            tuple(_class_policy(rule, pools, tunnels) for rule in normal["classes"]),
            _trigger(normal["trigger"]),
            tuple(map(ip_network, allow["prefixes"])),
            tuple(map(_port, allow["ports"])),
            normal["enforce_for_ns"],
            normal["drop_malformed"],
            tuple(map(_port, allow["source_ports"])),
            normal["drop_essential"],
            Limit(normal["events"]["interval_ns"], normal["events"]["burst_ns"]),
            allow["established"],
            Each[normal["events"]["each"].upper()],
            normal["events"]["update_ns"],
            None
            if deny is None
            else Deny(tuple(map(ip_network, deny["prefixes"])), tuple(map(_port, deny["ports"]))),
            normal["metadata"],
            normal["verdicts"],
            None if normal["evidence"] is None else Evidence.of(normal["evidence"]),
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

    def denies(self, packet: Packet, *, connected: bool = False) -> tuple[Status, str] | None:
        """Why a packet that is not allowed is denied, before anything is inferred: status and rule, or None.

        connected : whether it is of a connection of the host, which `established` saves.
        """
        if self.deny is None or (self.established and connected):
            return None
        address = ip_address(packet.source)
        for prefix in self.deny.prefixes:
            if address in prefix:
                return Status.DENIED_PREFIX, f"prefix {prefix}"
        for port in self.deny.ports:
            if port.matches(packet.protocol, None if packet.fragment_offset else packet.destination_port):
                protocol = "tcp" if packet.protocol == 6 else "udp"
                return Status.DENIED_PORT, f"port {protocol}/{port.number}"
        return None

    @property
    def describes(self) -> bool:
        """Whether other programs see the verdict on each packet."""
        return self.metadata or self.verdicts

    @property
    def bans(self) -> dict[int, Ban]:
        """Bans by class id, for classes that have one."""
        return {number: rule.ban for number, rule in enumerate(self.actions) if rule.ban is not None}

    def counted(self, class_id: int, streak: int) -> int:
        """What a flow's verdict counts as, the `streak`-th in a row for this class: class_id, or class 0."""
        return class_id if streak >= self.actions[class_id].after else 0

    def is_evidence(self, class_id: int) -> bool:
        """Whether the policy does something with a class: its flows are evidence against their sender."""
        return self.actions[class_id].action is not Action.PASS

    @property
    def takes_away(self) -> bool:
        """Whether packets may be kept from their receiver, malformed ones aside: denied, or of a class."""
        return self.deny is not None or any(policy.takes_away for policy in self.actions)

    def rule(self, class_id: int) -> str:
        """The rule for a class, for people: `attack: drop`."""
        policy, name = self.actions[class_id], self.classes[class_id]
        return f"{name}: {policy}" + (f" after {policy.after}" if policy.after > 1 else "")


@dataclass(frozen=True)
class Observed:
    """When a class observes although the policy is enforced (`wirewised mode`): from_ns <= time < until_ns.

    until_ns None: for ever.
    """

    from_ns: int = 0
    until_ns: int | None = None

    def holds(self, now_ns: int) -> bool:
        return self.from_ns <= now_ns and (self.until_ns is None or now_ns < self.until_ns)


class Teller:
    """The reference of which packets have an event, the rate of events apart (bpf/act/tell.h).

    The first packet of a flow or source with a class and outcome has one, and then one each event_update_ns.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._told: dict[Hashable, tuple[int | None, int]] = {}

    def tells(self, key: Hashable, class_id: int, outcome: Outcome, now_ns: int) -> int:
        """How many packets the event of this one reports; 0: it has none.

        key : of the flow, or the address that sent its first packet, as `each` says.
        """
        if self.policy.each is Each.PACKET:
            return 1
        what = (key, class_id, outcome)
        told_ns, packets = self._told.get(what, (None, 0))
        if told_ns is not None and now_ns - told_ns < self.policy.event_update_ns:
            self._told[what] = (told_ns, packets + 1)
            return 0
        self._told[what] = (now_ns, 0)
        return packets + 1


class Decider:
    """The reference of what the data path does with a class: action and outcome, with the rate limits' state.

    enforce : the mode; observe counts limits in the same way and lets everything pass.
    enforce_until_ns : from this time on it is observe whatever was asked; None: never.
    observed : class ids that observe in enforce mode too, and when.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        enforce: bool,
        enforce_until_ns: int | None = None,
        observed: Mapping[int, Observed] | None = None,
    ) -> None:
        self.policy = policy
        self.enforce = enforce
        self.enforce_until_ns = enforce_until_ns
        self.observed = dict(observed or {})
        self._tat_ns = [0] * len(policy.classes)

    def enforces(self, now_ns: int) -> bool:
        """Whether drops happen at this time."""
        return self.enforce and (self.enforce_until_ns is None or now_ns < self.enforce_until_ns)

    def enforces_class(self, class_id: int, now_ns: int) -> bool:
        """The same of a class: the whole policy's mode is the upper bound."""
        window = self.observed.get(class_id)
        return self.enforces(now_ns) and (window is None or not window.holds(now_ns))

    def decide(self, class_id: int, now_ns: int, *, connected: bool = False) -> tuple[Action, Outcome]:
        """Action and outcome of one packet of a class at a time; advances the class's rate limit.

        connected : whether the packet is of a connection of the host; captured packets never are. That saves
        it from drops only.
        """
        policy, enforced = self.policy.actions[class_id], self.enforces_class(class_id, now_ns)
        if policy.steering is not None:
            return policy.action, policy.steering.outcome if enforced else Outcome.WOULD_ACT
        if policy.action is Action.DROP:
            dropped = Outcome.DROP if enforced else Outcome.WOULD_DROP
        elif policy.limit is not None and not self._conforms(class_id, policy.limit, now_ns):
            dropped = Outcome.LIMITED if enforced else Outcome.WOULD_LIMIT
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


# -- the normal form


def _class_policy(rule: Mapping[str, Any], pools: Mapping[str, Pool], tunnels: Table) -> ClassPolicy:
    limit, acts = rule["limit"], rule["acts"]
    return ClassPolicy(
        Action[rule["action"].replace("-", "_").upper()],
        None if limit is None else Limit(**limit),
        rule["after"],
        None if acts is None else Steering.of(acts, pools, tunnels),
        rule["severity"],
        rule["keys"],
        rule["text"],
        None if rule["ban"] is None else Ban.of(rule["ban"]),
    )


def _trigger(form: Mapping[str, Any]) -> Trigger:
    return Trigger(
        frozenset(form.get("packets", ())),
        form.get("interval_ns", 0),
        form.get("first_n", 0),
        tuple(map(_selector, form.get("any", ()))),
        form.get("every") or 0,
    )


def _selector(form: Mapping[str, Any]) -> Selector:
    flags = form["tcp_flags"]
    return Selector(
        form["port"],
        form["source_port"],
        form["destination_port"],
        form["protocol"],
        None if flags is None else (flags["mask"], flags["set"]),
    )


def _port(form: Mapping[str, Any]) -> Port:
    return Port(form["port"], form["tcp"], form["udp"])
