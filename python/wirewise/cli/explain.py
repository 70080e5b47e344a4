# SPDX-License-Identifier: Apache-2.0
"""`wirewise explain`: why one packet of a capture got its verdict, from the reference and from the object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.options import BundleOption, Json, PolicyOption
from wirewise.console import console, grid, listing, note, print_json, step

if TYPE_CHECKING:
    from wirewise.datapath import Decision
    from wirewise.formats.bundle import Bundle
    from wirewise.models import TreeEnsemble


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    capture: Annotated[Path, typer.Argument(help="pcap or pcapng file of Ethernet packets.")],
    packet: Annotated[
        int, typer.Option("--packet", "-n", min=1, help="Number of the packet; 1 is the first.")
    ],
    bundle: BundleOption,
    policy: PolicyOption = None,
    mode: Annotated[str, typer.Option(help="Whether drops happen: observe or enforce.")] = "observe",
    trees: Annotated[int, typer.Option(min=0, help="How many trees to show; JSON has all.")] = 3,
    plane: Annotated[
        str | None,
        typer.Option(
            help="Where the object runs: kernel or engine. Default: the kernel if permitted, else the engine."
        ),
    ] = None,
    reference_only: Annotated[bool, typer.Option("--reference-only", help="Do not run the object.")] = False,
    as_json: Json = False,
) -> None:
    """Show why one packet gets its verdict: headers, features, model, class, policy rule and action.

    The capture is run up to that packet through the Python reference and through the bundle's object, in this
    machine's kernel or in user space; both are compared. Nothing is attached.
    """
    from wirewise.explanation import explain as ask

    with step(f"running {packet:,} packets through reference and object", quiet=as_json):
        found = ask(capture, packet, bundle, policy, mode=mode, plane=plane, reference_only=reference_only)
    if as_json:
        print_json(found.to_dict())
        return
    ours, theirs = found.reference, found.object
    _print(found.decision, ours, found.bundle, packet, mode, trees)
    if theirs is None:
        note(f"the object was not asked: {found.object_not_asked}")
    elif not found.differences:
        console.print()
        console.print(
            f"the object in the {theirs['plane']} and the reference agree on all of this", style="green"
        )
    else:
        listing(
            ("", "reference", "object"),
            ((key, ours[key], theirs[key]) for key in found.differences),
            title=f"The object in the {theirs['plane']} differs",
        )
        raise typer.Exit(1)


def _print(
    decision: Decision, said: dict[str, Any], bundle: Bundle, number: int, mode: str, trees: int
) -> None:
    from wirewise.abi import Status
    from wirewise.models import Bounded, TreeEnsemble

    console.print(f"packet {number:,}", style="bold")
    if decision.packet is None:
        why = ", as the policy says of malformed packets" if decision.drops else ""
        console.print(f"{said['status']}: no flow, no class; the packet {decision.fate.value}{why}")
        return
    grid(_headers(decision.packet), title="Headers")
    if decision.allowed_by:
        console.print()
        console.print(f"passes before anything is computed: allow list, {decision.allowed_by}")
        return
    if decision.denied_by:
        console.print()
        why = "" if decision.status is Status.BANNED else "deny list, "
        console.print(f"{decision.fate.value} before anything is computed: {why}{decision.denied_by}")
        return
    state = f"packet {said['packets_of_flow']:,} of its flow"
    grid(
        [("flow", said["flow"]), ("state", state + (", no table entry" if said["refused"] else ""))],
        title="Flow",
    )
    if decision.inferred:
        _print_features(said, bundle)
        scores = ", ".join(f"{score:,}" for score in said["scores"])
        grid([("scores", scores), ("model", bundle.model.describe())], title="Model")
        inside = bundle.model.model if isinstance(bundle.model, Bounded) else bundle.model
        for outside in said.get("outside", []):
            name = bundle.feature_set.feature_names[outside["feature"]]
            saw = f"{outside['low']:,} to {outside['high']:,}"
            console.print(f"unknown: {name} = {outside['value']:,}, training saw {saw}")
        if "paths" in said:
            assert isinstance(inside, TreeEnsemble)
            class_id, _ = inside.predict_one(said["features"])
            _print_paths(class_id, said, inside, bundle, trees)
        else:
            for index, values in enumerate(said["activations"][:-1]):
                name = f"layer {index}" if index else "input"
                console.print(f"{name}: {', '.join(f'{value:,}' for value in values)}")
    elif decision.status is Status.UNDECIDED:
        console.print()
        console.print("no verdict yet: the trigger has not fired for this flow; the packet passes")
        return
    else:
        console.print()
        console.print("the trigger did not fire, so the verdict of an earlier packet of its flow holds")
    grid(
        [
            ("class", said["class"]),
            ("policy", said["rule"]),
            ("evidence", said["evidence"]),
            ("action", f"{said['action']}, mode {mode}"),
            ("outcome", f"{said['outcome']}: the packet {decision.fate.value}"),
        ],
        title="Verdict",
    )


def _headers(packet: Any) -> list[tuple[str, str]]:
    from wirewise.feature_sets.packet import Packet
    from wirewise.text import address_text

    assert isinstance(packet, Packet)
    shown = (
        "protocol", "length", "payload_length", "ttl", "tos", "vlan_id", "fragment", "tcp_flags",
        "tcp_window", "icmp_type", "icmp_code", "teid",
    )  # fmt: skip
    source, destination = address_text(packet.source), address_text(packet.destination)
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
        compared = f"{raw:,}" if feature.fraction_bits else ""
        rows.append((feature.name, feature.spec, shown, feature.unit, compared))
    listing(("feature", "is", "value", "unit", "as compared"), rows, title="Features", right=(2, 4))


def _print_paths(
    class_id: int, said: dict[str, Any], model: TreeEnsemble, bundle: Bundle, trees: int
) -> None:
    from wirewise.explanation import decisiveness

    names = bundle.feature_set.feature_names
    by_weight = sorted(said["paths"], key=lambda path: -decisiveness(model, path, class_id))
    for path in by_weight[:trees]:
        console.print(f"tree {path['tree']}: {speaks_for(model, path, bundle.classes)}", style="dim")
        for test in path["tests"]:
            sign = "<=" if test["left"] else ">"
            console.print(f"  {names[test['feature']]} = {test['value']:,} {sign} {test['threshold']:,}")
    if len(by_weight) > trees:
        note(
            f"shown: the {trees} of {len(by_weight)} trees that did most to decide for "
            f"{bundle.classes[class_id]}; --trees shows more"
        )


def speaks_for(model: TreeEnsemble, path: dict[str, Any], classes: list[str]) -> str:
    """What the leaf at the end of a tree's path says: a vote for a class, or scores."""
    leaf, output = path["leaf"], path["output"]
    scores = ", ".join(f"{score:,}" for score in leaf)
    if model.votes == "majority":
        return f"votes for {classes[leaf[0]]}"
    if model.n_outputs == 1:
        return f"speaks for {classes[leaf[0] > 0]}, score {scores}"
    if output is not None:
        return f"speaks {'against' if leaf[0] < 0 else 'for'} {classes[output]}, score {scores}"
    return f"speaks for {classes[leaf.index(max(leaf))]}, scores {scores}"
