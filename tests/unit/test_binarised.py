# SPDX-License-Identifier: Apache-2.0
"""Folding binarised layers into thresholds, against the same network in floating point."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.models import BitsInput
from wirewise.quantize.binarised import BinarisedLayer, BinarisedNetwork, Normalisation

INPUTS = (BitsInput(0, 0, 6), BitsInput(1, 0, 3))  # 9 bits: all there is can be tried
EVERY = np.array(list(itertools.product(range(64), range(8))))


def normalisation(rng: np.random.Generator, neurons: int) -> Normalisation:
    """Of any sign, zero, and with values that fall on a dot product exactly."""
    gamma = rng.choice([-1.5, -1e-8, 0.0, 0.3, 1.0, 1e6], neurons)
    mean = rng.choice([-3.0, 0.0, 1.0, 2.5, 40.0], neurons)
    beta = rng.choice([-1.0, 0.0, 0.25, 1e3], neurons)
    return Normalisation(gamma, beta, mean, rng.choice([1.0, 1e-6, 9.0], neurons), 0.0)


def network(rng: np.random.Generator, *widths: int, last: Normalisation | None = None) -> BinarisedNetwork:
    layers, fan_in = [], 9
    for index, width in enumerate(widths):
        end = index == len(widths) - 1
        kernel = rng.choice([-0.5, 0.0, 1.0], (fan_in, width))
        bias = rng.choice([0.0, 1.0, -2.0, 0.5], width)
        layers.append(BinarisedLayer(kernel, bias, last if end else normalisation(rng, width)))
        fan_in = width
    return BinarisedNetwork(2, INPUTS, tuple(layers))


def plainly(net: BinarisedNetwork, row: np.ndarray) -> list[float]:
    """Scores of one row by loops over Python numbers: no code is shared with what is tested."""
    values = [1 if row[0] >> k & 1 else -1 for k in range(6)] + [
        1 if row[1] >> k & 1 else -1 for k in range(3)
    ]
    for index, layer in enumerate(net.layers):
        sums = []
        for neuron in range(layer.kernel.shape[1]):
            weights = [1 if weight >= 0 else -1 for weight in layer.kernel[:, neuron].tolist()]
            x = sum(a * b for a, b in zip(values, weights, strict=True)) + float(layer.bias[neuron])
            if (norm := layer.normalisation) is not None:
                scale = norm.gamma[neuron] / np.sqrt(norm.variance[neuron] + norm.epsilon)
                x = float(scale * (x - norm.mean[neuron]) + norm.beta[neuron])
            sums.append(x)
        values = sums if index == len(net.layers) - 1 else [1 if x >= 0 else -1 for x in sums]
    return values


@examples(40)
@given(st.integers(0, 1 << 32), st.sampled_from([(7, 2), (5, 4, 1), (3,), (6, 5, 2)]))
def test_the_folded_network_gives_every_row_the_same_class(seed: int, widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    last = normalisation(rng, 1) if widths[-1] == 1 else None
    net = network(rng, *widths, last=last)
    row = EVERY[rng.integers(len(EVERY))]
    assert net.scores(row[None])[0].tolist() == plainly(net, row)
    model, rounded = net.fold()
    folded = model.predict(EVERY)[0]
    if rounded == 0:
        np.testing.assert_array_equal(folded, net.predict(EVERY))
    else:  # only calls closer than the rounding
        top = np.sort(net.scores(EVERY), axis=1)
        clear = top[:, -1] - top[:, -2] > 4 * rounded  # of agreeing inputs: twice that in dot products
        assert widths[-1] > 2 and rounded <= 0.5
        np.testing.assert_array_equal(folded[clear], net.predict(EVERY)[clear])


def test_one_scale_for_all_classes_is_folded_and_several_are_refused() -> None:
    rng = np.random.default_rng(1)
    gamma, beta, mean = np.full(2, 0.7), np.array([0.3, -0.2]), np.array([1.3, -0.4])
    one = Normalisation(gamma, beta, mean, np.full(2, 2.0), 1e-3)
    net = network(rng, 2, last=one)
    model, rounded = net.fold()
    assert rounded == 0 and len(set(net.predict(EVERY).tolist())) == 2
    np.testing.assert_array_equal(model.predict(EVERY)[0], net.predict(EVERY))
    for other in (
        Normalisation(np.array([0.7, 0.8]), beta, mean, one.variance, 1e-3),
        Normalisation(-gamma, beta, mean, one.variance, 1e-3),
    ):
        with pytest.raises(InputError, match="layer 0: the normalisation behind the last layer"):
            network(rng, 2, last=other).fold()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("gamma", np.nan, "layer 0, neuron 2: has a number that is NaN"),
        ("mean", np.inf, "layer 0, neuron 2"),
        ("variance", -1.0, "layer 0, neuron 2.*variance that is not positive"),
        ("gamma", 1e308, "layer 0, neuron 2"),
    ],
)
def test_numbers_that_cannot_be_are_refused(name: str, value: float, says: str) -> None:
    parts = {
        "gamma": np.ones(3), "beta": np.zeros(3), "mean": np.zeros(3), "variance": np.full(3, 1e-9),
    }  # fmt: skip
    parts[name][2] = value
    norm = Normalisation(**parts, epsilon=0.0)
    layers = (
        BinarisedLayer(np.ones((9, 3)), np.zeros(3), norm),
        BinarisedLayer(np.ones((3, 2)), np.zeros(2)),
    )
    with pytest.raises(InputError, match=says):
        BinarisedNetwork(2, INPUTS, layers)
