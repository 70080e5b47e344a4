# SPDX-License-Identifier: Apache-2.0
"""`wirewise explain`: why one packet of a capture got its verdict, from the reference and from the object."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.output import (
    BundleOption,
    Json,
    PolicyOption,
    console,
    grid,
    listing,
    note,
    print_json,
    step,
)

if TYPE_CHECKING:
    from wirewise.bundle import Bundle
    from wirewise.datapath import Decision
    from wirewise.models import Model, TreeEnsemble
    from wirewise.policy import Policy

_SEED = 0  # of both flow tables' hashes, so that they replace the same entries
_COMPARED = (
    "status", "packets_of_flow", "inferred", "features", "scores", "class", "action", "outcome", "passed",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    capture: Annotated[Path, typer.Argument(help="pcap or pcapng file of Ethernet packets.")],
    packet: Annotated[
        int, typer.Option("--packet", "-n", min=1, help="Number of the packet; 1 is the first.")
    ],
    bundle: BundleOption,
    policy: PolicyOption = None,
    mode: Annotated[str, typer.Option(help="observe or enforce.")] = "observe",
    trees: Annotated[int, typer.Option(min=0, help="Trees whose path is shown; JSON has all.")] = 3,
    plane: Annotated[
        str | None,
        typer.Option(
            help="Where the object runs: kernel or engine. Default: the kernel if we may, else the engine."
        ),
    ] = None,
    reference_only: Annotated[bool, typer.Option("--reference-only", help="Do not run the object.")] = False,
    as_json: Json = False,
) -> None:
    """Show headers, features, what the model makes of them, class, policy rule and action of one packet.

    The capture is run up to that packet through the Python reference and through the bundle's object, in this
    machine's kernel or in user space; both are compared. Nothing is attached.
    """
    from wirewise.bundle import Bundle
    from wirewise.errors import InputError
    from wirewise.policy import Policy

    if mode not in ("observe", "enforce"):
        raise InputError(f"mode {mode!r}", "is not known", "give observe or enforce")
    if plane not in (None, "kernel", "engine"):
        raise InputError(f"plane {plane!r}", "is not known", "give kernel or engine")
    loaded = Bundle.read(bundle)
    rules = Policy.load(policy, loaded.classes) if policy else Policy.all_pass(loaded.classes)
    with step(f"running {packet:,} packets through the reference", quiet=as_json):
        decision, time_ns = decide(loaded, rules, capture, packet, enforce=mode == "enforce")
    ours = describe(decision, loaded, rules)
    theirs, why_not = None, "--reference-only"
    if not reference_only:
        with step("running the object", quiet=as_json):
            theirs, why_not = ask_object(capture, packet, bundle, policy, mode, plane)
    differences = [key for key in _COMPARED if theirs is not None and ours[key] != theirs[key]]
    if as_json:
        print_json(
            {
                "capture": str(capture), "packet": packet, "time_ns": time_ns, "mode": mode,
                "reference": ours, "object": theirs, "object_not_asked": why_not,
                "agree": None if theirs is None else not differences, "differences": differences,
            }
        )  # fmt: skip
        return
    _print(decision, ours, loaded, packet, mode, trees)
    if theirs is None:
        note(f"the object was not asked: {why_not}")
    elif not differences:
        console.print(
            f"\nthe object in the {theirs['plane']} and the reference agree on all of this", style="green"
        )
    else:
        listing(
            ("", "reference", "object"),
            ((key, ours[key], theirs[key]) for key in differences),
            title=f"The object in the {theirs['plane']} differs",
        )
        raise typer.Exit(1)


def decide(
    bundle: Bundle, policy: Policy, capture: Path, packet: int, *, enforce: bool
) -> tuple[Decision, int]:
    """The reference's decision on a packet (1-based) and its time; those before it build up the flows."""
    from wirewise.datapath import DataPath
    from wirewise.datasets import read_ethernet
    from wirewise.errors import InputError
    from wirewise.features.flow import seed_from

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
        "rule": decision.allowed_by or (None if class_id is None else policy.rule(class_id)),
        "action": None if decision.action is None else str(decision.action),
        "outcome": None if decision.outcome is None else str(decision.outcome),
        "passed": not decision.drops,
    }


