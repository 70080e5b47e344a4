# SPDX-License-Identifier: Apache-2.0
"""`wirewise search`: the best model on captures it has not seen, within what it may cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.options import Json, TableArgument
from wirewise.cli.outputs import OUTPUT
from wirewise.cli.train import print_report, print_split, write_estimator
from wirewise.console import console, grid, listing, note, print_json, progress_console, warn

if TYPE_CHECKING:
    from wirewise.tuning import Found
    from wirewise.tuning.run import Progress, Trial
    from wirewise.tuning.trial import Score


def register(app: typer.Typer) -> None:
    app.command("search")(search)


def search(
    table: TableArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Best model to write, such as model.pkl."), OUTPUT
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            "-e",
            help="tree, forest, extra-trees, boosting or mlp; repeatable. Default: all but mlp.",
        ),
    ] = None,
    depth: Annotated[str, typer.Option(help="Range of the depth of trees.")] = "3-16",
    trees: Annotated[
        str, typer.Option(help="Range of the number of trees, or of boosting's rounds.")
    ] = "3-40",
    leaf: Annotated[str, typer.Option(help="Range of the least rows of a leaf.")] = "1-200",
    hidden: Annotated[
        list[str] | None,
        typer.Option(help="Neurons of a network's hidden layers, such as 16,16; repeatable."),
    ] = None,
    benign_weight: Annotated[
        str, typer.Option(help="How much heavier benign rows may weigh; `balanced`: all classes the same.")
    ] = "1,3,10,balanced",
    features: Annotated[
        str | None,
        typer.Option(
            help="Numbers of features to try, such as 12,6: those most worth their cost. "
            "Default: all, two thirds, half and a third."
        ),
    ] = None,
    packet: Annotated[str, typer.Option(help="Packets of a flow at which to decide, such as 3,5,8.")] = "5",
    learn: Annotated[
        str, typer.Option(help="Learn from every packet, or from a flow's first ones up to that packet.")
    ] = "every,first",
    max_instructions: Annotated[
        int | None, typer.Option(min=1, help="Most instructions of the whole program.")
    ] = None,
    max_ns: Annotated[
        float | None, typer.Option(min=0, help="Most ns a packet, measured in this kernel (root).")
    ] = None,
    max_benign_loss: Annotated[
        str,
        typer.Option(
            help="Share of benign flows that may lose a packet: models are compared at the threshold that "
            "keeps to it. `none`: the largest score wins."
        ),
    ] = "1%",
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure ns a packet of every model in this kernel (root).")
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Models to try.")] = 24,
    method: Annotated[
        str,
        typer.Option(
            help="halving (all on some folds, the better half on more), random, or optuna (wirewise[search])."
        ),
    ] = "halving",
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    group: Annotated[
        str | None, typer.Option(help="What no two folds share: capture, or flow. Default: as for `train`.")
    ] = None,
    test_share: Annotated[
        float, typer.Option(help="Share of each class's captures that the search never sees.")
    ] = 0.3,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same model.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes. Default: one a CPU.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster to work on (auto: this machine's; wirewise[ray])."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="File of finished trials; a search that was stopped goes on with it."),
        OUTPUT,
    ] = None,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="On Ctrl-C, write the best model so far.")
    ] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="Train the best again with all rows, and write that model.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Plot F1 against cost to a .html, .svg, .png or .pdf."),
        OUTPUT,
    ] = None,
    as_json: Json = False,
) -> None:
    """Search for the model with the best F1 on captures it has not seen, within what it may cost.

    Models are cross-validated over captures, attack against benign flows at the packet that decides, and
    priced by the program that they compile to. A part of the captures is never touched by the search; the
    report is about the best model on those (with --refit, which then learns from them too, about the one
    before). `compile` takes what is written as it takes a model of `train`.
    """
    from wirewise.datasets import Table
    from wirewise.errors import InputError, UnfinishedError
    from wirewise.formats.training_file import file_digest
    from wirewise.plots import check_plot, write_plot
    from wirewise.tuning import Limits, Space
    from wirewise.tuning import search as find
    from wirewise.tuning.run import Stopped
    from wirewise.units import parse_share

    if output is not None and output.suffix not in (".pkl", ".pickle"):
        raise InputError(str(output), "must end in .pkl", "estimators are written with pickle")
    if plot:
        check_plot(plot)
    space = Space(
        estimators=tuple(dict.fromkeys(estimator)) if estimator else Space.estimators,
        depth=_range(depth, "--depth"),
        trees=_range(trees, "--trees"),
        leaf=_range(leaf, "--leaf"),
        hidden=tuple(_numbers(each, "--hidden") for each in hidden) if hidden else Space.hidden,
        benign=tuple(benign_weight.split(",")),
        features=_numbers(features, "--features") if features else (),
        packets=_numbers(packet, "--packet"),
        learn=tuple(learn.split(",")),
    )
    wish = None if max_benign_loss == "none" else parse_share(max_benign_loss, what="--max-benign-loss")
    loaded = Table.read(table)
    try:
        with jobs_bar(f"{trials} trials", quiet=as_json) as progress:
            found = find(
                loaded, space, trials=trials, method=method, folds=folds,
                limits=Limits(max_instructions, max_ns, wish), measure=measure, group=group,
                test_share=test_share, seed=seed, jobs=jobs, ray=ray, journal=journal,
                digest=file_digest(table), keep_best=keep_best, refit=refit, progress=progress,
            )  # fmt: skip
    except Stopped as stopped:
        resume = f"the same command goes on with {journal}" if journal else "--journal FILE lets it go on"
        if stopped.best is None or output is None:
            why = (
                "nothing was written" if output is None or not keep_best else "no model was fit to be written"
            )
            raise UnfinishedError(f"interrupted after {stopped.done:,} jobs; {why}; {resume}") from None
        _write(stopped.best, table, output)
        raise UnfinishedError(
            f"interrupted after {stopped.done:,} jobs; the best model so far is in {output}; {resume}"
        ) from None
    if output:
        _write(found, table, output)
    if plot:
        write_plot(plot, f"search on {table.name}", found)
    if as_json:
        print_json({**found.to_dict(), "output": output and str(output)})
        return
    _print(found, loaded)
    if output:
        bundle = str(output.with_suffix(".wirewise"))
        loss = ["--max-benign-loss", str(max_benign_loss)] if wish is not None else []
        # A model that has learned from the whole table has its margins in its record.
        of = ["--table", str(table)] if not refit else []
        grid(
            [
                ("written", f"{output}, with the record of its search"),
                (
                    "next",
                    shlex.join(["wirewise", "compile", str(output), *of, *loss, "-o", bundle]),
                ),
            ]
        )
    else:
        note("nothing was written; give -o model.pkl to keep the model")


def _write(found: Found, table: Path, output: Path) -> None:
    training = found.training
    write_estimator(training, training.table, training.facts, table, output)


@contextmanager
def jobs_bar(what: str, *, quiet: bool) -> Iterator[Progress]:
    """Jobs done, and the best so far: a bar on a terminal, elsewhere a line for each new best."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if quiet:
        yield lambda done, total, best: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=progress_console, transient=True, disable=not progress_console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        shown: list[int] = []

        def show(done: int, total: int, best: Trial | None) -> None:
            text = f"{what}, best {best.number}: even F1 {best.f1:.4f}" if best else what
            bar.update(task, completed=done, total=total, description=text)
            if best and best.number not in shown[-1:] and not progress_console.is_terminal:
                shown.append(best.number)
                note(f"job {done:,} of {total:,}: {text} ({best.settings.describe()})")

        yield show


