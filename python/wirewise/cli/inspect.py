# SPDX-License-Identifier: Apache-2.0
"""`wirewise inspect`: what is in a bundle, readably."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from wirewise.cli.options import BundleArgument, Json
from wirewise.cli.outputs import OUTPUT
from wirewise.cli.reading import print_fidelity
from wirewise.console import console, grid, heading, listing, name_and_summary, print_json


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    bundle: BundleArgument,
    card: Annotated[bool, typer.Option("--card", help="Print the model card (Markdown) instead.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Generate sources, manifest and card again, and compare them.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write all of it to a page that needs no other file."),
        OUTPUT,
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also run it in this kernel, to say where a packet's time goes."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a bundle: features, flow table and its memory, model, program, what the verifier said, accuracy.

    Every digest in the bundle is checked first; a damaged bundle is refused.
    """
    from wirewise import stages
    from wirewise.files import write_atomically
    from wirewise.formats.bundle import Bundle
    from wirewise.html import heading as headline
    from wirewise.rebuild import compare
    from wirewise.report import beside
    from wirewise.text import harmless

    loaded = Bundle.read(bundle)
    if rebuild:
        compare(str(bundle), loaded)
    cost = stages.cost(loaded, measure=True) if measure else None
    if html:
        more = (headline(f"Where time goes in {loaded.manifest.name}"), cost.to_html()) if cost else ()
        write_atomically(html, loaded.to_html(*more).encode())
        if not as_json:
            grid([("written", html)])
            return
    if card:
        print(harmless(loaded.card), end="")
        return
    model = loaded.model.details() | {"reads": list(loaded.model.reads)}
    report = beside.find(bundle, loaded.manifest.model.digest)
    memory = flow_table_memory(loaded)
    if as_json:
        manifest = loaded.manifest.model_dump(mode="json")
        print_json(
            manifest
            | {"model_detail": model, "memory": memory, "sources": sorted(loaded.sources)}
            | {"signed_by": loaded.signed_by}
            | {"cost": cost and asdict(cost), "html": html and str(html)}
            | {"report": report and {"page": str(report[0]), "decision": report[1]}}
        )
        return
    _print(loaded, model, memory)
    _print_report(bundle, report)
    if cost:
        rows = [(stage.name, cost.amount(stage)) for stage in cost.stages]
        grid([*rows, ("measured", cost.measured)], title="Where time goes")
    if rebuild:
        console.print()
        console.print(
            "the sources are what wirewise writes for this model and feature set, as are manifest and card",
            style="green",
        )
        command = shlex.join(["wirewised", "verify", "--bundle", str(bundle), "--rebuild"])
        console.print(f"whether the program is what they compile to: {command}")


_OF = {"shared": "shared by all CPUs", "per-cpu": "for each CPU"}


def _entry(table: Any) -> str:
    """What an entry of a table takes, for each IP version."""
    from wirewise.targets.ebpf import cache_lines

    sizes = [(size, cache_lines(size)) for size in (table.entry4_size, table.entry6_size)]
    (ipv4, ipv6) = (f"{size} bytes, {lines} cache line{'s' * (lines > 1)}" for size, lines in sizes)
    return f"{ipv4}, for IPv4; {ipv6}, for IPv6"


def flow_table_memory(bundle: Any) -> dict[str, int]:
    """Bytes of the flow tables, all CPUs' or, if these do not share them, each CPU's: they are allocated when
    the bundle is loaded, and never grow.
    """
    flow = bundle.manifest.flow
    ipv4, ipv6 = flow.table_size * flow.entry4_size, flow.table_size * flow.entry6_size
    return {"ipv4_bytes": ipv4, "ipv6_bytes": ipv6, "bytes": ipv4 + ipv6}


