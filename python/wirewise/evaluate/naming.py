# SPDX-License-Identifier: Apache-2.0
"""Whether the names of a model's classes can be right, judged by the labels of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.evaluate.classes import class_names, class_of, counted_as, matrix
from wirewise.models import Model


def doubts(model: Model, table: Table, classes: Sequence[str], name: str, first: int | None = 0) -> list[str]:
    """What a person should be warned of, one sentence each; nothing if all is well.

    table : rows that the model reads. classes : names, index = class id. name : the table's, for the
    sentences. first : the estimator's number of class 0, see `Imported`: advice on names is in its order;
    None: not known. Two things are said: labels that no class is named after, and an accuracy below the share
    of the most frequent label, with its likely cause.
    """
    labels = [class_of(label, classes) for label in table.frame["label"].to_list()]
    there = class_names([label for label in labels if label])
    if not there:
        return []
    truth = np.array([there.index(label) if label else -1 for label in labels], np.int64)
    predicted = np.asarray(model.predict(matrix(table)[truth >= 0])[0], np.int64)
    truth = truth[truth >= 0]
    counts = np.zeros((len(there), len(classes)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    strangers = [label for label in there if label not in classes]
    warnings = []
    if strangers:
        warnings.append(
            f"{name} has the labels {', '.join(there)}, but the model's classes are called "
            f"{', '.join(classes)}{_advice(counts, there, None, first)}"
        )
    known = [(index, list(classes).index(label)) for index, label in enumerate(there) if label in classes]
    if known:
        judged = counts[[index for index, _ in known]]
        counted = counted_as([number for _, number in known], classes)
        packets = int(judged.sum())
        right = int(sum(counts[index, counted == number].sum() for index, number in known))
        often = int(judged.sum(axis=1).argmax())
        share = judged[often].sum() / packets
        # Of a single label every accuracy but 100 % is below its share: no reason for doubt by itself.
        if right / packets < (share if len(known) > 1 else 0.5):
            cause = _advice(counts, there, right, first) or (
                "; it was probably trained on other traffic, or on other features than those of the table"
            )
            warnings.append(
                f"accuracy {100 * right / packets:.2f} % on {packets:,} labelled packets of {name} is less "
                f"than always saying {there[known[often][0]]!r} would get ({100 * share:.2f} %){cause}"
            )
    return warnings


def _advice(counts: NDArray[np.int64], there: Sequence[str], right: int | None, first: int | None) -> str:
    """The order of names that gives most packets their label, if that is more than `right` of them (None: the
    names are missing, not doubted) and more than the most frequent label has; as a clause that ends a
    sentence, "" if no order does.
    """
    missing = "; name the classes with --classes, in the model's order"
    if counts.shape[0] != counts.shape[1]:
        return missing if right is None else ""
    from scipy.optimize import linear_sum_assignment

    labels, of_class = linear_sum_assignment(counts, maximize=True)
    best, packets = int(counts[labels, of_class].sum()), int(counts.sum())
    if best <= max(right or 0, int(counts.sum(axis=1).max())):
        return missing if right is None else ""
    if first is None:
        return missing if right is None else "; the names are probably in the wrong order: compile it again"
    order = ",".join(there[label] for label in np.roll(labels[np.argsort(of_class)], first))
    gained = f"--classes {order}, which makes it {100 * best / packets:.2f} %"
    if right is None:
        return f"; give --classes {order}, with which the accuracy is {100 * best / packets:.2f} %"
    return f"; the names are probably in the wrong order: give {gained}"
