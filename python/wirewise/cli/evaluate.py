# SPDX-License-Identifier: Apache-2.0
"""`wirewise evaluate`: how good a bundle or a model is on a labelled table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.compile import print_agreement
from wirewise.cli.output import Json, note, print_json, step
from wirewise.cli.train import print_report

if TYPE_CHECKING:
    from wirewise.datasets import Table


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[Path, typer.Argument(help="Bundle, or a model as `compile` takes it.")],
    table: Annotated[Path, typer.Argument(help="Labelled table made by `wirewise features` (Parquet).")],
    as_json: Json = False,
) -> None:
    """Run the integer model over a table: accuracy, precision, recall and F1 of each class, confusion.

    With an estimator, its agreement with the integer model is shown as well. A neural network that is not
    integers yet is quantised with a part of the table and judged by the rest. Rows without a label are left
    out, and so are labels the model has no class for; both are counted.
    """
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import Report, matrix, numbers
    from wirewise.fidelity import agreement

    loaded = Table.read(table)
    ir, classes, names, imported, kept = _load(model, table, loaded, as_json)
    features = loaded.feature_set.feature_names
    if (names or features) != features or ir.n_features != len(features):
        raise InputError(
            str(table),
            f"its features are not those {model} reads",
            "make it with the model's feature set",
        )
    usable = (kept or loaded).labelled
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
        "to quantise with": len(loaded.labelled.frame) - len(usable.frame),
        "unlabelled": len(loaded.frame) - len(loaded.labelled.frame),
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


def _load(
    path: Path, table_path: Path, table: Table, quiet: bool
) -> tuple[Any, list[str], list[str] | None, Any, Table | None]:
    """Model, classes, feature names (None if unknown), the imported estimator (None if there is none), and
    the part of the table to judge a network by that was quantised with the rest (else None).
    """
    from wirewise import training_file
    from wirewise.bundle import Bundle
    from wirewise.cli.compile import read_model

    if path.suffix == ".wirewise":
        bundle = Bundle.read(path)
        return bundle.model, bundle.classes, bundle.feature_set.feature_names, None, None
    loaded, split = read_model(
        path, table=table, table_path=table_path, record=training_file.read(path), quiet=quiet
    )
    quantised = loaded.imported is not None and loaded.imported.network is not None
    kept = split.test if split and quantised else None
    return loaded.model, loaded.classes, loaded.feature_names, loaded.imported, kept
