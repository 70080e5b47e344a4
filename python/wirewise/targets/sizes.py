# SPDX-License-Identifier: Apache-2.0
"""The size of a network that would fit where one does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

_STEPS = 64  # of the sizes that are tried


def way_out(widths: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> str:
    """For people: the network with most weights that fits, of those that are narrower or have fewer layers;
    of those with fewer inputs only where no other does. widths : input bits, hidden layers, classes.
    """
    for inputs in (widths[0] * part // _STEPS for part in range(_STEPS, 0, -1)):
        found = []
        for hidden in (widths[1:end] for end in range(1, len(widths))):
            sizes = ([max(1, width * part // _STEPS) for width in hidden] for part in range(_STEPS, 0, -1))
            candidates = ([max(1, inputs), *size, widths[-1]] for size in sizes)
            if largest := next(filter(fits, candidates), None):
                found.append(largest)
        if found:
            best = max(found, key=lambda sizes: sum(a * b for a, b in pairwise(sizes)))
            return f"train a network of at most {'-'.join(map(str, best))}"
    return "no network of these classes fits"
