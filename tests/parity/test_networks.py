# SPDX-License-Identifier: Apache-2.0
"""The C of networks, compiled for this machine, against the reference: any weights, any values of features.

Faster than a program in the kernel, and features take values that no packet gives them: both ends of their
range, and all that lies between.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bench.programs import NETWORKS, SEED, feature_rows, network
from tests.multiplicity import seeds
from tests.parity.cases import NETWORK_KINDS, Case, network_of_kind, random_fuzzer, shape_of_kind
from tests.parity.harness import assert_agree, needs_kernel
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.feature_sets.feature_set import constant_feature
from wirewise.importers import import_model
from wirewise.models import (
    Model,
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
)
from wirewise.quantize import Options
from wirewise.targets import ebpf
from wirewise.targets.ebpf.clang import find_clang
from wirewise.traffic import generate

BPF = Path(__file__).parents[2] / "bpf"
FEATURES = FeatureSet.from_dict(
    {
        "name": "of all sizes",
        "features": [
            "length", "ttl", "direction", "tcp_ack", "count", "sum(length)", "mean(length)", "variance(iat)",
            "mean(iat)", "mean_abs_deviation(length)", "iat", "protocol",
        ],
    }
)  # fmt: skip
PROGRAM = """
#define SEC(name)
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#include "abi.h"
#include "frame/arith.h"
#include "ww_model.h"

#include <stdio.h>

static struct ww_scratch scratch;

