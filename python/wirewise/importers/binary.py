# SPDX-License-Identifier: Apache-2.0
"""Binary networks from a plain file, .bnn: JSON that any training tool can write (docs/importers.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.lowering import Imported, Predict, Request, Rows, check_features, class_names
from wirewise.models.binary_mlp import (
    BinaryInput,
    BinaryLayer,
    BinaryMlp,
    BitsInput,
    StepsInput,
    check_input,
)

FORMAT, VERSION = "wirewise-binary", 1
LARGEST_FILE = 64 << 20


def import_file(path: str, request: Request) -> Imported:
    """A .bnn file. Raises InputError naming what in it is missing, unknown or out of range."""
    if request.votes is not None:
        raise request.refuse("is a neural network, it has no trees that could vote", "leave out the majority")
    document = _read(path, request)
    _keys(request, "the file", document, {"format", "version", "classes", "features", "inputs", "layers"})
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise request.refuse(
            f"is {document['format']!r} version {document['version']!r}",
            f"write {FORMAT!r}, version {VERSION}",
        )
    names = _list(request, "features", document["features"])
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        raise request.refuse("features are not distinct names", "name each feature of the table, in order")
    check_features(request, len(names))
    classes = class_names(request, _list(request, "classes", document["classes"]))
    inputs = [
        _input(request, f"input {index}", one, names)
        for index, one in enumerate(_list(request, "inputs", document["inputs"]))
    ]
    parts = _list(request, "layers", document["layers"])
    weights = [
        _layer(request, f"layer {index}", part, "bias" if index == len(parts) - 1 else "threshold")
        for index, part in enumerate(parts)
    ]
    layers = tuple(
        BinaryLayer(tuple(sum(1 << k for k, w in enumerate(row) if w > 0) for row in rows), tuple(ends))
        for rows, ends in weights
    )
    fan_in = sum(one.width for one in inputs)
    for index, (rows, _) in enumerate(weights):
        if any(len(row) != fan_in for row in rows):
            raise request.refuse(
                f"layer {index}: a neuron has not {fan_in} weights", "give one for each input"
            )
        fan_in = len(rows)
    try:
        model = BinaryMlp(len(names), len(classes), tuple(inputs), layers)
    except InputError as error:
        raise InputError(f"{request.subject}: {error}") from error
    return Imported(
        model=model,
        classes=classes,
        source=f"{FORMAT} {VERSION}, {model.describe()}",
        notes=[],
        node_ids=(),
        predict=_predict(inputs, [(np.array(rows), np.array(ends)) for rows, ends in weights]),
        feature_names=names,
    )


def _read(path: str, request: Request) -> dict[str, Any]:
    try:
        if Path(path).stat().st_size > LARGEST_FILE:
            raise request.refuse(
                f"is larger than {LARGEST_FILE >> 20} MiB", "no network of our size needs that"
            )
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise request.refuse(
            f"cannot be read as JSON: {error}", "see docs/importers.md for the format"
        ) from None
    if not isinstance(document, dict):
        raise request.refuse("is no JSON object", "see docs/importers.md for the format")
    return document


def _keys(request: Request, where: str, document: Any, known: set[str]) -> None:
    if not isinstance(document, dict):
        raise request.refuse(f"{where} is no object", "see docs/importers.md for the format")
    for what, names in (("lacks", known - document.keys()), ("has unknown", document.keys() - known)):
        if names:
            raise request.refuse(f"{where} {what} {', '.join(sorted(names))}", "see docs/importers.md")


def _list(request: Request, where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise request.refuse(f"{where}: is no list", "see docs/importers.md for the format")
    return value


def _input(request: Request, where: str, document: Any, names: list[str]) -> BinaryInput:
    steps = isinstance(document, dict) and "thresholds" in document
    _keys(request, where, document, {"feature", "thresholds"} if steps else {"feature", "shift", "bits"})
    if document["feature"] not in names:
        raise request.refuse(f"{where}: unknown feature {document['feature']!r}", "name one of its features")
    feature = names.index(document["feature"])
    source: BinaryInput
    if steps:
        source = StepsInput(feature, tuple(_list(request, f"{where}, thresholds", document["thresholds"])))
    else:
        source = BitsInput(feature, document["shift"], document["bits"])
    check_input(f"{request.subject}: {where}", source, len(names))
    return source


def _layer(request: Request, where: str, document: Any, ends: str) -> tuple[list[list[int]], list[int]]:
    """Weights, neuron by neuron, and thresholds or biases."""
    _keys(request, where, document, {"weights", ends})
    rows = [_list(request, f"{where}, weights", row) for row in _list(request, where, document["weights"])]
    if any(type(weight) is not int or weight not in (-1, 1) for row in rows for weight in row):
        raise request.refuse(f"{where}: has a weight that is not 1 or -1", "write the signs of the weights")
    return rows, _list(request, f"{where}, {ends}", document[ends])


def _predict(inputs: list[BinaryInput], layers: list[tuple[Rows, Rows]]) -> Predict:
    """The network as it was trained: dot products of +-1."""

    def predict(x: Rows) -> Any:
        signs = 2 * np.concatenate([one.encode_rows(x[:, one.feature]) for one in inputs], axis=1) - 1
        for index, (weights, ends) in enumerate(layers, 1):
            agreement = (signs @ weights.T + weights.shape[1]) // 2
            if index == len(layers):
                return (agreement + ends).argmax(axis=1).astype(np.int32)
            signs = np.where(agreement >= ends, 1, -1)
        raise AssertionError("a network has a layer")

    return predict
