# SPDX-License-Identifier: Apache-2.0
"""Binary networks: from a plain file, .bnn, JSON that any training tool can write (docs/importers.md), and
from `wirewise train`, which writes such files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.lowering import check_features, class_names
from wirewise.importers.request import Imported, Predict, Request, Rows
from wirewise.models.binary_mlp import (
    BinaryInput,
    BinaryLayer,
    BinaryMlp,
    BitsInput,
    StepsInput,
    check_input,
    in_parts,
)

FORMAT, VERSION = "wirewise-binary", 1
LARGEST_FILE = 64 << 20


def import_file(path: str, request: Request) -> Imported:
    """A .bnn file. Raises InputError naming what in it is missing, unknown or out of range."""
    no_votes(request)
    document = _read(path, request)
    document.pop("training", None)  # how it was trained, which the model does not depend on
    _keys(request, "the file", document, {"format", "version", "classes", "features", "inputs", "layers"})
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise request.refuse(
            f"is {document['format']!r} version {document['version']!r}",
            f"write {FORMAT!r}, version {VERSION}",
        )
    names = feature_names(request, document["features"])
    classes = class_names(request, _list(request, "classes", document["classes"]))
    inputs = read_inputs(request, document["inputs"], names)
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


def import_classifier(estimator: Any, request: Request) -> Imported:
    """A fitted `wirewise.evaluate.binary_training.BinaryClassifier`; nothing is lost by folding it."""
    no_votes(request)
    model = getattr(estimator, "model", None)
    if model is None:
        raise request.refuse("is not fitted", "call fit first")
    check_features(request, model.n_features)
    features = getattr(estimator, "feature_names_in_", None)
    return Imported(
        model=model,
        classes=class_names(request, estimator.classes_.tolist()),
        source=f"wirewise {type(estimator).__name__}, {model.describe()}",
        notes=[],
        node_ids=(),
        predict=estimator.network.predict,
        feature_names=None if features is None else list(features),
    )


def to_plain(model: BinaryMlp, classes: Sequence[str], features: Sequence[str]) -> dict[str, Any]:
    """The document of a .bnn file. classes, features : names, in order."""
    inputs: list[dict[str, Any]] = []
    for one in model.inputs:
        if isinstance(one, BitsInput):
            inputs.append({"feature": features[one.feature], "shift": one.shift, "bits": one.bits})
        else:
            inputs.append({"feature": features[one.feature], "thresholds": list(one.thresholds)})
    layers, fan_in = [], model.input_bits
    for index, layer in enumerate(model.layers, 1):
        weights = [[1 if word >> k & 1 else -1 for k in range(fan_in)] for word in layer.weights]
        ends = "bias" if index == len(model.layers) else "threshold"
        layers.append({"weights": weights, ends: list(layer.threshold)})
        fan_in = len(weights)
    return {
        "format": FORMAT,
        "version": VERSION,
        "classes": list(classes),
        "features": list(features),
        "inputs": inputs,
        "layers": layers,
    }


def no_votes(request: Request) -> None:
    """Refuses votes, which trees have."""
    if request.votes is not None:
        raise request.refuse("is a neural network, it has no trees that could vote", "leave out the majority")


def feature_names(request: Request, document: object) -> list[str]:
    """Names of the features from a list of them, as many as the request has."""
    names = _list(request, "features", document)
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        raise request.refuse("features are not distinct names", "name each feature of the table, in order")
    check_features(request, len(names))
    return names


def read_inputs(request: Request, document: object, names: list[str]) -> list[BinaryInput]:
    """Inputs from a list of objects, as in a .bnn file. names : of the features."""
    parts = _list(request, "inputs", document)
    return [_input(request, f"input {index}", one, names) for index, one in enumerate(parts)]


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

    return lambda x: in_parts(predict, x)