int main(void)
{
	while (fread(scratch.feature, 8, FEATURES, stdin) == FEATURES) {
		__s64 class_id = ww_infer(&scratch);

		fwrite(&class_id, 8, 1, stdout);
		fwrite(scratch.score, 8, OUTPUTS, stdout);
	}
	return 0;
}
"""

Native = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]


def native(model: Model, folder: Path, shape: str) -> Native:
    """The generated code, compiled for this machine; a sum that overflows ends it."""
    sources = ebpf.emit(model, FEATURES, shape=shape)
    (folder / "ww_model.h").write_text(sources.files["ww_model.h"])
    (folder / "program.c").write_text(PROGRAM)
    sizes = [f"-DFEATURES={model.n_features}", f"-DOUTPUTS={model.n_outputs}"]
    flags = [
        "-O1",
        "-Wall",
        "-Werror",
        "-Wno-unused-function",
        "-fsanitize=signed-integer-overflow",
        "-fsanitize-trap=all",
        *sizes,
    ]
    paths = [f"-I{folder}", f"-I{BPF}", folder / "program.c", "-o", folder / "program"]
    subprocess.run([find_clang(), *flags, *paths], check=True)

    def run(x: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        done = subprocess.run([folder / "program"], input=x.tobytes(), capture_output=True, check=True)
        said = np.frombuffer(done.stdout, np.int64).reshape(len(x), 1 + model.n_outputs)
        return said[:, 0], said[:, 1:]

    return run


def rows(rng: np.random.Generator, ranges: list[tuple[int, int]], count: int) -> NDArray[np.int64]:
    """Values within each feature's own range: near the ends, near the network's range, of any size."""
    columns = []
    for feature, (low, high) in zip(FEATURES.features, ranges, strict=True):
        most = feature.maximum
        drawn = [
            rng.integers(0, most, count, endpoint=True),
            rng.integers(0, most, count, endpoint=True) >> rng.integers(0, 60, count),
            np.minimum(rng.integers(low, high, count, endpoint=True), most),
            rng.choice([0, 1, most - 1, most], count),
        ]
        columns.append(np.choose(rng.integers(0, 4, count), drawn))
    x = np.stack(columns, axis=1).astype(np.int64)
    for index, feature in enumerate(FEATURES.features):
        constant = constant_feature(feature, FEATURES.key)
        x[:, index] = x[:, index] if constant is None else constant
    return np.ascontiguousarray(x)


def check(model: Model, ranges: list[tuple[int, int]], folder: Path, shape: str = "inline") -> None:
    x = rows(np.random.default_rng(1), ranges, 2000)
    classes, scores = native(model, folder, shape)(x)
    expected_classes, expected_scores = model.predict(x)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(classes, expected_classes)


@pytest.mark.parametrize("kind", NETWORK_KINDS)
@pytest.mark.parametrize("seed", seeds(2, of=6))
def test_random_network(kind: str, seed: int, tmp_path: Path) -> None:
    random = Random(f"{kind}/{seed}")
    ranges = [
        (0, min(random.choice((1, 255, 1500, 1 << 20, 1 << 31, 1 << 47)), feature.maximum))
        for feature in FEATURES.features
    ]
    model = network_of_kind(kind, random, ranges)
    check(model, ranges, tmp_path, shape_of_kind(kind, random.choice(("inline", "functions"))))


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("family", ["int8", "q16", "binary"])
def test_large_network(family: str, extreme: bool, tmp_path: Path) -> None:
    ranges = [(0, min(1500, feature.maximum)) for feature in FEATURES.features]
    make = {"int8": random_quantized_mlp, "q16": random_fixed_point_mlp, "binary": random_binary_mlp}[family]
    model = make(np.random.default_rng(7), layers=(64, 48), n_classes=16, extreme=extreme, ranges=ranges)  # type: ignore[operator]
    check(model, ranges, tmp_path, "functions")


@pytest.mark.parametrize(
    ("layers", "input_bits", "same_inputs", "steps", "extreme"),
    [
        ((128, 64), 152, True, False, False),
        ((128, 64), 152, False, True, False),
        ((256, 200, 65), 1000, True, None, True),
        ((64,), 63, True, False, True),
        ((65, 1), 64, False, None, True),
    ],
)
def test_bank(
    layers: tuple[int, ...],
    input_bits: int,
    same_inputs: bool,
    steps: bool | None,
    extreme: bool,
    tmp_path: Path,
) -> None:
    ranges = [(0, min(1500, feature.maximum)) for feature in FEATURES.features]
    model = random_binary_bank(
        np.random.default_rng(9), networks=17, layers=layers, input_bits=input_bits, same_inputs=same_inputs,
        steps=steps, extreme=extreme, n_features=len(ranges), ranges=ranges,
    )  # fmt: skip
    check(model, ranges, tmp_path, "auto")


@needs_kernel
@pytest.mark.parametrize("same_inputs", [True, False])
def test_a_bank_of_the_size_of_the_paper(same_inputs: bool, tmp_path: Path) -> None:
    """siracusano-n3ic, appendix C.2: in the kernel and in the engine, on fuzzed packets."""
    specs = dict.fromkeys(f.spec for f in (*FEATURES.features, *PRESETS["hara2026"].features))
    feature_set = FeatureSet.from_dict({"name": "nineteen", "features": list(specs)[:19]})
    ranges = [(0, min(1500, feature.maximum)) for feature in feature_set.features]
    model = random_binary_bank(
        np.random.default_rng(1), networks=17, n_features=19, layers=(128, 64), input_bits=152,
        same_inputs=same_inputs, ranges=ranges,
    )  # fmt: skip
    fuzzer = random_fuzzer(Random("bank"), feature_set)
    case = Case("bank", feature_set, model, {"version": 1, "classes": {"c1": "drop"}}, mode="enforce")
    said: set[tuple[int, ...]] = set()
    assert_agree(
        case,
        [*fuzzer.packets(600)],
        tmp_path,
        seen=lambda run: said.update(map(tuple, (run.scores > 0).tolist())),
    )
    assert len(said) > 10


def test_int8_weights_of_zero(tmp_path: Path) -> None:
    """Words of activations that no neuron reads, a neuron that reads none, more words than a piece holds."""
    ranges = [(0, min(1500, feature.maximum)) for feature in FEATURES.features]
    model = random_quantized_mlp(np.random.default_rng(8), layers=(80, 8), n_classes=3, ranges=ranges)
    first, second, last = model.layers
    rows = [(0,) * 24 + row[24:64] + (0,) * 16 for row in second.weights[:-1]]
    second = replace(second, weights=(*rows, (0,) * 80))
    model = replace(model, layers=(first, second, last))
    ebpf.build(ebpf.emit(model, FEATURES))
    check(model, ranges, tmp_path)


@needs_kernel
@pytest.mark.parametrize("name", ["mlp-int8-32x32", "mlp-q16-32x32", "bnn-128-64"])
def test_the_measured_networks(name: str, tmp_path: Path) -> None:
    """In the kernel and in the engine, on generated traffic and on fuzzed packets, in the shapes chosen."""
    feature_set = PRESETS["hara2023"]
    frames = [(10**18 + p.time_ns, p.frame) for p in generate(seed=5, packets=500)]
    fuzzer = random_fuzzer(Random(name), feature_set)
    fuzzer.now_ns = frames[-1][0]
    case = Case(name, feature_set, network(*NETWORKS[name]), {"version": 1})
    said: set[int] = set()
    comparison = assert_agree(
        case,
        [*frames, *fuzzer.packets(500)],
        tmp_path,
        seen=lambda run: said.update(run.heads[:, 2].tolist()),
    )
    assert comparison.shape == ("functions" if name == "bnn-128-64" else "inline")
    assert said == {0, 1}


@needs_kernel
@pytest.mark.parametrize("family", ["int8", "q16", "binary"])
def test_a_trained_network(family: str, tmp_path: Path) -> None:
    """Told the size of packets from the sizes before, on the traffic that it was trained with."""
    feature_set = PRESETS["hara2023"]
    x = feature_rows()[::4]
    longer = x[:, 3] << 16 > x[:, 6]
    if family == "binary":
        imported = import_model(BinaryClassifier((32, 16)).fit(x, longer.astype(np.int64)))
    else:
        estimator = make_pipeline(
            StandardScaler(), MLPClassifier((16, 16), max_iter=15, random_state=1, early_stopping=True)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(x, np.where(longer, "longer", "not longer"))
        imported = import_model(estimator, rows=x, options=Options(network=family, fine_tune=False))
    assert (imported.predict(x) == imported.model.predict(x)[0]).mean() > 0.95
    frames = [(10**18 + p.time_ns, p.frame) for p in generate(SEED, packets=1500)]
    case = Case(f"trained/{family}", feature_set, imported.model, {"version": 1}, kind="trained")
    classes: set[int] = set()
    assert_agree(case, frames, tmp_path, seen=lambda run: classes.update(run.heads[:, 2].tolist()))
    assert classes == {0, 1}