def _print(bundle: Any, model: dict[str, Any], memory: dict[str, int]) -> None:
    from wirewise.units import format_duration

    manifest = bundle.manifest
    flow, program = manifest.flow, manifest.program
    name_and_summary(manifest.name, manifest.model.summary)
    grid(
        [
            ("classes", ", ".join(f"{i} {name}" for i, name in enumerate(manifest.classes))),
            ("made", f"{manifest.created} by {manifest.made_by}, clang {program.clang}"),
            ("from", manifest.model.source or "a model in memory"),
            ("signed", _signed(bundle)),
        ]
    )
    most = max(1, *model["reads"])
    listing(
        ("", "feature", "is", "unit", "range", "read by", ""),
        (
            (
                index,
                f.name,
                f.spec,
                f.unit + (f" / 2^{f.fraction_bits}" if f.fraction_bits else ""),
                f"{_short(f.minimum >> f.fraction_bits)} to {_short(f.maximum >> f.fraction_bits)}",
                f"{reads:,}" if reads else "none",
                "▇" * round(10 * reads / most),
            )
            for index, (f, reads) in enumerate(zip(manifest.features, model["reads"], strict=True))
        ),
        title="Features",
        right=(0, 5),
    )
    grid(
        [
            ("key", flow.key),
            ("forgotten", f"after {format_duration(flow.idle_timeout_ns)} without a packet"),
            ("protected", f"for {format_duration(flow.grace_ns)}, from {flow.proven_packets} packets on"),
            ("entries", f"{flow.table_size:,} for each IP version, {_OF[flow.sharing]}"),
            ("memory", f"{_size(memory['bytes'])}, {_OF[flow.sharing]}"),
            ("entry", _entry(flow)),
            *((f"by {of.by}", f"{of.table_size:,} entries; {_entry(of)}") for of in flow.aggregates),
            ("state", ", ".join(f"{s.name} ({s.type} at {s.offset})" for s in flow.state) or "none"),
            ("clock", flow.clock),
        ],
        title="Flow table",
    )
    sizes = _facts({key: value for key, value in model.items() if key != "reads"})
    grid([*sizes, *(("note", text) for text in manifest.model.notes)], title="Model")
    grid(
        [
            ("shape", f"{program.shape}: {program.why}"),
            ("tail calls", ", ".join(program.tail_calls) or "none"),
            ("size", f"{program.instructions:,} instructions, {_size(program.object_bytes)}"),
            *(_facts(program.verifier, "verifier") or [("verifier", "not asked when this was compiled")]),
        ],
        title="Program",
    )
    for title, facts in (
        ("Training", manifest.training),
        ("Accuracy", manifest.accuracy),
    ):
        if facts:
            heading(title)
            grid(_facts(facts))
    if manifest.fidelity:
        heading("What integers lost")
        print_fidelity(manifest.fidelity)


def _print_report(path: Path, report: tuple[Path, str] | None) -> None:
    """Where it says whether the model may enforce, or how to have it said."""
    if report:
        said = f"{report[0]}: {report[1]}"
    else:
        command = shlex.join(["wirewise", "evaluate", str(path), "TABLE", "--report"])
        said = f"none yet; write one: {command} {shlex.quote(str(path.with_suffix('.html')))}"
    grid([("report", said)], title="Whether it may enforce")


def _signed(bundle: Any) -> str:
    if bundle.signed_by is None:
        return "by nobody, so its maker is unknown"
    return f"key {bundle.signed_by[:32]}; `wirewised verify` checks it"


def _facts(facts: dict[str, Any] | None, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts, one line each."""
    lines = []
    for key, value in (facts or {}).items():
        label = f"{prefix} {key}".strip().replace("_", " ")
        if isinstance(value, dict):
            lines += _facts(value, label)
        elif isinstance(value, float):
            lines.append((label, f"{value:.6g}"))
        elif isinstance(value, list):
            if not value or isinstance(value[0], dict):  # details are for --json
                continue
            shown = ", ".join(map(str, value[:12]))
            lines.append((label, shown + (", ..." if len(value) > 12 else "")))
        else:
            lines.append((label, f"{value:,}" if type(value) is int else str(value)))
    return lines


def _short(value: int) -> str:
    return f"{value:,}" if abs(value) < 10**7 else f"{value:.2e}"


def _size(count: int) -> str:
    if count < 1 << 10:
        return f"{count} bytes"
    return f"{count / (1 << 10):.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
