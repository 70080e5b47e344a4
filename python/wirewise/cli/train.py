# SPDX-License-Identifier: Apache-2.0
"""`wirewise train`: a table to an estimator, with an honest report."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
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
        Path | None,
        typer.Option("--output", "-o", help="Estimator to write, such as model.pkl; of bnn, model.bnn."),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator",
            "--model",
            "-e",
            help="tree, forest, extra-trees, boosting, or a neural network: mlp, or bnn (a binary one).",
        ),
    ] = "forest",
    trees: Annotated[int, typer.Option(help="How many trees; for boosting, rounds.")] = 10,
    depth: Annotated[int, typer.Option(help="Depth of each tree, at most.")] = 10,
    network: NetworkOption = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Neurons of a network's hidden layers. Default: 16,16; for q16 32,32; for bnn 32,16."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="How bnn reads features: steps (thermometers where trees split; the default), quantiles "
            "(thermometers of equal shares), bits (of each value)."
        ),
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

    No flow is on both sides of the split. The report is about the very model that is written. An mlp is
    trained in floating point; `compile` makes integers of it, of the kind that --network says here or there.
    A bnn is trained with weights and activations of +1 and -1, which needs JAX, and written as plain JSON.
    """
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import train as fit
    from wirewise.evaluate.networks import HIDDEN
    from wirewise.evaluate.train import NETWORKS
    from wirewise.quantize import Options

    binary = estimator == "bnn"
    if output is not None and binary and output.suffix != ".bnn":
        raise InputError(str(output), "must end in .bnn", "binary networks are written as plain JSON")
    if output is not None and not binary and output.suffix not in (".pkl", ".pickle"):
        raise InputError(str(output), "must end in .pkl", "estimators are written with pickle")
    if estimator not in NETWORKS and (network or hidden):
        raise InputError(f"estimator {estimator!r}", "is no network", "add --estimator mlp")
    if binary and network:
        raise InputError(f"--network {network}", "is for mlp: bnn is binary already", "leave it out")
    if encoding and not binary:
        raise InputError(f"--encoding {encoding}", "is for binary networks", "add --estimator bnn")
    kind = "binary" if binary else Options(network=network or "int8").network
    widths = _widths(hidden) if hidden else HIDDEN[kind]
    loaded = Table.read(table)
    with step(f"training on {len(loaded.frame):,} packets", quiet=as_json):
        training = fit(
            loaded,
            estimator,
            depth=depth,
            trees=trees,
            hidden=widths,
            encoding=encoding or "steps",
            class_weight=_weights(class_weight),
            test_share=test_share,
            seed=seed,
        )
    facts = {
        "estimator": estimator,
        **_settings(estimator, kind, widths, encoding or "steps", trees, depth),
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
        note(f"nothing was written; give -o model.{'bnn' if binary else 'pkl'} to keep the estimator")


def _settings(
    estimator: str, kind: str, hidden: Sequence[int], encoding: str, trees: int, depth: int
) -> dict[str, Any]:
    """What a record of the training says of the estimator's own settings."""
    if estimator == "bnn":
        return {"encoding": encoding, "hidden": list(hidden)}
    if estimator == "mlp":
        return {"network": kind, "hidden": list(hidden)}
    return {"trees": trees, "depth": depth}


def write_estimator(
    training: Training, table: Table, facts: dict[str, Any], table_path: Path, output: Path
) -> None:
    """Writes the estimator, and beside it how it was trained."""
    from wirewise import training_file
    from wirewise.evaluate.binary_training import BinaryClassifier
    from wirewise.evaluate.networks import set_names
    from wirewise.files import write_atomically
    from wirewise.importers.binary import to_plain

    features = table.feature_set.feature_names
    # What it predicts and reads, by name: neither file needs another beside it to be understood.
    if isinstance(training.estimator, BinaryClassifier):
        plain = to_plain(training.estimator.model, training.classes, features)
        write_atomically(output, json.dumps(plain).encode())
    else:
        set_names(training.estimator, _names(training.classes), _names(features))
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
