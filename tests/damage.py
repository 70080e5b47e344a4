# SPDX-License-Identifier: Apache-2.0
"""Damaged copies of model files, and what the importers make of them.

`python -m tests.damage MODEL SEED COUNT` reads so many copies in this one process, asks those that were read
for predictions, and prints a line for each: a crash of a library shows as the death of the process.
"""

from __future__ import annotations

import json
import random
import re
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.errors import InputError
from wirewise.formats import model_file
from wirewise.importers import ImportOptions
from wirewise.importers.dispatch import read_file
from wirewise.importers.request import Request

NUMBER = re.compile(rb"-?\d+(\.\d+)?")
BAD_NUMBERS = (
    b"-1", b"0", b"1", b"7", b"-2", b"300", b"65536", b"2147483647", b"2147483648", b"-2147483648", b"1e400",
    b"nan", b"-inf", b"NaN", b"99999999999999999999", b"", b"x", b"1_0", b"0x10", b"1.5",
)  # fmt: skip


def mutants(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Copies with one to three faults: ends, bytes, stretches, lines and numbers."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        copy = data
        for _ in range(chance.randint(1, 3)):
            copy = chance.choice(FAULTS)(copy, chance)
        yield copy


def _end(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data)) if data else 0
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _bit(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data)) if data else 0
    return data[:at] + bytes([(data[at] if data else 0) ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _stretch(data: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[start:end] * chance.choice((0, 2)) + data[end:]


def _line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    at, other = (chance.randrange(len(lines)) for _ in range(2))
    lines[at] = chance.choice((b"", lines[other], lines[at] * 2))
    return b"".join(lines)


def _number(data: bytes, chance: random.Random) -> bytes:
    places = list(NUMBER.finditer(data))
    if not places:
        return data
    place, other = chance.choice(places), chance.choice(places)
    new = chance.choice((*BAD_NUMBERS, other[0], other[0], other[0]))
    return data[: place.start()] + new + data[place.end() :]


FAULTS = (_end, _byte, _bit, _stretch, _line, _number, _number, _number, _number)


def outcomes(model: Path, copies: Iterator[bytes], *, isolated: bool) -> Iterator[dict[str, Any]]:
    """What becomes of each copy: a refusal, or the share of rows with the same class as from the library."""
    chance = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, f"damaged{model.suffix}"))
        for copy in copies:
            Path(path).write_bytes(copy)
            rows = chance.integers(-2000, 2000, (300, 4))
            options = ImportOptions(rows=rows, n_features=4)
            try:
                if isolated:
                    imported = model_file.read(path, options).imported
                    assert imported
                else:
                    imported = read_file(path, Request.of(path, options))
                read = imported.network.predict(rows) if imported.network else imported.model.predict(rows)[0]
                agree = int((read == imported.predict(rows)).sum())
                yield {"agree": agree / len(rows)}
            except InputError as error:
                yield {"refused": str(error)}


def main() -> None:
    """Reads damaged copies without a process of their own: only our own checks stand before the library."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    model, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for outcome in outcomes(model, mutants(model.read_bytes(), seed, count), isolated=False):
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
