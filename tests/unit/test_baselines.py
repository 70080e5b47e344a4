# SPDX-License-Identifier: Apache-2.0
"""Baselines of aggregates: what they learn, when they speak, and how fast they can be led astray."""

from __future__ import annotations

from collections.abc import Sequence
from math import e, exp, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parity.frames import IPV4, UDP, ethernet, ipv4, udp
from wirewise.errors import InputError
from wirewise.feature_sets import Extractor, Feature, FeatureSet
from wirewise.feature_sets.baseline import (
    FREE,
    LENGTHS,
    RATE_MAX,
    Usual,
    warm_windows,
    weighted_windows,
)

S = 10**9
RATE = "count(by=destination, window=1s)"
FRAME = ethernet(ipv4(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), UDP, udp(1, 2)), IPV4)


def rows(packets_in: Sequence[int], baseline: str, start: int = 7) -> list[list[float]]:
    """Ratio, deviation, warm and idle at the last packet of each second; packets_in : how many each has."""
    compared = [f"{name}({RATE}, baseline={baseline})" for name in ("ratio", "deviation", "warm")]
    extractor = Extractor(FeatureSet.from_dict({"name": "x", "features": compared, "idle_timeout": "1s"}))
    found = []
    for second, count in enumerate(packets_in):
        for number in range(count):
            values = extractor.process(FRAME, start + second * S + number * (S // count)).features
        if count:
            assert values is not None
            found.append([values[0] / 65536, values[1] / 65536, values[2]])
    return found


@given(st.lists(st.integers(1, 12), min_size=3, max_size=5))
def test_until_it_is_long_enough_it_is_a_plain_mean(counts: list[int]) -> None:
    """Eight windows: warm after two, and weighted from the eighth on."""
    history = [10, 10, *counts]
    for at, (ratio, deviation, warm) in enumerate(rows(history, "8s")):
        before = history[:at]
        if at < 2:
            assert (ratio, deviation, warm) == (0, 0, 0)
            continue
        mean = sum(before) / at
        assert warm == 1 and isclose(ratio, history[at] / mean, rel_tol=0.01)
        means = [sum(before[: n + 1]) / (n + 1) for n in range(at)]
        spread = sum(abs(x - m) for x, m in zip(before, means, strict=True)) / at
        assert isclose(deviation, max(0, history[at] - mean) / max(1, spread), rel_tol=0.01, abs_tol=0.01)


def test_seconds_without_packets_do_not_count_and_a_baseline_outlives_them() -> None:
    """The flows' idle timeout is a second, the baseline's length keeps its entry."""
    quiet = [4] * 30
    assert rows(quiet + [0] * 55 + [12], "1m")[-1] == rows([*quiet, 12], "1m")[-1] == [3, 8, 1]
    assert rows(quiet + [0] * 62 + [12], "1m")[-1] == [0, 0, 0]


def test_a_lasting_change_becomes_usual() -> None:
    usual = Usual()
    for finished in range(1, 4000):
        usual.learn(10 if finished < 1000 else 100, finished, 512)
    assert 99 < usual.mean / 65536 <= 100 and usual.spread / 65536 < 5


@given(st.integers(0, 1000), st.integers(3, 12))
def test_nobody_makes_it_grow_faster_than_e_fold_in_its_length(rate: int, bits: int) -> None:
    windows, usual = 1 << bits, Usual()
    for finished in range(1, windows + 1):
        usual.learn(rate, finished, windows)
    before = usual.mean / 65536
    for finished in range(windows + 1, 2 * windows + 1):
        usual.learn(1 << 47, finished, windows)
    grown = usual.mean / 65536
    assert grown + FREE <= (before + FREE) * e + 0.01
    assert grown + FREE > (before + FREE) * exp(0.8), "it follows, though"


@given(st.lists(st.integers(0, 1 << 47), min_size=1, max_size=60), st.sampled_from((8, 100, 4096)))
def test_all_of_it_fits_64_bits(values: list[int], windows: int) -> None:
    usual = Usual()
    for finished, value in enumerate(values, 1):
        usual.learn(value, finished, windows)
        assert 0 <= usual.mean <= RATE_MAX << 16 and 0 <= usual.spread <= RATE_MAX << 16
        for name in ("ratio", "deviation", "warm"):
            feature = Feature.parse(f"{name}({RATE}, baseline=1m)")
            assert feature.against is not None
            assert 0 <= feature.against.comparison.read(value, usual) <= feature.maximum < 1 << 63


def test_lengths_are_rounded_to_the_nearest_power_of_two() -> None:
    assert [weighted_windows(n) for n in (8, 11, 12, 60, 600, 4096)] == [8, 8, 16, 64, 512, 4096]
    for windows in LENGTHS:
        assert 2**-0.5 <= weighted_windows(windows) / windows <= 2**0.5
    assert warm_windows(8) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ratio(count, baseline=10m)", "a baseline is of count"),
        ("ratio(count(window=1s), baseline=10m)", "with by= and window="),
        ("deviation(mean(length, by=source, window=1s), baseline=1m)", "not of mean(length"),
        (f"warm(ratio({RATE}, baseline=10m), baseline=10m)", "not of ratio("),
        ("ratio(count(by=source, window=1s, previous), baseline=10m)", "drop `previous`"),
        (f"ratio({RATE}, baseline=7s)", "give baseline=8s to 4096s"),
        (f"ratio({RATE}, baseline=2h)", "8 to 4096 windows"),
        (f"ratio({RATE}, baseline=soon)", "'soon' is not a duration"),
        (f"ratio({RATE})", f"write ratio({RATE}, baseline=10m)"),
        ("deviation", "compares a rate with what is usual"),
        (f"usual({RATE}, baseline=10m)", "no comparison 'usual'"),
    ],
)
def test_errors_name_the_way_out(spec: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        Feature.parse(spec)
    assert message in str(error.value)
