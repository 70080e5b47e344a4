# SPDX-License-Identifier: Apache-2.0
"""What makes a report too good: labels that follow from one feature, rows seen twice, classes of one
capture.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.evaluate.split import Split, alone

ENOUGH_ROWS = 20_000
"""Rows that a feature is judged by; drawn where there are more."""
SEPARATES = 0.99
"""Balanced accuracy, 0 to 1, above which one feature alone tells the classes apart."""
RARE = 0.01
"""Share of all rows below which a class is rare."""
TWICE = 0.5
"""Share of tested rows, from which on it is said that training had their like."""


def warnings(
    frame: pl.DataFrame,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: list[str],
    features: list[str],
    parts: Split,
) -> list[str]:
    """A sentence for each thing that makes a split's report doubtful.

    frame : n labelled rows of a table. rows : their features, shape (n, n features), by the names `features`.
    labels : class numbers, shape (n,).
    """
    return [
        *_one_feature(rows, labels, features),
        *_one_capture(frame, parts),
        *_seen_twice(frame.select(*features, "label"), parts),
        *_rare(labels, classes),
    ]


def separating(
    rows: NDArray[np.int64], labels: NDArray[np.int64], features: list[str]
) -> list[tuple[str, float]]:
    """The features that alone tell the classes apart, and their balanced accuracy (0 to 1), the best
    first.
    """
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.tree import DecisionTreeClassifier

    if len(rows) > ENOUGH_ROWS:
        drawn = np.random.default_rng(0).permutation(len(rows))[:ENOUGH_ROWS]
        rows, labels = rows[drawn], labels[drawn]
    leaves = 2 * len(np.unique(labels))
    found = []
    for number, name in enumerate(features):
        column = rows[:, number : number + 1]
        tree = DecisionTreeClassifier(max_leaf_nodes=leaves, class_weight="balanced", random_state=0)
        accuracy = balanced_accuracy_score(labels, tree.fit(column, labels).predict(column))
        if accuracy >= SEPARATES:
            found.append((name, float(accuracy)))
    return sorted(found, key=lambda item: -item[1])


def _one_feature(rows: NDArray[np.int64], labels: NDArray[np.int64], features: list[str]) -> list[str]:
    found = separating(rows, labels, features)
    if not found:
        return []
    names = ", ".join(f"{name} ({100 * accuracy:.1f} %)" for name, accuracy in found[:4])
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return [
        f"one feature alone tells the classes apart: {names}{more}. Check that it says what "
        "traffic does, not where it was recorded (a TTL, a port, the snap length) or by which program "
        "(the bytes of its payload)"
    ]


def _one_capture(frame: pl.DataFrame, parts: Split) -> list[str]:
    single = alone(frame)
    if not single:
        return []
    if frame["capture"].n_unique() < 2:
        return ["all rows are of one capture: how the model does on others cannot be told"]
    if len(single) == frame["label"].n_unique():
        return ["each class is of one capture: how the model does on others cannot be told; give two of each"]
    split = "their flows were split, so what is said of them is too good"
    return [f"of one capture only: {', '.join(single)}" + (f"; {split}" if parts.by == "capture" else "")]


def _seen_twice(rows: pl.DataFrame, parts: Split) -> list[str]:
    hashes = rows.hash_rows().to_numpy()
    share = float(np.isin(hashes[parts.test], hashes[parts.learn]).mean())
    if share < TWICE:
        return []
    return [f"{100 * share:.0f} % of the tested rows equal, feature by feature, rows that were learned from"]


def _rare(labels: NDArray[np.int64], classes: list[str]) -> list[str]:
    counts = np.bincount(labels, minlength=len(classes))
    rare = [
        f"{name} ({count:,} rows)"
        for name, count in zip(classes, counts, strict=True)
        if 0 < count < RARE * len(labels)  # of what is beside, a table may have none
    ]
    if not rare:
        return []
    return [
        f"rare classes: {', '.join(rare)} of {len(labels):,}; --class-weight balanced weighs all the same"
    ]