def model_steps(model: Model, features: list[int] | None) -> dict[str, Any]:
    """Key `paths`: through all trees; or `activations`: of a network, its encoded input first, scores last.

    features: None if the model did not run.
    """
    from wirewise.models import TreeEnsemble

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
    from wirewise import agent
    from wirewise.errors import MissingFeatureError

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


def _print(
    decision: Decision, said: dict[str, Any], bundle: Bundle, number: int, mode: str, trees: int
) -> None:
    from wirewise.features.packet import Status
    from wirewise.models import Network

    console.print(f"packet {number:,}", style="bold")
    if decision.packet is None:
        fate = "passes" if said["passed"] else "is dropped, as the policy says of malformed packets"
        console.print(f"{said['status']}: no flow, no class; the packet {fate}")
        return
    grid(_headers(decision.packet), title="Headers")
    if decision.allowed_by:
        console.print(f"\npasses before anything is computed: allow list, {decision.allowed_by}")
        return
    state = f"packet {said['packets_of_flow']:,} of its flow"
    grid(
        [("flow", said["flow"]), ("state", state + (", no table entry" if said["refused"] else ""))],
        title="Flow",
    )
    if decision.inferred:
        _print_features(said, bundle)
        scores = ", ".join(map(str, said["scores"]))
        grid([("scores", scores), ("model", bundle.model.describe())], title="Model")
        if "paths" in said:
            assert not isinstance(bundle.model, Network)
            _print_paths(decision, said, bundle.model, bundle.feature_set.feature_names, trees)
        else:
            for index, values in enumerate(said["activations"][:-1]):
                name = f"layer {index}" if index else "input"
                console.print(f"{name}: {', '.join(map(str, values))}")
    elif decision.status is Status.UNDECIDED:
        console.print("\nno verdict yet: the trigger has not fired for this flow; the packet passes")
        return
    else:
        console.print("\nthe trigger did not fire: the verdict of an earlier packet of the flow holds")
    grid(
        [
            ("class", said["class"]),
            ("policy", said["rule"]),
            ("action", f"{said['action']}, mode {mode}"),
            ("outcome", f"{said['outcome']}: the packet {'passes' if said['passed'] else 'is dropped'}"),
        ],
        title="Verdict",
    )


def _headers(packet: Any) -> list[tuple[str, str]]:
    from ipaddress import ip_address

    from wirewise.features.packet import Packet

    assert isinstance(packet, Packet)
    shown = (
        "protocol", "length", "payload_length", "ttl", "tos", "vlan_id", "fragment", "tcp_flags",
        "tcp_window", "icmp_type", "icmp_code", "teid",
    )  # fmt: skip
    source, destination = ip_address(packet.source), ip_address(packet.destination)
    return [
        (f"IPv{packet.ip_version}", f"{source} port {packet.source_port}"),
        ("", f"to {destination} port {packet.destination_port}"),
        *((name, f"{getattr(packet, name)}") for name in shown if getattr(packet, name)),
    ]


def _print_features(said: dict[str, Any], bundle: Bundle) -> None:
    rows = []
    for feature, raw in zip(bundle.manifest.features, said["features"], strict=True):
        value = raw / (1 << feature.fraction_bits)
        shown = f"{value:,.0f}" if value == int(value) else f"{value:,.4f}"
        rows.append((feature.name, feature.spec, shown, feature.unit, raw if feature.fraction_bits else ""))
    listing(("feature", "is", "value", "unit", "integer"), rows, title="Features", right=(2, 4))


def _print_paths(
    decision: Decision, said: dict[str, Any], model: TreeEnsemble, names: list[str], trees: int
) -> None:
    class_id = decision.class_id
    assert class_id is not None
    by_weight = sorted(said["paths"], key=lambda path: -decisiveness(model, path, class_id))
    for path in by_weight[:trees]:
        console.print(f"tree {path['tree']}: leaf {path['leaf']}", style="dim")
        for test in path["tests"]:
            sign = "<=" if test["left"] else ">"
            console.print(f"  {names[test['feature']]} = {test['value']} {sign} {test['threshold']}")
    if len(by_weight) > trees:
        note(f"the {trees} trees that spoke most for the class, of {len(by_weight)}; more with --trees")
