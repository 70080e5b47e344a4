# SPDX-License-Identifier: Apache-2.0
"""Whether a bundle is good enough to enforce, and a page that says why."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

from wirewise import ready
from wirewise.advice import in_python_terms
from wirewise.api.inputs import AnyBundle, AnyPath, AnyTable, table_of
from wirewise.compiler import Compiled
from wirewise.errors import InputError
from wirewise.evaluate import Training
from wirewise.evaluate.evaluation import Evaluation
from wirewise.evaluate.held_out import parts
from wirewise.evaluate.judging import Subject
from wirewise.evaluate.judging import judge as judge_rows
from wirewise.evaluate.moments import At
from wirewise.evaluate.program_cost import program_costs
from wirewise.evaluate.subject import choose_rows, without
from wirewise.evaluate.verdict import Limits
from wirewise.files import check_place, write_atomically
from wirewise.formats.bundle import Bundle
from wirewise.formats.training_file import file_digest
from wirewise.report import page
from wirewise.text import file_name


@in_python_terms
def judge(
    bundle: AnyBundle,
    table: AnyTable,
    *,
    trained_on: Training | AnyTable | None = None,
    at: int | str | None = None,
    min_recall: float = 0.5,
    max_benign_loss: float = 0.01,
    measure: bool = False,
) -> Evaluation:
    """How good a bundle is on a labelled table, and whether that is enough to enforce.

    - bundle: its path, a `Bundle`, or what `compile` gives.
    - table: as in `train`. Of the file that it was trained on, only what training kept apart is used.
    - trained_on: what `train` gave, or the table it was trained on, where all rows were learned from: its
      flows are left out. What `compile` makes of what `train` gives knows it.
    - at: when a flow is judged: a packet, from 1, or text such as "5,30,100", "10s" or "every". None: 5, and
      where a late model begins.
    - min_recall, max_benign_loss: what must hold for a class to be dropped: the share of its family's flows
      that is found, at the lower end of what other sources would give; and the share of benign flows that
      may lose a packet; of one application, or on other captures, three times that share.
    - measure: run the program in this kernel, for ns a packet.

    Gives an `Evaluation`: its `verdict` has a sentence and the families, its `policy` is the text of a policy
    that drops what may be dropped. `write_report` makes a page of one or several; `plot` draws one.

    Raises InputError where the table has no label of the bundle's classes, or other features.

    """
    subject = _subject(bundle)
    assert subject.bundle is not None
    named = isinstance(table, str | PathLike)
    name = file_name(Path(str(table))) if named else "the table"
    rows = table_of(table, None if named else subject.bundle.feature_set)
    subject.check_reads(rows, name)
    digest = file_digest(Path(str(table))) if named else "of no file"
    chosen = choose_rows(
        rows, parts(rows, subject.training, digest=digest, name=name), quantised=False, all_rows=False
    )
    if isinstance(trained_on, Training):
        chosen = without(chosen, trained_on.learned.frame)
    elif trained_on is None and isinstance(bundle, Compiled) and bundle.training_rows is not None:
        try:
            chosen = without(chosen, bundle.training_rows.frame)
        except InputError:  # nobody asked to leave them out
            how = f"{chosen.how.partition(';')[0]}; it was trained on them"
            chosen = replace(chosen, how=how, origin="trained on", learned=bundle.training_rows.frame)
    elif trained_on is not None:
        chosen = without(chosen, table_of(trained_on, subject.bundle.feature_set).labelled.frame)
    moment = None if at is None else At.parse(str(at))
    limits = Limits(min_recall, max_benign_loss, min(1.0, 3 * max_benign_loss))
    found = judge_rows(subject, name, rows, chosen, at=moment, limits=limits).evaluation
    return replace(found, cost=program_costs([subject.bundle], measure=measure)[0])


@in_python_terms
def write_report(path: AnyPath, *evaluations: Evaluation) -> None:
    """Write a page that says whether to enforce, why, and what nobody has seen.

    - path: of the page, which ends in .html and needs no other file.
    - evaluations: what `judge` gives; several are compared.

    Raises InputError where it cannot be written, or nothing is to be.

    """
    path = Path(path)
    if path.suffix.lower() != ".html":
        raise InputError(str(path), "must end in .html", "it is a page")
    if not evaluations:
        raise InputError(str(path), "needs an evaluation", "give what judge gives")
    check_place(path)
    write_atomically(path, page(evaluations).encode())


def _subject(bundle: AnyBundle) -> Subject:
    if isinstance(bundle, str | PathLike):
        path = ready.bundle(bundle)
        return Subject.of_bundle(file_name(path), Bundle.read(path))
    inner = bundle.bundle if isinstance(bundle, Compiled) else bundle
    if not isinstance(inner, Bundle):
        raise InputError(
            f"bundle of type {type(bundle).__name__}",
            "is none",
            "give the path of one, or what compile gives",
        )
    return Subject.of_bundle(inner.manifest.name, inner)
