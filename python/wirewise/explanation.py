# SPDX-License-Identifier: Apache-2.0
"""Why one packet of a capture got its verdict: from the reference, and from the object that is deployed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from wirewise import agent, html
from wirewise.datapath import DataPath, Decision
from wirewise.datasets import read_ethernet
from wirewise.errors import InputError, MissingFeatureError, choose
from wirewise.fate import Fate
from wirewise.feature_sets.flow import seed_from
from wirewise.formats.bundle import Bundle
from wirewise.models import Bounded, Model, TreeEnsemble
from wirewise.policy import Policy

MODES, PLANES = ("observe", "enforce"), ("kernel", "kernel-tc", "engine")
_SEED = 0  # of both flow tables' hashes, so that they replace the same entries
_COMPARED = (
    "status", "packets_of_flow", "inferred", "features", "scores", "class", "action", "outcome", "passed",
)  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """One packet's way through a bundle.

    packet : its number in the capture, from 1. time_ns : of the packet, since 1970. reference : what the
    Python reference makes of it; its keys are those of `wirewise explain --json`. object : the same by the
    bundle's program; None if it was not run, and object_not_asked says why. decision : the reference's own
    objects.
    """

    capture: str
    packet: int
    time_ns: int
    mode: str
    reference: dict[str, Any]
    object: dict[str, Any] | None
    object_not_asked: str
    bundle: Bundle = field(repr=False)
    decision: Decision = field(repr=False)

    @property
    def differences(self) -> list[str]:
        """The keys in which reference and object differ: none, or there is a bug in wirewise."""
        theirs = self.object
        return [key for key in _COMPARED if theirs is not None and self.reference[key] != theirs[key]]

    @property
    def agree(self) -> bool | None:
        """Whether reference and object are of one mind; None if the object was not asked."""
        return None if self.object is None else not self.differences

    def __repr__(self) -> str:
        said = self.reference
        what = said["class"] or said["status"]
        fate = f"{self.decision.fate.value}, {self.mode}"
        return f"<Explanation of packet {self.packet:,} of {self.capture}: {what}, the packet {fate}>"

    def _repr_html_(self) -> str:
        said = self.reference
        parts = [
            html.facts(
                [
                    ("packet", f"{self.packet:,} of {self.capture}"),
                    ("flow", said["flow"] or f"none: {said['status']}"),
                    ("class", said["class"] or "none"),
                    ("policy", said["rule"] or "none"),
                    *([("evidence", said["evidence"])] if said["evidence"] else []),
                    ("outcome", f"{said['outcome'] or 'none'}, mode {self.mode}: {self.decision.fate.value}"),
                    ("object", self.object_not_asked or ("agrees" if self.agree else "DIFFERS")),
                ]
            )
        ]
        if said["features"]:
            rows = zip(self.bundle.manifest.features, said["features"], strict=True)
            lines = ((f.name, f.spec, f"{raw / (1 << f.fraction_bits):,.10g}", f.unit) for f, raw in rows)
            parts.append(html.table(("feature", "is", "value", "unit"), lines, right=(2,)))
            parts.append(html.facts([("scores", ", ".join(map(str, said["scores"])))]))
        return html.fragment(*parts)

    def to_dict(self) -> dict[str, Any]:
        """What `wirewise explain --json` prints."""
        return {
            "capture": self.capture, "packet": self.packet, "time_ns": self.time_ns, "mode": self.mode,
            "reference": self.reference, "object": self.object, "object_not_asked": self.object_not_asked,
            "agree": self.agree, "differences": self.differences,
        }  # fmt: skip


def explain(
    capture: Path,
    packet: int,
    bundle: Path,
    policy: Path | None = None,
    *,
    mode: str = "observe",
    plane: str | None = None,
    reference_only: bool = False,
) -> Explanation:
    """Run a capture up to one packet through the reference and through a bundle's object.

    Nothing is attached. packet : its number, from 1. mode : one of MODES. plane : one of PLANES, where the
    object runs; None is the kernel where this process may load programs, else the engine. Raises InputError
    for a packet that the capture does not have, or a file that cannot be read.
    """
    for what, given, known in (("mode", mode, MODES), ("plane", plane, (None, *PLANES))):
        if given not in known:
            raise InputError(
                f"{what} {given!r}", "is not known", choose(str(given), list(filter(None, known)))
            )
    if packet < 1:
        raise InputError(f"packet {packet}", "does not exist", "count from 1, the first of the capture")
    loaded = Bundle.read(bundle)
    rules = Policy.load(policy, loaded.classes) if policy else Policy.all_pass(loaded.classes)
    decision, time_ns = decide(loaded, rules, capture, packet, enforce=mode == "enforce")
    theirs, why_not = None, "the reference alone was asked"
    if not reference_only:
        theirs, why_not = ask_object(capture, packet, bundle, policy, mode, plane)
    ours = describe(decision, loaded, rules)
    return Explanation(str(capture), packet, time_ns, mode, ours, theirs, why_not, loaded, decision)


def decide(
    bundle: Bundle, policy: Policy, capture: Path, packet: int, *, enforce: bool
) -> tuple[Decision, int]:
    """The reference's decision on a packet (1-based) and its time; those before it build up the flows."""
    path = DataPath(
        bundle.feature_set, bundle.model, policy, enforce=enforce, hash_seed=seed_from(_SEED)
    )  # fmt: skip
    count = 0
    for count, captured in enumerate(read_ethernet(capture), 1):
        decision = path.process(captured.frame, captured.time_ns)
        if count == packet:
            return decision, captured.time_ns
    raise InputError(str(capture), f"has no packet {packet}, only {count}", f"choose one of 1 to {count}")


