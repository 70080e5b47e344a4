# SPDX-License-Identifier: Apache-2.0
"""`wirewise importance`: what each feature says, and what it costs in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirewise.cli.options import Json, TableArgument
from wirewise.cli.outputs import OUTPUT
from wirewise.cli.search import jobs_bar
from wirewise.console import grid, listing, note, print_json

if TYPE_CHECKING:
    from wirewise.tuning.elimination import Step, Worths


def register(app: typer.Typer) -> None:
    app.command("importance")(importance)


def importance(
    table: TableArgument,
    eliminate: Annotated[
        bool,
        typer.Option("--eliminate", help="Leave out features one by one, the least worth their cost first."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Feature set to write, such as features.yaml; with --eliminate."),
        OUTPUT,
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Points of F1 that a cheaper feature set may lose.")
    ] = 0.5,
    packet: Annotated[int, typer.Option(min=1, max=1023, help="Packet of a flow at which it is judged.")] = 5,
    max_benign_loss: Annotated[
        str, typer.Option(help="Share of benign flows that may lose a packet, where F1 is compared.")
    ] = "1%",
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what features cost in ns a packet, too (root).")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same numbers.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes. Default: one a CPU.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to work on (wirewise[ray]).")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="File of what is finished; the same command goes on with it."), OUTPUT
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot it to a .html, .svg, .png or .pdf."), OUTPUT
    ] = None,
    as_json: Json = False,
) -> None:
    """What each feature says of captures that were not learned from, and what it costs in the kernel.

    A forest is cross-validated over captures; what it loses where the values of a feature are shuffled is the
    feature's importance (by packet). Beside it: how far the feature alone goes with the classes
    (chi-squared), and how many instructions it adds to a program with the other features.
    """
    from dataclasses import replace

    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.formats.training_file import file_digest
    from wirewise.plots import check_plot, write_plot
    from wirewise.tuning.elimination import features_worth
    from wirewise.tuning.ranking import ASKED
    from wirewise.units import parse_share

    if output and not eliminate:
        raise InputError(str(output), "is for the features that are left", "add --eliminate")
    if output and output.suffix not in (".yaml", ".yml"):
        raise InputError(str(output), "must end in .yaml", "feature sets are written in YAML")
    if plot:
        check_plot(plot)
    wish = None if max_benign_loss == "none" else parse_share(max_benign_loss, what="--max-benign-loss")
    loaded = Table.read(table)
    with jobs_bar("asking forests", quiet=as_json) as progress:
        found = features_worth(
            loaded, settings=replace(ASKED, packet=packet), eliminate=eliminate, benign_loss=wish,
            measure=measure, folds=folds, seed=seed, jobs=jobs, ray=ray, journal=journal,
            digest=file_digest(table), progress=progress,
        )  # fmt: skip
    chosen = found.chosen(tolerance / 100) if eliminate else None
    if output and chosen:
        _write(chosen, output)
    if plot:
        write_plot(plot, f"features of {table.name}", found)
    if as_json:
        kept = chosen and chosen.feature_set.feature_names
        print_json({**found.to_dict(), "chosen": kept, "output": output and str(output)})
        return
    _print(found, chosen)
    if output:
        grid([("written", output)])
    elif eliminate:
        note("nothing was written; give -o features.yaml to keep the feature set")


def _print(found: Worths, chosen: Step | None) -> None:
    timed = any(each.cost.ns is not None for each in found.features)
    listing(
        ("feature", "points lost", "chi-squared V", "instructions", *(["ns"] if timed else [])),
        (
            (
                each.name, f"{each.lost:.2f}", f"{found.chi_squared[each.name]:.3f}",
                f"{each.cost.instructions:,}", *([f"{each.cost.ns:.1f}"] if each.cost.ns is not None else []),
            )
            for each in found.features
        ),
        title="Features, the most worth their cost first",
        right=range(1, 4 + timed),
    )  # fmt: skip
    if not chosen:
        return
    listing(
        ("features", "even F1", "F1", "elsewhere %", "instructions", "then leaves out"),
        (
            (
                len(step.feature_set.features), f"{step.score.even_f1:.4f}", f"{step.score.f1:.4f}",
                f"{100 * step.score.elsewhere:.2f}", f"{step.instructions:,}", step.dropped,
            )
            for step in found.steps
        ),
        title="Elimination: by flow, over captures",
        right=range(5),
    )  # fmt: skip
    grid([("chosen", f"{len(chosen.feature_set.features)}: {', '.join(chosen.feature_set.feature_names)}")])


def _write(chosen: Step, output: Path) -> None:
    import yaml

    from wirewise.files import write_atomically

    text = yaml.safe_dump(chosen.feature_set.to_dict(), sort_keys=False, width=100)
    write_atomically(output, text.encode())
