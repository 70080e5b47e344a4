# SPDX-License-Identifier: Apache-2.0
"""Everything about the Verilog that takes long: `make test-verilog`.

    python -m tests.verilog                 all of it; writes the tables of docs/targets/verilog.md
    python -m tests.verilog --networks 50 --trees 20 --no-tables

Random networks and trees in iverilog, with pauses and without, every 20th through verilator's linter; a
trained network and a few others in verilator; then the tables: cycles from simulation, sizes from yosys, a
clock from nextpnr. Exit code 1 at the first difference from the reference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from tests.verilog import bench, tables
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.models import BinaryMlp, Model
from wirewise.models.random import random_binary_mlp, random_tree_ensemble
from wirewise.targets.verilog import Options

ROWS = 24
LINTED = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.verilog")
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-tables", action="store_true")
    options = parser.parse_args(arguments)
    try:
        at_random("networks", options.networks, options.jobs)
        at_random("trees", options.trees, options.jobs)
        in_verilator()
        if not options.no_tables:
            tables.write()
    except AssertionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def at_random(kind: str, count: int, jobs: int) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        for done, _ in enumerate(pool.map(partial(one_at_random, kind), range(count)), 1):
            if done % 50 == 0 or done == count:
                print(f"{done} random {kind}: as the reference", flush=True)


def one_at_random(kind: str, seed: int) -> None:
    rng = np.random.default_rng((seed, kind == "trees"))
    model, options = bench.random_trees(rng) if kind == "trees" else bench.random_network(rng)
    stall = seed % 6
    with tempfile.TemporaryDirectory() as folder:
        made = bench.build(model, options, Path(folder), rows=ROWS)
        said = bench.simulate(Path(folder), stall=stall, seed=seed)
        assert said.results == ROWS and said.wrong == 0, f"{kind}, seed {seed}, {options}\n{said.text}"
        assert stall or said.latency == made.latency, f"{kind}, seed {seed}: latency {said.latency}"
        if seed % LINTED == 0:
            bench.lint(Path(folder))


def trained() -> BinaryMlp:
    """A network 256-32-16-2 that has learned something."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1 << 16, (4000, 16))
    labels = ((rows[:, 0] > 30000) ^ (rows[:, 1] > rows[:, 2])).astype(np.int64)
    made = BinaryClassifier((32, 16), encoding="bits", passes=1).fit(rows, labels)
    return made.model


def in_verilator() -> None:
    """A second simulator, which knows two states only and has another idea of time."""
    rng = np.random.default_rng(9)
    old = random_binary_mlp(rng, n_features=4, input_bits=64)
    subjects: list[tuple[str, Model, Options, Model | None]] = [
        ("a trained network", trained(), Options(), None),
        ("a network loaded at run time", old, Options(modules=2, parallel=4), old.favour(3)),
        ("trees", random_tree_ensemble(rng, n_trees=10, depth=6), Options(), None),
    ]
    for name, model, options, then in subjects:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            bench.build(model, options, folder, rows=300, then=then)
            for stall in (0, 4):
                said = bench.simulate(folder, stall=stall)
                assert said.wrong == 0, f"{name}: {said.text}"
            quiet = ["-Wno-fatal", "-Wno-lint", "-Wno-style"]
            command = [
                "verilator",
                "--binary",
                *quiet,
                "--top-module",
                "ww_test_bench",
                *bench.sources(folder),
            ]
            bench.run(command, folder)
            for stall in (0, 4):
                said = bench.outcome(bench.run(["obj_dir/Vww_test_bench", f"+stall={stall}"], folder))
                assert said.wrong == 0, f"{name}, verilator: {said.text}"
        print(f"{name}: as the reference in iverilog and verilator", flush=True)


if __name__ == "__main__":
    sys.exit(main())
