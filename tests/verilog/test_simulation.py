# SPDX-License-Identifier: Apache-2.0
"""Generated Verilog gives the reference's class and scores, bit for bit; `make test-verilog` has more."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tests.verilog import bench
from wirewise.importers import import_model
from wirewise.models.random import random_binary_layers, random_binary_mlp, random_tree_ensemble
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.targets.verilog import Options, lower

pytestmark = pytest.mark.skipif(not shutil.which("iverilog"), reason="tools: iverilog is not installed")

BITS = Options(input="bits")


def check(folder: Path, **how: int) -> bench.Outcome:
    said = bench.simulate(folder, **how)
    assert said.results > 0 and said.wrong == 0, said.text
    return said


@pytest.mark.parametrize("seed", (1000, 1001, 1002, 1004, 1005, 1006))
def test_random_networks_and_trees(seed: int, tmp_path: Path) -> None:
    model, options = bench.shapes([seed])[0]
    made = bench.build(model, options, tmp_path, rows=24)
    assert check(tmp_path).latency == made.latency
    check(tmp_path, stall=5, seed=seed)


def test_the_largest_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model = random_binary_mlp(
        rng, n_features=17, input_bits=1000, layers=(256, 33, 1), n_classes=64, extreme=True
    )
    bench.build(model, Options(), tmp_path, rows=3)
    check(tmp_path, stall=3)


@pytest.mark.parametrize(("parallel", "interval"), [(1, 32), (8, 4)])
def test_n3ic_is_as_fast_as_it_should_be(parallel: int, interval: int, tmp_path: Path) -> None:
    """At 200 MHz: less than 0.5 us, which is 100 cycles, and 1.8 million results/s, 111 cycles each."""
    made = bench.build(bench.n3ic(), Options(input="bits", parallel=parallel), tmp_path)
    said = check(tmp_path)
    assert said.latency == made.latency < 100 and made.interval == (1, interval)
    assert said.cycles == (said.results - 1) * interval <= (said.results - 1) * 111


def test_modules_add_up(tmp_path: Path) -> None:
    model = random_binary_mlp(np.random.default_rng(1), n_features=2, input_bits=32, layers=(16,))
    made = bench.build(model, Options(input="bits", modules=4), tmp_path, rows=200)
    said = check(tmp_path)
    assert made.interval == (4, 16) and abs(said.cycles / 199 - 4) < 0.1


@pytest.mark.parametrize(("modules", "parallel", "stall"), [(1, 1, 0), (3, 4, 4), (1, 16, 2)])
def test_a_network_is_loaded_while_another_judges(
    modules: int, parallel: int, stall: int, tmp_path: Path
) -> None:
    """Each result is wholly the old network's or wholly the new one's, and none is old after a new one."""
    rng = np.random.default_rng(7)
    old = random_binary_mlp(rng, n_features=4, input_bits=48, layers=(20, 9), n_classes=3)
    new = type(old)(4, 3, old.inputs, random_binary_layers(rng, (48, 20, 9, 3)))
    options = Options(modules=modules, parallel=parallel)
    bench.build(old, options, tmp_path, rows=200, then=new)
    check(tmp_path, stall=stall)


def test_what_is_loaded_does_not_depend_on_how_the_neurons_are_spread() -> None:
    model = random_binary_mlp(np.random.default_rng(2))
    assert lower(model, BITS).load == lower(model, Options(parallel=16, modules=4)).load


def test_a_trained_forest(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 1500, (600, 6))
    labels = (rows[:, 0] > 700).astype(int) + (rows[:, 3] + rows[:, 5] > 1500)
    forest = RandomForestClassifier(8, max_depth=6, random_state=0).fit(rows, labels)
    model = import_model(forest).model
    assert isinstance(model, TreeEnsemble)
    made = bench.build(model, Options(), tmp_path, rows=rows.astype(np.int64))
    said = check(tmp_path)
    assert made.interval == (1, 2) and said.cycles == (said.results - 1) * 2 and said.latency == made.latency


def test_trees_of_one_leaf_and_of_one_long_path(tmp_path: Path) -> None:
    depth = 20
    feature, left, right = [], [], []
    for level in range(depth):
        feature += [level % 3, LEAF]
        left += [2 * level + 2, -1]
        right += [2 * level + 1, -1]
    long = Tree(
        (*feature, LEAF),
        (*(0 if f == LEAF else 1000 - 40 * (n // 2) for n, f in enumerate(feature)), 0),
        (*left, -1),
        (*right, -1),
        (*((n, -n) if f == LEAF else () for n, f in enumerate(feature)), (99, -99)),
    )
    lone = Tree((LEAF,), (0,), (-1,), (-1,), ((-5, 5),))
    bench.build(TreeEnsemble(3, 2, "sum", (long, lone), 2, (0, -3)), Options(), tmp_path / "long")
    check(tmp_path / "long", stall=2)
    bench.build(TreeEnsemble(3, 2, "sum", (lone,), 2, (0, 0)), Options(), tmp_path / "lone")
    check(tmp_path / "lone", stall=2)


def test_records_of_another_length_are_dropped(tmp_path: Path) -> None:
    model = random_tree_ensemble(np.random.default_rng(4), n_features=2, depth=4)
    bench.design(model, Options(width=64), tmp_path)
    framing = str(Path(__file__).with_name("framing.v"))
    bench.run(
        ["iverilog", "-g2005", "-o", "framing", framing, *bench.sources(tmp_path)], tmp_path, silent=True
    )
    assert "results=2 dropped=2" in bench.run(["vvp", "-n", "framing"], tmp_path)


def test_the_bench_finds_a_wrong_weight(tmp_path: Path) -> None:
    model = random_binary_mlp(np.random.default_rng(6), n_features=2, input_bits=16, layers=(4,))
    bench.build(model, BITS, tmp_path)
    executor = tmp_path / "ww_executor.v"
    text = executor.read_text()
    first = re.search(r"32'h([0-9a-f]+)", text[text.index("WEIGHTS") :])
    assert first
    flipped = f"32'h{int(first[1], 16) ^ 0xFFFF:x}"
    executor.write_text(text.replace(first[0], flipped, 1))
    bench.compile_bench(tmp_path)
    assert bench.simulate(tmp_path).wrong > 0
