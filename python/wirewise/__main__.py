# SPDX-License-Identifier: Apache-2.0
"""The process called `wirewise`, and `python -m wirewise` where its script is not on PATH.

Signals are handled before anything large is imported.
"""

from __future__ import annotations

import os

from wirewise import ending


def run() -> None:
    ending.install()
    # Threads of OpenMP (scikit-learn's boosting) wait for each other by spinning, unless told otherwise
    # before it is loaded. With other work on all CPUs that takes the CPU from the thread they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from wirewise.cli import run

        run()
    except KeyboardInterrupt:
        ending.leave()


if __name__ == "__main__":
    run()
