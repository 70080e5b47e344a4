# SPDX-License-Identifier: Apache-2.0
"""Binary networks as P4 equal the reference: class, scores, port and every byte of the packet."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.multiplicity import seeds
from tests.p4.cases import OPTIONS, PORTS, Case, bounded, feature_set, options_for, random_network, rows_for
from wirewise.models import BinaryLayer, BinaryMlp, random_binary_mlp
from wirewise.targets.p4 import Options, emit


def agree(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    model = bounded(rng, random_network(rng))
    Case.of(model, options_for(seed, model)).check(rows_for(rng, model, rows))


@pytest.mark.parametrize("seed", seeds(12, of=40))
def test_random_networks_equal_the_reference(seed: int) -> None:
    agree(seed, 20)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_networks_equal_the_reference(part: int) -> None:
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        agree(seed, 20)


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_the_network_of_the_paper_equals_the_reference(options: Options) -> None:
    rng = np.random.default_rng(1)
    model = random_binary_mlp(rng, n_features=16, layers=(32, 16), n_classes=2, input_bits=256)
    Case.of(model, options).check(rows_for(rng, model, 20))


def test_a_network_of_one_bit_equals_the_reference() -> None:
    rng = np.random.default_rng(2)
    for options in OPTIONS:
        model = random_binary_mlp(rng, n_features=1, layers=(1,), n_classes=2, input_bits=1)
        Case.of(model, options).check(rows_for(rng, model, 20))


@pytest.mark.parametrize("bits", [255, 257, 511, 512, 513, 1000, 1024])
def test_inputs_that_are_long_equal_the_reference(bits: int) -> None:
    rng = np.random.default_rng(bits)
    model = random_network(rng, n_features=9, input_bits=bits, layers=[4], extreme=False)
    model = replace(model, layers=(_all_agree(model), *model.layers[1:]))
    for options in OPTIONS[:3]:
        Case.of(model, options).check(rows_for(rng, model, 10))


def _all_agree(model: BinaryMlp) -> BinaryLayer:
    """A first layer with a neuron that counts ones, and one that counts zeros."""
    first = model.layers[0]
    return BinaryLayer(((1 << model.input_bits) - 1, 0, *first.weights[2:]), first.threshold)


def test_a_table_that_gives_less_needs_more_tables_and_gives_the_same() -> None:
    rng = np.random.default_rng(3)
    model = random_network(rng, input_bits=32, layers=[16], n_classes=3, extreme=False)
    for flavour in ("v1model", "netfpga"):
        case = Case.of(model, Options(flavour=flavour, weights="tables", table_bytes=32, scores="yes"))
        case.check(rows_for(rng, model, 20))
        tables = re.findall(r"table weights_l0_\w+", case.sources.files["wirewise.p4"])
        assert len(tables) == 3  # 32 bytes hold six neurons of 32 bits and a threshold of 6


@pytest.mark.parametrize("weights", ["tables", "registers"])
def test_without_entries_packets_pass_unclassified(weights: str) -> None:
    model = random_network(np.random.default_rng(4), extreme=False)
    case = Case.of(model, Options(weights=weights), ready=False)
    out = case.run([5] * model.n_features)
    assert (out.port, out.frame, out.meta["class_id"]) == (0, case.frame([5] * model.n_features), 0)


@pytest.mark.parametrize("flavour", ["v1model", "netfpga"])
def test_padding_is_no_transport_header(flavour: str) -> None:
    """Of IPv4 packets that end before the header that the ports would be of, none is classified."""
    model = random_network(np.random.default_rng(4), extreme=False)
    case = Case.of(model, Options(input="registers", flavour=flavour))
    row = [5] * model.n_features
    right = case.frame(row)
    for protocol, header in ((17, 8), (6, 20)):
        for length in (0, 20, 24, 20 + header - 1, 20 + header, 60, 65535):
            changed = bytearray(right)
            changed[15:18], changed[23] = b"\xff" + length.to_bytes(2, "big"), protocol
            out = case.switch.run(PORTS[flavour][1], bytes(changed))
            # A class is written as DSCP.
            assert (out.frame[15] != 0xFF) == (length >= 20 + header), (protocol, length)


@pytest.mark.parametrize("weights", ["tables", "registers"])
def test_another_model_is_written_beside_and_used_from_its_last_entry_on(weights: str) -> None:
    rng = np.random.default_rng(5)
    old, other = (random_network(rng, n_features=3, layers=[20], n_classes=3, extreme=False) for _ in "ab")
    new = BinaryMlp(3, 3, old.inputs, _layers_like(old, other, rng))
    options = Options(weights=weights, scores="yes")
    case, rows = Case.of(old, options), rows_for(rng, old, 20)
    sources = emit(new, feature_set(3), replace(options, number=1))
    assert _code(sources.files["wirewise.p4"]) == _code(case.sources.files["wirewise.p4"])
    writes = json.loads(sources.files["model.json"])["write"]
    case.switch.write({"write": writes[:-1]})
    case.check(rows)
    case.switch.write({"write": writes[-1:]})
    case.model = new
    case.check(rows)
    case.model = old
    assert case.differences(rows)


def _layers_like(old: BinaryMlp, other: BinaryMlp, rng: np.random.Generator) -> tuple:
    """Layers of the same sizes, other weights and thresholds."""
    made = random_binary_mlp(
        rng, n_features=1, layers=(20,), n_classes=3, input_bits=old.input_bits, steps=True
    )
    return made.layers


def _code(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("//")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("L0_MASK1 =", "L0_MASK1 = 8w0 & "),
        (">> 2", ">> 1"),
        (">= meta.l0_t0", "> meta.l0_t0"),
        ("~(meta.x0", "(meta.x0"),
    ],
)
def test_a_wrong_program_is_found(old: str, new: str) -> None:
    """The comparison can fail."""
    rng = np.random.default_rng(6)
    model = random_network(rng, n_features=1, input_bits=8, layers=[6], n_classes=2, extreme=False)
    case = Case.of(model, Options(scores="yes"))
    text = case.sources.files["wirewise.p4"]
    assert old in text
    rows = np.arange(0, 1500, 3)[:, None]
    case.check(rows)
    case.switch = type(case.switch)(text.replace(old, new))
    case.switch.write(json.loads(case.sources.files["ports.json"]))
    case.switch.write(json.loads(case.sources.files["model.json"]))
    assert case.differences(rows)
