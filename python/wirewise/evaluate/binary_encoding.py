# SPDX-License-Identifier: Apache-2.0
"""Features as bits: what a binary network reads of each column of a training table.

steps (the default)
    Thermometers whose steps are where a small forest splits the columns: the splits that gain most, over all
    columns, get the bits. Columns that tell the classes apart thus get many, the others few or none.
quantiles
    Thermometers with the same number of steps for each column, at its quantiles; at every distinct value
    if there are few.
bits
    The highest bits of each value, the same number of each column (siracusano-n3ic, appendix: 16).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError, choose
from wirewise.models.binary_mlp import MAX_INPUT_BITS, BinaryInput, BitsInput, StepsInput

Rows = NDArray[np.int64]
Weights = NDArray[np.float64] | None

INPUT_BITS = 256
_TREES, _DEPTH = 20, 12
_ROWS_A_TREE = 20_000
_APART = 1 / 500  # of the rows must lie between two steps of a column, else they count as one


def choose_inputs(
    encoding: str, rows: Rows, labels: Rows, weights: Weights = None, *, bits: int = INPUT_BITS, seed: int = 0
) -> tuple[BinaryInput, ...]:
    """Inputs of at most `bits` bits for rows (n, n_features) with class numbers (n,).

    encoding : a name of ENCODINGS. weights : of the rows, (n,). Raises InputError if nothing in the rows
    varies, or there are fewer bits than columns that do.
    """
    if encoding not in ENCODINGS:
        raise InputError(f"encoding {encoding!r}", "is not known", choose(encoding, ENCODINGS))
    if not 1 <= bits <= MAX_INPUT_BITS:
        raise InputError(f"{bits} input bits", f"must be 1 to {MAX_INPUT_BITS}")
    columns = [k for k in range(rows.shape[1]) if rows[:, k].min() < rows[:, k].max()]
    inputs = ENCODINGS[encoding](rows, labels, weights, columns, bits, seed) if columns else ()
    if not inputs:
        raise InputError("the table", "has no feature that tells its classes apart", "add features")
    return inputs


def _steps(
    rows: Rows, labels: Rows, weights: Weights, columns: list[int], bits: int, seed: int
) -> tuple[BinaryInput, ...]:
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(
        _TREES,
        max_depth=_DEPTH,
        max_samples=min(1.0, _ROWS_A_TREE / len(rows)),
        random_state=seed,
        n_jobs=-1,
    ).fit(rows, labels, sample_weight=weights)
    ordered = {k: np.sort(rows[:, k]) for k in columns}
    # (column, how many `_APART` of its rows are below) -> gain of each threshold there
    gains: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for fitted in forest.estimators_:
        for column, threshold, gain in _splits(fitted.tree_):
            below = np.searchsorted(ordered[column], threshold, side="right") / len(rows)
            gains[column, int(below / _APART)][threshold] += gain
    best = sorted(gains.items(), key=lambda entry: -sum(entry[1].values()))[:bits]
    steps: dict[int, list[int]] = defaultdict(list)
    for (column, _), thresholds in best:
        steps[column].append(max(thresholds, key=thresholds.__getitem__))
    return tuple(StepsInput(column, tuple(sorted(steps[column]))) for column in sorted(steps))


def _splits(tree: Any) -> list[tuple[int, int, float]]:
    """Column, threshold (`x > threshold` goes right) and impurity taken away, of each inner node."""
    left, right = tree.children_left, tree.children_right
    impurity = tree.weighted_n_node_samples * tree.impurity
    inner = np.flatnonzero(left >= 0)
    gain = impurity[inner] - impurity[left[inner]] - impurity[right[inner]]
    threshold = np.floor(tree.threshold[inner]).astype(np.int64)
    return list(zip(tree.feature[inner].tolist(), threshold.tolist(), gain.tolist(), strict=True))


def _quantiles(
    rows: Rows, labels: Rows, weights: Weights, columns: list[int], bits: int, seed: int
) -> tuple[BinaryInput, ...]:
    inputs: list[BinaryInput] = []
    distinct = {k: np.unique(rows[:, k])[:-1] for k in columns}  # above the largest is nothing
    # What a column of few values does not need is left to the others.
    for place, k in enumerate(sorted(columns, key=lambda k: len(distinct[k]))):
        share = _share(bits, len(columns) - place)
        steps = distinct[k]
        if len(steps) > share:
            at = np.arange(1, share + 1) / (share + 1)
            steps = np.unique(np.quantile(rows[:, k], at, method="lower").astype(np.int64))
            steps = steps[steps < rows[:, k].max()]
            if not len(steps):  # nearly all rows have the largest value
                steps = distinct[k][-1:]
        bits -= len(steps)
        inputs.append(StepsInput(k, tuple(steps.tolist())))
    return tuple(sorted(inputs, key=lambda one: one.feature))


def _bits(
    rows: Rows, labels: Rows, weights: Weights, columns: list[int], bits: int, seed: int
) -> tuple[BinaryInput, ...]:
    inputs: list[BinaryInput] = []
    length = {k: max(1, int(rows[:, k].max()).bit_length()) for k in columns if rows[:, k].max() > 0}
    for place, k in enumerate(sorted(length, key=length.__getitem__)):
        taken = min(_share(bits, len(length) - place), length[k])
        bits -= taken
        inputs.append(BitsInput(k, length[k] - taken, taken))
    return tuple(sorted(inputs, key=lambda one: one.feature))


def _share(bits: int, columns: int) -> int:
    if bits < columns:
        raise InputError("input bits", f"are too few: {columns} columns need one each", "allow more bits")
    return bits // columns


ENCODINGS: dict[str, Callable[[Rows, Rows, Weights, list[int], int, int], tuple[BinaryInput, ...]]] = {
    "steps": _steps,
    "quantiles": _quantiles,
    "bits": _bits,
}
"""Name -> (rows, labels, weights, columns that vary, bits, seed) -> inputs."""
