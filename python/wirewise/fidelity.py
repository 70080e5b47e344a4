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
SHOWN_RANGES = 5


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


Lines = list[tuple[str, ...]]


def summary(fidelity: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts (label, text) of what `measure` found."""
    rows, agree = fidelity["rows"], fidelity["agree"]
    facts = [("agreement", f"{agree:,} of {rows:,} rows, {100 * agree / max(1, rows):.2f} %")]
    if held_out := fidelity.get("held_out"):
        said, ours = (100 * held_out[who]["accuracy"] for who in ("estimator", "model"))
        facts.append(
            ("accuracy", f"estimator {said:.2f} %, integers {ours:.2f} %: {held_out['lost']:.2f} points lost")
        )
        facts.append(("measured on", f"{held_out['packets']:,} packets: {held_out['how']}"))
    if ranges := fidelity.get("saturation"):
        facts += _saturation(ranges)
    return facts


def _saturation(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = max(1, found["rows"])
    facts = [
        (
            "clamped" if index == 0 else "",
            f"{row['feature']} to {row['low']:,} .. {row['high']:,}: "
            f"{100 * (row['below'] + row['above']) / rows:.2f} % of the rows",
        )
        for index, row in enumerate(found["features"][:SHOWN_RANGES])
    ]
    if len(found["features"]) > SHOWN_RANGES:
        facts.append(("", f"and {len(found['features']) - SHOWN_RANGES} features more"))
    facts += [
        (
            "saturated" if index == 0 else "",
            f"layer {row['layer']}: {100 * row['rows'] / rows:.2f} % of the rows, "
            f"neuron {row['neuron']} most, {100 * row['neuron_rows'] / rows:.2f} %",
        )
        for index, row in enumerate(found["layers"])
    ]
    return facts


def class_table(fidelity: dict[str, Any]) -> tuple[tuple[str, ...], Lines]:
    """Head and lines of a table: precision, recall, F1 of each class, of estimator and integers."""
    head = ("class", "packets", "precision", "integers", "recall", "integers", "F1", "integers")
    held_out = fidelity["held_out"]
    lines = []
    for theirs, ours in zip(held_out["estimator"]["classes"], held_out["model"]["classes"], strict=True):
        pairs = ((theirs[key], ours[key]) for key in ("precision", "recall", "f1"))
        numbers = tuple(f"{value:.4f}" for pair in pairs for value in pair)
        lines.append((theirs["name"], f"{theirs['packets']:,}", *numbers))
    return head, lines
