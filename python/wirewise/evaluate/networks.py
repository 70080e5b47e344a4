# SPDX-License-Identifier: Apache-2.0
"""The neural networks that `wirewise train` offers: hara2023's settings, behind a standardisation, and
siracusano-n3ic's, binary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from wirewise.errors import InputError
from wirewise.models.network import MAX_LAYERS, MAX_WIDTH

HIDDEN = {"int8": (16, 16), "q16": (32, 32), "binary": (32, 16)}
"""Widths of the hidden layers of hara2023, hara2026 and siracusano-n3ic, by the kind of network that they
became.
"""
LEARNING_RATE = 1e-3
EPOCHS = 100


def make_mlp(hidden: Sequence[int], seed: int) -> Any:
    """An unfitted Pipeline of StandardScaler and MLPClassifier: ReLU, Adam, until it no longer improves.

    hidden : neurons of each hidden layer. Raises InputError for sizes that cannot be compiled.
    """
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not 1 <= len(hidden) < MAX_LAYERS or not all(1 <= width <= MAX_WIDTH for width in hidden):
        raise InputError(
            f"hidden layers {','.join(map(str, hidden))}",
            f"must be 1 to {MAX_LAYERS - 1} layers of 1 to {MAX_WIDTH} neurons",
        )
    mlp = MLPClassifier(
        tuple(hidden), activation="relu", solver="adam", learning_rate_init=LEARNING_RATE, max_iter=EPOCHS,
        n_iter_no_change=10, random_state=seed,
    )  # fmt: skip
    return make_pipeline(StandardScaler(), mlp)


def make_bnn(hidden: Sequence[int], encoding: str, seed: int) -> Any:
    """An unfitted BinaryClassifier, see there; JAX and optax are needed when it is fitted."""
    from wirewise.evaluate.binary_training import BinaryClassifier

    return BinaryClassifier(hidden, encoding=encoding, seed=seed)


def weigh(estimator: Any, weights: Any) -> dict[str, Any]:
    """The arguments with which `fit` of an estimator gets one weight per row; nothing for None.

    Raises InputError where the installed scikit-learn has no weights for it (MLPClassifier before 1.7).
    """
    if weights is None:
        return {}
    last = estimator.steps[-1] if hasattr(estimator, "steps") else ("", estimator)
    if "sample_weight" not in inspect.signature(last[1].fit).parameters:
        raise InputError(
            "class weights",
            f"are not known to {type(last[1]).__name__} of this scikit-learn",
            "leave them out, or install scikit-learn 1.7 or newer",
        )
    return {f"{last[0]}__sample_weight" if last[0] else "sample_weight": weights}


def set_names(estimator: Any, classes: Any, features: Any) -> None:
    """Lets a fitted estimator predict class names instead of numbers, and say the features it reads.

    classes, features : object arrays of names, in order.
    """
    steps = [step for _, step in estimator.steps] if hasattr(estimator, "steps") else [estimator]
    steps[-1].classes_ = classes
    if hasattr(steps[-1], "_label_binarizer"):  # what an MLPClassifier looks its answers up in
        steps[-1]._label_binarizer.classes_ = classes
    for step in steps:
        step.feature_names_in_ = features
