# SPDX-License-Identifier: Apache-2.0
"""Where an integer network runs out of range: how often inputs and activations saturate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.models import FixedPointMlp, QuantizedMlp
from wirewise.models.quantized_mlp import LIMIT


def saturation(
    model: QuantizedMlp | FixedPointMlp, rows: NDArray[np.int64], names: Sequence[str] | None = None
) -> dict[str, Any]:
    """How many of rows (n, n_features) hit a clamp; plain numbers, ready for a manifest.

    rows: how many. features: those with values outside their clamps, the worst first (feature, low, high,
    below, above). layers: per hidden layer with a ceiling the rows in which any activation is at it, and the
    worst neuron with its rows (layer, rows, neuron, neuron_rows).
    """
    features = []
    for index, scaler in enumerate(model.inputs):
        below, above = int((rows[:, index] < scaler.low).sum()), int((rows[:, index] > scaler.high).sum())
        if scaler.multiplier and (below or above):
            features.append(
                {
                    "feature": names[index] if names else str(index),
                    "low": scaler.low,
                    "high": scaler.high,
                    "below": below,
                    "above": above,
                }
            )
    features.sort(key=lambda row: -(row["below"] + row["above"]))  # type: ignore[operator]
    return {"rows": len(rows), "features": features, "layers": _layers(model, rows)}


def _layers(model: QuantizedMlp | FixedPointMlp, rows: NDArray[np.int64]) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    if isinstance(model, QuantizedMlp):
        ceilings: list[int | None] = [LIMIT] * (len(model.layers) - 1)
    else:
        ceilings = [layer.ceiling for layer in model.layers[:-1]]
    for index, (values, ceiling) in enumerate(zip(model.steps(rows)[1:-1], ceilings, strict=True)):
        if ceiling is None:
            continue
        clamped = values >= ceiling
        by_neuron = clamped.sum(axis=0)
        found.append(
            {
                "layer": index,
                "rows": int(clamped.any(axis=1).sum()),
                "neuron": int(by_neuron.argmax()),
                "neuron_rows": int(by_neuron.max()),
            }
        )
    return found
