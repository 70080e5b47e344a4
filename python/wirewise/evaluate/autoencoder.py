# SPDX-License-Identifier: Apache-2.0
"""An autoencoder that learns benign rows alone; what it cannot restore is an attack.

It has one narrow hidden layer, and its score is the sum of the absolute errors of the restored features. Each
error e is relu(e) + relu(-e), and scaled features are never negative, so relu carries them past the hidden
layer unchanged. So the whole of it, score included, is an ordinary network with two hidden layers and one
output: h + n neurons (what is remembered, and the n features beside it), 2n (errors of either sign), and
their sum above a threshold. No importer, no target and no data path knows that it is anything else.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.abi import MAX_WIDTH
from wirewise.errors import InputError

HIDDEN = (16,)
"""The one hidden layer: neurons that remember."""
EPOCHS = 40
ROWS = 60_000
"""That are learned from, at most, drawn by their weights."""
LEAST = 1e-3
"""Score that every benign row may have."""
USUAL = 0.99
"""Share of benign values on either side of which a feature's range ends: it has this share above the least
and below the most, so single extremes do not stretch it."""
BEYOND = 4.0
"""Times that range, which a value may go beyond before it counts no further."""


class Autoencoder:
    """Has `fit`, which gives a scikit-learn pipeline of a scaler and an MLPClassifier, classes 0 and 1.

    hidden : see HIDDEN. Raises InputError for sizes that cannot be compiled.
    """

    def __init__(self, hidden: Sequence[int] = HIDDEN, seed: int = 0) -> None:
        if len(hidden) != 1 or not 1 <= hidden[0] < MAX_WIDTH:
            raise InputError(
                f"hidden layers {','.join(map(str, hidden))}", f"must be one of 1 to {MAX_WIDTH - 1} neurons"
            )
        self.hidden, self.seed = hidden[0], seed

    def fit(self, rows: NDArray[np.int64], labels: NDArray[np.int64], sample_weight: Any = None) -> Any:
        """The fitted pipeline; a row is of class 1 if its score is above that of all but 1 % of benign rows.

        rows : (n, n_features). labels : (n,); rows of another class than 0 are left out. Raises InputError
        without any, and for more features than fit two layers.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier, MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MinMaxScaler

        n = rows.shape[1]
        most = min(MAX_WIDTH - self.hidden, MAX_WIDTH // 2)
        if n > most:
            raise InputError(
                "the feature set", f"has {n} features, an autoencoder may have {most}", "leave some out"
            )
        benign = rows[labels == 0].astype(np.float64)
        if not len(benign):
            raise InputError("the table", "has no benign row to learn from")
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)[labels == 0]
        draw = np.random.default_rng(self.seed)
        share = None if weights is None else weights / weights.sum()
        benign = benign[draw.choice(len(benign), min(len(benign), ROWS), p=share)]
        low, high = np.quantile(benign, [1 - USUAL, USUAL], axis=0)
        high = low + BEYOND * np.maximum(high - low, 1)
        scaler = MinMaxScaler((0, BEYOND), clip=True).fit(np.stack([low, high]))
        scaled = scaler.transform(benign)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            learned = MLPRegressor(
                hidden_layer_sizes=(self.hidden,), max_iter=EPOCHS, random_state=self.seed
            ).fit(scaled, scaled)
        score = np.abs(learned.predict(scaled) - scaled).sum(axis=1)
        threshold = max(float(np.quantile(score, USUAL)), LEAST)
        network = MLPClassifier((self.hidden + n, 2 * n), random_state=self.seed)
        network.partial_fit(np.stack([low, high]), [0, 1], classes=[0, 1])  # for what is not its weights
        (into, out), (at_hidden, at_out) = learned.coefs_, learned.intercepts_
        error = np.concatenate([out, -np.eye(n)])
        network.coefs_ = [
            np.concatenate([into, np.eye(n)], axis=1),
            np.concatenate([error, -error], axis=1),
            np.full((2 * n, 1), 1 / threshold),
        ]
        network.intercepts_ = [
            np.concatenate([at_hidden, np.zeros(n)]),
            np.concatenate([at_out, -at_out]),
            np.array([-1.0]),
        ]  # fmt: skip
        return make_pipeline(scaler, network)
