# SPDX-License-Identifier: Apache-2.0
"""Baselines find a surge on every host by one model, however much the hosts' ordinary rates differ."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import wirewise as ww
from tests.parity.frames import IPV4, UDP, ethernet, ipv4, udp
from wirewise.datasets import write_capture
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

HOSTS = 50
QUIET_S, SURGE_S, SURGE = 30, 2, 10
RATES = np.geomspace(1.5, 1500, HOSTS)
"""Packets per second; the largest is a thousand times the smallest."""
COUNT = "count(by=destination, window=1s)"
FEATURES = ww.FeatureSet(
    "surges",
    [
        f"ratio({COUNT}, baseline=1m)",
        f"deviation({COUNT}, baseline=1m)",
        f"warm({COUNT}, baseline=1m)",
        COUNT,
    ],
    key="destination",
)
# A surge is more than four times the mean, and more than six mean deviations above it.
MODEL = TreeEnsemble(
    4, 2, "majority",
    (Tree((0, LEAF, 1, LEAF, LEAF), (4 << 16, 0, 6 << 16, 0, 0), (1, -1, 3, -1, -1), (2, -1, 4, -1, -1),
          ((), (0,), (), (0,), (1,))),),
    2, (0, 0),
)  # fmt: skip


def arrivals(random: np.random.Generator, rate: float, begin: float, end: float) -> NDArray[np.float64]:
    """Times of a Poisson process, in seconds."""
    return np.sort(random.uniform(begin, end, random.poisson(rate * (end - begin))))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[NDArray[np.float64], ...]:
    """The time, host and features of each packet. Hosts from HOSTS on have the same rates again, and
    no surge.
    """
    random = np.random.default_rng(1)
    times, hosts = [], []
    for host, rate in enumerate([*RATES, *RATES]):
        mine = [arrivals(random, rate, 0, QUIET_S)]
        if host < HOSTS:
            mine.append(arrivals(random, SURGE * rate, QUIET_S, QUIET_S + SURGE_S))
        times += mine
        hosts += [np.full(len(each), host) for each in mine]
    time, host = np.concatenate(times), np.concatenate(hosts)
    order = np.argsort(time, kind="stable")
    time, host = time[order], host[order]
    frames = [
        ethernet(ipv4(bytes([10, 0, 0, 1]), bytes([10, 1, 0, number]), UDP, udp(1000, 53)), IPV4)
        for number in range(2 * HOSTS)
    ]
    capture = tmp_path_factory.mktemp("surges") / "surges.pcap"
    packets = ((10**9 + int(at * 1e9), frames[of]) for at, of in zip(time, host, strict=True))
    assert write_capture(capture, packets) > 500_000
    return time, host, ww.features(capture, FEATURES).select(FEATURES.feature_names).to_numpy()


def first_seen(time: NDArray[np.float64], flagged: NDArray[np.bool_], host: NDArray[np.int64]) -> list[float]:
    """For each host that surges, how long after the surge began; infinite if never."""
    late = flagged & (time >= QUIET_S)
    return [min(time[late & (host == one)], default=np.inf) - QUIET_S for one in range(HOSTS)]


def test_one_model_sees_every_surge_and_flags_no_quiet_host(judged: tuple[NDArray[np.float64], ...]) -> None:
    time, host, rows = judged
    flagged = MODEL.predict(rows)[0] == 1
    assert max(first_seen(time, flagged, host)) < 2
    quiet = np.unique(host[flagged & (time < QUIET_S)])
    assert len(quiet) < 0.01 * 2 * HOSTS, quiet


def test_no_threshold_on_the_rate_itself_does(judged: tuple[NDArray[np.float64], ...]) -> None:
    time, host, rows = judged
    quiet = rows[time < QUIET_S, 3].max()
    seen = np.isfinite(first_seen(time, rows[:, 3] > quiet, host))
    assert seen.sum() < HOSTS / 2


def test_a_baseline_speaks_when_it_is_warm(judged: tuple[NDArray[np.float64], ...]) -> None:
    """A quarter of its minute; every host has packets in nearly every second."""
    time, _, rows = judged
    assert not rows[time < 15, :3].any()
    assert (rows[time > 26, :3] > 0).all(axis=1).mean() > 0.3 and (rows[time > 26, 2] == 1).mean() > 0.99
