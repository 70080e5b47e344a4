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

from wirewise.quantize import inputs, int8
from wirewise.quantize.float_network import FloatNetwork, Floats, log_probabilities
from wirewise.quantize.inputs import Ranges
from wirewise.quantize.int8 import Plan

SAMPLE = 4096  # rows that a plan is judged by
_TAILS = (0.0, 0.0001, 0.001, 0.005, 0.02)  # share of the rows beyond a clamp
_FACTORS = (0.6, 0.8, 1.25, 1.6, 2.5)  # of thresholds
_ROUNDS = 2


def divergence(network_scores: Floats, other_scores: Floats) -> float:
    """Mean KL divergence (nats a row) of the class probabilities of two networks' scores (n, n_outputs)."""
    reference, other = log_probabilities(network_scores), log_probabilities(other_scores)
    return float((np.exp(reference) * (reference - other)).sum(axis=1).mean())


def refine(network: FloatNetwork, plan: Plan, rows: NDArray[np.int64]) -> Plan:
    """The best plan found from `plan` on; rows (n, n_features), of which a fixed sample is used."""
    sample = rows[np.random.default_rng(0).permutation(len(rows))[:SAMPLE]]
    said = network.scores(sample)

    def cost(candidate: Plan) -> float:
        return divergence(said, int8.draft(network, candidate).scores(sample))

    best = cost(plan)
    tails = _tail_ranges(network, rows)
    for _ in range(_ROUNDS):
        before = best
        changes: list[Callable[[Plan], Iterator[Plan]]] = [
            *(partial(_clamps, network, tails, feature) for feature in range(network.n_features)),
            *(partial(_activations, layer) for layer in range(len(plan.activations))),
            *(partial(_weights, layer) for layer in range(len(plan.weights))),
        ]
        for change in changes:
            for candidate in change(plan):
                if (found := cost(candidate)) < best:
                    best, plan = found, candidate
        if best > 0.99 * before:
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


def _clamps(network: FloatNetwork, tails: list[Ranges], feature: int, plan: Plan) -> Iterator[Plan]:
    """Plans with other clamps of one feature; the first layer's weights change with them."""
    now = (int(plan.ranges.low[feature]), int(plan.ranges.high[feature]))
    pairs = [(int(tail.low[feature]), int(tail.high[feature])) for tail in tails]
    tried = {now}
    for low, high in [p for pair in pairs for p in (pair, (pair[0], now[1]), (now[0], pair[1]))]:
        if low > high or (low, high) in tried:
            continue
        tried.add((low, high))
        ranges = Ranges(plan.ranges.low.copy(), plan.ranges.high.copy())
        ranges.low[feature], ranges.high[feature] = low, high
        first = np.abs(int8.fold(network, ranges).weights).max(axis=0)
        yield replace(plan, ranges=ranges, weights=(np.where(first > 0, first, 1.0), *plan.weights[1:]))


def _activations(layer: int, plan: Plan) -> Iterator[Plan]:
    for factor in _FACTORS:
        changed = list(plan.activations)
        changed[layer] *= factor
        yield replace(plan, activations=tuple(changed))


def _weights(layer: int, plan: Plan) -> Iterator[Plan]:
    for factor in _FACTORS:
        changed = list(plan.weights)
        changed[layer] = changed[layer] * factor
        yield replace(plan, weights=tuple(changed))
