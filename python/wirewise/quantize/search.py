# SPDX-License-Identifier: Apache-2.0
"""Better thresholds than calibration finds tensor by tensor: those that change what the network says least.

Calibration sees one tensor at a time, so it cannot know which of its numbers decide. A plan's cost here is
the mean Kullback-Leibler divergence of the integer network's class probabilities from the float network's.
Clamps and thresholds are changed one after the other, and a change is kept if it lowers the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wirewise.models.quantized_mlp import LIMIT
from wirewise.quantize import inputs, int8
from wirewise.quantize.float_network import FloatNetwork, Floats, log_probabilities
from wirewise.quantize.inputs import Ranges
from wirewise.quantize.int8 import Plan

_SAMPLE = 4096  # rows that a plan is judged by, fewer for networks of more than 2000 weights
_FEWEST = 512
_TAILS = (0.0, 0.0001, 0.001, 0.005, 0.02)  # share of the rows beyond a clamp
_FACTORS = (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)
_ROUNDS = 3


def divergence(network_scores: Floats, other_scores: Floats) -> float:
    """Mean KL divergence (nats a row) of the class probabilities of two networks' scores (n, n_outputs)."""
    return _divergence(log_probabilities(network_scores), other_scores)


def _divergence(reference: Floats, other_scores: Floats) -> float:
    difference = reference - log_probabilities(other_scores)
    return float(np.einsum("ij,ij->", np.exp(reference), difference)) / len(reference)


def refine(network: FloatNetwork, plan: Plan, rows: NDArray[np.int64]) -> Plan:
    """The best plan found from `plan` on; rows (n, n_features), of which a fixed sample is used."""
    weights = sum(part.size for part in network.weights)
    count = min(_SAMPLE, max(_FEWEST, _SAMPLE * 2000 // weights))
    sample = rows[np.random.default_rng(0).permutation(len(rows))[:count]]
    said = log_probabilities(network.scores(sample))

    def cost(candidate: Plan) -> float:
        return _divergence(said, int8.draft(network, candidate).scores(sample))

    tails = _tail_ranges(network, rows)
    changes: list[Callable[[Plan], Iterator[Plan]]] = [
        *(partial(_clamps, tails, feature) for feature in range(network.n_features)),
        *(partial(_levels, feature) for feature in range(network.n_features)),
        partial(_all_activations, network, sample),
        *(
            partial(_activation, layer, neuron)
            for layer, alphas in enumerate(plan.activations)
            for neuron in range(len(alphas))
        ),
        *(partial(_clips, layer) for layer in range(len(plan.clips))),
    ]
    best = cost(plan)
    for _ in range(_ROUNDS):
        before = best
        for change in changes:
            for candidate in change(plan):
                if (found := cost(candidate)) < best:
                    best, plan = found, candidate
        if best > 0.98 * before:
            break
    return plan


def _tail_ranges(network: FloatNetwork, rows: NDArray[np.int64]) -> list[Ranges]:
    widest = inputs.seen(network, rows)
    made = []
    for tail in _TAILS:
        low = np.quantile(rows, tail, axis=0, method="lower").astype(np.int64)
        high = np.quantile(rows, 1 - tail, axis=0, method="higher").astype(np.int64)
        made.append(Ranges(np.clip(low, widest.low, widest.high), np.clip(high, widest.low, widest.high)))
    return made


def _clamps(tails: list[Ranges], feature: int, plan: Plan) -> Iterator[Plan]:
    """Other clamps of one feature."""
    now = (int(plan.ranges.low[feature]), int(plan.ranges.high[feature]))
    pairs = [(int(tail.low[feature]), int(tail.high[feature])) for tail in tails]
    tried = {now}
    for low, high in [p for pair in pairs for p in (pair, (pair[0], now[1]), (now[0], pair[1]))]:
        if low > high or (low, high) in tried:
            continue
        tried.add((low, high))
        ranges = Ranges(plan.ranges.low.copy(), plan.ranges.high.copy())
        ranges.low[feature], ranges.high[feature] = low, high
        yield replace(plan, ranges=ranges)


def _levels(feature: int, plan: Plan) -> Iterator[Plan]:
    """Fewer or more integers for one feature: fewer make its weights finer."""
    for factor in _FACTORS:
        levels = plan.levels.copy()
        levels[feature] = min(max(1.0, levels[feature] * factor), LIMIT)
        if levels[feature] != plan.levels[feature]:
            yield replace(plan, levels=levels)


def _all_activations(network: FloatNetwork, sample: NDArray[np.int64], plan: Plan) -> Iterator[Plan]:
    """Other thresholds of all hidden neurons: what each reaches within the clamps, times a factor."""
    largest = int8.reached(network, plan.ranges, sample)
    for factor in (1.0, *_FACTORS):
        yield replace(plan, activations=tuple(values * factor for values in largest))


def _activation(layer: int, neuron: int, plan: Plan) -> Iterator[Plan]:
    for factor in _FACTORS:
        changed = [values.copy() for values in plan.activations]
        changed[layer][neuron] *= factor
        yield replace(plan, activations=tuple(changed))


def _clips(layer: int, plan: Plan) -> Iterator[Plan]:
    """Another share of the weights' range that is kept, in a whole layer."""
    for factor in _FACTORS:
        changed = list(plan.clips)
        changed[layer] = np.minimum(changed[layer] * factor, 1)
        yield replace(plan, clips=tuple(changed))
