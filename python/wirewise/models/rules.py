# SPDX-License-Identifier: Apache-2.0
"""Limits and checks that all model families share."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.abi import MAX_CLASSES, MAX_FEATURES
from wirewise.errors import InputError
from wirewise.frames import whole

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def is_int(value: object, low: int, high: int) -> bool:
    """Whether a value is an int (no bool, no numpy integer) of low to high."""
    return type(value) is int and low <= value <= high


def renumbered_scores(start: tuple[int, ...], first: int) -> tuple[int, ...]:
    """What the scores of each class start from once class `first` is class 0, see `renumbered` of a family.

    A class that came before `first` won against it with an equal score. It comes after it now, so it starts
    one higher. All other pairs keep their order.
    """
    return (*start[first:], *(value + 1 for value in start[:first]))


def check_size(n_features: object, n_classes: object) -> None:
    """Raises InputError unless there are 1 to 128 features and 2 to 64 classes."""
    if not is_int(n_features, 1, MAX_FEATURES):
        raise InputError(
            "model",
            f"has {n_features} features, allowed are 1 to {MAX_FEATURES}",
            "train it on fewer features",
        )
    if not is_int(n_classes, 2, MAX_CLASSES):
        raise InputError(
            "model",
            f"has {n_classes} classes, allowed are 2 to {MAX_CLASSES}",
            "merge classes and train again",
        )


def check_keys(where: str, document: object, known: set[str]) -> None:
    """Raises InputError unless the document is an object with exactly these keys."""
    if not isinstance(document, dict):
        raise InputError(where, "is not an object")
    if missing := sorted(known - document.keys()):
        raise InputError(where, f"lacks {', '.join(missing)}")
    if unknown := sorted(map(str, document.keys() - known)):
        raise InputError(where, f"has unknown keys: {', '.join(unknown)}")


def check_family(document: dict[str, Any], family: str, version: int) -> None:
    """Raises InputError unless the document is of this family and version."""
    if document.get("family") != family:
        raise InputError("model", f"family is {document.get('family')!r}, not {family!r}")
    if document.get("version") != version:
        raise InputError(
            "model",
            f"version {document.get('version')!r} is unknown, this wirewise reads version {version}",
            "use the wirewise that wrote it, or compile it again",
        )


def as_tuple(where: str, name: str, value: object) -> tuple[Any, ...]:
    """A JSON list as a tuple, or InputError."""
    if not isinstance(value, list):
        raise InputError(where, f"{name} is not a list")
    return tuple(value)


def as_rows(x: NDArray[np.int64], n_features: int) -> NDArray[np.int64]:
    """Rows of shape (n, n_features) as contiguous int64, see `wirewise.frames.whole`; or InputError."""
    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] != n_features:
        raise InputError(f"rows of shape {x.shape}", f"the model reads {n_features} features a row")
    return np.ascontiguousarray(whole(x, lambda row, feature: f"row {row}, feature {feature}"))


def digest(document: dict[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON of a document."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
