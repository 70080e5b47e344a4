# SPDX-License-Identifier: Apache-2.0
"""`wirewise import`: an estimator's file to an integer model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirewise.cli.options import BenignOption, CalibrationOption, FineTuneOption, Json, NetworkOption
from wirewise.cli.outputs import OUTPUT
from wirewise.console import console, grid, listing, note, print_json, warn


def register(app: typer.Typer) -> None:
    app.command("import")(import_)


def import_(
    model: Annotated[Path | None, typer.Argument(help="Saved estimator; --formats lists the kinds.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Model file (JSON) to write."), OUTPUT
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Class names in the order of the model's numbers, comma-separated, instead of its own."
        ),
    ] = None,
    benign: BenignOption = None,
    majority: Annotated[
        bool,
        typer.Option("--majority", help="Let a forest's trees vote instead of adding class fractions."),
    ] = False,
    table: Annotated[
        Path | None, typer.Option("--table", "-t", help="Table to quantise a neural network with.")
    ] = None,
    network: NetworkOption = None,
    calibration: CalibrationOption = None,
    fine_tune: FineTuneOption = None,
    formats: Annotated[bool, typer.Option("--formats", help="List what can be imported.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a trained estimator into integers: trees take the same paths, networks are quantised.

    A network needs a table, whose rows show how large its numbers get; some flows are set aside to measure
    what is lost. `compile` does all this by itself. Use `import` to see what becomes of a model, or to keep
    the result so that the library that made it is no longer needed.

    A pickle (.pkl, .joblib) runs whatever code it contains when it is loaded: import only files from people
    you trust, or save with skops.
    """
    from wirewise.cli.reading import import_options, is_quantised, name_doubts, print_fidelity, read_model
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import matrix, numbers
    from wirewise.evaluate.fidelity import HeldOut, measure
    from wirewise.formats import model_file, training_file
    from wirewise.importers import supported

    if formats:
        head = ("library", "estimator or file", "test", "scores", "limits")
        if as_json:
            print_json([dict(zip(head, row, strict=True)) for row in supported()])
        else:
            listing(head, supported())
        return
    if model is None:
        raise InputError("no model was given", way_out="name the file of a saved estimator, or see --formats")
    record = training_file.read(model)
    loaded, split = read_model(
        model,
        table=Table.read(table) if table else None,
        table_path=table,
        record=record,
        options=import_options(
            model, record, classes, majority, network, calibration, fine_tune, benign=benign
        ),
        quiet=as_json,
    )
    if loaded.imported is None:
        raise InputError(str(model), "is an imported model already", "compile it, or inspect it as it is")
    fidelity = None
    warnings: list[str] = []
    if split:
        judged, known = split.judged(is_quantised(loaded))
        rows = matrix(judged)
        held_out = HeldOut(rows, numbers(judged, loaded.classes), known)
        fidelity = measure(loaded.imported, rows, held_out, judged.feature_set.feature_names)
        warnings = name_doubts(loaded, split)
        if not as_json:
            warn(*warnings)
    if output:
        model_file.write(loaded.imported, output, record)
    if as_json:
        print_json(
            {
                "model": str(model),
                "output": output and str(output),
                "summary": loaded.model.describe(),
                "digest": loaded.model.digest,
                "classes": loaded.classes,
                "feature_names": loaded.feature_names,
                "source": loaded.source,
                "notes": loaded.notes,
                "fidelity": fidelity,
                "warnings": warnings,
            }
        )
        return
    console.print(loaded.model.describe())
    grid(
        [
            ("from", loaded.source),
            ("classes", ", ".join(loaded.classes)),
            (
                "features",
                ", ".join(loaded.feature_names) if loaded.feature_names else "not named in the model",
            ),
            *(("note", text) for text in loaded.notes),
            *([("written", output)] if output else []),
        ]
    )
    if fidelity:
        print_fidelity(fidelity)
    if not output:
        note("nothing was written; give -o model.json to keep it")
