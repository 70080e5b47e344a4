# SPDX-License-Identifier: Apache-2.0
"""Generated Verilog against the reference: a design and its test bench in a simulator."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wirewise.models import BinaryMlp, Bounded, Model, TreeEnsemble
from wirewise.models.random import random_binary_mlp, random_tree_ensemble
from wirewise.targets.rows import trying_rows
from wirewise.targets.verilog import Options, bench_code, lower
from wirewise.targets.verilog.options import WIDTHS, Design
from wirewise.targets.verilog.text import library

MODULE = "ww_model"
_SAID = re.compile(r"results=(\d+) wrong=(\d+) latency=(-?\d+) cycles=(\d+)")


@dataclass(frozen=True)
class Outcome:
    """What a bench said. latency: cycles of the first record. cycles: from the first result to the last."""

    results: int
    wrong: int
    latency: int
    cycles: int
    text: str


def design(model: Model, options: Options, folder: Path) -> Design:
    """Writes the design alone."""
    made = lower(model, options)
    write({**made.files, **library(made.library)}, folder)
    return made


def build(
    model: Model,
    options: Options,
    folder: Path,
    *,
    rows: NDArray[np.int64] | int = 40,
    then: Model | None = None,
) -> Design:
    """Writes a design and its bench, and compiles both. rows: or how many to draw. then: the network that is
    loaded after a third of the rows.
    """
    made = design(model, options, folder)
    given = trying_rows(model, rows) if isinstance(rows, int) else rows
    load = None
    if then is not None:
        words = lower(then, options).load
        assert words is not None
        load = bench_code.Load(words, bench_code.results(then, given))
    write(
        bench_code.test_bench(
            bench_code.records(model, made.features, given),
            bench_code.results(model, given),
            record_bits=made.record_bits,
            width=options.width,
            outputs=made.outputs,
            loads=made.load is not None,
            load=load,
        ),
        folder,
    )
    compile_bench(folder)
    return made


def write(files: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def compile_bench(folder: Path) -> None:
    run(
        ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-o", "bench", *sources(folder)],
        folder,
        silent=True,
    )


def sources(folder: Path, *, bench: bool = True) -> list[str]:
    names = sorted(path.name for path in folder.glob("ww_*.v"))
    return [name for name in names if bench or name != f"{bench_code.NAME}.v"]


def simulate(folder: Path, *, stall: int = 0, seed: int = 1) -> Outcome:
    """Runs a compiled bench. stall: of 8, how often sender, receiver and loader pause."""
    return outcome(run(["vvp", "-n", "bench", f"+stall={stall}", f"+seed={seed}"], folder))


def outcome(text: str) -> Outcome:
    said = _SAID.search(text)
    assert said, f"the bench has not ended: {text[-2000:]}"
    results, wrong, latency, cycles = map(int, said.groups())
    return Outcome(results, wrong, latency, cycles, text)


def lint(folder: Path) -> None:
    run(["verilator", "--lint-only", "-Wall", "--top-module", MODULE, *sources(folder, bench=False)], folder)


def run(command: Sequence[str], folder: Path, *, silent: bool = False) -> str:
    """What a tool printed. silent: it must print nothing."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and not (silent and said), f"{' '.join(command)}\n{said[-4000:]}"
    return said


def n3ic() -> BinaryMlp:
    """A network of siracusano-n3ic: 256-32-16-2, over 16 features of 16 bits."""
    rng = np.random.default_rng(1)
    return random_binary_mlp(rng, n_features=16, input_bits=256, steps=False, ranges=(0, 65535))


def random_network(rng: np.random.Generator) -> tuple[Model, Options]:
    """8 to 256 inputs, 1 to 3 layers, two of five with extreme weights and thresholds; any options."""
    bits = int(rng.integers(8, 257))
    model: Model = random_binary_mlp(
        rng,
        n_features=int(rng.integers(1, 14)) if bits >= 13 else 1,
        layers=rng.integers(1, 70, int(rng.integers(3))).tolist(),
        n_classes=int(rng.integers(2, 9)),
        input_bits=bits,
        extreme=bool(rng.random() < 0.4),
    )
    kind = "bits" if rng.random() < 0.3 else "features"
    if kind == "features" and rng.random() < 0.2:
        model = bounded(model, rng)
    options = Options(
        parallel=1 << min(map(int, rng.integers(7, size=2))),
        modules=int(rng.choice([1, 1, 1, 2, 3])),
        input=kind,
        width=int(rng.choice(WIDTHS)),
    )
    return model, options


def random_trees(rng: np.random.Generator) -> tuple[Model, Options]:
    """1 to 8 trees of depth 1 to 6, every kind of vote, two of five with thresholds anywhere in int64."""
    votes, classes = ("majority" if rng.random() < 0.4 else "sum"), int(rng.integers(2, 7))
    model: Model = random_tree_ensemble(
        rng,
        n_features=int(rng.integers(1, 14)),
        n_classes=classes,
        n_trees=int(rng.integers(1, 9)),
        depth=int(rng.integers(1, 7)),
        votes="majority" if votes == "majority" else "sum",
        n_outputs=1 if votes == "sum" and classes == 2 and rng.random() < 0.5 else None,
        full=bool(rng.random() < 0.3),
        thresholds=(0, 1500) if rng.random() < 0.6 else (-(2**63), 2**63 - 1),
    )
    if rng.random() < 0.2:
        model = bounded(model, rng)
    return model, Options(width=int(rng.choice(WIDTHS)))


def bounded(model: Model, rng: np.random.Generator) -> Bounded:
    assert isinstance(model, BinaryMlp | TreeEnsemble)
    return Bounded.by(model, rng.integers(0, 60000, (5, model.n_features)))


def shapes(seeds: Iterable[int]) -> list[tuple[Model, Options]]:
    """Networks and trees in turn."""
    made = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        made.append(random_network(rng) if seed % 2 else random_trees(rng))
    return made
