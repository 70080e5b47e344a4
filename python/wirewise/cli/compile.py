# SPDX-License-Identifier: Apache-2.0
"""`wirewise compile`: a model and its feature set to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.output import (
    CalibrationOption,
    FeatureSetOption,
    FineTuneOption,
    Json,
    NetworkOption,
    console,
    grid,
    listing,
    note,
    print_json,
    step,
)

if TYPE_CHECKING:
    from wirewise.datasets import Table
    from wirewise.evaluate.held_out import Parts
    from wirewise.model_file import LoadedModel
    from wirewise.training_file import TrainingRecord


def register(app: typer.Typer) -> None:
    app.command("compile")(compile_)


def compile_(
    model: Annotated[Path, typer.Argument(help="Saved estimator, or a model file of `wirewise import`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Bundle to write, such as model.wirewise.")],
    feature_set: FeatureSetOption = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            "-t",
            help="Table to compare model and estimator on, and to quantise a network with; says the feature "
            "set too.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. Default: the output's.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names in order, comma-separated, instead of the model's own.")
    ] = None,
    majority: Annotated[
        bool, typer.Option("--majority", help="Let a forest's trees vote, instead of adding class fractions.")
    ] = False,
    network: NetworkOption = None,
    calibration: CalibrationOption = None,
    fine_tune: FineTuneOption = None,
    shape: Annotated[
        str,
        typer.Option(
            help="How the model becomes code: inline, functions, tail-calls, or auto (the cheapest)."
        ),
    ] = "auto",
    clang: Annotated[str | None, typer.Option(help="Compiler to use. Default: the newest installed.")] = None,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Insist on (or skip) the kernel's verifier. Default: ask it where privileges allow.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a model, with the extractor of its features, to one eBPF object in a bundle.

    The size is predicted first. Where privileges allow (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON), the kernel's
    verifier is asked; nothing is attached. With a table, the integer model is compared with the estimator.
    A neural network is quantised with a part of the table and compared on the rest.
    """
    from wirewise import compiler, training_file
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import matrix, numbers
    from wirewise.features import FeatureSet
    from wirewise.fidelity import HeldOut

    rows = Table.read(table) if table else None
    record = training_file.read(model)
    if feature_set:
        features = FeatureSet.load(feature_set)
    elif said := rows or record:
        features = said.feature_set
    else:
        raise InputError(
            str(model),
            "which features it reads is not said",
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
        classes=classes,
        majority=majority,
        network=network,
        calibration=calibration,
        fine_tune=fine_tune,
        quiet=as_json,
    )
    compared = held_out = None
    if rows and split:
        is_network = loaded.imported is not None and loaded.imported.network is not None
        compared = matrix(split.test if is_network else _classified(rows))
        held_out = HeldOut(matrix(split.test), numbers(split.test, loaded.classes), split.how)
    if not as_json:
        console.print(loaded.model.describe())
    compiled = compiler.compile(
        loaded.imported or loaded.model,
        features,
        name=name or output.stem,
        classes=loaded.classes,
        rows=compared,
        held_out=held_out,
        shape=shape,
        clang=clang,
        training=record.training if record else None,
        accuracy=record.accuracy if record else None,
        verify="if-possible" if verify is None else "always" if verify else "never",
        predicted=None if as_json else _print_prediction,
        step=lambda text: step(text, quiet=as_json),
    )
    compiled.bundle.write(output)
    manifest = compiled.bundle.manifest
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
            }
        )
        return
    _print(compiled, output, has_table=table is not None, has_estimator=loaded.imported is not None)


def read_model(
    model: Path,
    *,
    table: Table | None,
    table_path: Path | None,
    record: TrainingRecord | None,
    classes: str | None = None,
    majority: bool = False,
    network: str | None = None,
    calibration: str | None = None,
    fine_tune: bool | None = None,
    quiet: bool,
) -> tuple[LoadedModel, Parts | None]:
    """The model of a file, quantised with a part of the table if it is a network, and the table's split.

    A network becomes what --network says, else what it was trained to become.
    """
    from wirewise import model_file
    from wirewise.evaluate import matrix
    from wirewise.evaluate.held_out import parts
    from wirewise.quantize import Options
    from wirewise.training_file import file_digest

    training = record.training if record else {}
    asked = {
        "network": network or training.get("network"),
        "calibration": calibration,
        "fine_tune": fine_tune,
    }
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    split = parts(table, training, file_digest(table_path)) if table and table_path else None
    with step(f"importing {model}", quiet=quiet):
        loaded = model_file.read(
            model,
            classes=classes.split(",") if classes else None,
            votes="majority" if majority else None,
            rows=matrix(split.learn) if split else None,
            labels=split.learn.frame["label"].to_list() if split else None,
            options=Options(**given) if given else None,
        )
    return loaded, split


def _classified(table: Table) -> Table:
    import polars as pl

    from wirewise.datasets import Table
    from wirewise.features.packet import Status

    return Table(table.frame.filter(pl.col("status") == Status.CLASSIFIED), table.feature_set)


def _print_prediction(sources: Any) -> None:
    predicted = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in sources.predicted.items())
    grid([("shape", f"{sources.shape} ({sources.why})"), ("predicted", predicted)])


def _print(compiled: Any, output: Path, *, has_table: bool, has_estimator: bool) -> None:
    manifest = compiled.bundle.manifest
    program, fidelity = manifest.program, manifest.fidelity
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
            ("written", f"{output} ({output.stat().st_size / 1024:.1f} KiB)"),
        ]
    )
    if fidelity:
        if "held_out" in fidelity or "saturation" in fidelity:
            print_fidelity(fidelity)
        print_agreement(fidelity)
    elif has_table and not has_estimator:
        note("the model was imported before, so there is no estimator to compare with")
    elif has_estimator:
        note("give --table TABLE to compare the integer model with the estimator on your data")


def print_fidelity(fidelity: dict[str, Any]) -> None:
    """What `wirewise.fidelity.measure` found: how good estimator and integers are, where ranges end."""
    from wirewise.fidelity import class_table, summary

    grid(summary(fidelity))
    if "held_out" in fidelity:
        listing(*class_table(fidelity), right=range(1, 8))


def print_agreement(fidelity: dict[str, Any]) -> None:
    """How far the integer model and the estimator agree; the first rows that differ."""
    rows, agree = fidelity["rows"], fidelity["agree"]
    if agree == rows:
        console.print(f"agreement: all {rows:,} rows get the class the estimator gives them", style="green")
        return
    console.print(
        f"agreement: {agree:,} of {rows:,} rows; {rows - agree:,} differ, the first:", style="yellow"
    )
    for difference in fidelity["differences"]:
        ours, theirs = difference["model"], difference["estimator"]
        where = f"row {difference['row']}, features {difference['features']}"
        console.print(f"  {ours}, the estimator says {theirs}: {where}")
