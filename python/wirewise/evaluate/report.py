# SPDX-License-Identifier: Apache-2.0
"""How good a classifier is on labelled packets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    """accuracy : 0 to 1. confusion : rows are the truth, columns the prediction, in the order of classes."""

    packets: int
    accuracy: float
    classes: list[ClassReport]
    confusion: list[list[int]]

    @classmethod
    def of(cls, truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: list[str]) -> Report:
        """truth, predicted : class numbers, shape (n,), below len(classes)."""
        count = len(classes)
        confusion = np.bincount(truth * count + predicted, minlength=count * count).reshape(count, count)
        right, true, said = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
        precision, recall = right / np.maximum(said, 1), right / np.maximum(true, 1)
        f1 = 2 * right / np.maximum(true + said, 1)
        rows = [
            ClassReport(name, int(true[i]), float(precision[i]), float(recall[i]), float(f1[i]))
            for i, name in enumerate(classes)
        ]
        accuracy = float(right.sum() / max(1, len(truth)))
        return cls(len(truth), accuracy, rows, confusion.tolist())

    @property
    def macro_f1(self) -> float:
        """Mean of the classes' F1: every class counts the same, however few its packets."""
        return sum(row.f1 for row in self.classes) / len(self.classes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "macro_f1": self.macro_f1}