def describe(decision: Decision, bundle: Bundle, policy: Policy) -> dict[str, Any]:
    """A decision as JSON, with the paths through all trees when the model ran."""
    seen, class_id = decision.observation, decision.class_id
    features = list(seen.features or []) if seen and decision.inferred else []
    return {
        "status": decision.status.name.lower(),
        "flow": str(seen.key) if seen else None,
        "packets_of_flow": seen.packets if seen else 0,
        "refused": bool(seen and seen.refused),
        "inferred": decision.inferred,
        "features": features,
        "scores": decision.scores or [],
        **model_steps(bundle.model, features if decision.inferred else None),
        "class": None if class_id is None else bundle.classes[class_id],
        "rule": decision.allowed_by
        or decision.denied_by
        or (None if class_id is None else policy.rule(class_id)),
        "evidence": None if decision.evidence is None else str(decision.evidence),
        "action": None if decision.action is None else policy.actions[class_id or 0].keys,
        "outcome": None if decision.outcome is None else str(decision.outcome),
        "passed": decision.fate is Fate.PASS,
    }


def model_steps(model: Model, features: list[int] | None) -> dict[str, Any]:
    """Key `paths`: through all trees; or `activations`: of a network, its encoded input first, scores last.
    And `outside`: of a bounded model, the features that make the packet unknown.

    features: None if the model did not run.
    """
    if isinstance(model, Bounded):
        seen = [(bound, features[bound.feature]) for bound in model.bounds] if features else []
        return {
            **model_steps(model.model, features),
            "outside": [
                {"feature": bound.feature, "value": value, "low": bound.low, "high": bound.high}
                for bound, value in seen
                if not bound.low <= value <= bound.high
            ],
        }
    if isinstance(model, TreeEnsemble):
        return {"paths": tree_paths(model, features) if features is not None else []}
    return {"activations": model.activations(features) if features is not None else []}


def tree_paths(model: TreeEnsemble, features: list[int]) -> list[dict[str, Any]]:
    """The way through every tree: the tests, in order, and what the leaf adds."""
    paths = []
    for index, tree in enumerate(model.trees):
        nodes = tree.path(features)
        paths.append(
            {
                "tree": index,
                "output": tree.output,
                "tests": [
                    {
                        "feature": tree.feature[node],
                        "value": features[tree.feature[node]],
                        "threshold": tree.threshold[node],
                        "left": follow == tree.left[node],
                    }
                    for node, follow in pairwise(nodes)
                ],
                "leaf": list(tree.value[nodes[-1]]),
            }
        )
    return paths


def decisiveness(model: TreeEnsemble, path: dict[str, Any], class_id: int) -> float:
    """How much a tree spoke for the class: its vote, or its score above the mean of the other outputs'."""
    leaf, output = path["leaf"], path["output"]
    if model.votes == "majority":
        return float(leaf[0] == class_id)
    if model.n_outputs == 1:
        return float(leaf[0] if class_id else -leaf[0])
    if output is not None:
        return float(leaf[0]) if output == class_id else -leaf[0] / (model.n_outputs - 1)
    return float(leaf[class_id] - (sum(leaf) - leaf[class_id]) / (model.n_outputs - 1))


def ask_object(
    capture: Path, packet: int, bundle: Path, policy: Path | None, mode: str, plane: str | None
) -> tuple[dict[str, Any] | None, str]:
    """What `wirewised explain` says of the packet, in the reference's form; or None and why it cannot."""
    options: list[str | Path] = ["--policy", policy] if policy else []
    options += ["--plane", plane] if plane else []
    try:
        said = agent.call(
            "explain", capture, "--packet", str(packet), "--bundle", bundle, "--mode", mode,
            "--seed", str(_SEED), *options,
        )  # fmt: skip
    except MissingFeatureError as error:
        return None, str(error)
    said["features"] = [feature["raw"] for feature in said["features"]]
    return said, ""
