# SPDX-License-Identifier: Apache-2.0
"""What the importers of neural networks share: from a float network to an integer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.lowering import check_features
from wirewise.importers.request import Imported, Predict, Request, Rows
from wirewise.quantize import FloatNetwork, Options, quantize
from wirewise.quantize.float_network import Floats


def import_network(
    network: FloatNetwork,
    request: Request,
    *,
    classes: list[str],
    source: str,
    predict: Predict,
    feature_names: list[str] | None = None,
    kind: str = "a neural network",
) -> Imported:
    """Quantises a float network on the rows of the request. kind : what errors call it. Raises InputError
    without rows.
    """
    if request.votes is not None:
        raise request.refuse(f"is {kind}, it has no trees that could vote", "leave out the majority")
    check_features(request, network.n_features)
    if request.rows is None:
        raise request.refuse(
            f"is {kind}, and no rows were given to quantise it with",
            "give a table of the packets it was trained on: --table TABLE (for import_model: rows=...)",
        )
    labels = None
    if request.labels is not None:
        number = {name: index for index, name in enumerate(classes)}
        labels = np.array([number.get(label, -1) for label in request.labels], np.int64)
    try:
        quantised = quantize(network, request.rows, request.options or Options(), labels=labels)
    except InputError as error:
        raise InputError(f"{request.subject}: {error}") from error
    return Imported(
        model=quantised.model,
        classes=classes,
        source=f"{source} {network.shape}",
        notes=quantised.notes,
        node_ids=(),
        predict=predict,
        feature_names=feature_names,
        network=network,
    )


LARGEST_WEIGHT = 1024.0
"""Largest weight of a standardised linear model: far below the limit of Q16, which keeps 26 bits of it."""


def standardised(network: FloatNetwork, rows: Rows) -> FloatNetwork:
    """A linear model that decides the same, though its weights are of features with mean 0 and deviation 1.

    Weights of features as they are may be of any size, and fixed-point numbers keep the same small step for
    all of them. rows : whose means and deviations are taken, (n, n_features). The scores are multiplied by a
    positive number, which changes no class. Raises ValueError for other networks.
    """
    if not len(rows):
        return network
    (weights,), (bias,) = network.weights, network.biases
    values = network.clip(rows)
    offset = np.rint(values.mean(axis=0))
    scale = 1 / np.maximum(values.std(axis=0), 1.0)
    slope = weights * network.scale[:, None]
    moved = (offset - network.offset) @ slope
    standard = slope / scale[:, None]
    largest = max(float(np.abs(standard).max()), 1e-300)
    factor = LARGEST_WEIGHT / largest
    return replace(
        network,
        offset=offset,
        scale=scale,
        weights=(standard * factor,),
        biases=((bias + moved) * factor,),
        output="none",
    )


def affine_input(
    network: FloatNetwork, factor: Floats, shift: Floats, clip: Sequence[Floats] | None = None
) -> FloatNetwork:
    """The network behind one more step `x * factor + shift`, (n_features,) each, clipped to clip[0], clip[1].

    The factor must not be 0. A network without a normalisation has offset 0 and scale 1.
    """
    endless = np.full(network.n_features, np.inf)
    low = -endless if network.low is None else network.low
    high = endless if network.high is None else network.high
    if clip is not None:
        low, high = np.clip(low, *clip), np.clip(high, *clip)
    edges = (low - shift) / factor, (high - shift) / factor
    return replace(
        network,
        offset=(network.offset - shift) / factor,
        scale=network.scale * factor,
        low=np.minimum(*edges),
        high=np.maximum(*edges),
    )
