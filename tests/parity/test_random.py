# SPDX-License-Identifier: Apache-2.0
"""Random feature sets, models, policies and packets: the reference and the object, wherever it runs, agree.

WIREWISE_PARITY_CASES=N compares so many combinations (`make fuzz` 200),
WIREWISE_PARITY_PACKETS=N so many packets in all, WIREWISE_SEED=N others than usual. A failure names its seed,
S-N: with WIREWISE_SEED=S, `pytest "tests/parity/test_random.py::test_random_combination[S-N]"` runs it again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.parity.cases import random_case
from tests.parity.harness import assert_agree, needs_kernel

SEED = os.environ.get("WIREWISE_SEED", "1")
CASES = int(os.environ.get("WIREWISE_PARITY_CASES", "10"))
PACKETS = int(os.environ.get("WIREWISE_PARITY_PACKETS", "42500"))


@needs_kernel
@pytest.mark.parametrize("seed", [f"{SEED}-{number}" for number in range(CASES)])
def test_random_combination(seed: str, tmp_path: Path) -> None:
    case, frames = random_case(seed, -(-PACKETS // CASES))
    assert_agree(case, frames, tmp_path)
