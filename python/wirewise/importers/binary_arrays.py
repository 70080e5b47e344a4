# SPDX-License-Identifier: Apache-2.0
"""Binarised dense layers of Larq or Keras, as arrays in a .npz file (docs/importers.md).

Larq's `ste_sign` takes 0 for +1, in kernels and between layers, and so do we.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from wirewise.errors import InputError
from wirewise.importers.binary import LARGEST_FILE, feature_names, no_votes, read_inputs
from wirewise.importers.lowering import class_names
from wirewise.importers.request import Imported, Request
from wirewise.quantize.binarised import BinarisedLayer, BinarisedNetwork, Floats, Normalisation

EPSILON = 1e-3  # Keras' default
_NAMES = {"classes", "features", "inputs"}
_OF_A_LAYER = ("kernel", "bias", "gamma", "beta", "mean", "variance", "epsilon")
_SEE = "see docs/importers.md for the names"

Arrays = dict[str, Any]


def import_file(path: str, request: Request) -> Imported:
    """A .npz file. Raises InputError naming the array that is missing, unknown or unfit."""
    no_votes(request)
    arrays = _read(path, request)
    features = feature_names(request, _texts(request, arrays, "features"))
    classes = class_names(request, _texts(request, arrays, "classes"))
    try:
        document = json.loads("".join(_texts(request, arrays, "inputs")))
    except (ValueError, RecursionError) as error:
        raise request.refuse(f"inputs: is not JSON ({error})", _SEE) from None
    layers = tuple(_layer(request, arrays, index) for index in range(_count(request, arrays)))
    try:
        network = BinarisedNetwork(len(features), tuple(read_inputs(request, document, features)), layers)
        model, rounded = network.fold()
    except InputError as error:
        if error.subject.startswith(request.subject):
            raise
        raise InputError(f"{request.subject}: {error.subject}", error.rule, error.way_out) from error
    if len(classes) != network.n_classes:
        raise request.refuse(
            f"has {network.n_classes} classes, its list names {len(classes)}", "name each class once"
        )
    notes = []
    if rounded:
        notes.append(
            f"biases of the last layer are rounded to whole agreeing inputs, by {rounded:.2f} at most: only "
            "closer calls can differ"
        )
    return Imported(
        model=model,
        classes=classes,
        source=f"binarised dense layers, {model.describe()}",
        notes=notes,
        node_ids=(),
        predict=network.predict,
        feature_names=features,
    )


def _read(path: str, request: Request) -> Arrays:
    if Path(path).stat().st_size > LARGEST_FILE:
        raise request.refuse(f"is larger than {LARGEST_FILE >> 20} MiB", "no network of our size needs that")
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise request.refuse("is a single array", "save the arrays by name, with np.savez")
        with loaded, ZipFile(path) as archive:
            # A packed file may be of zeros.
            if sum(member.file_size for member in archive.infolist()) > LARGEST_FILE:
                raise request.refuse(
                    f"unpacks to more than {LARGEST_FILE >> 20} MiB", "no network of our size needs that"
                )
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
        raise request.refuse(f"cannot be read as arrays: {error}", "save them with np.savez") from None


def _texts(request: Request, arrays: Arrays, name: str) -> list[str]:
    """A text, or texts, as a list."""
    if name not in arrays:
        raise request.refuse(f"lacks the array {name}", _SEE)
    if arrays[name].dtype.kind != "U" or arrays[name].ndim > 1:
        raise request.refuse(f"{name}: is no list of texts", _SEE)
    texts: list[str] = np.atleast_1d(arrays[name]).tolist()
    return texts


def _count(request: Request, arrays: Arrays) -> int:
    """How many layers there are; every array has a known name."""
    numbers = set()
    for name in arrays.keys() - _NAMES:
        part, _, number = name.rpartition("_")
        if part not in _OF_A_LAYER or not re.fullmatch("[0-9]", number):
            raise request.refuse(f"has an unknown array {name}", _SEE)
        numbers.add(int(number))
    for index in range(max(numbers, default=0) + 1):
        if f"kernel_{index}" not in arrays:
            raise request.refuse(f"lacks the array kernel_{index}", "number the layers from 0")
    return len(numbers)


def _layer(request: Request, arrays: Arrays, index: int) -> BinarisedLayer:
    own: dict[str, Floats] = {}
    for part in _OF_A_LAYER:
        name = f"{part}_{index}"
        if name in arrays:
            if arrays[name].dtype.kind not in "fiub":
                raise request.refuse(f"{name}: does not hold numbers", _SEE)
            own[part] = np.asarray(arrays[name], np.float64)
    kernel = own["kernel"]
    neurons = kernel.shape[-1] if kernel.ndim else 0
    if kernel.ndim != 2 or not kernel.size:
        raise request.refuse(f"kernel_{index}: is of shape {kernel.shape}", "give inputs by neurons")
    layer = BinarisedLayer(kernel, own.get("bias", np.zeros(neurons)))
    parts = [part for part in _OF_A_LAYER[2:] if part in own]
    if not parts:
        return layer
    for part in ("mean", "variance"):
        if part not in own:
            raise request.refuse(f"lacks the array {part}_{index}", f"{parts[0]}_{index} needs it")
    epsilon = own.get("epsilon", np.array(EPSILON))
    if epsilon.ndim:
        raise request.refuse(f"epsilon_{index}: is of shape {epsilon.shape}", "give one number")
    norm = Normalisation(
        own.get("gamma", np.ones(neurons)),
        own.get("beta", np.zeros(neurons)),
        own["mean"],
        own["variance"],
        float(epsilon),
    )
    return replace(layer, normalisation=norm)
