# SPDX-License-Identifier: Apache-2.0
"""Distillation: a small model learns from the scores of a large one.

Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (2015). The scores are mixed half and
half with the labels (section 2 there; `lesson.SHARE`): where the teacher is wrong about what it learned
from, the label still says so. What comes of it is an ordinary classifier, and is imported as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.errors import InputError, choose
from wirewise.evaluate.lesson import Lesson
from wirewise.evaluate.moments import At
from wirewise.evaluate.per_flow import per_flow
from wirewise.evaluate.report import Report

PACKET = 5
"""Packet of a flow at which models are compared."""


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(200, min_samples_leaf=3, random_state=seed, n_jobs=-1)


def _extra_trees(seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(200, min_samples_leaf=3, random_state=seed, n_jobs=-1)


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=100, l2_regularization=1.0, random_state=seed)


def _network(seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), MLPClassifier((128, 64), max_iter=100, random_state=seed))


TEACHERS: dict[str, Callable[[int], Any]] = {
    "forest": _forest,
    "extra-trees": _extra_trees,
    "hist-gradient-boosting": _boosting,
    "mlp": _network,
}
"""Large models that can teach, by name: seed -> an unfitted scikit-learn classifier."""


@dataclass(frozen=True)
class Taught:
    """A model on what was kept apart; ratios of 0 to 1. flow_f1, flagged : attack against benign at packet
    PACKET of each flow, and the share of benign flows flagged there.
    """

    name: str
    accuracy: float
    macro_f1: float
    flow_f1: float
    flagged: float


@dataclass(frozen=True)
class Comparison:
    """The teacher, its student, and the same estimator trained directly."""

    models: tuple[Taught, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        return [asdict(model) for model in self.models]


@dataclass(frozen=True)
class Teacher:
    """A fitted classifier. place : for each of its classes the class number, -1 for one that we lack."""

    estimator: Any
    place: NDArray[np.int64]
    n_classes: int

    def predict(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self.scores(rows).argmax(axis=1), np.int64)

    def scores(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n, n_classes), each row adding up to 1."""
        known = self.place >= 0
        found = np.zeros((len(rows), self.n_classes))
        found[:, self.place[known]] = np.asarray(self.estimator.predict_proba(rows), float)[:, known]
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0, found / np.maximum(total, 1e-12), 1 / self.n_classes)


@dataclass(frozen=True)
class Fitted:
    """A teacher that was trained elsewhere. apart : it has not seen what this training keeps apart."""

    estimator: Any
    name: str
    apart: bool = False


class TeacherOf:
    """The teacher for any part of the rows: one of TEACHERS is fitted to that part, so that it has seen no
    more than its student; a fitted one is as it is.

    Raises InputError for a name that is none, and a model that has no scores or other classes.
    """

    def __init__(self, teacher: str | Any, classes: list[str], lesson: Lesson, seed: int) -> None:
        self._classes, self._lesson, self._seed = classes, lesson, seed
        self._known: tuple[NDArray[np.int64], Teacher] | None = None
        self._given: Teacher | None = None
        self.doubts: list[str] = []
        self.name = ""
        if teacher is None:
            return
        if isinstance(teacher, str):
            if teacher not in TEACHERS:
                raise InputError(f"teacher {teacher!r}", "is not known", choose(teacher, TEACHERS))
            self.name = teacher
            return
        fitted = teacher if isinstance(teacher, Fitted) else Fitted(teacher, type(teacher).__name__)
        self.name, self._given = fitted.name, self._of(fitted)
        if not fitted.apart:
            self.doubts = [
                f"the teacher {self.name} may have learned from what is tested here, so the report may be "
                "too good; name a kind of teacher, which is then trained on the same captures as its student"
            ]

    def facts(self) -> dict[str, Any]:
        """For the record of a training."""
        return {"teacher": self.name} if self.name else {}

    def for_rows(self, on: NDArray[np.int64]) -> Teacher | None:
        """None without a teacher."""
        if not self.name or self._given:
            return self._given
        if self._known is None or self._known[0] is not on:
            fitted = self._lesson.teach(TEACHERS[self.name](self._seed), on)
            place = np.asarray(fitted.classes_, np.int64)
            self._known = (on, Teacher(fitted, place, len(self._classes)))
        return self._known[1]

    def _of(self, fitted: Fitted) -> Teacher:
        if not hasattr(fitted.estimator, "predict_proba"):
            raise InputError(
                fitted.name, "has no predict_proba, so it cannot say how sure it is", "give another teacher"
            )
        reads = getattr(fitted.estimator, "n_features_in_", None)
        if reads is not None and reads != self._lesson.rows.shape[1]:
            raise InputError(
                fitted.name, f"reads {reads} features, the table has {self._lesson.rows.shape[1]}",
                "give a teacher that was trained on the same features",
            )  # fmt: skip
        number = {name: index for index, name in enumerate(self._classes)}
        names = [str(name) for name in np.asarray(fitted.estimator.classes_).tolist()]
        place = np.array([number.get(name, -1) for name in names], np.int64)
        if (place < 0).all():
            raise InputError(
                fitted.name, f"knows none of the table's classes, but {', '.join(names[:5])}",
                "give a teacher of the same classes",
            )  # fmt: skip
        return Teacher(fitted.estimator, place, len(self._classes))


def compare(
    frame: pl.DataFrame,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: list[str],
    **models: Any,
) -> Comparison:
    """How models do on the same rows. frame, rows, labels : n of them. models : what can predict, by name."""
    found = []
    for name, model in models.items():
        said = np.asarray(model.predict(rows), np.int64)
        report = Report.of(labels, said, classes)
        flows = per_flow(frame, labels, said, classes, at=At((PACKET,))).attack
        found.append(
            Taught(name, report.accuracy, report.macro_f1, flows.classes[1].f1, 1 - flows.classes[0].recall)
        )
    return Comparison(tuple(found))
