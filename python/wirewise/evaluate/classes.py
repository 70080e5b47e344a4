# SPDX-License-Identifier: Apache-2.0
"""The classes that a table's labels mean, and its rows as arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.frames import integers
from wirewise.models.bounded import UNKNOWN

BENIGN = "benign"
ATTACK = "attack"
"""Where there are these two classes, every label that names no class means it."""
TWO_CLASSES = [BENIGN, ATTACK]


def class_names(labels: list[str]) -> list[str]:
    """The classes in the order of their numbers: `benign` first, because ties go to the lowest class."""
    return sorted(set(labels), key=lambda name: (name != BENIGN, name))


def check_classes(table: Table, *, two: bool = False, one: bool = False) -> list[str]:
    """The classes of a table of labelled rows; two : just TWO_CLASSES; one : though there may be benign rows
    alone. Raises InputError unless there are two, and where one of these shall be benign and no row is.
    """
    classes = class_names(table.frame["label"].unique().to_list())
    if two and BENIGN not in classes:
        raise InputError("the table", f"has no row labelled {BENIGN}", "see docs/labels.md")
    if len(classes) < 2 and not one:
        found = f"only {classes[0]!r}" if classes else "none"
        raise InputError(
            "the table", f"needs labels of at least two classes, it has {found}", "see docs/labels.md"
        )
    return list(TWO_CLASSES) if two else classes


def matrix(table: Table) -> NDArray[np.int64]:
    """The features as an int64 array of shape (n rows, n features), in the feature set's order.

    Raises InputError for a column that does not hold whole numbers, see `wirewise.frames.integers`.
    """
    return integers(table.frame, table.feature_set.feature_names)


def numbers(table: Table, classes: list[str]) -> NDArray[np.int64]:
    """The labels as class numbers, see `class_of`; -1 for a label that is not in classes."""
    index = {name: number for number, name in enumerate(classes)}
    of = {label: index.get(class_of(label, classes), -1) for label in table.frame["label"].unique().to_list()}
    return np.array([of[label] for label in table.frame["label"].to_list()], np.int64)


def benign_of(classes: Sequence[str]) -> int:
    """The number of the benign class: 0 if none is called so."""
    return list(classes).index(BENIGN) if BENIGN in classes else 0


def class_of(label: str, classes: Sequence[str]) -> str:
    """The class that a label means: itself, but where benign and attack are classes, any label that is none
    is an attack.
    """
    return ATTACK if label and label not in classes and set(TWO_CLASSES) <= set(classes) else label


def nameless(there: Collection[int], classes: Sequence[str]) -> list[int]:
    """The numbers of classes that no label names, such as that of trees apart, where a label that names none
    means ATTACK: what they find of that label is found. there : the numbers that labels have.
    """
    if not set(TWO_CLASSES) <= set(classes):
        return []
    named = (*TWO_CLASSES, UNKNOWN)
    return [number for number, name in enumerate(classes) if number not in there and name not in named]


def counted_as(there: Collection[int], classes: Sequence[str]) -> NDArray[np.int64]:
    """The number that each class counts as, (n classes,): its own, but ATTACK's for `nameless` ones."""
    counted = np.arange(len(classes))
    if found := nameless(there, classes):
        counted[found] = list(classes).index(ATTACK)
    return counted
