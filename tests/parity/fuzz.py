# SPDX-License-Identifier: Apache-2.0
"""Compares the reference with the object, wherever it runs, on random cases, as long as it is told.

    python -m tests.parity.fuzz --seconds 3600

Each case is a feature set, a model, a policy and fuzzed packets, all from a seed. The first difference ends
the run: it is shrunk to a short sequence of packets and printed with all that is needed to repeat it; exit
code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.parity.cases import random_case
from tests.parity.harness import PLANES, Comparison, describe, report
from wirewise.errors import MissingFeatureError, WirewiseError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)
    end = time.monotonic() + options.seconds
    compared = number = 0
    print(f"seed {options.seed}, {', '.join(PLANES)} against the reference", flush=True)
    while not number or time.monotonic() < end:
        seed = f"{options.seed}-{number}"
        case, frames = random_case(seed, options.packets)
        with tempfile.TemporaryDirectory(prefix="wirewise-fuzz-") as folder:
            try:
                comparison = Comparison(case, Path(folder))
                found = comparison.difference(frames)
            except MissingFeatureError as error:
                print(f"error: {error}", file=sys.stderr)
                return error.exit_code
            except WirewiseError as error:
                print(f"{error}\n{describe(case)}", file=sys.stderr)
                return 1
            if found:
                print(report(comparison, frames), file=sys.stderr)
                return 1
        number, compared = number + 1, compared + len(frames)
        if number % 10 == 0:
            print(f"{number} cases, {compared:,} packets, no difference", flush=True)
    print(f"{number} cases, {compared:,} packets, no difference")
    return 0


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzz", description=description)
    add = parser.add_argument
    add("--seconds", type=float, default=60, metavar="N", help="begin no case after so long [%(default)g]")
    add("--packets", type=int, default=5000, metavar="N", help="of a case [%(default)s]")
    add("--seed", type=int, default=random.randrange(1 << 32), help="cases are SEED-0, SEED-1, ... [random]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
