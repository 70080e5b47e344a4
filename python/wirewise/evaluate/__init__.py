# SPDX-License-Identifier: Apache-2.0
"""Training trees and networks on feature tables, and saying how good they are."""

from wirewise.evaluate.classes import class_names, matrix, numbers
from wirewise.evaluate.report import ClassReport, Report
from wirewise.evaluate.split import GROUPS, Split, folds, grouped_split, split
from wirewise.evaluate.train import ESTIMATORS, Training, train

__all__ = [
    "ESTIMATORS",
    "GROUPS",
    "ClassReport",
    "Report",
    "Split",
    "Training",
    "class_names",
    "folds",
    "grouped_split",
    "matrix",
    "numbers",
    "split",
    "train",
]
