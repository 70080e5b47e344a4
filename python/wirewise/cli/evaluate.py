# SPDX-License-Identifier: Apache-2.0
"""`wirewise evaluate`: how good bundles and models are, on a labelled table or on captures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirewise.cli import completing
from wirewise.cli.evaluation_text import print_comparison, print_evaluation
from wirewise.cli.judging import Asked, on_captures, on_table
from wirewise.cli.left_out import print_left_out
from wirewise.cli.options import Json, PlotOption, bundle_at
from wirewise.cli.outputs import OUTPUT
from wirewise.console import grid, print_json, step, warn

if TYPE_CHECKING:
    from wirewise.evaluate.evaluation import Evaluation
    from wirewise.evaluate.judging import Found

_CAPTURES = (".pcap", ".pcapng", ".cap", ".gz", ".zst", ".xz", ".bz2", ".lz4")


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|DATA",
            help="One bundle, ready model (@flood), or model as `compile` takes it, or several; then a "
            "labelled table made by `wirewise features`, or captures (files, folders), which a bundle's own "
            "program is run on.",
            autocompletion=completing.files(*completing.BUNDLES, ".parquet", ".pkl", *_CAPTURES),
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option("--labels", "-l", help="Of captures: what each packet is, as in `wirewise features`."),
    ] = None,
    otherwise: Annotated[
        str | None,
        typer.Option(help="With a list of flows: the label of packets that belong to none of them."),
    ] = None,
    kernel: Annotated[
        bool,
        typer.Option(
            "--kernel", help="Run captures in this kernel instead of the engine; nothing is attached."
        ),
    ] = False,
    at: Annotated[
        str | None,
        typer.Option(
            help="When a flow is judged: at packets (5,30,100), after a time (10s), at any packet (every). "
            "Of several, a verdict against it at any counts; shorter flows are judged at their last packet. "
            "Default: 5; with a late model also where that begins."
        ),
    ] = None,
    all_rows: Annotated[
        bool,
        typer.Option("--all-rows", help="Use the rows that the model learned from as well."),
    ] = False,
    trained_on: Annotated[
        Path | None,
        typer.Option(
            help="The table the models were trained on: its flows are left out, and what was never seen is "
            "known."
        ),
    ] = None,
    applications: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a manifest.json that names the application of each benign capture. Labels such "
            "as benign/web name it too."
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also run the bundles' programs in this kernel, for ns/packet.")
    ] = False,
    min_recall: Annotated[
        float,
        typer.Option(
            help="Share of a family's flows that must be found for its class to be dropped, at the lower end "
            "of what other sources would give."
        ),
    ] = 0.5,
    max_benign_loss: Annotated[
        str,
        typer.Option(
            help="Share of benign flows that may lose a packet; three times that of one application, or on "
            "other captures."
        ),
    ] = "1%",
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a page (.html) that says whether to enforce, why, and what nobody has seen; and the "
            "same as .json beside it."
        ),
        OUTPUT,
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Write a policy that drops the classes that may be dropped, and counts the rest."),
        OUTPUT,
    ] = None,
    evasion: Annotated[
        bool,
        typer.Option(
            "--evasion",
            help="Of captures: also search for the least change (padding, pace, splitting, extra packets) at "
            "which attacks that are found are found no more.",
        ),
    ] = False,
    evasion_flows: Annotated[
        int, typer.Option(min=1, help="With --evasion: flows of each family that are changed, at most.")
    ] = 20,
    plot: PlotOption = None,
    as_json: Json = False,
) -> None:
    """Say which classes a model may drop, by what it does to packets and flows it has not seen.

    Of the table it was trained on, only the captures or flows that training kept apart are used.

    A table is judged by the integer model, and with an estimator its agreement with the integers is shown. A
    neural network in floating point is quantised with one part of the table and judged by the rest. Captures
    are judged by the program of the bundle itself. Rows without a label, or with one that is none of the
    model's classes, are left out and counted.
    """
    from wirewise.datasets import CaptureFolder, Table, Truth, find_captures
    from wirewise.errors import InputError
    from wirewise.evaluate.moments import At
    from wirewise.evaluate.verdict import Limits
    from wirewise.files import write_atomically
    from wirewise.plots import check_plot
    from wirewise.units import parse_share

    moment = At.parse(at) if at else None
    if plot:
        check_plot(plot)
    if report and report.suffix.lower() != ".html":
        raise InputError(str(report), "must end in .html", "it is a page")
    loss = parse_share(max_benign_loss, what="--max-benign-loss")
    asked = Asked(
        moment,
        Limits(min_recall, loss, min(1.0, 3 * loss)),
        all_rows,
        trained_on,
        CaptureFolder.read(applications) if applications else None,
        evasion_flows if evasion else 0,
        quiet=as_json,
    )
    models, data = _apart(inputs)
    models = [bundle_at(path) for path in models]
    if policy and len(models) > 1:
        raise InputError(str(policy), "is the policy of one model", "evaluate one model at a time")
    if _is_table(data[0]) or not _is_capture(data[0]):
        if len(data) > 1:
            raise InputError(str(data[1]), "stands behind the table", "evaluate one table at a time")
        if kernel or labels or evasion:
            option = "--kernel" if kernel else "--labels" if labels else "--evasion"
            raise InputError(option, "is for captures", "leave it out, or give captures instead of a table")
        table = Table.read(data[0])
        found = [on_table(path, data[0], table, asked) for path in models]
    else:
        captures, own_labels, left_out = find_captures(data)
        print_left_out(left_out)
        if not (labels or own_labels):
            raise InputError("the captures", "have no labels", "say what each packet is: --labels FILE")
        truth = Truth(labels or own_labels or Path(), otherwise)
        found = [on_captures(path, captures, truth, asked, kernel=kernel) for path in models]
    evaluations = _priced(found, measure, as_json)
    _write(evaluations, found, report, plot, as_json)
    if policy:
        write_atomically(policy, evaluations[0].policy.encode())
    if as_json:
        said = [one.to_dict() for one in evaluations]
        print_json(said[0] if len(said) == 1 else {"models": said})
        return
    for one in evaluations:
        prefix = f"{one.about.model}: " if len(evaluations) > 1 else ""
        warn(*(f"{prefix}{text}" for text in one.warnings))
    if len(evaluations) == 1:
        print_evaluation(evaluations[0])
    else:
        print_comparison(evaluations)
    if policy:
        grid([("written", policy)])
    if report:
        grid([("written", f"{report}, and {report.with_suffix('.json').name} beside it")])


def _apart(inputs: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Models and data: what is a table or a capture, else the last one, which then is to be a table."""
    from wirewise.errors import InputError

    data = [_is_table(path) or _is_capture(path) for path in inputs]
    if not any(data):
        data[-1] = True
    first = data.index(True)
    if not first:
        raise InputError(str(inputs[0]), "no model was given", "write `wirewise evaluate MODEL TABLE`")
    if not all(data[first:]):
        stray = inputs[first + data[first:].index(False)]
        raise InputError(
            str(stray), "stands behind the data", "name the models first, then a table or captures"
        )
    return list(inputs[:first]), list(inputs[first:])


