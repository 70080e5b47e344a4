# SPDX-License-Identifier: Apache-2.0
"""`wirewise evaluate`: how good a bundle or a model is on a labelled table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wirewise.cli.compile import print_agreement
from wirewise.cli.output import Json, note, print_json, step
from wirewise.cli.train import print_report


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[Path, typer.Argument(help="Bundle, or a model as `compile` takes it.")],
    table: Annotated[Path, typer.Argument(help="Labelled table made by `wirewise features` (Parquet).")],
    as_json: Json = False,
) -> None:
    """Run the integer model over a table: accuracy, precision, recall and F1 of each class, confusion.

    With an estimator, its agreement with the integer model is shown as well. Rows without a label are left
    out, and so are labels the model has no class for; both are counted.
    """
    from wirewise.compiler import agreement
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import Report, matrix, numbers

    loaded = Table.read(table)
    ir, classes, names, imported = _load(model)
    features = loaded.feature_set.feature_names
    if (names or features) != features or ir.n_features != len(features):
        raise InputError(
            str(table),
            f"its features are not those {model} reads",
            "make it with the model's feature set",
        )
    usable = loaded.labelled
    truth = numbers(usable, classes)
    known = truth >= 0
    rows, truth = matrix(usable)[known], truth[known]
    if not len(rows):
        raise InputError(
            str(table), f"no packet has a label of the model's classes ({', '.join(classes)})", "label it"
        )
    with step("running the model", quiet=as_json):
        report = Report.of(truth, ir.predict(rows)[0].astype("int64"), classes)
        fidelity = agreement(imported, rows) if imported else None
    left_out = {
        "unlabelled": len(loaded.frame) - len(usable.frame),
        "of other classes": int((~known).sum()),
    }
    if as_json:
        print_json({"classes": classes, **report.to_dict(), "left_out": left_out, "fidelity": fidelity})
        return
    print_report(report, classes)
    if fidelity:
        print_agreement(fidelity)
    for what, count in left_out.items():
        if count:
            note(f"{count:,} packets {what} were left out")


def _load(path: Path) -> tuple[Any, list[str], list[str] | None, Any]:
    """Model, classes, feature names (None if unknown) and the imported estimator (None for a bundle)."""
    from wirewise import model_file
    from wirewise.bundle import Bundle

    if path.suffix == ".wirewise":
        bundle = Bundle.read(path)
        return bundle.model, bundle.classes, bundle.feature_set.feature_names, None
    loaded = model_file.read(path)
    return loaded.model, loaded.classes, loaded.feature_names, loaded.imported
