# SPDX-License-Identifier: Apache-2.0
"""Training trees and networks on a feature table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.evaluate.networks import HIDDEN, make_bnn, make_mlp, weigh
from wirewise.evaluate.report import Report
from wirewise.evaluate.split import grouped_split

BENIGN = "benign"


def _tree(depth: int, trees: int, seed: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=depth, random_state=seed)


def _forest(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(trees, max_depth=depth, random_state=seed, n_jobs=-1)


def _extra_trees(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(trees, max_depth=depth, random_state=seed, n_jobs=-1)


def _boosting(depth: int, trees: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=trees, max_depth=depth, random_state=seed)


TREES: dict[str, Callable[[int, int, int], Any]] = {
    "tree": _tree,
    "forest": _forest,
    "extra-trees": _extra_trees,
    "boosting": _boosting,
}
"""Tree estimators by name: (depth, number of trees, seed) -> a scikit-learn classifier."""

NETWORKS = ("mlp", "bnn")
ESTIMATORS = (*TREES, *NETWORKS)
"""Names that `train` knows."""


@dataclass(frozen=True)
class Training:
    """A fitted estimator, the names of its classes by number, and how it did on flows it had not seen."""

    estimator: Any
    classes: list[str]
    report: Report


def class_names(labels: list[str]) -> list[str]:
    """The classes in the order of their numbers: `benign` first, because ties go to the lowest class."""
    return sorted(set(labels), key=lambda name: (name != BENIGN, name))


def matrix(table: Table) -> NDArray[np.int64]:
    """The features as an int64 array of shape (n rows, n features), in the feature set's order."""
    return np.ascontiguousarray(
        table.frame.select(table.feature_set.feature_names).to_numpy(), dtype=np.int64
    )


def numbers(table: Table, classes: list[str]) -> NDArray[np.int64]:
    """The labels as class numbers; -1 for a label that is not in classes."""
    index = {name: number for number, name in enumerate(classes)}
    return np.array([index.get(label, -1) for label in table.frame["label"].to_list()], np.int64)


def train(
    table: Table,
    estimator: str | Any = "forest",
    *,
    depth: int = 10,
    trees: int = 10,
    hidden: Sequence[int] | None = None,
    encoding: str = "steps",
    class_weight: str | Mapping[str, float] | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    refit: bool = False,
) -> Training:
    """Fit an estimator to a table and test it on flows it has not seen.

    table : its unlabelled rows are left out. estimator : a name of ESTIMATORS, or an unfitted scikit-learn
    classifier. depth : of each tree. trees : how many; for boosting, rounds. hidden : for "mlp" and "bnn",
    neurons of each hidden layer. encoding : for "bnn", see `binary_encoding`. class_weight : "balanced" (all
    classes weigh the same), weights by class name (1 if not named), or None (all packets weigh the same). A
    heavier `benign` lets more attack packets pass and stops fewer benign ones.

    The estimator was fitted to the training part only, so the report is about that very model. With refit
    it is then fitted again, to all rows: it has seen more, and the report is about its likes. Raises
    InputError when the table has fewer than two classes, or a weight names none; MissingFeatureError for
    "bnn" without JAX and optax.
    """
    usable = table.labelled
    classes = class_names(usable.frame["label"].unique().to_list())
    if len(classes) < 2:
        found = f"only {classes[0]!r}" if classes else "none"
        raise InputError(
            "the table", f"needs labels of at least two classes, it has {found}", "see docs/labels.md"
        )
    rows, labels = matrix(usable), numbers(usable, classes)
    fitted = make_estimator(estimator, depth=depth, trees=trees, hidden=hidden, encoding=encoding, seed=seed)
    learn, test = grouped_split(usable.frame, test_share=test_share, seed=seed)
    missing = sorted(set(range(len(classes))) - set(labels[learn].tolist()))
    if missing:
        raise InputError(
            "the table",
            f"has no flow of class {classes[missing[0]]!r} left to train on",
            "give more captures",
        )
    _fit(fitted, rows[learn], labels[learn], _weights(labels[learn], classes, class_weight))
    predicted = np.asarray(fitted.predict(rows[test]), np.int64)
    report = Report.of(labels[test], predicted, classes)
    if refit:
        _fit(fitted, rows, labels, _weights(labels, classes, class_weight))
    return Training(fitted, classes, report)


def _fit(
    estimator: Any,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
) -> None:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():  # the report says how good it is
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(rows, labels, **weigh(estimator, weights))


def make_estimator(
    estimator: str | Any,
    *,
    depth: int,
    trees: int,
    seed: int,
    hidden: Sequence[int] | None = None,
    encoding: str = "steps",
) -> Any:
    """An unfitted classifier from its name in ESTIMATORS; anything else is given back as it is."""
    if not isinstance(estimator, str):
        return estimator
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator {estimator!r}", f"is not known (there are: {', '.join(ESTIMATORS)})")
    if estimator == "mlp":
        return make_mlp(hidden or HIDDEN["int8"], seed)
    if estimator == "bnn":
        return make_bnn(hidden or HIDDEN["binary"], encoding, seed)
    if not 1 <= depth <= 32 or not 1 <= trees <= 1000:
        raise InputError(f"depth {depth} and {trees} trees", "must be 1 to 32 and 1 to 1000")
    return TREES[estimator](depth, trees, seed)


def _weights(
    labels: NDArray[np.int64], classes: list[str], class_weight: str | Mapping[str, float] | None
) -> NDArray[np.float64] | None:
    """The weight of every row; None if all weigh the same."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(f"class weight {class_weight!r}", "is not known; write balanced or CLASS=WEIGHT")
        counts = np.bincount(labels, minlength=len(classes))
        by_class = len(labels) / (len(classes) * np.maximum(counts, 1))
    else:
        unknown = sorted(set(class_weight) - set(classes))
        if unknown:
            raise InputError(
                f"class weight {unknown[0]!r}", f"names no class (there are: {', '.join(classes)})"
            )
        by_class = np.array([float(class_weight.get(name, 1)) for name in classes])
        if (by_class <= 0).any():
            raise InputError("class weights", "must be positive")
    return np.asarray(by_class[labels], np.float64)
