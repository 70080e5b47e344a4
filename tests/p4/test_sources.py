# SPDX-License-Identifier: Apache-2.0
"""What is emitted beside a program, and the command line that emits it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.p4 import commands
from tests.p4.cases import OPTIONS, Case, feature_set, options_for, random_network, random_trees, rows_for
from tests.p4.machine import Switch
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.models import Model, random_binary_mlp
from wirewise.targets.p4 import Options, emit

ROOT = Path(__file__).parents[2]

FILES = ["model.json", "model.txt", "ports.json", "ports.txt", "wirewise.p4"]


@pytest.mark.parametrize("index", range(len(OPTIONS)))
@pytest.mark.parametrize("draw", [random_network, random_trees])
def test_the_commands_write_what_the_json_says(draw: type, index: int) -> None:
    rng = np.random.default_rng(index)
    model: Model = draw(rng)
    case = Case.of(model, options_for(index, model))
    case.switch = Switch(case.sources.files["wirewise.p4"])
    for name in ("ports.txt", "model.txt"):
        case.switch.write(commands.read(case.sources.files[name]))
    case.check(rows_for(rng, model, 10))


def test_packets_of_other_kinds_pass_as_they_are() -> None:
    model = random_network(np.random.default_rng(1))
    others = {
        "packet": [bytes(12) + b"\x08\x00" + bytes(60), bytes(12) + b"\x88\xb5" + bytes(3), bytes(9)],
        "registers": [
            bytes(12) + b"\x86\xdd" + bytes(60),
            bytes(12) + b"\x08\x00\x46" + bytes(8) + b"\x06" + bytes(30),  # with options
            bytes(12) + b"\x08\x00\x45" + bytes(5) + b"\x20\x01\x40\x11" + bytes(30),  # a fragment
            bytes(12) + b"\x08\x00\x45" + bytes(8) + b"\x01" + bytes(30),  # ICMP
        ],
    }
    for selector, frames in others.items():
        for flavour, (first, second) in {"v1model": (0, 1), "netfpga": (1, 4)}.items():
            case = Case.of(model, Options(flavour=flavour, input=selector))
            for frame in frames:
                out = case.switch.run(second, frame)
                assert (out.port, out.frame) == (first, frame)


def test_a_packet_by_an_unknown_port_is_dropped() -> None:
    model = random_network(np.random.default_rng(1))
    for flavour, port in {"v1model": 9, "netfpga": 2}.items():
        case = Case.of(model, Options(flavour=flavour))
        assert case.switch.run(port, case.frame([1] * model.n_features)).port is None


@pytest.fixture
def written(tmp_path: Path) -> list[object]:
    """A model file and its feature set, as the start of a command."""
    model = random_network(np.random.default_rng(1), n_features=3, n_classes=2)
    document = {"format": "wirewise-model", "version": 1, "classes": ["a", "b"], "source": "", "notes": []}
    (tmp_path / "m.json").write_text(
        json.dumps({**document, "feature_names": None, "model": model.to_dict()})
    )
    (tmp_path / "f.yaml").write_text(json.dumps(feature_set(3).to_dict()))
    return ["compile", tmp_path / "m.json", "-f", tmp_path / "f.yaml", "--target", "p4"]


def test_compile_writes_the_sources_to_a_folder(written: list[object], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*map(str, written), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "stages" in done.stdout and "bits of headers and metadata" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    options = ["--flavour", "netfpga", "--result", "port", "--json", "-o", str(tmp_path / "sume")]
    done = CliRunner().invoke(app, [*map(str, written), *options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["files"] == FILES
    assert "SimpleSumeSwitch" in (tmp_path / "sume" / "wirewise.p4").read_text()


def test_a_refusal_writes_nothing(written: list[object], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*map(str, written), "--stages", "3", "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, InputError) and "the limit is 3" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_the_documented_sizes_are_those_of_the_paper_s_network() -> None:
    model = random_binary_mlp(
        np.random.default_rng(1), n_features=16, layers=(32, 16), n_classes=2, input_bits=256
    )
    documented = (ROOT / "docs" / "targets" / "p4.md").read_text()
    for name, options in {
        "`v1model`, tables": Options(),
        "`v1model`, registers": Options(weights="registers"),
        "`v1model`, tables, `--parallel 8`": Options(parallel=8),
        "`netfpga`, constants": Options(flavour="netfpga"),
        "`netfpga`, constants, `--input bits`": Options(flavour="netfpga", input="bits"),
    }.items():
        made = emit(model, feature_set(16), options)
        assert f"| {name} | {made.stages} | {made.phv_bits:,} | {made.entries:,} |" in documented


def test_the_program_has_no_line_for_what_is_not_asked() -> None:
    model = random_network(np.random.default_rng(1))
    text = Case.of(model, Options(weights="constants")).sources.files["wirewise.p4"]
    assert "meta.ready" not in text and "weights_l0" not in text and "port_of_class" not in text
