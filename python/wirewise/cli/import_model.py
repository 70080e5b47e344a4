# SPDX-License-Identifier: Apache-2.0
"""`wirewise import`: an estimator's file to an integer model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirewise.cli.output import Json, console, grid, listing, note, print_json, step


def register(app: typer.Typer) -> None:
    app.command("import")(import_)


def import_(
    model: Annotated[Path | None, typer.Argument(help="Saved estimator; --formats lists the kinds.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Model file (JSON) to write.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names in order, comma-separated, instead of the model's own.")
    ] = None,
    majority: Annotated[
        bool, typer.Option("--majority", help="Let a forest's trees vote, instead of adding class fractions.")
    ] = False,
    formats: Annotated[bool, typer.Option("--formats", help="List what can be imported.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a trained estimator into an integer model that takes the same path in every tree.

    `compile` does this by itself; import alone shows what a model comes to, and keeps the result without the
    library that made it.

    A pickle (.pkl, .joblib) runs whatever code it holds when it is loaded: import only files from people you
    trust, or save with skops.
    """
    from wirewise import model_file
    from wirewise.errors import InputError
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
    with step(f"importing {model}"):
        loaded = model_file.read(
            model,
            classes=classes.split(",") if classes else None,
            votes="majority" if majority else None,
        )
    if loaded.imported is None:
        raise InputError(str(model), "is an imported model already", "compile it, or inspect it as it is")
    if output:
        model_file.write(loaded.imported, output)
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
            }
        )
        return
    console.print(loaded.model.describe(), markup=False)
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
    if not output:
        note("nothing was written; give -o model.json to keep it")
