# SPDX-License-Identifier: Apache-2.0
"""Which scores a model is unsure at: it abstains there, and another model decides.

How far an attack is ahead of benign (`operating_point.margins`) is one number, above 0 where the model says
attack. Scores at which it errs lie together, mostly near 0. The band is the run of scores with the most
errors among those that hold no more than a share of all flows: of all bands that cost as many questions, the
one with which a perfect second model would mend most. (Chow, On optimum recognition error and reject
tradeoff, IEEE Trans. Inf. Theory 1970, rejects by a single threshold on the probability, which for two
classes is a band like this one around the border, if the scores are calibrated; here they need not be.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError

_TEXT = re.compile(r"\s*(-?\d{1,18}):(-?\d{1,18})\s*")


@dataclass(frozen=True)
class Band:
    """The scores from low to high, both included, in units of the model's scores."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Band:
        """A band such as `-120:35`. Raises InputError for anything else."""
        found = _TEXT.fullmatch(text)
        if found is None or int(found[1]) > int(found[2]):
            raise InputError(
                f"--band={text}", "is not a band of scores", "write LOW:HIGH, such as --band=-120:35"
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.low}:{self.high}"

    def holds(self, ahead: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray((ahead >= self.low) & (ahead <= self.high))


def choose(ahead: NDArray[np.int64], wrong: NDArray[np.bool_], share: float) -> Band:
    """The band with the most errors that holds no more than a share of the flows; of equal ones the one that
    holds the fewest.

    ahead : the score of each flow, (n,). wrong : whether the model errs there, (n,). share : 0 to 1. Raises
    InputError if it errs nowhere, or if at each score where it does there are too many flows.
    """
    values, place = np.unique(ahead, return_inverse=True)
    errors = np.bincount(place, weights=wrong).astype(np.int64)
    flows = np.concatenate([[0], np.cumsum(np.bincount(place))])
    mended = np.concatenate([[0], np.cumsum(errors)])
    ends = np.flatnonzero(errors)  # a band that begins or ends elsewhere holds flows for nothing
    if not len(ends):
        raise InputError(
            "the model", "errs on none of the flows of the table", "there is nothing to ask another model"
        )
    room = int(share * len(ahead))
    first = np.searchsorted(flows[ends], flows[ends + 1] - room)
    fits = first <= np.arange(len(ends))
    if not fits.any():
        most = int((flows[ends + 1] - flows[ends]).min())
        raise InputError(
            f"--share {share:.2%}",
            f"is of {room:,} flows, and each score at which the model errs has {most:,} or more",
            "allow more, or give a model with finer scores or a larger table",
        )
    lows, highs = ends[first[fits]], ends[fits]
    held, caught = flows[highs + 1] - flows[lows], mended[highs + 1] - mended[lows]
    best = np.lexsort((held, -caught))[0]
    return Band(int(values[lows[best]]), int(values[highs[best]]))
