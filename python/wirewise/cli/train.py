# SPDX-License-Identifier: Apache-2.0
"""`wirewise train`: a table to an estimator, with an honest report."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.output import (
    Json,
    NetworkOption,
    TableArgument,
    console,
    grid,
    listing,
    note,
    print_json,
    step,
)

if TYPE_CHECKING:
    from wirewise.datasets import Table
    from wirewise.evaluate import Report, Training


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    table: TableArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Estimator to write, such as model.pkl.")
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator",
            "--model",
            "-e",
            help="tree, forest, extra-trees, boosting or mlp (a neural network).",
        ),
    ] = "forest",
    trees: Annotated[int, typer.Option(help="How many trees; for boosting, rounds.")] = 10,
    depth: Annotated[int, typer.Option(help="Depth of each tree, at most.")] = 10,
    network: NetworkOption = None,
    hidden: Annotated[
        str | None,
        typer.Option(help="Neurons of a network's hidden layers. Default: 16,16 for int8, 32,32 for q16."),
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            help="CLASS=WEIGHT (repeat it), or `balanced`. A heavier benign stops fewer of its packets."
        ),
    ] = None,
    test_share: Annotated[float, typer.Option(help="Share of each class's flows to test on.")] = 0.3,
    seed: Annotated[int, typer.Option(help="Equal seeds and tables give equal models.")] = 0,
    as_json: Json = False,
) -> None:
    """Train trees or a neural network on a table and test them on flows they have not seen.

    No flow is on both sides of the split. The report is about the very model that is written. A network is
    trained in floating point; `compile` makes integers of it, of the kind that --network says here or there.
    """
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import train as fit
    from wirewise.evaluate.networks import HIDDEN
    from wirewise.quantize import Options

    if output is not None and output.suffix not in (".pkl", ".pickle"):
        raise InputError(str(output), "must end in .pkl", "estimators are written with pickle")
    is_network = estimator == "mlp"
    if not is_network and (network or hidden):
        raise InputError(f"estimator {estimator!r}", "is no network", "add --estimator mlp")
    kind = Options(network=network or "int8").network
    widths = _widths(hidden) if hidden else HIDDEN[kind]
    loaded = Table.read(table)
    with step(f"training on {len(loaded.frame):,} packets", quiet=as_json):
        training = fit(
            loaded,
            estimator,
            depth=depth,
            trees=trees,
            hidden=widths,
            class_weight=_weights(class_weight),
            test_share=test_share,
            seed=seed,
        )
    facts = {
        "estimator": estimator,
        **({"network": kind, "hidden": list(widths)} if is_network else {"trees": trees, "depth": depth}),
        "class_weight": class_weight or [],
        "seed": seed,
        "test_share": test_share,
        "split": "by flow",
        "packets": len(loaded.labelled.frame),
    }
    if output:
        write_estimator(training, loaded, facts, table, output)
    if as_json:
        print_json(
            {
                "training": facts,
                "classes": training.classes,
                "accuracy": training.report.to_dict(),
                "output": output and str(output),
            }
        )
        return
    print_report(training.report, training.classes)
    if output:
        grid([("written", output)])
    else:
        note("nothing was written; give -o model.pkl to keep the estimator")


def write_estimator(
    training: Training, table: Table, facts: dict[str, Any], table_path: Path, output: Path
) -> None:
    """Writes the estimator, and beside it how it was trained."""
    from wirewise import training_file
    from wirewise.evaluate.networks import set_names
    from wirewise.files import write_atomically

    # What it predicts and reads, by name: a pickle then needs nothing beside it to be understood.
    set_names(training.estimator, _names(training.classes), _names(table.feature_set.feature_names))
    write_atomically(output, pickle.dumps(training.estimator))
    facts = facts | {"table": str(table_path.name), "table_sha256": training_file.file_digest(table_path)}
    record = training_file.TrainingRecord(table.feature_set, facts, training.report.to_dict())
    training_file.write(output, record)


def _names(names: list[str]) -> Any:
    import numpy as np

    return np.array(names, dtype=object)


def _widths(given: str) -> tuple[int, ...]:
    from wirewise.errors import InputError

    try:
        return tuple(int(part) for part in given.split(","))
    except ValueError:
        raise InputError(f"hidden layers {given!r}", "are not numbers", "write 16,16") from None


def _weights(given: list[str] | None) -> str | dict[str, float] | None:
    from wirewise.errors import InputError

    if not given:
        return None
    if given == ["balanced"]:
        return "balanced"
    weights = {}
    for entry in given:
        name, _, value = entry.rpartition("=")
        try:
            weights[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"class weight {entry!r}", "is not CLASS=WEIGHT", "write benign=3, or balanced")
    return weights


def print_report(report: Report, classes: list[str]) -> None:
    """Per class numbers and the confusion matrix."""
    listing(
        ("class", "packets", "precision", "recall", "F1"),
        (
            (row.name, f"{row.packets:,}", f"{row.precision:.4f}", f"{row.recall:.4f}", f"{row.f1:.4f}")
            for row in report.classes
        ),
        right=(1, 2, 3, 4),
    )
    console.print(
        f"accuracy {report.accuracy:.4f} over {report.packets:,} packets, macro F1 {report.macro_f1:.4f}"
    )
    listing(
        ("is \\ said", *classes),
        (
            (name, *(f"{count:,}" if count else "." for count in row))
            for name, row in zip(classes, report.confusion, strict=True)
        ),
        title="Confusion",
        right=range(1, len(classes) + 1),
    )
