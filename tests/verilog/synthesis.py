# SPDX-License-Identifier: Apache-2.0
"""What a design takes: look-up tables and memories by yosys, a clock by nextpnr and icetime's models."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.verilog import bench

_LUTS = re.compile(r"LUT[1-6]|INV|SRL16E|SRLC32E")
_LUT_RAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM32X1S": 1, "RAM64X1S": 1}
"""Look-up tables that a memory made of them takes."""


@dataclass(frozen=True)
class Taken:
    """Look-up tables, flip-flops, block RAMs (of 36 kb for Virtex-7, of the family's size elsewhere)."""

    luts: int
    flip_flops: int
    rams: float


def virtex7(folder: Path) -> Taken:
    """`synth_xilinx` for 7-series. Inverters, shift registers and memories made of tables count as tables."""
    cells = _synthesise(folder, "synth_xilinx -family xc7 -flatten")
    luts = sum(count * _LUT_RAM.get(name, 0) for name, count in cells.items())
    luts += sum(count for name, count in cells.items() if _LUTS.fullmatch(name))
    flip_flops = sum(count for name, count in cells.items() if name.startswith("FD"))
    return Taken(luts, flip_flops, cells.get("RAMB36E1", 0) + cells.get("RAMB18E1", 0) / 2)


def ecp5(folder: Path) -> Taken:
    """`synth_ecp5`. A slice of carry chain and one of distributed RAM take two tables each."""
    cells = _synthesise(folder, "synth_ecp5")
    luts = cells.get("LUT4", 0) + 2 * cells.get("CCU2C", 0) + 4 * cells.get("TRELLIS_DPR16X4", 0)
    return Taken(luts, cells.get("TRELLIS_FF", 0), cells.get("DP16KD", 0))


def _synthesise(folder: Path, how: str) -> dict[str, int]:
    """Cells by name."""
    read = " ".join(bench.sources(folder, bench=False))
    script = f"read_verilog {read}; {how} -top {bench.MODULE}; tee -o cells.json stat -json"
    bench.run(["yosys", "-q", "-p", script], folder)
    modules = json.loads((folder / "cells.json").read_text())["modules"]
    cells: dict[str, int] = modules[f"\\{bench.MODULE}"]["num_cells_by_type"]
    return cells


def ice40_clock(folder: Path) -> tuple[float, int, int]:
    """MHz, logic cells and block RAMs, placed and routed on an iCE40 HX8K; the design is behind `pins`."""
    (folder / "pins.v").write_text((Path(__file__).with_name("pins.v")).read_text())
    read = " ".join(["pins.v", *bench.sources(folder, bench=False)])
    bench.run(["yosys", "-q", "-p", f"read_verilog {read}; synth_ice40 -top pins -json pins.json"], folder)
    said = bench.run(
        ["nextpnr-ice40", "--hx8k", "--package", "ct256", "--json", "pins.json", "--pcf-allow-unconstrained",
         "--seed", "1", "--freq", "100", "--timing-allow-fail"],
        folder,
    )  # fmt: skip
    clocks = re.findall(r"Max frequency for clock '[^']*': ([\d.]+) MHz", said)
    cells, rams = (re.findall(rf"{name}:\s+(\d+)/", said) for name in ("ICESTORM_LC", "ICESTORM_RAM"))
    assert clocks and cells and rams, said[-2000:]
    return float(clocks[-1]), int(cells[-1]), int(rams[-1])
