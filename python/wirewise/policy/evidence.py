# SPDX-License-Identifier: Apache-2.0
"""Evidence against senders: the mean score of their last flows, as bpf/act/evidence.h keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wirewise.feature_sets.packet import Packet

SCORE_MAX = 255
"""Score of a flow whose class the policy does something with; that of others is 0."""
_MS = 1_000_000


@dataclass(frozen=True)
class Evidence:
    """A policy's rule for senders: the evidence that a class needs before it counts.

    by : `source`, the client; `pair`, client and server; `service`, the server's address, port and protocol.
    last : flows that count, 1 to 255. flows : least number that the mean is taken over, 1 to last.
    threshold : the mean score from which on a class counts, 1 to SCORE_MAX. within_ns : after so long without
    a verdict that counts, what was kept of a sender is forgotten. text : the rule, for people.
    """

    by: str
    last: int
    flows: int
    threshold: int
    within_ns: int
    text: str

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Evidence:
        """From the normal form of a policy."""
        return cls(**form)


@dataclass
class _Kept:
    """flows : how many count, up to `last`. total : of their scores. time_ms : of the last verdict."""

    flows: int
    total: int
    time_ms: int


@dataclass(frozen=True)
class Weighed:
    """A sender's evidence. The mean is total / least, at least threshold where it is enough.

    flows : of the sender that count; 0 where nothing is known of it. least : what the total is divided by.
    """

    flows: int
    total: int
    least: int
    threshold: int

    @property
    def enough(self) -> bool:
        return self.flows > 0 and self.total >= self.threshold * self.least

    def __str__(self) -> str:
        share = 100 * self.total / (self.least * SCORE_MAX)
        asked = 100 * self.threshold / SCORE_MAX
        verdict = "enough" if self.enough else "too little"
        return f"{share:.0f} % of {self.least} flows, {asked:.0f} % asked: {verdict}"


class Senders:
    """The evidence against all senders. Unlike the data path's table it holds any number of them."""

    def __init__(self, rule: Evidence) -> None:
        self.rule = rule
        self._kept: dict[tuple[object, ...], _Kept] = {}

    def of(self, packet: Packet, *, forward: bool) -> tuple[object, ...]:
        """Who a packet's flow is evidence against. forward : the packet goes as the flow's first one did."""
        client, server, port = packet.source, packet.destination, packet.destination_port
        if not forward:
            client, server, port = packet.destination, packet.source, packet.source_port
        if self.rule.by == "source":
            return (client,)
        if self.rule.by == "pair":
            return (client, server)
        return (server, port, packet.protocol)

    def judge(
        self, sender: tuple[object, ...], now_ns: int, *, first: bool, before: bool, acts: bool
    ) -> None:
        """A new verdict for a flow. first : it had none. before, acts : whether the policy does something
        with the class of the one before, and of this one.
        """
        # Repeated verdicts against the sender keep its evidence from expiring while the flow lasts.
        if not (first or before or acts):
            return
        score, now_ms = SCORE_MAX if acts else 0, now_ns // _MS
        kept = self._kept.get(sender)
        if kept is None or self._forgotten(kept, now_ms):
            self._kept[sender] = _Kept(1, score, now_ms)
            return
        if first:
            # Beyond `last`, each flow replaces the mean of the earlier ones.
            if kept.flows < self.rule.last:
                kept.flows += 1
            else:
                kept.total -= kept.total // kept.flows
            kept.total += score
        else:
            kept.total += score
            kept.total -= min(kept.total, SCORE_MAX if before else 0)
        kept.total = min(kept.total, kept.flows * SCORE_MAX)
        kept.time_ms = now_ms

    def weigh(self, sender: tuple[object, ...], now_ns: int) -> Weighed:
        """What there is against a sender."""
        kept = self._kept.get(sender)
        if kept is None or self._forgotten(kept, now_ns // _MS):
            return Weighed(0, 0, self.rule.flows, self.rule.threshold)
        return Weighed(kept.flows, kept.total, max(kept.flows, self.rule.flows), self.rule.threshold)

    def _forgotten(self, kept: _Kept, now_ms: int) -> bool:
        return now_ms - kept.time_ms > self.rule.within_ns // _MS
