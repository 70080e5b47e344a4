# SPDX-License-Identifier: Apache-2.0
"""The reference of the whole data path: what bpf/main.bpf.c does with a frame, slowly and obviously.

parse -> allow list -> deny list, bans -> flow look-up -> accumulate -> trigger? -> features -> infer
-> policy -> act
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wirewise.abi import Action, Outcome, Status
from wirewise.fate import Fate, fate
from wirewise.feature_sets import Extractor, FeatureSet, Observation
from wirewise.feature_sets.flow import Entry, hash_key, make_key, seed_from
from wirewise.feature_sets.packet import Packet, parse
from wirewise.models import Model
from wirewise.models.scores import score_of
from wirewise.policy import Decider, Metadata, Observed, Policy
from wirewise.policy.bans import Bans
from wirewise.policy.evidence import Senders, Weighed


@dataclass(frozen=True)
class Decision:
    """What became of one frame.

    packet : its headers, None where they cannot be read. observation : flow and features, None for what the
    flow table never saw. class_id, action, outcome : None unless status is CLASSIFIED; a class may be one
    kept with the flow, then inferred is False, and it is class 0 while the model's class has too few verdicts
    in a row, or there is too little evidence against its sender. scores : of the model, when it ran.
    evidence : that, where the class needs it. allowed_by : the entry of the list. denied_by : that of the
    deny list, or the kind of ban. frame : as it is afterwards. metadata : the verdict as other programs see
    it, if the policy asks for that.
    """

    status: Status
    fate: Fate
    packet: Packet | None = None
    observation: Observation | None = None
    inferred: bool = False
    scores: list[int] | None = None
    class_id: int | None = None
    action: Action | None = None
    outcome: Outcome | None = None
    allowed_by: str | None = None
    denied_by: str | None = None
    frame: bytes = b""
    metadata: Metadata | None = None
    evidence: Weighed | None = None

    @property
    def drops(self) -> bool:
        return self.fate is Fate.DROP


class DataPath:
    """One CPU's data path in Python, fed frame by frame in the order in which they come.

    hash_seed : 13 u64, as in ww_config; table_size : entries, instead of the feature set's. The policy's
    `enforce_for` counts from the first frame. connected : whether a packet is of a connection of this host
    (bpf/classify/sockets.h); captured packets never are. observe : classes that observe in enforce mode too,
    each for a time in nanoseconds from the first frame; None: for ever.
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
        connected: Callable[[Packet], bool] = lambda packet: False,
        observe: Mapping[str, int | None] | None = None,
    ) -> None:
        self.feature_set = feature_set
        self.model = model
        self.policy = policy
        self.connected = connected
        self.extractor = Extractor(
            feature_set, hash_seed=hash_seed, table_size=table_size, used=model.used_features
        )
        self._observe, self._began = dict(observe or {}), False
        self._decider = Decider(policy, enforce=enforce)
        self._bans = Bans(policy.bans, hash_seed or seed_from(0)) if policy.bans else None
        self._senders = Senders(policy.evidence) if policy.evidence else None

    def _begin(self, time_ns: int) -> None:
        self._began = True
        if self.policy.enforce_for_ns is not None:
            self._decider.enforce_until_ns = time_ns + self.policy.enforce_for_ns
        for name, duration_ns in self._observe.items():
            until_ns = None if duration_ns is None else time_ns + duration_ns
            self._decider.observed[self.policy.classes.index(name)] = Observed(until_ns=until_ns)

    def process(self, frame: bytes, time_ns: int) -> Decision:
        """One Ethernet frame seen at time_ns (any origin, nanoseconds >= 0)."""
        if not self._began:
            self._begin(time_ns)
        status, packet = parse(frame, self.feature_set.decapsulate)
        if packet is None:
            drop_malformed = self.policy.drop_malformed and self._decider.enforces(time_ns)
            return Decision(status, fate(status, None, drop_malformed=drop_malformed), frame=frame)
        if allowed := self.policy.allows(packet):
            status, entry = allowed
            return Decision(status, Fate.PASS, packet, allowed_by=entry, frame=frame)
        if denied := self.policy.denies(packet, connected=self.connected(packet)):
            status, entry = denied
            goes = fate(status, None, drop_malformed=False, enforced=self._decider.enforces(time_ns))
            return Decision(status, goes, packet, denied_by=entry, frame=frame)
        kind = self._bans.bans(packet, time_ns) if self._bans else None
        if kind and not (self.policy.established and self.connected(packet)):
            enforced = self._decider.enforces(time_ns)
            goes = fate(Status.BANNED, None, drop_malformed=False, enforced=enforced)
            return Decision(Status.BANNED, goes, packet, denied_by=f"ban by {kind}", frame=frame)
        seen = self.extractor.process_packet(packet, time_ns)
        flow, features = seen.entry, seen.features
        assert flow is not None and features is not None  # of every packet that is accounted
        inferred = self.policy.trigger.fires(seen.packets, time_ns, seen.elapsed_ns, packet)
        if self.feature_set.paths:
            inferred = seen.whole
        scores = None
        before = None if flow.verdict is None else self._counted(packet, flow, time_ns)[0]
        if inferred:
            class_id, scores = self.model.predict_one(features)
            if self._senders:
                self._senders.judge(
                    self._sender(packet, flow), time_ns,
                    first=flow.verdict is None,
                    before=flow.verdict is not None and self.policy.is_evidence(flow.verdict),
                    acts=self.policy.is_evidence(class_id),
                )  # fmt: skip
            flow.streak = flow.streak + 1 if class_id == flow.verdict else 1
            flow.verdict = class_id
        if flow.verdict is None:
            return Decision(Status.UNDECIDED, Fate.PASS, packet, seen, frame=frame)
        class_id, evidence = self._counted(packet, flow, time_ns)
        action, outcome = self._decider.decide(class_id, time_ns, connected=self.connected(packet))
        if self._bans and outcome in (Outcome.DROP, Outcome.LIMITED, Outcome.WOULD_DROP, Outcome.WOULD_LIMIT):
            would = outcome in (Outcome.WOULD_DROP, Outcome.WOULD_LIMIT)
            if self._bans.begins(class_id, packet, time_ns, would=would):
                outcome = Outcome.WOULD_BAN if would else Outcome.BAN
        goes = fate(Status.CLASSIFIED, outcome, drop_malformed=False)
        steering = self.policy.actions[class_id].steering
        if outcome is Outcome.ACTED and steering is not None:
            left = steering.apply(frame)
            if left is None:
                outcome = Outcome.NOT_ACTED
            else:
                goes, frame = steering.fate, left
        metadata = None
        if self.policy.describes:
            assert flow.key is not None
            score = score_of(self.model, scores, class_id)
            flow_hash = hash_key(flow.key, self.extractor.hash_seed)
            metadata = Metadata(class_id, score, flow_hash, class_id != before)
        return Decision(
            Status.CLASSIFIED, goes, packet, seen, inferred, scores, class_id, action, outcome, frame=frame,
            metadata=metadata,
            evidence=evidence,
        )  # fmt: skip

    def _counted(self, packet: Packet, flow: Entry, time_ns: int) -> tuple[int, Weighed | None]:
        """The class that the flow's packets count as, and the evidence against its sender if that decides."""
        assert flow.verdict is not None
        class_id = self.policy.counted(flow.verdict, flow.streak)
        if not self._senders or not self.policy.is_evidence(class_id):
            return class_id, None
        evidence = self._senders.weigh(self._sender(packet, flow), time_ns)
        return (class_id if evidence.enough else 0), evidence

    def _sender(self, packet: Packet, flow: Entry) -> tuple[object, ...]:
        """Who the packet's flow is evidence against."""
        assert self._senders is not None
        _, swapped = make_key(packet, self.feature_set.key)
        return self._senders.of(packet, forward=swapped == flow.swapped)
