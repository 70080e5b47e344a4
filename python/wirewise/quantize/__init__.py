# SPDX-License-Identifier: Apache-2.0
"""Float networks to integer ones: calibration, quantisation, fine-tuning, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from wirewise.arguments import check_fields
from wirewise.errors import InputError, choose
from wirewise.models import FixedPointMlp, QuantizedMlp
from wirewise.models.rules import as_rows
from wirewise.quantize import int8, q16
from wirewise.quantize.calibration import METHODS
from wirewise.quantize.finetune import RATES, fine_tune
from wirewise.quantize.float_network import FloatNetwork, classes_of
from wirewise.quantize.out_of_range import saturation
from wirewise.quantize.search import refine

__all__ = ["CALIBRATIONS", "FAMILIES", "FloatNetwork", "Options", "Quantized", "quantize", "saturation"]

FAMILIES = ("int8", "q16")
CALIBRATIONS = tuple(METHODS)
TOLERATED = 0.001  # share of unlabelled rows that may change their class before int8 weights are fine-tuned
FEWEST_ROWS = 50  # to calibrate with
MOST_ROWS = 500_000  # of more, a fixed sample is used


@dataclass(frozen=True)
class Options:
    """What a network becomes. network: one of FAMILIES. calibration: one of CALIBRATIONS (int8 only).

    fine_tune: int8 only; None: if quantising alone loses accuracy on the rows given (without labels: 0.1
    points of agreement with the float network). Raises InputError for unknown names.
    """

    network: str = "int8"
    calibration: str = "kl"
    fine_tune: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for what, given, known in (
            ("network", self.network, FAMILIES),
            ("calibration", self.calibration, CALIBRATIONS),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r}", "is not known", choose(given, known))


@dataclass(frozen=True)
class Quantized:
    """An integer network; notes: how it was made, one line each."""

    model: QuantizedMlp | FixedPointMlp
    notes: list[str]


def quantize(
    network: FloatNetwork,
    rows: NDArray[np.int64],
    options: Options = Options(),
    *,
    labels: NDArray[np.int64] | None = None,
) -> Quantized:
    """The integer network of a float one.

    rows : int64, shape (n, n_features): values the network will meet, to calibrate and fine-tune with, not
    those it will be tested with. labels : class numbers (n,), -1 where unknown. Raises InputError for fewer
    than 50 rows or rows of another width, for numbers that overflow in floating point, and, naming layer and
    neuron, for a network whose sums could overflow.
    """
    rows = as_rows(rows, network.n_features)
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"{len(rows)} rows", f"are too few to calibrate a network with, at least {FEWEST_ROWS} are needed"
        )
    if labels is not None and not (labels >= 0).any():
        labels = None
    if len(rows) > MOST_ROWS:
        chosen = np.random.default_rng(0).permutation(len(rows))[:MOST_ROWS]
        rows, labels = rows[chosen], None if labels is None else labels[chosen]
    _check_finite(network, rows)
    if options.network == "q16":
        return Quantized(q16.quantize(network, rows), ["16 fractional bits; nothing to calibrate"])
    with threadpool_limits(1):  # its matrices are small: threads would only wait for each other
        return _int8(network, rows, options, labels)


def _int8(
    network: FloatNetwork, rows: NDArray[np.int64], options: Options, labels: NDArray[np.int64] | None
) -> Quantized:
    plan = refine(network, int8.calibrate(network, rows, options.calibration), rows)
    best = int8.draft(network, plan)
    lost = before = _lost(network, best, rows, labels)
    how = f"{options.calibration} calibration on {len(rows):,} rows"
    notes = [f"int8: {how}, refined by what the network says"]
    if options.fine_tune or (options.fine_tune is None and lost > (TOLERATED if labels is None else 0)):
        for rate in RATES:
            tuned = fine_tune(best, network, rows, labels, rate=rate)
            lost_then = _lost(network, tuned, rows, labels)
            if lost_then < lost:
                best, lost = tuned, lost_then
            if lost <= 0:
                break
        what = "accuracy" if labels is not None else "agreement"
        notes.append(
            f"fine-tuned with its rounding: {what} lost on those rows {100 * before:.2f} points before, "
            f"{100 * lost:.2f} after"
        )
    return Quantized(best.model(), notes)


def _lost(
    network: FloatNetwork, draft: int8.Draft, rows: NDArray[np.int64], labels: NDArray[np.int64] | None
) -> float:
    """Share of rows that the float network gets right (without labels: all) and the draft does not, net."""
    said, ours = network.predict(rows), classes_of(draft.scores(rows))
    if labels is None:
        return float((ours != said).mean())
    known = labels >= 0
    truth = labels[known]
    return float((said[known] == truth).mean() - (ours[known] == truth).mean())


def _check_finite(network: FloatNetwork, rows: NDArray[np.int64]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        steps: list[Any] = network.layers(rows)
    for index, values in enumerate(steps):
        bad = ~np.isfinite(values).all(axis=0)
        if bad.any():
            where = f"network, layer {index - 1}, neuron" if index else "network, feature"
            raise InputError(f"{where} {int(bad.argmax())}", "overflows in floating point on the rows given")
