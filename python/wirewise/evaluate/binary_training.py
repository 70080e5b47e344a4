# SPDX-License-Identifier: Apache-2.0
"""Training binary networks, as Courbariaux et al. (arXiv:1602.02830) and siracusano-n3ic do, with JAX.

Weights are real numbers between -1 and 1 while they are trained; the network computes with their signs. Where
a sign has no gradient, that of its input is taken, as far as it is between -1 and 1 (straight-through
estimator). Batch normalisation before each sign, dropout behind it, squared hinge loss, Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate.binary_encoding import INPUT_BITS, Rows, Weights, choose_inputs
from wirewise.importers.lowering import library
from wirewise.models.binary_mlp import MAX_BINARY_WIDTH, BinaryMlp
from wirewise.models.network import MAX_LAYERS
from wirewise.quantize.binarised import BinarisedLayer, BinarisedNetwork, Normalisation, encode

BATCH = 256
PASSES = 40
STEPS = (2_000, 20_000)  # of Adam, at least and at most, where so many passes come to less or more
LEARNING_RATE = 5e-3
DROPOUT = 0.1
EPSILON = 1e-4
_STEPS_A_CALL = 200  # between two of which ctrl-C is heard


class BinaryClassifier:
    """A binary network as an estimator with `fit` and `predict`, over int64 rows.

    hidden : neurons of each hidden layer. bits : of the input, at most. encoding : see `binary_encoding`.
    passes : over the rows, within the limits of STEPS. dropout : share of the hidden outputs that are left
    out while training. Raises InputError for sizes that cannot be compiled.
    """

    network: BinarisedNetwork
    model: BinaryMlp
    progress: Callable[[float], None] | None = None
    """Is told the share of the training that is done, 0 to 1."""

    def __init__(
        self,
        hidden: Sequence[int] = (32, 16),
        *,
        bits: int = INPUT_BITS,
        encoding: str = "steps",
        passes: int = PASSES,
        dropout: float = DROPOUT,
        seed: int = 0,
    ) -> None:
        if not 1 <= len(hidden) < MAX_LAYERS or not all(1 <= width <= MAX_BINARY_WIDTH for width in hidden):
            raise InputError(
                f"hidden layers {','.join(map(str, hidden))}",
                f"must be 1 to {MAX_LAYERS - 1} layers of 1 to {MAX_BINARY_WIDTH} neurons",
            )
        if not 0 <= dropout < 1:
            raise InputError(f"dropout {dropout}", "must be 0 or more, and less than 1")
        self.hidden, self.bits, self.encoding = tuple(hidden), bits, encoding
        self.passes, self.dropout, self.seed = passes, dropout, seed

    def fit(self, rows: Rows, labels: Rows, sample_weight: Weights = None) -> BinaryClassifier:
        """Trains it. rows : (n, n_features). labels : class numbers 0 to k - 1, (n,). Raises
        MissingFeatureError without JAX and optax.
        """
        _compiled()  # says at once if a library is missing
        inputs = choose_inputs(self.encoding, rows, labels, sample_weight, bits=self.bits, seed=self.seed)
        bits = encode(inputs, rows)
        weights = np.ones(len(rows)) if sample_weight is None else sample_weight / sample_weight.mean()
        widths = (bits.shape[1], *self.hidden, int(labels.max()) + 1)
        trained = _train(
            bits,
            labels,
            weights,
            widths,
            passes=self.passes,
            dropout=self.dropout,
            seed=self.seed,
            progress=self.progress,
        )
        self.network = BinarisedNetwork(rows.shape[1], inputs, _normalised(trained, bits))
        self.model, _ = self.network.fold()
        self.classes_ = np.arange(widths[-1])
        return self

    def predict(self, rows: Rows) -> Any:
        """Classes (n,) by the network in floating point, as trained; the folded `model` says the same."""
        return self.classes_[self.network.predict(rows)]


Trained = dict[str, Any]


def _normalised(trained: Trained, bits: NDArray[np.int8]) -> tuple[BinarisedLayer, ...]:
    """The layers with the mean and variance that their dot products have over all rows."""
    layers: list[BinarisedLayer] = []
    values = (2 * bits - 1).astype(np.float32)
    for kernel, gamma, beta in zip(trained["kernels"], trained["gamma"], trained["beta"], strict=False):
        dot = (values @ np.where(kernel >= 0, 1, -1).astype(np.float32)).astype(np.float64)
        mean, variance = dot.mean(axis=0), dot.var(axis=0)
        norm = Normalisation(gamma.astype(np.float64), beta.astype(np.float64), mean, variance, EPSILON)
        layers.append(BinarisedLayer(kernel.astype(np.float64), np.zeros(len(mean)), norm))
        values = np.where(norm.apply(dot) >= 0, 1, -1).astype(np.float32)
    # An offset of one agreeing input is one of 2 in the dot product.
    last, bias = trained["kernels"][-1].astype(np.float64), 2 * np.rint(trained["offset"].astype(np.float64))
    return (*layers, BinarisedLayer(last, bias))


def _train(
    bits: NDArray[np.int8],
    labels: Rows,
    weights: NDArray[np.float64],
    widths: Sequence[int],
    *,
    passes: int,
    dropout: float,
    seed: int,
    progress: Callable[[float], None] | None,
) -> Trained:
    """Gives the parameters of `_start`, trained. bits : (n, widths[0]). labels : below widths[-1], (n,).
    weights : (n,), 1 on average.
    """
    first, some_steps = _compiled()
    rng = np.random.default_rng(seed)
    batch = min(BATCH, len(bits))
    wanted = min(max(passes * (len(bits) // batch), STEPS[0]), STEPS[1])
    calls = math.ceil(wanted / _STEPS_A_CALL)
    # From the whole learning rate to nothing, along half a cosine.
    rates = LEARNING_RATE * (1 + np.cos(np.linspace(0, math.pi, calls * _STEPS_A_CALL))) / 2
    state = first(_start(rng, widths))
    signs = 2 * np.eye(widths[-1], dtype=np.float32)[labels] - 1
    batches = _batches(rng, len(bits), batch)
    for call, rate in enumerate(rates.astype(np.float32).reshape(calls, -1)):
        if progress:
            progress(call / calls)
        chosen = np.stack([next(batches) for _ in rate])
        drawn = rng.random((*chosen.shape, sum(widths[1:-1])), dtype=np.float32)
        kept = (drawn >= dropout) / np.float32(1 - dropout)
        batched = bits[chosen], signs[chosen], weights[chosen].astype(np.float32), kept
        state, lost = some_steps(state, (rate, batched))
        if not np.isfinite(lost):
            raise WirewiseError("training did not converge: the loss is no finite number")
    return {name: _arrays(value) for name, value in state[0].items()}


def _arrays(value: Any) -> Any:
    return [np.asarray(part) for part in value] if isinstance(value, list) else np.asarray(value)


@cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions: of parameters the first state; of a state and the data of some steps the state after
    them, and the loss. They need the libraries, which are therefore imported here.
    """
    jax, optax = library("jax"), library("optax")
    jnp, adam = jax.numpy, optax.scale_by_adam()

    def sign(x: Any) -> Any:
        through = jnp.clip(x, -1, 1)
        return through + jax.lax.stop_gradient(jnp.where(x >= 0, 1.0, -1.0) - through)

    def whole(x: Any) -> Any:
        return x + jax.lax.stop_gradient(jnp.round(x) - x)

    def loss(parameters: Any, bits: Any, signs: Any, weights: Any, kept: Any) -> Any:
        values, at = 2 * bits.astype(jnp.float32) - 1, 0
        *hidden, last = parameters["kernels"]
        for kernel, gamma, beta in zip(hidden, parameters["gamma"], parameters["beta"], strict=True):
            dot = values @ sign(kernel)
            normal = (dot - dot.mean(axis=0)) / jnp.sqrt(dot.var(axis=0) + EPSILON)
            values = sign(gamma * normal + beta) * kept[:, at : at + len(gamma)]
            at += len(gamma)
        # One scale for all classes, so that the class needs no scale at all; whole agreeing inputs as bias.
        scale = jnp.exp(parameters["scale"]) / math.sqrt(last.shape[0])
        scores = (values @ sign(last) + 2 * whole(parameters["offset"])) * scale
        return (weights[:, None] * jnp.maximum(0, 1 - signs * scores) ** 2).mean()

    def step(state: Any, data: Any) -> Any:
        parameters, moments = state
        rate, batch = data
        lost, gradient = jax.value_and_grad(loss)(parameters, *batch)
        updates, moments = adam.update(gradient, moments)
        updates = jax.tree_util.tree_map(lambda update: -rate * update, updates)
        parameters = optax.apply_updates(parameters, updates)
        parameters["kernels"] = [jnp.clip(kernel, -1, 1) for kernel in parameters["kernels"]]
        return (parameters, moments), lost

    def some_steps(state: Any, data: Any) -> Any:
        state, lost = jax.lax.scan(step, state, data)
        return state, lost[-1]

    return jax.jit(lambda parameters: (parameters, adam.init(parameters))), jax.jit(some_steps)


def _start(rng: np.random.Generator, widths: Sequence[int]) -> dict[str, Any]:
    """Kernels after Glorot and Bengio; normalisations that change nothing."""
    kernels = [
        (rng.uniform(-1, 1, (a, b)) * math.sqrt(6 / (a + b))).astype(np.float32) for a, b in pairwise(widths)
    ]
    hidden = widths[1:-1]
    return {
        "kernels": kernels,
        "gamma": [np.ones(width, np.float32) for width in hidden],
        "beta": [np.zeros(width, np.float32) for width in hidden],
        "offset": np.zeros(widths[-1], np.float32),
        "scale": np.float32(0),
    }


def _batches(rng: np.random.Generator, rows: int, batch: int) -> Any:
    """Row numbers (batch,), every row once a pass but for what is left over; without end."""
    while True:
        order = rng.permutation(rows).astype(np.int32)
        yield from order[: rows // batch * batch].reshape(-1, batch)