def _is_table(path: Path) -> bool:
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _is_capture(path: Path) -> bool:
    return path.is_dir() or path.suffix in _CAPTURES


def _priced(found: Sequence[Found], measure: bool, quiet: bool) -> list[Evaluation]:
    """With what the programs cost, all measured in the same rounds."""
    from wirewise.errors import InputError
    from wirewise.evaluate.program_cost import program_costs

    bundles = [one.subject.bundle for one in found if one.subject.bundle]
    if measure and not bundles:
        raise InputError("--measure", "is for bundles, which hold programs", "compile the model")
    with step("measuring", quiet=quiet or not measure):
        costs = iter(program_costs(bundles, measure=measure))
    names = _names([one.evaluation.about.model for one in found])
    return [
        replace(
            one.evaluation,
            about=replace(one.evaluation.about, model=name),
            cost=next(costs) if one.subject.bundle else None,
        )
        for one, name in zip(found, names, strict=True)
    ]


def _names(names: Sequence[str]) -> list[str]:
    """Different names for models of the same one: model.pkl, model.pkl (2)."""
    counts = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, counts, strict=True)]


def _write(
    evaluations: Sequence[Evaluation],
    found: Sequence[Found],
    report: Path | None,
    plot: Path | None,
    quiet: bool,
) -> None:
    from wirewise.files import write_atomically
    from wirewise.plots import write_plot
    from wirewise.report import comparison_chart, page

    if report:
        said = [one.to_dict() for one in evaluations]
        document = said[0] if len(said) == 1 else {"models": said}
        text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
        shown = page(evaluations)
        write_atomically(report.with_suffix(".json"), text.encode())
        write_atomically(report, shown.encode())
    if plot:
        with step("plotting", quiet=quiet):
            first = found[0]
            about = evaluations[0].about
            side_by_side = comparison_chart(evaluations)
            things = [*([side_by_side] if side_by_side else []), *evaluations]
            write_plot(plot, f"{about.model} on {about.data}", *things, first.leans)
