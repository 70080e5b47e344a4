# SPDX-License-Identifier: Apache-2.0
"""The reference extractor: packets in, features out, slowly and obviously.

This is the meaning of a feature set. Every lowering is tested against it, packet by packet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from wirewise.abi import Status
from wirewise.feature_sets.feature_set import CLIENT_AGGREGATES, FeatureSet
from wirewise.feature_sets.fields import BIDIRECTIONAL, Context, ends_of_key
from wirewise.feature_sets.flow import (
    PACKETS_MAX,
    Entry,
    FlowTable,
    Key,
    Lookup,
    as_the_client_sends,
    hash_key,
    make_key,
    seed_from,
)
from wirewise.feature_sets.packet import Packet, parse
from wirewise.feature_sets.state import FlowState, layouts, reader


@dataclass(slots=True)
class Account:
    """A packet's entry in one table, and its place there."""

    key: Key
    entry: Entry
    lookup: Lookup
    context: Context
    whole: bool


@dataclass(slots=True)
class Observation:
    """What one frame came to.

    features : one int a feature in the feature set's order, units and fractional bits as it says; None unless
    status is CLASSIFIED. packets : of the flow, with this one. refused : no table entry was free. entry :
    the flow's entry
    after this packet.
    """

    status: Status
    packet: Packet | None = None
    key: Key | None = None
    features: list[int] | None = None
    packets: int = 0
    lookup: Lookup | None = None
    entry: Entry | None = None
    elapsed_ns: int = 0
    """Since the flow's previous packet; 0 for the first."""
    whole: bool = False
    """A round of probes is, with this packet."""
    aggregates: dict[str, Lookup] = field(default_factory=dict)
    """By what the feature set accumulates beside the flow: how that table answered."""

    @property
    def refused(self) -> bool:
        return self.lookup is Lookup.REFUSED


class Extractor:
    """Follows flows and computes a feature set, one frame at a time, in time order.

    hash_seed : 13 u64 as in ww_config (only replacement in the tables and sketches depend on it).
    table_size : of the flow table, instead of the feature set's.
    used : indices of the features that are read; the others are not computed and stay 0, as in a program
    made for one model.
    """

    def __init__(
        self,
        feature_set: FeatureSet,
        *,
        hash_seed: Sequence[int] | None = None,
        table_size: int | None = None,
        used: Collection[int] | None = None,
    ) -> None:
        self.feature_set = feature_set
        self.layouts = layouts(feature_set, used)
        self._readers = [
            (feature.scope.by, reader(feature, feature_set.key)) if used is None or index in used else None
            for index, feature in enumerate(feature_set.features)
        ]
        self._seed = list(hash_seed) if hash_seed is not None else seed_from(0)
        aggregate = feature_set.aggregates_size, feature_set.aggregates_idle_ns(used)
        self.tables = {
            by: {
                version: FlowTable(feature_set, self._seed, *(aggregate if by else (table_size,)))
                for version in (4, 6)
            }
            for by in self.layouts
        }
        """Flow tables, under "", and those of aggregates, by IP version."""

    @property
    def hash_seed(self) -> list[int]:
        """13 u64: under them flows' keys are hashed."""
        return self._seed

    def process(self, frame: bytes, time_ns: int) -> Observation:
        """Account one Ethernet frame seen at time_ns (any monotonic origin, nanoseconds >= 0)."""
        status, packet = parse(frame, self.feature_set.decapsulate)
        if packet is None:
            return Observation(status)
        return self.process_packet(packet, time_ns)

    def process_packet(self, packet: Packet, time_ns: int) -> Observation:
        """Account one parsed packet."""
        flow = self._account("", packet, time_ns, None)
        accounts = {by: self._account(by, packet, time_ns, flow) if by else flow for by in self.tables}
        features = []
        for wanted in self._readers:
            by, read = wanted or ("", lambda state, context: 0)
            features.append(read(accounts[by].entry.state, accounts[by].context))
        return Observation(
            Status.CLASSIFIED, packet, flow.key, features, flow.entry.packets, flow.lookup, flow.entry,
            flow.context.elapsed_ns, flow.whole,
            {by: account.lookup for by, account in accounts.items() if by},
        )  # fmt: skip

    def _account(self, by: str, packet: Packet, time_ns: int, flow: Account | None) -> Account:
        """Account a packet in its flow, or in an aggregate once its flow is known."""
        ends = packet
        if flow and by in CLIENT_AGGREGATES:
            ends = as_the_client_sends(packet, flow.context.forward)
        key, swapped = make_key(ends, by or self.feature_set.key)
        entry, lookup = self.tables[by][packet.ip_version].find(key, swapped, time_ns)
        if entry.packets == 0:
            entry.state = FlowState(self.layouts[by], time_ns)
        elapsed_ns = max(0, time_ns - entry.last_seen_ns) if entry.packets else 0
        entry.packets = min(entry.packets + 1, PACKETS_MAX)
        # Packets on two CPUs may come with their times in another order, as may those of a capture.
        entry.last_seen_ns = max(entry.last_seen_ns, time_ns) if entry.packets > 1 else time_ns
        context = Context(
            packet,
            packets=entry.packets,
            elapsed_ns=elapsed_ns,
            forward=flow.context.forward if flow else int(swapped == entry.swapped),
            age_ns=max(0, time_ns - entry.state.first_seen_ns),
            flow_packets=flow.entry.packets if flow else entry.packets,
            flow_hash=flow.context.flow_hash if flow else hash_key(key, self._seed),
            both=ends_of_key(self.feature_set.key) == BIDIRECTIONAL,
            now_ns=time_ns,
            seed=self._seed,
        )
        if by and context.flow_packets == 1:
            context.gap_ns = entry.state.begin_flow(time_ns)
        if not by:
            context.own_ns = entry.state.go_way(context.forward, time_ns)
        return Account(key, entry, lookup, context, entry.state.sample(context, time_ns))
