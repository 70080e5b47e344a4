# SPDX-License-Identifier: Apache-2.0
"""How good a classifier is on labelled packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise import html
from wirewise.evaluate.classes import ATTACK, nameless


@dataclass(frozen=True)
class ClassReport:
    """One class: how many packets are of it, and ratios of 0 to 1 (0 where nothing can be divided)."""

    name: str
    packets: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Report:
    """accuracy : 0 to 1. confusion : rows are the truth, columns the prediction, in the order of classes.
    What a nameless class finds of `attack`, see `wirewise.evaluate.classes.nameless`, is right.
    """

    packets: int
    accuracy: float
    classes: list[ClassReport]
    confusion: list[list[int]]

    @classmethod
    def of(cls, truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: list[str]) -> Report:
        """truth, predicted : class numbers, shape (n,), below len(classes)."""
        count = len(classes)
        confusion = np.bincount(truth * count + predicted, minlength=count * count).reshape(count, count)
        return cls.from_confusion(confusion, classes)

    @classmethod
    def sum(cls, reports: Sequence[Report]) -> Report:
        """One report about the packets of several, of the same classes."""
        confusion = np.sum([report.confusion for report in reports], axis=0)
        return cls.from_confusion(confusion, [row.name for row in reports[0].classes])

    @classmethod
    def from_confusion(cls, confusion: NDArray[np.int64], classes: list[str]) -> Report:
        """A report of its confusion matrix: packets, shape (n, n), rows the truth."""
        counted = counts(confusion, classes)
        right, true, _ = counted
        found = ratios(*counted)
        rows = [
            ClassReport(name, int(true[i]), *(float(of[i]) for of in found.values()))
            for i, name in enumerate(classes)
        ]
        packets = int(true.sum())
        return cls(packets, float(right[true > 0].sum() / max(1, packets)), rows, confusion.tolist())

    @property
    def absent(self) -> list[str]:
        """The classes that no packet is of, of which nothing is known."""
        return [row.name for row in self.classes if not row.packets and row.name not in self.nameless]

    @property
    def nameless(self) -> list[str]:
        """The classes that no packet is of, but whose finds count as those of `attack`."""
        names = [row.name for row in self.classes]
        there = [number for number, row in enumerate(self.classes) if row.packets]
        return [names[number] for number in nameless(there, names)]

    def __repr__(self) -> str:
        share, classes = f"accuracy {self.accuracy:.4f}", len(self.classes)
        return f"<Report: {share} over {self.packets:,} packets of {classes} classes>"

    def to_html(self) -> str:
        """Numbers of each class, and the confusion."""
        ratios = ((row.name, f"{row.packets:,}", *(f"{v:.4f}" for v in _ratios(row))) for row in self.classes)
        share = f"accuracy {self.accuracy:.4f} over {self.packets:,} packets, macro F1 {self.macro_f1:.4f}"
        return (
            html.table(("class", "packets", "precision", "recall", "F1"), ratios, right=range(1, 5))
            + html.paragraph(share)
            + html.confusion([row.name for row in self.classes], self.confusion)
        )

    def _repr_html_(self) -> str:
        return html.fragment(self.to_html())

    @property
    def macro_f1(self) -> float:
        """Mean of the F1 of the classes that are there: every class counts the same, however few its
        packets.
        """
        there = [row.f1 for row in self.classes if row.packets]
        return sum(there) / max(1, len(there))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "macro_f1": self.macro_f1}


def counts(
    confusion: NDArray[Any], classes: Sequence[str]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """How many of each class are right, are of it, and are said to be, each of shape (..., n).

    confusion : one matrix, or several of the same classes, (..., n, n), rows the truth.
    """
    right = np.diagonal(confusion, axis1=-2, axis2=-1).copy()
    true, said = confusion.sum(axis=-1), confusion.sum(axis=-2)
    there = np.flatnonzero(true.reshape(-1, len(classes)).any(axis=0)).tolist()
    if found := nameless(there, classes):
        attack = list(classes).index(ATTACK)
        right[..., found] = confusion[..., attack, found]
        right[..., attack] += right[..., found].sum(axis=-1)
        said[..., attack] += said[..., found].sum(axis=-1)
    return right, true, said


def ratios(right: NDArray[Any], true: NDArray[Any], said: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Each class's precision, recall and F1, of `counts`; 0 where nothing can be divided."""
    met = right * (true > 0)
    return {
        "precision": right / np.maximum(said, 1),
        "recall": met / np.maximum(true, 1),
        "f1": 2 * met / np.maximum(true + said, 1),
    }


def _ratios(row: ClassReport) -> tuple[float, float, float]:
    return row.precision, row.recall, row.f1
