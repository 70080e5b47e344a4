# SPDX-License-Identifier: Apache-2.0
"""What exceeds a target's limits, or does not go together, is refused, with the way out; and that fits."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests import refusals
from tests.p4.cases import Case, feature_set, rows_for
from wirewise.errors import InputError
from wirewise.models import (
    BinaryMlp,
    Bounded,
    Model,
    TreeEnsemble,
    random_binary_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.targets.p4 import Options, emit


def network(*widths: int) -> BinaryMlp:
    """Of input bits, hidden layers, classes."""
    bits, *hidden, classes = widths
    rng = np.random.default_rng(0)
    return random_binary_mlp(rng, n_features=4, layers=hidden, n_classes=classes, input_bits=bits, steps=True)


def forest(n_trees: int, depth: int, n_features: int = 6, **given: Any) -> TreeEnsemble:
    rng = np.random.default_rng(0)
    return random_tree_ensemble(rng, n_features=n_features, n_trees=n_trees, depth=depth, full=True, **given)


refusal = partial(refusals.refusal, emit)
fits = partial(refusals.fits, emit)


LIMITED = [
    ((256, 128, 2), Options(flavour="netfpga"), "bits of headers and metadata, the limit is 17,408"),
    (
        (256, 64, 32, 2),
        Options(phv_bits=4096, parallel=64),
        "bits of headers and metadata, the limit is 4,096",
    ),
    ((256, 32, 16, 2), Options(phv_bits=1024), "bits of headers and metadata, the limit is 1,024"),
    ((256, 32, 16, 2), Options(stages=24), "needs 31 stages, the limit is 24"),
    ((256, 32, 16, 2), Options(phv_bits=4096, stages=40), "stages, the limit is 40"),
    ((256, 32, 2), Options(table_bytes=32), "needs 34 bytes in a table's look-up, the limit is 32"),
    ((256, 32, 2), Options(flavour="netfpga", weights="tables"), "needs 34 bytes in a table's look-up"),
]


@pytest.mark.parametrize(("widths", "options", "expected"), LIMITED)
def test_a_network_beyond_a_limit_is_refused_with_the_size_that_fits(
    widths: tuple[int, ...], options: Options, expected: str
) -> None:
    told = refusal(network(*widths), options)
    assert expected in told and "or give another --" in told
    size = re.search(r"train a network of at most ([\d-]+)", told)
    assert size, told
    assert fits(network(*map(int, size[1].split("-"))), options)
    if told.startswith("model: needs 34 bytes"):
        assert size[1].split("-")[0] == "248"  # and 8 bits of a threshold


def test_what_the_paper_could_not_synthesise_is_refused_for_netfpga_and_what_it_could_is_not() -> None:
    options = Options(flavour="netfpga", input="bits")
    assert not fits(network(256, 128, 2), options)
    assert fits(network(256, 64, 2), options)
    assert fits(network(256, 32, 16, 2), options)


def test_fewer_neurons_at_once_need_fewer_bits_and_more_stages() -> None:
    model = network(256, 32, 16, 2)
    wide = emit(model, feature_set(4), Options())
    narrow = emit(model, feature_set(4), Options(phv_bits=4096))
    assert narrow.phv_bits <= 4096 < wide.phv_bits and narrow.stages > wide.stages
    rows = rows_for(np.random.default_rng(1), model, 20)
    Case.of(model, Options(phv_bits=4096, scores="yes")).check(rows)


@pytest.mark.parametrize(
    ("model", "options", "expected", "way_out"),
    [
        (forest(10, 3), Options(stages=8), "needs 14 stages, the limit is 8", "the first 4 would fit"),
        (forest(10, 3), Options(phv_bits=900), "bits of headers and metadata", r"the first \d would fit"),
        (
            forest(1, 8, n_features=20, votes="majority"),
            Options(table_bytes=9),
            "bytes in a table's look-up",
            r"one tree of depth \d would fit",
        ),
        (forest(2, 3), Options(table_bytes=8), "needs 9 bytes", "not even one test of one feature fits"),
        (forest(2, 3), Options(phv_bits=100), "bits of headers", "not even one test of one feature fits"),
    ],
)
def test_trees_beyond_a_limit_are_refused(
    model: TreeEnsemble, options: Options, expected: str, way_out: str
) -> None:
    told = refusal(model, options)
    assert expected in told and re.search(way_out, told), told
    if found := re.search(r"the first (\d+) would fit", told):
        kept = int(found[1])
        assert fits(replace(model, trees=model.trees[:kept]), options)
        assert not fits(replace(model, trees=model.trees[: kept + 1]), options)


BOUNDED = Bounded.by(network(64, 8, 2), np.arange(40).reshape(10, 4))


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (
            random_quantized_mlp(np.random.default_rng(0)),
            {},
            "multiplies, which P4's switches cannot; train a binary",
        ),
        (forest(2, 3), {"flavour": "netfpga"}, "has no range matches"),
        (forest(2, 3), {"input": "bits"}, "--input bits: is for binary networks"),
        (forest(2, 3), {"weights": "constants"}, "--weights constants: is for networks"),
        (forest(2, 3), {"parallel": 4}, "--parallel: is for networks"),
        (BOUNDED, {"input": "bits"}, "--input bits: does not have the features that --unknown compares"),
    ],
)
def test_what_does_not_go_with_the_model_is_refused(
    model: Model, given: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(model, Options(**given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"flavour": "v1modle"}, "--flavour v1modle: is not known; did you mean 'v1model'?"),
        ({"input": "wire"}, "--input wire: is not known; there are: packet, bits, registers"),
        ({"result": "x"}, "--result x: is not known"),
        ({"weights": "x"}, "--weights x: is not known"),
        ({"scores": "yes", "result": "port"}, "--scores: needs the result header"),
        ({"scores": "yes", "input": "registers"}, "--scores: needs the result header"),
        ({"flavour": "netfpga", "weights": "registers"}, "--weights registers: P4-NetFPGA reads one element"),
        ({"parallel": 0}, "--parallel 0: is no number from 1 on"),
        ({"stages": -1}, "--stages -1: is no number from 0 on"),
        ({"flows": 1000}, "--flows 1000: is no power of two"),
        ({"number": 256}, "--number 256: is no number from 0 to 255"),
        ({"number": 2, "weights": "registers"}, "--number 2: is no number from 0 to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as refused:
        Options(**given)
    assert expected in str(refused.value)


def test_registers_are_found_by_the_five_tuple() -> None:
    model = network(8, 4, 2)
    for key in ("source", "five-tuple-bidirectional", "five-tuple+vlan"):
        with pytest.raises(
            InputError, match=re.escape(f"has the key {key}; use that key, or --input packet")
        ):
            emit(model, replace(feature_set(4), key=key), Options(input="registers"))
        emit(model, replace(feature_set(4), key=key), Options(input="packet"))
