# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a name has: the same for all packets of a conversation, with nothing to remember."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np


def number(seed: int, *names: object) -> int:
    """A 64-bit number of some names; other names have unrelated ones."""
    return int.from_bytes(blake2b(repr((seed, *names)).encode(), digest_size=8).digest(), "big")


def share(seed: int, *names: object) -> float:
    """As `number`, from 0 to below 1."""
    return number(seed, *names) / 2**64


def permutation(pool: Sequence[int], seed: int, *names: object) -> dict[int, int]:
    """Each of a pool's distinct values -> another of them (or itself), no two to the same."""
    drawn = np.random.default_rng(number(seed, *names)).permutation(len(pool))
    return {value: pool[int(place)] for value, place in zip(pool, drawn, strict=True)}


def known_as(captures: Sequence[str]) -> dict[str, str]:
    """What is drawn for captures by: their paths below the folder that holds them all, wherever that is."""
    paths = {capture: Path(capture).absolute() for capture in captures}
    folder = os.path.commonpath([path.parent for path in paths.values()]) if paths else ""
    return {capture: path.relative_to(folder).as_posix() for capture, path in paths.items()}
