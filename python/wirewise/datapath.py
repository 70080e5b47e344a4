# SPDX-License-Identifier: Apache-2.0
"""The reference of the whole data path: what bpf/xdp.bpf.c does with a frame, slowly and obviously.

parse -> allow list -> flow look-up -> accumulate -> trigger? -> features -> infer -> policy -> act
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirewise.features import Extractor, FeatureSet, Observation
from wirewise.features.packet import Packet, Status, parse
from wirewise.models import Model
from wirewise.policy import Action, Decider, Outcome, Policy

_MALFORMED = range(Status.MALFORMED_ETHERNET, Status.TOO_MANY_EXTENSIONS + 1)


@dataclass(frozen=True)
class Decision:
    """What became of one frame.

    packet : its headers, None where they cannot be read. observation : flow and features, None for what the
    flow table never saw. class_id, action, outcome : None unless status is CLASSIFIED; a class may be one
    kept with the flow, then inferred is False. scores : of the model, when it ran. allowed_by : the entry of
    the allow list.
    """

    status: Status
    drops: bool
    packet: Packet | None = None
    observation: Observation | None = None
    inferred: bool = False
    scores: list[int] | None = None
    class_id: int | None = None
    action: Action | None = None
    outcome: Outcome | None = None
    allowed_by: str | None = None


class DataPath:
    """One CPU's data path in Python, fed frame by frame in the order in which they come.

    hash_seed : 11 u64, as in ww_config; table_size : entries, instead of the feature set's. The policy's
    `enforce_for` counts from the first frame.
    """

    def __init__(
        self,
        feature_set: FeatureSet,
        model: Model,
        policy: Policy,
        *,
        enforce: bool = False,
        hash_seed: Sequence[int] | None = None,
        table_size: int | None = None,
    ) -> None:
        self.feature_set = feature_set
        self.model = model
        self.policy = policy
        self.extractor = Extractor(
            feature_set, hash_seed=hash_seed, table_size=table_size, used=model.used_features
        )
        self._decider = Decider(policy, enforce=enforce)

    def process(self, frame: bytes, time_ns: int) -> Decision:
        """One Ethernet frame seen at time_ns (any origin, nanoseconds >= 0)."""
        if self.policy.enforce_for_ns is not None and self._decider.enforce_until_ns is None:
            self._decider.enforce_until_ns = time_ns + self.policy.enforce_for_ns
        status, packet = parse(frame, self.feature_set.decapsulate)
        if packet is None:
            drops = status in _MALFORMED and self.policy.drop_malformed and self._decider.enforces(time_ns)
            return Decision(status, drops)
        if allowed := self.policy.allows(packet):
            status, entry = allowed
            return Decision(status, False, packet, allowed_by=entry)
        seen = self.extractor.process_packet(packet, time_ns)
        flow, features = seen.entry, seen.features
        assert flow is not None and features is not None  # of every packet that is accounted
        inferred = self.policy.trigger.fires(seen.packets, time_ns, seen.elapsed_ns)
        scores = None
        if inferred:
            flow.verdict, scores = self.model.predict_one(features)
        if flow.verdict is None:
            return Decision(Status.UNDECIDED, False, packet, seen)
        class_id = flow.verdict
        action, outcome = self._decider.decide(class_id, time_ns)
        return Decision(
            Status.CLASSIFIED, outcome.drops, packet, seen, inferred, scores, class_id, action, outcome
        )
