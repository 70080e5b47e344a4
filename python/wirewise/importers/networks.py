# SPDX-License-Identifier: Apache-2.0
"""What the importers of neural networks share: from a float network to an integer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.lowering import check_features
from wirewise.importers.request import Imported, Predict, Request
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
) -> Imported:
    """Quantises a float network on the rows of the request. Raises InputError without them."""
    if request.votes is not None:
        raise request.refuse("is a neural network, it has no trees that could vote", "leave out the majority")
    check_features(request, network.n_features)
    if request.rows is None:
        raise request.refuse(
            "is a neural network, and no rows were given to quantise it with",
            "give a table of the packets it was trained on: --table TABLE (in Python: rows=...)",
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
