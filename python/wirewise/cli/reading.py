# SPDX-License-Identifier: Apache-2.0
"""What the verbs that take a model share: reading it, and saying what its integers lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirewise.console import console, grid, listing, step
from wirewise.text import file_name

if TYPE_CHECKING:
    from wirewise.datasets import Table
    from wirewise.evaluate.held_out import Parts
    from wirewise.formats.model_file import LoadedModel
    from wirewise.formats.training_file import TrainingRecord
    from wirewise.importers import ImportOptions


def import_options(
    model: Path,
    record: TrainingRecord | None,
    classes: str | None = None,
    majority: bool = False,
    network: str | None = None,
    calibration: str | None = None,
    fine_tune: bool | None = None,
    *,
    benign: str | None = None,
    margin: bool = False,
) -> ImportOptions:
    """What the options of the command line ask of an import.

    A network becomes what --network says, else what it was trained to become, unless it is integers already.
    margin : see `ImportOptions`.
    """
    from wirewise.importers import ImportOptions
    from wirewise.quantize import Options

    is_float = model.suffix.lower() in (".pkl", ".pickle")
    asked = {
        "network": network or (record.training.get("network") if record and is_float else None),
        "calibration": calibration,
        "fine_tune": fine_tune,
    }
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return ImportOptions(
        classes=classes.split(",") if classes else None,
        benign=benign,
        votes="majority" if majority else None,
        margin=margin,
        options=Options(**given) if given else None,
    )


def read_model(
    model: Path,
    *,
    table: Table | None,
    table_path: Path | None,
    record: TrainingRecord | None,
    options: ImportOptions,
    quiet: bool,
) -> tuple[LoadedModel, Parts | None]:
    """The model of a file, quantised with a part of the table if it is a network, and the table's split."""
    from wirewise.evaluate import matrix
    from wirewise.evaluate.held_out import parts
    from wirewise.formats import model_file
    from wirewise.formats.training_file import file_digest

    training = record.training if record else {}
    split = None
    if table and table_path:
        split = parts(table, training, digest=file_digest(table_path), name=file_name(table_path))
    if split:
        labels = split.learn.frame["label"].to_list()
        options = replace(options, rows=matrix(split.learn), labels=labels)
    with step(f"importing {model}", quiet=quiet):
        return model_file.read(model, options), split


def reading(model: Path, table: Table) -> Table:
    """The table as the model reads it: of a model of `wirewise search`, only some of its features.

    Raises InputError for a table of other features than the model was trained on.
    """
    from wirewise.errors import InputError
    from wirewise.formats import training_file
    from wirewise.formats.bundle import Bundle

    if model.suffix == ".wirewise":
        return table.reading(Bundle.read(model).feature_set)
    record = training_file.read(model)
    if record is None:
        return table
    read = table.reading(record.feature_set)
    if read.feature_set.feature_names != record.feature_set.feature_names:
        raise InputError(
            f"the table of feature set {table.feature_set.name!r}",
            f"its features are not those {model.name} reads, of {record.feature_set.name!r}",
            "give the table that the model was trained on, or one of the same features",
        )
    return read


def is_quantised(loaded: LoadedModel) -> bool:
    """Whether rows of a table made the integers what they are."""
    return loaded.imported is not None and loaded.imported.network is not None


def name_doubts(loaded: LoadedModel, split: Parts) -> list[str]:
    """Warnings about the names of the classes, see `wirewise.evaluate.naming`."""
    from wirewise.evaluate.naming import doubts

    rows, _ = split.judged(is_quantised(loaded))
    first = loaded.imported.first if loaded.imported else 0
    return doubts(loaded.model, rows, loaded.classes, split.name, first)


def print_fidelity(fidelity: dict[str, Any]) -> None:
    """What `evaluate.fidelity.measure` found: how good estimator and integers are, where ranges end, how far
    the two agree.
    """
    from wirewise.formats.losses import class_table, summary

    grid(summary(fidelity))
    if fidelity.get("held_out"):
        head, lines = class_table(fidelity)
        listing(head, lines, right=range(1, len(head)))
    print_agreement(fidelity)


def print_agreement(fidelity: dict[str, Any]) -> None:
    """How far the integer model and the estimator agree; the first rows that differ."""
    from wirewise.formats.losses import agreement

    if not (differences := fidelity.get("differences")):
        console.print(f"agreement: {agreement(fidelity)}", style="green")
        return
    console.print(f"agreement: {agreement(fidelity)}; the first that differ:", style="yellow")
    for difference in differences:
        ours, theirs = difference["model"], difference["estimator"]
        where = f"row {difference['row']:,}, features {difference['features']}"
        console.print(f"  {ours}, the estimator says {theirs}: {where}")
