# SPDX-License-Identifier: Apache-2.0
"""The flow table's hash spreads scans, address pools and port ranges as if their keys were drawn at random,
whatever the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from wirewise.abi import HASH_WORDS, WAYS
from wirewise.feature_sets.flow import Key, hash_key, seed_from

SEEDS = 1000
FLOWS = 30_000
BUCKETS = 65_536 // WAYS

Words = NDArray[np.uint64]


def swapped(number: Words, size: int) -> Words:
    """As a little-endian processor loads a number of `size` bytes from a packet."""
    return number.astype(f">u{size}").view(f"<u{size}").astype(np.uint64)


def keys(
    source: Words | int = 0xC0A80001,
    destination: Words | int = 0x0A000001,
    source_port: Words | int = 40_000,
    destination_port: Words | int = 443,
) -> list[Words]:
    """Struct ww_key4 of FLOWS TCP flows, in 32-bit words."""
    every = np.zeros(FLOWS, np.uint64)
    addresses = [swapped(every + np.uint64(1) * a, 4) for a in (source, destination)]
    first, second = (swapped(every + np.uint64(1) * port, 2) for port in (source_port, destination_port))
    return [*addresses, first | second << np.uint64(16), every + np.uint64(6)]


N = np.arange(FLOWS, dtype=np.uint64)
SEQUENCES: dict[str, Callable[[], list[Words]]] = {
    "a scan's sources": lambda: keys(source=0x0A000001 + N),
    "every 256th source": lambda: keys(source=0x0A000001 + 256 * N % 2**32),
    "destinations in order": lambda: keys(destination=0xC0A80000 + N),
    "source ports in order": lambda: keys(source_port=1024 + N),
    "destination ports in order": lambda: keys(destination_port=1 + N),
    "sources counted in their last byte": lambda: keys(source=N << np.uint64(16)),
    "a pool of addresses and their ports": lambda: keys(
        source=0x0A000001 + N % 173, source_port=40_000 + N // 173
    ),
    "pairs of hosts": lambda: keys(source=0x0A000000 + N % 200, destination=0x0A010000 + N // 200),
}


def hashes(words: list[Words], seed: list[int]) -> Words:
    """`hash_key` of many keys."""
    s = [np.uint64(number) for number in seed]
    total = (s[0] + words[0]) * (s[1] + words[1]) + (s[2] + words[2]) * (s[3] + words[3])
    total = (total ^ total >> np.uint64(32)) * s[HASH_WORDS]
    return (total ^ total >> np.uint64(32)) & np.uint64(0xFFFFFFFF)


def test_the_hash_of_many_keys_is_that_of_each() -> None:
    words = keys(source=0x0A000001 + N)
    seed = seed_from(3)
    with np.errstate(over="ignore"):
        many = hashes(words, seed)
    for n in (0, 1, 777, FLOWS - 1):
        address = (0x0A000001 + n).to_bytes(4, "big")
        key = Key(4, address, bytes((10, 0, 0, 1)), 40_000, 443, 6)
        assert int(many[n]) == hash_key(key, seed)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_spread_like_random_keys(name: str) -> None:
    """Flows that find their bucket of four full, against what balls thrown into bins at random give: a
    bucket's load is binomial. With 1,000 seeds, one in 10^6 may be beyond five standard deviations; six are
    allowed.
    """
    words = SEQUENCES[name]()
    # Binomial(FLOWS, 1 / BUCKETS) of one bucket: the mean of what is beyond four, and, as buckets hardly
    # depend on each other, the variance of the sum.
    p, share = 1 / BUCKETS, (1 - 1 / BUCKETS) ** FLOWS
    mean = square = 0.0
    for load in range(60):
        beyond = max(0, load - WAYS)
        mean, square = mean + share * beyond, square + share * beyond**2
        share *= (FLOWS - load) / (load + 1) * p / (1 - p)
    expected, deviation = BUCKETS * mean, sqrt(BUCKETS * (square - mean**2))
    found = []
    with np.errstate(over="ignore"):
        for number in range(SEEDS):
            bucket = hashes(words, seed_from(number)) >> np.uint64(2) & np.uint64(BUCKETS - 1)
            loads = np.bincount(bucket.astype(np.int64), minlength=BUCKETS)
            found.append(int(np.maximum(loads - WAYS, 0).sum()))
    assert max(found) < expected + 6 * deviation, (
        f"{max(found)} flows without a place, {expected:.0f} expected"
    )
    assert min(found) > expected - 6 * deviation
    assert abs(float(np.mean(found)) - expected) < 6 * deviation / sqrt(SEEDS)
    first = [
        np.bincount((hashes(words, seed_from(number)) & np.uint64(3)).astype(np.int64), minlength=WAYS)
        for number in range(20)
    ]
    assert all(abs(count - FLOWS / WAYS) < 6 * sqrt(FLOWS * 3 / 16) for ways in first for count in ways)
