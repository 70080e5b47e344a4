# SPDX-License-Identifier: Apache-2.0
"""Quantising: calibration, folded inputs, int8 and Q16 against the float network, proofs, fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.models.quantized_mlp import LIMIT
from wirewise.quantize import CALIBRATIONS, FloatNetwork, Options, int8, q16, quantize, saturation
from wirewise.quantize.calibration import threshold
from wirewise.quantize.finetune import fine_tune
from wirewise.quantize.float_network import classes_of, log_probabilities
from wirewise.quantize.inputs import Ranges, fixed_point
from wirewise.quantize.search import divergence, refine

NO_TUNING = Options(fine_tune=False)


def network(seed: int = 0, shape: tuple[int, ...] = (6, 10, 6, 3), spread: float = 1.0) -> FloatNetwork:
    """A random network over features of very different sizes."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** np.linspace(0, 6, shape[0])
    weights = [rng.normal(size=pair) * spread / pair[0] ** 0.5 for pair in pairwise(shape)]
    return FloatNetwork(
        sizes, 1 / sizes, tuple(weights), tuple(rng.normal(size=width) * spread for width in shape[1:])
    )


def rows_for(net: FloatNetwork, count: int = 1000, seed: int = 1) -> Any:
    """Heavy-tailed: some values are a hundred times the usual."""
    rng = np.random.default_rng(seed)
    return np.rint(net.offset * rng.lognormal(0, 1.2, (count, net.n_features))).astype(np.int64)


# -- calibration


def test_minmax_percentile_and_mse_by_hand() -> None:
    values = np.concatenate([np.linspace(0, 1, 20_000), [50.0]])
    assert threshold(values, "minmax") == 50
    assert 0.9 < threshold(values, "percentile") < 1.1
    assert 0.9 < threshold(values, "mse") < 50
    assert threshold(-values, "minmax") == 50, "magnitudes count"


def test_kl_cuts_a_lone_outlier_and_keeps_what_is_even() -> None:
    rng = np.random.default_rng(0)
    bell = np.abs(rng.normal(size=50_000))
    assert threshold(np.append(bell, 1000.0), "kl") < 200
    assert threshold(rng.uniform(0, 1, 50_000), "kl") > 0.9


