# SPDX-License-Identifier: Apache-2.0
"""What a model lost on its way to integers: agreement with its estimator, accuracy of both, saturation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.evaluate.report import Report
from wirewise.importers import Imported
from wirewise.models import FixedPointMlp, QuantizedMlp
from wirewise.quantize import saturation

SHOWN_DIFFERENCES = 10


@dataclass(frozen=True)
class HeldOut:
    """Labelled rows that neither training nor quantisation has seen.

    rows : int64 (n, n_features). truth : class numbers (n,), -1 for a label the model has no class for. how :
    where the rows come from, for people.
    """

    rows: NDArray[np.int64]
    truth: NDArray[np.int64]
    how: str


def agreement(imported: Imported, rows: NDArray[np.int64]) -> dict[str, Any]:
    """How many rows (n, n_features) get the same class from the integer model and from the estimator.

    Keys: rows, agree, differences (the first rows that differ: number from 0, both classes, features).
    """
    ours, _ = imported.model.predict(rows)
    theirs = imported.predict(rows)
    different = np.flatnonzero(ours != theirs)
    return {
        "rows": len(rows),
        "agree": len(rows) - len(different),
        "differences": [
            {
                "row": int(row),
                "model": imported.classes[int(ours[row])],
                "estimator": imported.classes[int(theirs[row])],
                "features": rows[row].tolist(),
            }
            for row in different[:SHOWN_DIFFERENCES]
        ],
    }


def measure(
    imported: Imported,
    rows: NDArray[np.int64],
    held_out: HeldOut | None = None,
    feature_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """`agreement` on rows; with held-out rows `held_out` (how, packets, estimator and model: reports, lost:
    points of accuracy); of a network `saturation` on rows, see `wirewise.quantize.saturation`.
    """
    found = agreement(imported, rows)
    if held_out is not None and (held_out.truth >= 0).any():
        known = held_out.truth >= 0
        truth = held_out.truth[known]
        estimator, model = (
            Report.of(truth, predicted[known].astype(np.int64), imported.classes)
            for predicted in (imported.predict(held_out.rows), imported.model.predict(held_out.rows)[0])
        )
        found["held_out"] = {
            "how": held_out.how,
            "packets": len(truth),
            "lost": 100 * (estimator.accuracy - model.accuracy),
            "estimator": estimator.to_dict(),
            "model": model.to_dict(),
        }
    if isinstance(imported.model, QuantizedMlp | FixedPointMlp):
        found["saturation"] = saturation(imported.model, rows, feature_names)
    return found
