# SPDX-License-Identifier: Apache-2.0
"""`wirewise demo`: the whole way, on this machine, in two namespaces of its own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from wirewise.cli import completing
from wirewise.cli.options import Json
from wirewise.console import console, grid, listing, note, print_json


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Attach this in place of a forest that is trained here: a ready model (@flood), or the file "
            "of a bundle.",
            autocompletion=completing.bundles,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the bundle, the policy and report.json.")
    ] = Path("build/demo"),
    captures: Annotated[
        Path | None,
        typer.Option("--captures", help="Train on captures and send them: a folder with a manifest.json."),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            help="With --captures: `time` trains on the start of each, `files` holds some back for the test."
        ),
    ] = "time",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated packets.")] = 1,
    packets: Annotated[
        int, typer.Option(min=1000, help="About how many packets to generate and send.")
    ] = 480_000,
    duration: Annotated[
        float | None,
        typer.Option(
            min=1, max=600, help="Seconds to send them in. Default: 12; captures: 10,000 packets/s."
        ),
    ] = None,
    no_watch: Annotated[
        bool, typer.Option("--no-watch", help="No live view while packets are sent.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Send the attack again and again, and serve a page on this machine that shows it."
        ),
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=1440, help="With --page: for how long, unless Ctrl-C ends it.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Train a forest on packets, attach it to an interface, send an attack through it, and report.

    With `--model @flood` nothing is trained: the ready model drops the attack instead.

    Nothing outside two network namespaces of its own is touched, and they are removed at the end; only a BPF
    file system stays, where none was mounted. Needs root, for the namespaces.
    """
    from wirewise.demo import Options, run, show_page
    from wirewise.errors import InputError, choose

    if split not in ("time", "files"):
        raise InputError(f"--split {split}", "is not known", choose(split, ["time", "files"]))
    options = Options(
        model=model,
        output=output,
        captures=captures,
        split="time" if split == "time" else "files",
        seed=seed,
        duration_s=duration,
        packets=packets,
        watch=not (no_watch or as_json),
        quiet=as_json,
        page_minutes=minutes,
    )
    if page:
        if as_json:
            raise InputError("--page --json", "has no report to print", "leave out one of them")
        show_page(options)
        return
    report = run(options)
    if as_json:
        print_json(report)
        return
    print_report(report)
    look = shlex.join(["wirewise", "inspect", str(report["bundle"])])
    note(f"written: {output / 'report.json'}; look at the model with `{look}`")


def print_report(report: dict[str, Any]) -> None:
    """The table of kinds, the totals, and what was missed."""
    listing(
        ("traffic", "class", "sent", "passed", "dropped", "dropped %"),
        (
            (
                row["kind"],
                row["label"],
                f"{row['sent']:,}",
                f"{row['passed']:,}",
                f"{row['dropped']:,}",
                f"{100 * row['dropped_ratio']:.2f}",
            )
            for row in report["kinds"]
        ),
        title=f"Sent through {report['name']}, {report['plane']}",
        right=(2, 3, 4, 5),
    )
    facts = [
        ("attack dropped", f"{100 * report['attack_dropped_ratio']:.2f} %"),
        ("benign passed", f"{100 * report['benign_passed_ratio']:.2f} %"),
        (
            "benign connections",
            f"{100 * report['benign_connection_attempts_passed_ratio']:.2f} % of "
            f"{report['benign_connection_attempts']:,} first SYNs passed{_taken_for(report)}",
        ),
        ("in the kernel", f"{report['kernel_ns_per_packet']:.0f} ns/packet"),
        ("sent", f"{report['packets']:,} packets at {report['packets_per_second']:,.0f} packets/s"),
    ]
    if report["lost_before_program"]:
        facts.append(
            ("lost on the way", f"{report['lost_before_program']:,} packets, counted against the model")
        )
    if "ready" in report:
        facts.append(_beside(report["ready"]))
    console.print()
    grid(facts)
    if report["missed"]:
        grid(
            (
                (
                    miss["kind"],
                    f"{miss['passed']:,} packets ({100 * miss['passed_ratio']:.1f} %) passed; {miss['why']}",
                )
                for miss in report["missed"]
            ),
            title="Missed",
        )
    if "cannot_see" in report:
        note(f"{report['name']} cannot see: {report['cannot_see']}")
    for text in report["left_out"]:
        note(text)


def _taken_for(report: dict[str, Any]) -> str:
    taken = report["benign_connection_attempts_taken_for"]
    return f"; others taken for {', '.join(taken)}" if taken else ""


def _beside(ready: dict[str, Any]) -> tuple[str, str]:
    """A line on what a ready model does with the same packets."""
    attack, benign, connections = (
        f"{100 * ready[key]:.2f} %"
        for key in (
            "attack_dropped_ratio",
            "benign_passed_ratio",
            "benign_connection_attempts_passed_ratio",
        )
    )
    return (
        f"{ready['name']} instead",
        f"{attack} of the attack dropped, {benign} of benign packets and {connections} of first SYNs passed; "
        f"attach it with --model {ready['name']}",
    )
