# SPDX-License-Identifier: Apache-2.0
"""A network for each queue that says whether it is congested, in floating point and binary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.tomography.table import DELAY_BITS, NAMES, Dataset
from wirewise.errors import InputError
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.models.binary_mlp import BinaryMlp

INPUT_BITS = DELAY_BITS * 19
SIZES = ((32, 16), (64, 32), (128, 64))
EPOCHS = 40  # of the float network, at most: it ends when a tenth of its rows says that it learns no more
Rows = NDArray[np.int64]


def weight_bytes(kind: str, hidden: Sequence[int]) -> float:
    """Of a network of one queue: four bytes a weight and one output in floating point, a bit and two if it is
    binary.
    """
    outputs, each = (1, 4.0) if kind == "float" else (2, 1 / 8)
    return each * sum(a * b for a, b in pairwise((INPUT_BITS, *hidden, outputs)))


@dataclass(frozen=True)
class Judged:
    """What one network of a queue did on rows that it had not seen. commoner : accuracy of whoever always
    says the class that is more common there. model : None in floating point.
    """

    queue: int
    accuracy: float
    commoner: float
    model: BinaryMlp | None = None


def congested(data: Dataset, queue: int, threshold: float) -> Rows:
    """1 where the queue had more packets than that, on average over the round; (n,)."""
    return (data.packets[:, queue] > threshold).astype(np.int64)


def judge(
    data: Dataset, kind: str, hidden: Sequence[int], threshold: float, seed: int = 0
) -> Iterator[Judged]:
    """Trains and tests one network after the other, of all queues. kind : a name of KINDS.

    Raises InputError for a queue that is always congested, or never, where it is learned.
    """
    learn, test = data.split()
    for queue, name in enumerate(NAMES):
        truth = congested(data, queue, threshold)
        if not 0 < truth[learn].mean() < 1:
            often = "always" if truth[learn].all() else "never"
            raise InputError(
                f"queue {name}",
                f"is {often} above {threshold:g} packets in the rounds to learn from",
                "simulate more, or choose another --threshold",
            )
        says, model = KINDS[kind](data.delays[learn], truth[learn], tuple(hidden), seed)
        right = float((says(data.delays[test]) == truth[test]).mean())
        share = float(truth[test].mean())
        yield Judged(queue, right, max(share, 1 - share), model)


Trained = tuple[Callable[[Rows], Any], BinaryMlp | None]


def _float(delays: Rows, truth: Rows, hidden: tuple[int, ...], seed: int) -> Trained:
    """ReLU and Adam on the bits of the delays, 0 or 1, as the paper has it."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    mlp = MLPClassifier(hidden, max_iter=EPOCHS, early_stopping=True, random_state=seed)
    with warnings.catch_warnings(), threadpool_limits(1):  # as several only get in each other's way here
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(_bits(delays), truth)
    return lambda rows: mlp.predict(_bits(rows)), None


def _bits(delays: Rows) -> NDArray[np.float32]:
    return (delays[:, :, None] >> np.arange(DELAY_BITS) & 1).reshape(len(delays), -1).astype(np.float32)


def _binary(delays: Rows, truth: Rows, hidden: tuple[int, ...], seed: int, encoding: str) -> Trained:
    trained = BinaryClassifier(hidden, bits=INPUT_BITS, encoding=encoding, seed=seed).fit(delays, truth)
    return lambda rows: trained.model.predict(rows)[0], trained.model


KINDS: dict[str, Callable[[Rows, Rows, tuple[int, ...], int], Trained]] = {
    "float": _float,
    "binary": partial(_binary, encoding="bits"),
    "binary, steps": partial(_binary, encoding="steps"),
}
"""Networks of the same size: in floating point and binary on the 8 bits of each delay, as in the paper; and
binary on as many thermometer bits, placed where they tell most (docs/networks.md).
"""
