# SPDX-License-Identifier: Apache-2.0
"""One model of the command line on a table, or on captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wirewise.cli.reading import import_options, is_quantised, read_model, reading
from wirewise.console import percent, step
from wirewise.errors import InputError
from wirewise.text import file_name

if TYPE_CHECKING:
    from wirewise.datasets import CaptureFolder, Table, Truth
    from wirewise.evaluate.held_out import Parts
    from wirewise.evaluate.judging import Found, Subject
    from wirewise.evaluate.moments import At
    from wirewise.evaluate.verdict import Limits

SUFFIX = ".wirewise"


@dataclass(frozen=True)
class Asked:
    """What holds for every model. at : None: as usual for the model. trained_on : a table. applications : who
    names them. evasion : how many flows of each family are changed until they are not found any more.
    """

    at: At | None
    limits: Limits
    all_rows: bool
    trained_on: Path | None
    applications: CaptureFolder | None
    evasion: int
    quiet: bool


def on_table(path: Path, table_path: Path, table: Table, asked: Asked) -> Found:
    """A bundle, or a model as `compile` takes it, by its integers in Python."""
    from wirewise.evaluate.judging import judge
    from wirewise.evaluate.subject import choose_rows, learned_rows, without

    table = _named(reading(path, table), asked)
    subject, split, quantised = _load(path, table_path, table, asked.quiet)
    subject.check_reads(table, str(table_path))
    chosen = choose_rows(table, split, quantised=quantised, all_rows=asked.all_rows)
    if asked.trained_on and not asked.all_rows:
        chosen = without(chosen, learned_rows(asked.trained_on, subject.training))
    with step(f"judging {path.name}", quiet=asked.quiet):
        return judge(subject, file_name(table_path), table, chosen, at=asked.at, limits=asked.limits)


def on_captures(path: Path, captures: Sequence[Path], truth: Truth, asked: Asked, *, kernel: bool) -> Found:
    """A bundle, by its own program in the engine, or in this kernel."""
    from wirewise.evaluate import on_captures
    from wirewise.evaluate.evasion import evasions
    from wirewise.evaluate.judging import Subject, judge
    from wirewise.evaluate.subject import Chosen, learned_rows, without
    from wirewise.formats.bundle import Bundle

    if path.suffix != SUFFIX:
        raise InputError(
            str(path), "is no bundle, and only the program of a bundle can be run on captures",
            "make one with `wirewise compile`, or a table of the captures with `wirewise features`",
        )  # fmt: skip
    subject = Subject.of_bundle(file_name(path), Bundle.read(path))
    assert subject.bundle is not None
    table, warnings = on_captures.labelled(subject.bundle, captures, truth, progress=not asked.quiet)
    table = _named(table, asked)
    with percent(f"running {path.name} on {len(captures):,} captures", quiet=asked.quiet) as progress:
        rows = on_captures.run(path, subject.bundle, table, kernel=kernel, progress=progress)
    data = f"{len(captures):,} captures" if len(captures) > 1 else captures[0].name
    chosen = Chosen(rows, data, "unknown", None)
    if asked.trained_on and not asked.all_rows:
        chosen = without(chosen, learned_rows(asked.trained_on, subject.training))
    with step(f"judging {path.name}", quiet=asked.quiet):
        found = judge(
            subject,
            data,
            table,
            chosen,
            plane="kernel" if kernel else "engine",
            at=asked.at,
            limits=asked.limits,
            warnings=warnings,
        )
    if not asked.evasion:
        return found
    with percent(f"changing what {path.name} finds", quiet=asked.quiet) as progress:
        evasion = evasions(
            path,
            subject.bundle,
            table,
            chosen.rows,
            at=found.evaluation.flows.at,
            flows=asked.evasion,
            after=found.evaluation.after,
            kernel=kernel,
            progress=progress,
        )
    return replace(found, evaluation=replace(found.evaluation, evasion=evasion))


def _named(table: Table, asked: Asked) -> Table:
    from wirewise.datasets import Table
    from wirewise.datasets.applications import by_folder

    if not asked.applications:
        return table
    return Table(by_folder(table.frame, asked.applications), table.feature_set)


def _load(path: Path, table_path: Path, table: Table, quiet: bool) -> tuple[Subject, Parts, bool]:
    """The model, the parts of the table for it, and whether a part of the table made its integers."""
    from wirewise.evaluate.held_out import parts
    from wirewise.evaluate.judging import Subject
    from wirewise.formats import training_file
    from wirewise.formats.bundle import Bundle

    if path.suffix == SUFFIX:
        subject = Subject.of_bundle(file_name(path), Bundle.read(path))
        digest = training_file.file_digest(table_path)
        return subject, parts(table, subject.training, digest=digest, name=file_name(table_path)), False
    record = training_file.read(path)
    read, found = read_model(
        path,
        table=table,
        table_path=table_path,
        record=record,
        options=import_options(path, record),
        quiet=quiet,
    )
    assert found is not None, "there is a table"
    training = record.training if record else None
    subject = Subject(
        file_name(path), read.model, read.classes, read.feature_names, read.imported, None, training
    )
    return subject, found, is_quantised(read)
