# SPDX-License-Identifier: Apache-2.0
"""How many processes work at a time."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_process_counts_the_processors_that_it_may_use() -> None:
    mine = sorted(os.sched_getaffinity(0))
    asked = "from wirewise.parallel import processors; print(processors())"
    for allowed in {1, len(mine)}:
        done = subprocess.run(
            [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {mine[:allowed]}); {asked}"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert 1 <= int(done.stdout) <= allowed
