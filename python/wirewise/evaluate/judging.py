# SPDX-License-Identifier: Apache-2.0
"""A model, or the program of a bundle, on labelled rows: what it says of them, and all that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.classes import counted_as, matrix, numbers
from wirewise.evaluate.drift import Drift, drift
from wirewise.evaluate.evaluation import About, Evaluation, Judged, Plane, evaluation, has_scores
from wirewise.evaluate.fidelity import HeldOut, measure
from wirewise.evaluate.importance import Importance
from wirewise.evaluate.moments import At
from wirewise.evaluate.naming import doubts
from wirewise.evaluate.operating_point import in_a_row
from wirewise.evaluate.per_flow import usual
from wirewise.evaluate.phases import start_of
from wirewise.evaluate.subject import Chosen
from wirewise.evaluate.verdict import Limits
from wirewise.formats.bundle import Bundle
from wirewise.importers import Imported
from wirewise.models import Model
from wirewise.models.scores import of_classes


@dataclass(frozen=True)
class Subject:
    """What is judged. features : the names it reads, None if they are not known. imported : with its
    estimator, None if that is not at hand. bundle : None of a model alone. training : the facts of its
    record.
    """

    name: str
    model: Model
    classes: list[str]
    features: list[str] | None
    imported: Imported | None
    bundle: Bundle | None
    training: dict[str, Any] | None

    @classmethod
    def of_bundle(cls, name: str, bundle: Bundle) -> Subject:
        names = bundle.feature_set.feature_names
        return cls(name, bundle.model, bundle.classes, names, None, bundle, bundle.manifest.training)

    def check_reads(self, table: Table, name: str) -> None:
        """Raises InputError unless it reads the features of a table."""
        features = table.feature_set.feature_names
        if (self.features or features) != features or self.model.n_features != len(features):
            raise InputError(
                name, f"its features are not those {self.name} reads", "make it with the model's feature set"
            )


@dataclass(frozen=True)
class Found:
    """What came of it. rows : the features that were judged, (n, n_features). truth : class numbers of the
    model, (n,). features : their names.
    """

    subject: Subject
    evaluation: Evaluation
    rows: NDArray[np.int64]
    truth: NDArray[np.int64]
    features: list[str]

    @property
    def leans(self) -> Importance:
        """How much the model leans on each feature, on these rows."""
        counted = counted_as(set(self.truth.tolist()), self.subject.classes)
        predict = self.subject.model.predict
        return Importance.of(lambda rows: counted[predict(rows)[0]], self.rows, self.truth, self.features)


def judge(
    subject: Subject,
    data: str,
    table: Table,
    chosen: Chosen,
    *,
    plane: Plane = "reference",
    at: At | None = None,
    limits: Limits | None = None,
    warnings: Sequence[str] = (),
) -> Found:
    """Judge it by the rows chosen of a table.

    data : the table's name. plane : what says the verdicts; unless it is `reference`, the rows have them in
    the columns `said` and `scores`, see `on_captures.run`. at, limits : see `evaluation`; None: as
    usual. warnings : to be said with it. Raises InputError if no row has a label that the model has a class
    for.
    """
    model, classes = subject.model, subject.classes
    usable = chosen.rows.labelled
    truth = numbers(usable, classes)
    known = truth >= 0
    rest = Table(usable.frame.filter(pl.Series(known)), table.feature_set)
    rows, truth = matrix(rest), truth[known]
    if "time_ns" not in rest.frame.columns:
        raise InputError(data, "has no column 'time_ns'", "keep the columns that `wirewise.features` gives")
    if not len(rows):
        rule = f"no packet has a label of the model's classes ({', '.join(classes)})"
        raise InputError(data, rule, "label it")
    if plane == "reference":
        said, scores = model.predict(rows)
    else:
        said, scores = (rest.frame[name].to_numpy() for name in ("said", "scores"))
    verdicts: NDArray[np.int64] = said.astype(np.int64)
    if (after := _operating_point(subject).get("after", 1)) > 1:
        verdicts = in_a_row(rest.frame, verdicts, after)
        rule = f"was set to {after} verdicts in a row, as its policy must ask for (after: {after})"
        warnings = [*warnings, f"{subject.name} {rule}; it is judged so"]
    sure = of_classes(model, scores) if has_scores(model) else None
    judged, ordered = Judged.of(rest.frame, truth, verdicts, sure, classes)
    features = table.feature_set.feature_names
    late = start_of(subject.training)
    originals = len(table.originals.frame)
    fidelity = None
    if subject.imported:
        fidelity = measure(subject.imported, rows, HeldOut(rows, truth, chosen.how), features)
    captures = rest.frame["capture"].n_unique()
    about = About(
        subject.name, model.describe(), data, plane, chosen.how, chosen.origin, captures, model.digest
    )
    first = subject.imported.first if subject.imported else None
    found = evaluation(
        judged,
        about,
        ordered,
        features,
        learned=chosen.learned,
        at=at or usual(late),
        limits=limits,
        with_others_margin=_with_others_margin(subject, chosen),
        dealings=((subject.training or {}).get("dealings") or {}).get("recall"),
        after=after,
        late=late,
        fidelity=fidelity,
        compiled=subject.bundle.manifest.fidelity if subject.bundle else None,
        drift=_drift(subject, rest, said.astype(np.int64)),
        left_out={
            "to learn from or quantise with": len(table.labelled.frame) - len(usable.frame),
            "unlabelled": originals - len(table.labelled.frame),
            "of variants": len(table.frame) - originals,
            "of other classes": int((~known).sum()),
        },
        warnings=[*warnings, *doubts(model, usable, classes, data, first)],
    )
    return Found(subject, found, rows, truth, features)


def _drift(subject: Subject, rows: Table, said: NDArray[np.int64]) -> Drift | None:
    """Against the flows that the bundle remembers of its training."""
    manifest = subject.bundle.manifest if subject.bundle else None
    if manifest is None or manifest.reference is None:
        return None
    return drift(manifest.reference, rows, said, manifest.flow.key)


def _with_others_margin(subject: Subject, chosen: Chosen) -> float | None:
    """A margin is chosen on what training kept apart, which is what it is judged by here."""
    return _operating_point(subject).get("elsewhere") if chosen.origin == "kept apart" else None


def _operating_point(subject: Subject) -> dict[str, Any]:
    """What the bundle was set to; empty: to nothing."""
    recorded = subject.bundle.manifest.fidelity if subject.bundle else None
    return (recorded or {}).get("operating_point") or {}
