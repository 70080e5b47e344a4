# SPDX-License-Identifier: Apache-2.0
"""Flow tables that CPUs share: whatever CPU a packet meets, what comes of it is what the reference says.

Packets go to two CPUs at random, one after the other, so that there is one order. What CPUs do at the same
time is tested in crates/wirewised/tests/kernel/cpus.rs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests import needs
from tests.parity.cases import random_case
from tests.parity.harness import Comparison, assert_agree, needs_kernel
from tests.parity.test_random import CASES, PACKETS, SEED

# Each takes three seconds: only a run that is to be long has half of the cases.
PAIRS = 3 if CASES < 40 else CASES // 2


@needs_kernel
@needs.two_cpus
@pytest.mark.parametrize("seed", [f"{SEED}-{number}" for number in range(PAIRS)])
def test_packets_at_random_on_two_cpus(seed: str, tmp_path: Path) -> None:
    """The first cases of test_random, all with shared tables.

    None is missed: a missed packet would be the first of its flow.
    """
    case, frames = random_case(seed, -(-PACKETS // CASES))
    shared = replace(case, feature_set=replace(case.feature_set, sharing="shared"))
    assert_agree(shared, frames[: len(frames) // 3], tmp_path, cpus=2)


@needs_kernel
@needs.two_cpus
def test_a_table_for_each_cpu_shows_here(tmp_path: Path) -> None:
    """The same packets with a table for each CPU do differ: flows that meet both are two."""
    case, frames = random_case(f"{SEED}-0", 500)
    parted = replace(case, feature_set=replace(case.feature_set, sharing="per-cpu", table_size=4096))
    comparison = Comparison(parted, tmp_path, cpus=2)
    assert comparison.difference(frames) is not None
