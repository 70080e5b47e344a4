# SPDX-License-Identifier: Apache-2.0
"""`wirewise compile`: a model and its feature set to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli import completing
from wirewise.cli.emit import print_sources, write_sources
from wirewise.cli.options import (
    BenignOption,
    CalibrationOption,
    FeatureSetOption,
    FineTuneOption,
    ForceOption,
    Json,
    NetworkOption,
    TargetOption,
)
from wirewise.cli.outputs import OUTPUT_OR_FOLDER
from wirewise.cli.reading import (
    import_options,
    is_quantised,
    name_doubts,
    print_fidelity,
    read_model,
    reading,
)
from wirewise.cli.target_options import TargetCommand, find_target
from wirewise.console import console, grid, note, print_json, step, warn
from wirewise.names import MAX
from wirewise.text import harmless

if TYPE_CHECKING:
    from wirewise.compiler import Compiled
    from wirewise.evaluate.held_out import Parts
    from wirewise.evaluate.open_set import OpenSet
    from wirewise.evaluate.operating_point import OperatingPoint
    from wirewise.formats.model_file import LoadedModel


def register(app: typer.Typer) -> None:
    app.command("compile", cls=TargetCommand)(compile_)


def compile_(
    context: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(
            help="Saved estimator, model file of `wirewise import`, or ready model (@flood).",
            autocompletion=completing.models,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Bundle to write, such as model.wirewise; for a target without programs, a folder.",
        ),
        OUTPUT_OR_FOLDER,
    ],
    feature_set: FeatureSetOption = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            "-t",
            help="Table to compare model and estimator on, to quantise a network with, and to compare live "
            "flows with later (`wirewised stats --drift`); says the feature set too.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. Default: the output's.")] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Class names in the order of the model's numbers, comma-separated, instead of its own.",
            autocompletion=completing.classes_of_running,
        ),
    ] = None,
    benign: BenignOption = None,
    majority: Annotated[
        bool,
        typer.Option("--majority", help="Let a forest's trees vote instead of adding class fractions."),
    ] = False,
    network: NetworkOption = None,
    calibration: CalibrationOption = None,
    fine_tune: FineTuneOption = None,
    keep_state_of: Annotated[
        Path | None,
        typer.Option(
            "--keep-state-of",
            help="The bundle that runs: keep all the flow state that it keeps, so that `wirewised swap` lets "
            "every flow go on though this model reads fewer features.",
            autocompletion=completing.bundles,
        ),
    ] = None,
    max_benign_loss: Annotated[
        str | None,
        typer.Option(
            help="Share of benign flows that may lose a packet, such as 0.1%: an attack's score must be so "
            "far ahead, by the captures of --table that training kept apart. A ready model has one by itself."
        ),
    ] = None,
    after: Annotated[
        str,
        typer.Option(
            help="With --max-benign-loss: verdicts in a row that a flow will need (`after` in the policy), 1 "
            "to 15; best: of 1, 2 and 3 the number with which most attacks are seen."
        ),
    ] = "1",
    unknown: Annotated[
        bool,
        typer.Option(
            "--unknown",
            help="Add the class `unknown`, which passes: packets with a feature outside what training saw.",
        ),
    ] = False,
    target: TargetOption = "ebpf",
    force: ForceOption = False,
    as_json: Json = False,
) -> None:
    """Compile a model and the code that extracts its features to one eBPF object in a bundle.

    Another --target may generate sources in a folder instead.

    Where privileges allow (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON), the kernel's verifier is asked; nothing is
    attached. With a table, the integer model is compared with the estimator. A neural network is quantised
    with a part of the table and compared on the rest.
    """
    from wirewise import compiler, ready
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import matrix, numbers
    from wirewise.evaluate.fidelity import HeldOut, measure
    from wirewise.feature_sets import FeatureSet
    from wirewise.files import check_folder, check_place
    from wirewise.formats import training_file
    from wirewise.formats.bundle import Bundle
    from wirewise.importers.benign import order_note
    from wirewise.targets import ProgramTarget
    from wirewise.targets.ebpf import dear_features

    maker, options = find_target(context, target)
    chosen = ready.find(model)
    if chosen:
        model = chosen.file
        if max_benign_loss is None and chosen.wish is not None:
            max_benign_loss = str(chosen.wish)
    if isinstance(maker, ProgramTarget):
        check_place(output)
    else:
        check_folder(output)
    rows = reading(model, Table.read(table)) if table else None
    record = chosen.record() if chosen else training_file.read(model)
    if feature_set:
        features = FeatureSet.load(feature_set)
    elif said := rows or record:
        features = said.feature_set
    else:
        raise InputError(
            str(model),
            "holds no training record, which `wirewise train` adds, so the features it reads are not known",
            "give --table TABLE (the one it was trained on) or --feature-set NAME_OR_FILE",
        )
    if rows and rows.feature_set.feature_names != features.feature_names:
        raise InputError(
            str(table),
            f"its features are not those of feature set {features.name!r}",
            "leave out --feature-set",
        )
    loaded, split = read_model(
        model,
        table=rows,
        table_path=table,
        record=record,
        options=import_options(
            model,
            record,
            classes,
            majority,
            network,
            calibration,
            fine_tune,
            benign=benign,
            margin=max_benign_loss is not None,
        ),
        quiet=as_json,
    )
    point = None
    if max_benign_loss is not None:
        point = _operating_point(loaded, split, record.training if record else {}, max_benign_loss, after)
    open_set = _open_set(loaded, split) if unknown else None
    compared = held_out = None
    warnings: list[str] = []
    if rows and split:
        judged, known = split.judged(is_quantised(loaded))
        compared = matrix(judged if is_quantised(loaded) else rows.classified)
        held_out = HeldOut(matrix(judged), numbers(judged, loaded.classes), known)
        warnings = name_doubts(loaded, split)
        if not as_json:
            warn(*warnings)
    if not as_json:
        console.print(loaded.model.describe())
        if loaded.imported and (order := order_note(loaded.classes, loaded.imported.first)):
            note(order)
    given = loaded.imported or loaded.model
    running = Bundle.read(keep_state_of) if keep_state_of else None
    if not isinstance(maker, ProgramTarget):
        if point:
            given = point.set(loaded.model)
        sources = compiler.emit(
            given,
            features,
            target=target,
            classes=loaded.classes,
            open_set=open_set,
            keep_state_of=running,
            **options,
        )
        write_sources(sources, output, force=force)
        fidelity = None
        if loaded.imported and compared is not None:
            fidelity = measure(loaded.imported, compared, held_out, features.feature_names)
        if as_json:
            files = sorted(sources.files)
            print_json(
                {
                    "target": target,
                    "output": str(output),
                    "files": files,
                    "fidelity": fidelity,
                    "warnings": warnings,
                }
            )
        else:
            print_sources(sources, output)
            _print_fidelity(fidelity, loaded, table)
        return
    compiled = compiler.compile(
        given,
        features,
        name=name or harmless(output.stem, keep="")[:MAX],
        classes=loaded.classes,
        rows=compared,
        held_out=held_out,
        operating_point=point,
        open_set=open_set,
        learned=split.learned(is_quantised(loaded)) if split else None,
        reference=None if open_set else loaded.reference,
        training=record.training if record else None,
        accuracy=record.accuracy if record else None,
        target=target,
        keep_state_of=running,
        predicted=None if as_json else lambda sources: grid(sources.about()),
        step=lambda text: step(text, quiet=as_json),
        **options,
    )
    compiled.bundle.write(output)
    manifest = compiled.bundle.manifest
    dear = dear_features(features, manifest.model.used_features or ())
    warnings += dear
    if as_json:
        print_json(
            {
                "bundle": str(output),
                "name": manifest.name,
                "classes": manifest.classes,
                "model": manifest.model.model_dump(),
                "program": manifest.program.model_dump(),
                "unverified": compiled.unverified,
                "fidelity": manifest.fidelity,
                "warnings": warnings,
            }
        )
        return
    _print(compiled, output)
    warn(*dear)
    _print_fidelity(manifest.fidelity, loaded, table)


def _operating_point(
    loaded: LoadedModel, split: Parts | None, training: dict[str, Any], wish: str, after: str
) -> OperatingPoint:
    """The margin that keeps the loss of benign flows to the wish, by what its training recorded, or else by a
    table.
    """
    from wirewise.errors import InputError
    from wirewise.evaluate import out_of_fold
    from wirewise.evaluate.operating_point import choose_from
    from wirewise.units import parse_share

    share = parse_share(wish, what="--max-benign-loss")
    if after != "best" and not after.isdecimal():
        raise InputError(f"--after {after}", "is no number of verdicts", "write 1 to 15, or best")
    in_a_row = None if after == "best" else int(after)
    if point := out_of_fold.chosen(training, loaded.model, split, share, in_a_row):
        return point
    if split is None:
        raise InputError("--max-benign-loss", "needs flows to measure it by", "add --table TABLE")
    return choose_from(
        loaded.model, loaded.classes, split, share, quantised=is_quantised(loaded), after=in_a_row
    )


def _open_set(loaded: LoadedModel, split: Parts | None) -> OpenSet:
    """What training saw of the features."""
    from wirewise.errors import InputError
    from wirewise.evaluate.open_set import choose_from
    from wirewise.models import Bounded

    if split is None:
        raise InputError("--unknown", "needs the rows that training saw", "add --table TABLE")
    if isinstance(loaded.model, Bounded):
        raise InputError("--unknown", "the model has that class already", "leave the option out")
    return choose_from(loaded.model, loaded.classes, split, quantised=is_quantised(loaded))


def _print(compiled: Compiled, output: Path) -> None:
    program = compiled.bundle.manifest.program
    verifier = program.verifier
    grid(
        [
            (
                "compiled",
                f"{program.instructions:,} instructions, {program.object_bytes / 1024:.1f} KiB, "
                f"clang {program.clang}",
            ),
            (
                "verifier",
                f"accepted by Linux {verifier['kernel']}: {verifier['verified_instructions']:,} instructions "
                f"verified, loaded in {verifier['load_ms']:.0f} ms"
                if verifier
                else f"not asked: {compiled.unverified}",
            ),
            *(
                [("reference", f"{sum(reference.flows):,} flows, for `wirewised stats --drift`")]
                if (reference := compiled.bundle.manifest.reference)
                else []
            ),
            ("written", f"{output} ({output.stat().st_size / 1024:.1f} KiB)"),
        ]
    )


def _print_fidelity(fidelity: dict[str, Any] | None, loaded: LoadedModel, table: Path | None) -> None:
    if fidelity:
        print_fidelity(fidelity)
    elif table and not loaded.imported:
        note("the model is an imported one, so there is no estimator to compare it with")
    elif loaded.imported:
        note("give --table TABLE to compare the integer model with the estimator on your data")
