# SPDX-License-Identifier: Apache-2.0
"""The process called `wirewise`, and `python -m wirewise` where its script is not on PATH.

Signals are handled before anything large is imported.
"""

from __future__ import annotations

from wirewise import ending


def run() -> None:
    ending.install()
    try:
        from wirewise.cli import run

        run()
    except KeyboardInterrupt:
        ending.leave()


if __name__ == "__main__":
    run()
