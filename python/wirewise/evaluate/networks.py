# SPDX-License-Identifier: Apache-2.0
"""The neural networks that `wirewise train` offers: hara2023's settings, behind a standardisation, and
siracusano-n3ic's, binary.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from wirewise.abi import MAX_WIDTH
from wirewise.errors import InputError
from wirewise.models.network import MAX_LAYERS

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


Progress = Callable[[float], None]
"""Is told the share of some work that is done, 0 to 1."""


def silent(share: float) -> None:
    """Nobody wants to know."""


class _Epochs(io.TextIOBase):
    """Counts the lines that scikit-learn prints, one an epoch: it says in no other way how far it is."""

    def __init__(self, most: int, progress: Progress) -> None:
        self._most, self._progress, self._done = most, progress, 0

    def write(self, text: str) -> int:
        self._done += text.count("Iteration ")
        self._progress(min(1.0, self._done / self._most))
        return len(text)


@contextmanager
def watched(estimator: Any, progress: Progress) -> Iterator[None]:
    """Says how far an estimator is that is fitted in the block, if it is a network; it may end early."""
    from sklearn.neural_network import MLPClassifier

    from wirewise.evaluate.binary_training import BinaryClassifier

    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    if progress is silent or not isinstance(last, MLPClassifier | BinaryClassifier):
        yield
    elif isinstance(last, BinaryClassifier):
        last.progress = progress
        try:
            yield
        finally:
            last.progress = None
    else:
        before = last.verbose
        last.set_params(verbose=True)
        try:
            with redirect_stdout(_Epochs(last.max_iter, progress)):
                yield
        finally:
            last.set_params(verbose=before)


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