def _print(found: Found, table: Any) -> None:
    print_split(found.training, table)
    judged = sum(not trial.rejected_because for trial in found.trials)
    console.print(f"{len(found.trials):,} models tried, {judged:,} of them on every fold")
    if len(set(found.asked["order"])) > 1 and len({t.settings.features for t in found.trials}) > 1:
        console.print(f"features, the most worth their cost first: {', '.join(found.asked['order'])}")
    timed = any(trial.ns is not None for trial in found.pareto)
    listing(
        ("trial", "even F1", "of a fold", "F1", "losing %", "elsewhere %", "instructions",
         *(["ns"] if timed else []),
         "features", "packet", "model"),
        (
            (
                trial.number, *_scores(trial.score), f"{trial.instructions:,}",
                *([f"{trial.ns:.1f}" if trial.ns is not None else "-"] if timed else []),
                trial.settings.features, trial.settings.packet, trial.settings.describe(),
            )
            for trial in found.pareto
        ),
        title="Nothing tried is both better and cheaper: by flow, cross-validated",
        right=range(9 + timed),
    )  # fmt: skip
    console.print()
    score = found.apart
    console.print(
        f"the best on captures the search never saw, by flow: even F1 {score.even_f1:.4f} (cross-validated "
        f"{found.best.f1:.4f}), F1 {score.f1:.4f}, precision {score.precision:.4f}, recall "
        f"{score.recall:.4f}, "
        f"{100 * score.flagged:.2f} % of benign flows flagged, {100 * score.losing:.2f} % lose a packet"
    )
    print_report(found.training.report, found.training.classes)
    warn(*found.training.doubts)


def _scores(score: Score | None) -> tuple[str, ...]:
    assert score is not None
    shares = (f"{100 * share:.2f}" for share in (score.losing, score.elsewhere))
    spread = f"{score.spread[0]:.2f} to {score.spread[1]:.2f}"
    return f"{score.even_f1:.4f}", spread, f"{score.f1:.4f}", *shares


def _range(text: str, option: str) -> tuple[int, int]:
    from wirewise.errors import InputError

    least, dash, most = text.partition("-")
    try:
        return int(least), int(most if dash else least)
    except ValueError:
        raise InputError(f"{option} {text}", "is no range", "write 3-16, or one number") from None


def _numbers(text: str, option: str) -> tuple[int, ...]:
    from wirewise.errors import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}", "is no list of numbers", "write them as 3,5,8") from None
