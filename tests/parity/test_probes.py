# SPDX-License-Identifier: Apache-2.0
"""Rounds of probes in the kernel and in the engine against the reference: lost, late, doubled, of unknown
paths, cut, in fragments, from senders that begin anew; and banks of networks that read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.multiplicity import seeds
from tests.parity.cases import Case, random_model
from tests.parity.frames import TimedFrame, ethernet, ipv4, ipv6
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.probes import MAX_PATHS, PORT, Probe
from wirewise.models import random_binary_bank

pytestmark = needs_kernel


def probe_frames(random: Random, paths: list[int], count: int) -> Iterator[TimedFrame]:
    """Probes, and what nearly is one."""
    now, number = 10**18, random.choice((0, 1, (1 << 32) - 20))
    while count > 0:
        number = (number + random.choice((1, 1, 1, 1, 2, 5, 2000, 1 << 31, -1, -1500))) % (1 << 32)
        order = [path for path in paths if random.random() > 0.03]
        if random.random() < 0.5:
            random.shuffle(order)
        for path in order:
            count -= 1
            now += random.randrange(1, 40_000)
            at, of = path, number
            chance = random.random()
            if chance < 0.04:
                at = random.choice((0, MAX_PATHS - 1, MAX_PATHS, 65535, path + 1))
            elif chance < 0.08:
                of = (number - random.choice((1, 2, 1023, 1024, 1025, 1 << 31))) % (1 << 32)
            unit = random.choice((24_000,) * 9 + (1, 0, (1 << 32) - 1))
            under_way = random.choice((random.randrange(0, 300) * unit, -5, 1 << 63, unit * 255, now))
            payload = Probe(of, unit, at, (now - under_way) % (1 << 64)).to_bytes()
            if random.random() < 0.05:
                payload = random.choice(
                    (payload[: random.randrange(24)], b"x" + payload[1:], payload + b"more", b"")
                )
            port = PORT if random.random() > 0.02 else PORT + 1
            yield now, frame(random, port, payload)
            if random.random() < 0.03:
                yield now + 1, frame(random, port, payload)


def frame(random: Random, port: int, payload: bytes) -> bytes:
    protocol = 17 if random.random() > 0.02 else 136  # UDP-Lite, which carries no probes
    length = 8 + len(payload)
    transport = b"".join(n.to_bytes(2, "big") for n in (1000, port, length, 0)) + payload
    damage = random.random()
    if random.random() < 0.2:
        whole = ethernet(ipv6(bytes(15) + b"\1", bytes(15) + b"\2", protocol, transport), 0x86DD)
    else:
        fragment = random.choice((0x2000, 0x2001)) if damage > 0.97 else 0
        source = bytes((10, 0, 0, random.randrange(1, 5)))
        whole = ethernet(ipv4(source, bytes((10, 0, 0, 9)), protocol, transport, fragment=fragment), 0x0800)
    return whole[: random.randrange(30, len(whole))] if damage < 0.03 else whole


def feature_set(paths: list[int], key: str, sharing: str) -> FeatureSet:
    features = [f"round(probe_delay, path={path})" for path in paths]
    return FeatureSet.from_dict(
        {
            "name": "rounds", "key": key, "flow_table": {"sharing": sharing}, "table_size": 16,
            "features": [*features, "max(probe_delay, by=destination, window=1ms)", "probe_delay", "count"],
        }
    )  # fmt: skip


@pytest.mark.parametrize("seed", seeds(2, of=8))
def test_rounds(seed: int, tmp_path: Path) -> None:
    random = Random(f"rounds {seed}")
    most = random.choice((1, 2, 8, 9, 19, 40, 64))
    paths = sorted(random.sample(range(most), random.randint(1, most)))
    keys = ("destination", "source-destination", "five-tuple")
    features = feature_set(paths, random.choice(keys), random.choice(("shared", "per-cpu")))
    steps = seed % 4 == 0  # of which all are looked up, where no feature is larger than a delay
    if steps:
        features = replace(features, features=features.features[:-1])
    frames = list(probe_frames(random, paths, 1500))
    if seed % 2:
        model, kind = random_model(random, features, frames)
    else:
        n, ranges = len(features.features), (0, 255)
        rng = np.random.default_rng(seed)
        sizes = {
            "n_features": n,
            "ranges": ranges,
            "networks": 17,
            "input_bits": random.choice((64, 152, 700)),
        }
        model = random_binary_bank(rng, **sizes, steps=steps or None, same_inputs=not steps)
        kind = "bank"
    whole = []

    def seen(run: Run) -> None:
        whole.append(int(run.heads[:, 1].sum()))

    policy = {"version": 1, "trigger": {"packets": [1]}, "classes": {"c1": "drop"}}
    assert_agree(
        Case(f"rounds {seed}", features, model, policy, mode="enforce", kind=kind),
        frames,
        tmp_path,
        seen=seen,
    )
    assert whole[0] > 15
