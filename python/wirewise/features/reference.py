# SPDX-License-Identifier: Apache-2.0
"""The reference extractor: packets in, features out, slowly and obviously.

This is the meaning of a feature set. Every lowering is tested against it, packet by packet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wirewise.features.feature_set import FeatureSet
from wirewise.features.fields import Context
from wirewise.features.flow import PACKETS_MAX, Entry, FlowTable, Key, Lookup, make_key, seed_from
from wirewise.features.packet import Packet, Status, parse
from wirewise.features.state import FlowState, StateLayout, reader


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

    @property
    def refused(self) -> bool:
        return self.lookup is Lookup.REFUSED


class Extractor:
    """Follows flows and computes a feature set, one frame at a time, in time order.

    hash_seed : 11 u64 as in ww_config (only the flow table's replacement depends on it). table_size :
    instead of the feature set's.
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
        self.layout = StateLayout.of(feature_set, used)
        self._readers = [
            reader(feature, feature_set.key) if used is None or index in used else None
            for index, feature in enumerate(feature_set.features)
        ]
        seed = list(hash_seed) if hash_seed is not None else seed_from(0)
        self.tables = {version: FlowTable(feature_set, seed, table_size) for version in (4, 6)}

    def process(self, frame: bytes, time_ns: int) -> Observation:
        """Account one Ethernet frame seen at time_ns (any monotonic origin, nanoseconds >= 0)."""
        status, packet = parse(frame, self.feature_set.decapsulate)
        if packet is None:
            return Observation(status)
        return self.process_packet(packet, time_ns)

    def process_packet(self, packet: Packet, time_ns: int) -> Observation:
        """Account one parsed packet."""
        key, swapped = make_key(packet, self.feature_set.key)
        entry, lookup = self.tables[packet.ip_version].find(key, swapped, time_ns)
        if entry.packets == 0:
            entry.state = FlowState(self.layout, time_ns)
        elapsed_ns = max(0, time_ns - entry.last_seen_ns) if entry.packets else 0
        entry.packets = min(entry.packets + 1, PACKETS_MAX)
        # Packets of a flow on two CPUs may come with their times in another order.
        late = entry.packets > 1 and self.feature_set.shared
        entry.last_seen_ns = max(entry.last_seen_ns, time_ns) if late else time_ns
        age_ns = max(0, time_ns - entry.state.first_seen_ns)
        context = Context(packet, entry.packets, elapsed_ns, int(swapped == entry.swapped), age_ns)
        entry.state.sample(context, time_ns)
        features = [read(entry.state, context) if read else 0 for read in self._readers]
        return Observation(Status.CLASSIFIED, packet, key, features, entry.packets, lookup, entry, elapsed_ns)
