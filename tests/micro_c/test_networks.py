# SPDX-License-Identifier: Apache-2.0
"""Binary networks as micro-C, compiled and run with threads on this machine, equal the reference: class,
scores, port and every byte of the packet.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests import needs
from tests.micro_c import chip
from tests.multiplicity import seeds
from tests.p4.cases import random_network
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.importers import import_model
from wirewise.models import BinaryLayer, BinaryMlp, BitsInput, random_binary_mlp
from wirewise.targets.ebpf.clang import find_clang
from wirewise.targets.micro_c import Options


@pytest.mark.parametrize("seed", seeds(6, of=16))
def test_random_networks_equal_the_reference(seed: int, tmp_path: Path) -> None:
    chip.check(*chip.drawn(seed), tmp_path, seeds=[str(seed + 1)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_random_networks_equal_the_reference(part: int, tmp_path: Path) -> None:
    for seed in range(1000 + 50 * part, 1050 + 50 * part):
        chip.check(*chip.drawn(seed), tmp_path / str(seed), seeds=[str(seed)])


@pytest.mark.parametrize("kind", ["thread", "address,undefined"])
@pytest.mark.parametrize("mode", ["data", "model"])
def test_no_sanitizer_has_anything_to_say(kind: str, mode: str, tmp_path: Path) -> None:
    if not chip.sanitizes(kind):
        pytest.skip(f"tools: the C compiler has no -fsanitize={kind}")
    flags = f"-O1 -fsanitize={kind} -fno-sanitize-recover=all"
    options = Options(mode=mode, scores="yes", vectors=24)
    chip.check(chip.paper(), options, tmp_path, seeds=["1"], flags=flags)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "address,undefined"])
def test_no_sanitizer_has_anything_to_say_of_random_networks(kind: str, tmp_path: Path) -> None:
    if not chip.sanitizes(kind):
        pytest.skip(f"tools: the C compiler has no -fsanitize={kind}")
    flags = f"-O1 -fsanitize={kind} -fno-sanitize-recover=all"
    for seed in range(32):
        chip.check(*chip.drawn(seed), tmp_path / str(seed), seeds=["1"], flags=flags)


@pytest.mark.parametrize("mode", ["data", "model"])
def test_pointers_are_to_the_memories_that_the_intrinsics_take(mode: str, tmp_path: Path) -> None:
    """Clang has the memories as address spaces, which pointers do not change without a cast."""
    chip.write(chip.sources(chip.paper(), Options(mode=mode, result="port")).files, tmp_path)
    command = [find_clang(), *chip.STRICT, "-fsyntax-only", "-DNFP_SPACES", "-Ihost", "-I.", "ww_main.c"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    tables = tmp_path / "ww_result_port.h"
    tables.write_text(tables.read_text().replace("cls_read(", "mem_read32("))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "address space" in done.stderr


@pytest.mark.parametrize("bits", [1, 31, 32, 33, 255, 480, 481, 512, 1000, 1024])
def test_rows_of_any_length_equal_the_reference(bits: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(bits)
    features = min(bits, 9)
    model = random_binary_mlp(rng, n_features=features, layers=(33,), n_classes=3, input_bits=bits)
    mode = "model" if bits % 2 else "data"
    options = Options(mode=mode, scores="yes", cls_bytes=65536, vectors=24)
    chip.check(model, options, tmp_path)


@pytest.mark.parametrize("mode", ["data", "model"])
def test_the_largest_network_equals_the_reference(mode: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model = random_binary_mlp(
        rng, n_features=17, input_bits=1024, layers=(256,) * 3, n_classes=64, extreme=True
    )
    chip.check(model, Options(mode=mode, cls_bytes=65536, vectors=4), tmp_path)


def test_numbers_of_every_width_and_place_equal_the_reference(tmp_path: Path) -> None:
    """Fields from every bit on, of up to 63 bits, whose bits lie across words."""
    rng = np.random.default_rng(8)
    model = random_network(rng, n_features=4, input_bits=200, layers=[9], n_classes=3, extreme=False)
    places = [(0, 63), (1, 62), (31, 32), (32, 31), (30, 33), (62, 1), (5, 32), (33, 17), (0, 32), (0, 1)]
    inputs = tuple(BitsInput(n % 4, shift, bits) for n, (shift, bits) in enumerate(places))
    width = sum(source.bits for source in inputs)
    first = BinaryLayer(
        tuple(int.from_bytes(rng.bytes(64), "little") % (1 << width) for _ in range(9)), (width // 2,) * 9
    )
    model = BinaryMlp(4, 3, inputs, (first, *model.layers[1:]))
    chip.check(model, Options(scores="yes", vectors=300), tmp_path)


def test_a_trained_binary_network_equals_the_reference(tmp_path: Path) -> None:
    for name in ("jax", "optax"):
        needs.package(name)
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(40, 1500, 600), rng.integers(1, 255, 600), rng.integers(0, 4, 600)], axis=1)
    y = np.where(x[:, 1] > 200, 2, (x[:, 0] > 700) & (x[:, 0] <= 1100) & (x[:, 2] & 2 == 0))
    model = import_model(BinaryClassifier((12, 8), bits=40, passes=1).fit(x, y)).model
    for mode in ("data", "model"):
        chip.check(model, Options(mode=mode, scores="yes", vectors=300), tmp_path / mode)


WRONG = [
    ("data", "ww_layers.h", "count >= value", "count > value"),
    ("data", "ww_layers.h", "~(row[1]", "(row[1]"),
    ("data", "ww_encode.h", "if (high >> 31)", "if (0)"),
    ("data", "ww_encode.h", "begin += half + 1", "begin += half"),
    ("data", "ww_numbers.h", "a_low > b_low", "a_low < b_low"),
    ("data", "ww_result_header.h", "class_id << 24", "class_id << 16"),
    ("model", "ww_chain.h", "mem_bitset(", "mem_write_atomic("),
    ("model", "ww_chain.h", "\tif (place + 1 < WW_EXECUTORS)\n\t\twait_for_all(&ww_end);\n", ""),
    ("model", "ww_chain.h", "while (now[0] != mine)", "while (0)"),
]


@pytest.mark.parametrize(("mode", "name", "old", "new"), WRONG)
def test_a_wrong_program_is_found(mode: str, name: str, old: str, new: str, tmp_path: Path) -> None:
    """The comparison can fail, and so does one without a part of the threads' synchronisation."""
    rng = np.random.default_rng(6)
    model = random_network(rng, n_features=4, input_bits=60, layers=[20], n_classes=3, extreme=False)
    files = dict(chip.sources(model, Options(mode=mode, scores="yes", vectors=400)).files)
    assert old in files[name]
    files[name] = files[name].replace(old, new)
    chip.write(files, tmp_path)
    chip.build(tmp_path, "-Wno-unused")
    assert any(not chip.run(tmp_path, str(seed)).right for seed in range(1, 6))
