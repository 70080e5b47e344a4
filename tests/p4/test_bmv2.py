# SPDX-License-Identifier: Apache-2.0
"""Emitted programs through p4c and simple_switch, where they are: every packet as the reference has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.p4 import bmv2
from tests.p4.cases import Case, rows_for
from wirewise.models import Bounded, Model, random_binary_mlp, random_tree_ensemble
from wirewise.targets.p4 import Options

TOOLS = bmv2.find()
PACKETS = 200

pytestmark = pytest.mark.skipif(isinstance(TOOLS, str), reason=f"p4: {TOOLS}")


def network(**given: object) -> Model:
    sizes = {"n_features": 8, "layers": (32, 16), "n_classes": 3, "input_bits": 128} | given
    return random_binary_mlp(np.random.default_rng(1), **sizes)  # type: ignore[arg-type]


def forest(**given: object) -> Model:
    sizes = {"n_features": 8, "n_classes": 3, "n_trees": 6, "depth": 6} | given
    return random_tree_ensemble(np.random.default_rng(1), **sizes)  # type: ignore[arg-type]


CASES = {
    "tables": (network(), Options(scores="yes")),
    "paper": (network(n_features=16, n_classes=2, input_bits=256), Options(scores="yes")),
    "extreme": (network(extreme=True), Options(scores="yes", parallel=5)),
    "weight-registers": (network(), Options(weights="registers", scores="yes")),
    "constants": (network(), Options(weights="constants", scores="yes")),
    "bits": (network(), Options(input="bits", scores="yes")),
    "ports": (network(), Options(result="port")),
    "flow-registers": (network(), Options(input="registers", flows=1 << 16)),
    "forest": (forest(), Options(scores="yes")),
    "votes": (forest(votes="majority"), Options(result="port")),
    "one-output": (forest(n_classes=2, n_outputs=1), Options(scores="yes")),
    "bounds": (Bounded.by(forest(), np.arange(800).reshape(100, 8)), Options()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CASES)
def test_simple_switch_gives_what_the_reference_says(name: str, tmp_path: Path) -> None:
    assert isinstance(TOOLS, bmv2.Tools)
    model, options = CASES[name]
    case = Case.of(model, options)
    rows = rows_for(np.random.default_rng(2), model, PACKETS)
    if options.input == "registers":
        # Registers are written as signed numbers of 64 bits; few flows, so that each has its own element.
        rows = np.clip(rows[:40], 0, None)
    sent: list[bytes] = []
    expected: dict[int, list[bytes]] = {port: [] for port in range(bmv2.PORTS)}
    for row in rows.tolist():
        port, frame = case.expected(row)
        sent.append(case.frame(row))
        expected[port].append(frame)
    commands = [
        *case.sources.files["ports.txt"].splitlines(),
        *case.sources.files["model.txt"].splitlines(),
    ]
    if options.input == "registers":
        commands += [
            f"register_write WwIngress.{name} {index} {value}"
            for name, (_, values) in case.switch.registers.items()
            for index, value in enumerate(values)
            if name.startswith("register_f") and value
        ]
    program = bmv2.compile_program(TOOLS, case.sources.files["wirewise.p4"], tmp_path)
    left = bmv2.run(TOOLS, program, commands, {1: sent}, tmp_path)
    for port, frames in expected.items():
        wrong = [n for n, pair in enumerate(zip(left[port], frames, strict=False)) if pair[0] != pair[1]]
        assert not wrong and len(left[port]) == len(frames), (
            f"port {port}: {len(left[port])} packets, {len(frames)} expected; {len(wrong)} differ"
            + (
                f", the first: {left[port][wrong[0]].hex()}, expected {frames[wrong[0]].hex()}"
                if wrong
                else ""
            )
        )