@given(st.sampled_from(CALIBRATIONS), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_a_threshold_is_positive_and_within_what_was_seen(method: str, values: list[float]) -> None:
    alpha = threshold(np.array(values), method)
    most = max(map(abs, values))
    assert 0 < alpha <= (most if most > 0 else 1) * (1 + 1e-9)


def test_unknown_calibration_is_refused() -> None:
    with pytest.raises(InputError, match="calibration 'max': is not known"):
        threshold(np.ones(3), "max")


# -- inputs


@given(st.floats(1e-15, 1e15), st.integers(1, 2**62))
def test_fixed_point_is_near_and_fits(factor: float, apart: int) -> None:
    multiplier, shift = fixed_point(factor, apart)
    assert 0 <= multiplier < 2**31 and 0 <= shift <= 62
    assert apart * multiplier + (1 << shift >> 1) < 2**63
    if shift > 0 and multiplier > 2**20:
        assert abs(multiplier / 2**shift / factor - 1) < 2**-20


@given(st.integers(0, 2**32), st.integers(0, 2**47), st.integers(0, 2**47))
@examples(50)
def test_folded_inputs_stand_for_the_features(seed: int, a: int, b: int) -> None:
    net = network(seed, (2, 3, 2))
    low, high = np.array([min(a, b), 0]), np.array([max(a, b), 1])
    plan = int8.Plan(Ranges(low, high), np.array([127.0, 100.0]), (np.ones(3),), (np.ones(3), np.ones(2)))
    folded = int8.fold(net, plan)
    x = np.linspace(low, high, 20).astype(np.int64)
    q = np.array(
        [[one.quantize(v) for one, v in zip(folded.quantizers, row, strict=True)] for row in x.tolist()]
    )
    assert np.abs(q).max() <= LIMIT
    zero = np.array([one.zero for one in folded.quantizers])
    back = q * folded.steps / net.scale + zero
    assert (np.abs(back - x) <= 0.51 * folded.steps / net.scale + 1e-6 * (high - low) + 0.01).all() or a == b


def test_few_values_have_an_integer_each() -> None:
    net = network(0, (1, 2, 2))
    plan = int8.Plan(
        Ranges(np.array([1]), np.array([58])), np.array([127.0]), (np.ones(2),), (np.ones(2),) * 2
    )
    (quantizer,) = int8.fold(net, plan).quantizers
    assert len({quantizer.quantize(v) for v in range(1, 59)}) == 58


# -- int8


@pytest.mark.parametrize("method", CALIBRATIONS)
def test_int8_is_close_with_every_calibration(method: str) -> None:
    net = network()
    rows, test = rows_for(net), rows_for(net, seed=2)
    made = quantize(net, rows, replace(NO_TUNING, calibration=method))
    agree = (made.model.predict(test)[0] == net.predict(test)).mean()
    assert agree > 0.96


def test_the_search_helps_and_the_draft_is_the_model() -> None:
    net = network(3)
    rows = rows_for(net)
    plan = int8.calibrate(net, rows, "kl")
    better = refine(net, plan, rows)
    costs = [divergence(net.scores(rows), int8.draft(net, p).scores(rows)) for p in (plan, better)]
    assert costs[1] < 0.8 * costs[0]
    draft = int8.draft(net, better)
    assert (classes_of(draft.scores(rows)) == draft.model().predict(rows)[0]).mean() > 0.99


def test_fine_tuning_learns_and_repeats() -> None:
    net = network(4)
    rows = rows_for(net)
    coarse = int8.draft(net, int8.calibrate(net, rows, "percentile"))
    tuned = fine_tune(coarse, net, rows)
    assert divergence(net.scores(rows), tuned.scores(rows)) < divergence(
        net.scores(rows), coarse.scores(rows)
    )
    again = fine_tune(coarse, net, rows)
    assert tuned.model() == again.model()
    assert np.abs(tuned.layers[0].weights).max() <= LIMIT


def test_labels_steer_fine_tuning() -> None:
    net = network(5)
    rows = rows_for(net)
    truth = (rows[:, 0] > 1).astype(np.int64)  # not what the float network says
    draft = int8.draft(net, int8.calibrate(net, rows, "percentile"))
    right = [
        (classes_of(d.scores(rows)) == truth).mean() for d in (draft, fine_tune(draft, net, rows, truth))
    ]
    assert right[1] > right[0] + 0.05


def test_one_output_has_no_multiplier() -> None:
    net = network(6, (4, 8, 1))
    rows = rows_for(net)
    made = quantize(net, rows, NO_TUNING)
    assert made.model.n_outputs == 1 and made.model.n_classes == 2
    assert (made.model.predict(rows)[0] == net.predict(rows)).mean() > 0.97


def test_constant_features_and_dead_neurons() -> None:
    net = network(7)
    net.weights[0][:, 3] = 0  # hears nothing
    net.biases[0][4] = -1e6  # never fires
    rows = rows_for(net)
    rows[:, 2] = 7
    made = quantize(net, rows, NO_TUNING)
    assert 2 not in made.model.used_features
    assert (made.model.predict(rows)[0] == net.predict(rows)).mean() > 0.95


# -- q16


@given(st.integers(0, 2**32), st.floats(0.05, 20))
@examples(30)
def test_q16_is_the_float_network_but_for_rounding(seed: int, spread: float) -> None:
    net = network(seed, spread=spread)
    rows = rows_for(net, 200, seed)
    model = q16.quantize(net, rows)
    scores = model.predict(rows)[1] / 2.0**32
    exact = net.scores(rows)
    assert np.abs(scores - exact).max() <= 2e-3 * max(1.0, np.abs(exact).max())


def test_q16_keeps_values_it_has_never_seen() -> None:
    net = network(8)
    far = rows_for(net, 200) * 50
    model = q16.quantize(net, rows_for(net, 200))
    assert (model.predict(far)[0] == net.predict(far)).mean() > 0.99


def test_q16_of_tiny_scales_and_negative_ones() -> None:
    net = network(9)
    offset, scale = np.full(6, 2.0**40), np.full(6, -1 / 2.0**43)
    net = replace(net, offset=offset, scale=scale)
    rows = np.random.default_rng(0).integers(0, 2**47, (300, 6))
    for options in (Options("q16"), NO_TUNING):
        model = quantize(net, rows, options).model
        assert (model.predict(rows)[0] == net.predict(rows)).mean() > 0.95


def test_a_scale_too_large_for_q16_is_refused() -> None:
    net = network(9)
    with pytest.raises(InputError, match="feature 2: is multiplied by 100,000"):
        quantize(
            replace(net, scale=np.where(np.arange(6) == 2, 1e5, net.scale)), rows_for(net), Options("q16")
        )


def test_clips_of_the_network_are_kept() -> None:
    net = network(10)
    low, high = net.offset * 0.5, net.offset * 1.5
    clipped = replace(net, low=low, high=high)
    rows = rows_for(net)
    for options in (Options("q16"), NO_TUNING):
        model = quantize(clipped, rows, options).model
        exact = options.network == "q16"
        assert (model.predict(rows)[0] == clipped.predict(rows)).mean() > (0.99 if exact else 0.9)
        for scaler, least, most in zip(model.inputs, low, high, strict=True):
            assert least - 1 < scaler.low <= scaler.high < most + 1


# -- refusals


def test_sums_that_could_overflow_are_refused_naming_layer_and_neuron() -> None:
    net = network(11)
    net.weights[1][0, 2] = 40_000.0
    with pytest.raises(InputError, match="layer 1, neuron 2: has a weight"):
        quantize(net, rows_for(net), Options("q16"))
    net = network(11, (6, 12, 10, 10, 10, 10, 3), spread=20_000)
    with pytest.raises(InputError, match=r"layer \d, neuron \d+: its sum can reach .* 64-bit"):
        quantize(net, rows_for(net), Options("q16"))


def test_unfit_networks_are_refused() -> None:
    net = network()
    broken = [part.copy() for part in net.weights]
    broken[2][0, 1] = np.inf
    with pytest.raises(InputError, match="layer 2, neuron 1: has a weight or bias that is NaN, infinite"):
        replace(net, weights=tuple(broken))
    with pytest.raises(InputError, match="feature 3: the input's scale is NaN"):
        replace(net, scale=np.where(np.arange(6) == 3, np.nan, 1.0))
    with pytest.raises(InputError, match="layer 1: weights of shape"):
        replace(net, weights=(net.weights[0], net.weights[0], net.weights[2]))
    with pytest.raises(InputError, match="layer 1, neuron 0: overflows in floating point"):
        weights = tuple(layer * 1e18 for layer in net.weights)
        quantize(replace(net, scale=net.scale * 1e280, weights=weights), rows_for(net))
    with pytest.raises(InputError, match="10 rows: are too few"):
        quantize(net, rows_for(net, 10))
    with pytest.raises(InputError, match="reads 6 features"):
        quantize(net, np.zeros((100, 5), np.int64))
    with pytest.raises(InputError, match="features are signed 64-bit integers"):
        quantize(net, np.full((100, 6), "0"))  # type: ignore[arg-type]


# -- saturation


def test_saturation_counts_what_is_clamped() -> None:
    net = network(12)
    rows = rows_for(net)
    model = quantize(net, rows, NO_TUNING).model
    outside = rows.copy()
    outside[:100, 1] = model.inputs[1].high + 5
    found = saturation(model, outside, list("abcdef"))
    (row,) = (row for row in found["features"] if row["feature"] == "b")
    assert row["above"] >= 100 and found["rows"] == len(rows)
    steps = np.array([model.activations(one)[1] for one in outside[:300].tolist()])
    layer = saturation(model, outside[:300])["layers"][0]
    assert layer["rows"] == (steps == LIMIT).any(axis=1).sum()
    assert layer["neuron_rows"] == (steps == LIMIT).sum(axis=0).max()
    assert saturation(q16.quantize(net, rows), rows)["layers"] == []


def test_probabilities_of_one_score_and_of_several() -> None:
    one = np.exp(log_probabilities(np.array([[0.0], [2.0], [-700.0]])))
    assert np.allclose(one, [[0.5, 0.5], [1 / (1 + np.e**2), 1 / (1 + np.e**-2)], [1, 0]])
    assert np.allclose(np.exp(log_probabilities(np.array([[1e4, 0, 0]]))), [[1, 0, 0]])
