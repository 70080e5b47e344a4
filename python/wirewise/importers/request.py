# SPDX-License-Identifier: Apache-2.0
"""What an import is asked, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise import html
from wirewise.errors import InputError
from wirewise.models import Model
from wirewise.models.tree import Votes
from wirewise.quantize import FloatNetwork, Options

Rows = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Predict = Callable[[Rows], NDArray[np.int32]]


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """How an estimator becomes integers.

    n_features: what the model must read, if known. classes: names that replace the model's own, in order.
    votes: `majority` to let the trees of a forest vote instead of adding up their class fractions.
    benign: the name of the class that becomes class 0. None: `benign`, `normal` or `background`, if there is
    one. margin: the scores say how sure a lone tree is, too.
    rows: int64 (n, n_features), what a neural network will meet (not what it is tested with): it is quantised
    with them, and with their labels, class names (n,), if it needs fine-tuning. options: how, see
    `wirewise.quantize.Options`; only for networks.
    """

    n_features: int | None = None
    classes: Sequence[str] | None = None
    benign: str | None = None
    votes: Votes | None = None
    margin: bool = False
    rows: Rows | None = None
    labels: Sequence[str] | None = None
    options: Options | None = None


@dataclass(frozen=True, kw_only=True)
class Request(ImportOptions):
    """The options of one import, and `subject`, what its input is called in errors.

    outer: the pipeline or the search that the estimator is a part of, whose `predict` its user calls.
    scalers: what the features go through before a tree of scikit-learn tests them, in order; each keeps the
    order of a feature's values.
    """

    subject: str
    outer: Any = None
    scalers: Sequence[Any] = ()

    @classmethod
    def of(cls, subject: str, options: ImportOptions) -> Request:
        return cls(subject=subject, **vars(options))

    def refuse(self, rule: str, way_out: str) -> InputError:
        return InputError(self.subject, rule, way_out)


@dataclass(frozen=True)
class Imported:
    """A model as integers, and where it came from.

    classes: names, index = class id. node_ids: per tree and node, the library's own number of that node, -1
    for a node that it does not have.
    predict: the original's classes for int64 rows (n, n_features), fed the way its integer thresholds assume;
    it needs the library installed. feature_names: what the model was trained on, where the library kept it.
    network: what was quantised, if it is a neural network; it has no nodes. first: the estimator's own number
    of class 0. It and the network count classes from 0; here they are counted from `first` on, modulo their
    number.
    """

    model: Model
    classes: list[str]
    source: str
    notes: list[str]
    node_ids: tuple[tuple[int, ...], ...] = field(repr=False)
    predict: Predict = field(repr=False)
    feature_names: list[str] | None = None
    network: FloatNetwork | None = field(default=None, repr=False)
    first: int = 0

    def _repr_html_(self) -> str:
        facts = [
            ("from", self.source),
            ("model", self.model.describe()),
            ("classes", ", ".join(self.classes)),
            *(("note", note) for note in self.notes),
        ]
        names = self.feature_names or [str(index) for index in range(self.model.n_features)]
        reads = zip(names, self.model.reads, strict=True)
        return html.fragment(
            html.facts(facts),
            html.heading("How many parts of the model read a feature"),
            html.bars((name, count, f"{count:,}") for name, count in reads),
        )

    def __repr__(self) -> str:
        return f"<Imported from {self.source}: {self.model.describe()}>"


@dataclass(frozen=True)
class Original:
    """A classifier as it is, in floating point.

    classes: names, in its own order. benign: the number of the benign one. probabilities: of each class,
    float64 (n, n_classes), for int64 rows (n, n_features). n_features, feature_names: None if the file does
    not say.
    """

    classes: list[str]
    benign: int
    source: str
    notes: list[str]
    n_features: int | None
    feature_names: list[str] | None
    probabilities: Callable[[Rows], NDArray[np.float64]] = field(repr=False)

    def attack(self, rows: Rows) -> NDArray[np.float64]:
        """How probable it is that a row is not benign, 0 to 1, shape (n,)."""
        return np.asarray(1 - self.probabilities(rows)[:, self.benign])
