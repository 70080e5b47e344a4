# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/targets/verilog.md: cycles from simulation, sizes and a clock from synthesis."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from bench import files
from tests.verilog import bench, synthesis
from wirewise.models import Model
from wirewise.models.random import random_tree_ensemble
from wirewise.targets.verilog import Options

PAGE = Path(__file__).parents[2] / "docs" / "targets" / "verilog.md"
PARALLEL = (1, 2, 4, 8, 16)
MHZ = 200


def write() -> None:
    """Measures, and replaces what stands between the marks of the page."""
    with tempfile.TemporaryDirectory() as made:
        parts = {
            "scaling": scaling(Path(made)),
            "others": others(Path(made)),
            "clocks": clocks(Path(made)),
        }
    version = subprocess.run(["yosys", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    parts["yosys"] = [f"Made by `make test-verilog` with yosys {version}."]
    files.fill(PAGE, parts)


def measure(model: Model, options: Options, folder: Path) -> tuple[float, int, synthesis.Taken]:
    """Cycles a result, latency in cycles, and what the design takes of a Virtex-7."""
    bench.build(model, options, folder, rows=100)
    said = bench.simulate(folder)
    assert said.wrong == 0, said.text
    return said.cycles / (said.results - 1), said.latency, synthesis.virtex7(folder)


def scaling(folder: Path) -> list[str]:
    lines = [
        "| `--parallel` | cycles a result | latency, cycles | million/s | ns | LUTs | flip-flops | BRAM36 |",
        "| ---: " * 8 + "|",
    ]  # fmt: skip
    for parallel in PARALLEL:
        options = Options(input="bits", parallel=parallel)
        cycles, latency, taken = measure(bench.n3ic(), options, folder / str(parallel))
        lines.append(
            f"| {parallel} | {cycles:g} | {latency} | {MHZ / cycles:g} | {1000 * latency // MHZ} "
            f"| {taken.luts:,} | {taken.flip_flops:,} | {taken.rams:g} |"
        )
        print(lines[-1], flush=True)
    return lines


def others(folder: Path) -> list[str]:
    forest = random_tree_ensemble(np.random.default_rng(1), n_trees=10, depth=6, thresholds=(0, 65535))
    lines = [
        "| design | cycles a result | latency, cycles | LUTs | flip-flops | BRAM36 |",
        "| --- " + "| ---: " * 5 + "|",
    ]
    subjects: list[tuple[str, Model, Options]] = [
        ("256-32-16-2, a record of 16 features", bench.n3ic(), Options()),
        ("256-32-16-2, `--modules 4`", bench.n3ic(), Options(input="bits", modules=4)),
        ("10 trees of depth 6, 12 features, thresholds of 16 bits", forest, Options(width=1024)),
    ]
    for index, (name, model, options) in enumerate(subjects):
        cycles, latency, taken = measure(model, options, folder / f"other-{index}")
        lines.append(
            f"| {name} | {cycles:.3g} | {latency} | {taken.luts:,} | {taken.flip_flops:,} | {taken.rams:g} |"
        )
        print(lines[-1], flush=True)
    return lines


def clocks(folder: Path) -> list[str]:
    place = folder / "clocks"
    bench.design(bench.n3ic(), Options(input="bits"), place)
    small, (mhz, cells, rams) = synthesis.ecp5(place), synthesis.ice40_clock(place)
    lines = [
        f"- Lattice ECP5 (`synth_ecp5`): {small.luts:,} LUT4, {small.flip_flops:,} flip-flops, "
        f"{small.rams:g} block RAMs.",
        f"- Lattice iCE40 HX8K (`synth_ice40`, nextpnr-ice40): {cells:,} logic cells, {rams} block RAMs, "
        f"{mhz:.0f} MHz.",
    ]
    print(*lines, sep="\n", flush=True)
    return lines
