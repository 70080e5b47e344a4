# SPDX-License-Identifier: Apache-2.0
"""The Verilog target on the command line, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.verilog import bench
from wirewise import compiler
from wirewise.cli import app
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.models import Model
from wirewise.models.random import random_binary_mlp, random_fixed_point_mlp, random_tree_ensemble
from wirewise.targets import TARGETS
from wirewise.targets.verilog import Options, lower

FEATURES = FeatureSet.from_dict({"name": "two", "features": ["length", "ttl"]})


def network() -> Model:
    return random_binary_mlp(np.random.default_rng(1), n_features=2, input_bits=32)


def trees() -> Model:
    return random_tree_ensemble(np.random.default_rng(1), n_features=2, n_trees=3)


def test_compile_writes_a_design_that_checks_itself(tmp_path: Path) -> None:
    document = {"format": "wirewise-model", "version": 1, "classes": ["a", "b"], "source": "", "notes": []}
    document |= {"feature_names": None, "model": network().to_dict()}
    (tmp_path / "model.json").write_text(json.dumps(document))
    (tmp_path / "two.yaml").write_text(json.dumps(FEATURES.to_dict()))
    folder = tmp_path / "out"
    command = ["compile", tmp_path / "model.json", "-f", tmp_path / "two.yaml", "--target", "verilog"]
    done = CliRunner().invoke(app, list(map(str, [*command, "--parallel", 8, "-o", folder])))
    assert done.exit_code == 0, done.output
    assert "a result each 4 cycles" in " ".join(done.stdout.split())
    assert "//   word 0: length, bytes" in (folder / "ww_model.v").read_text()
    if not shutil.which("iverilog"):
        pytest.skip("tools: iverilog is not installed")
    bench.compile_bench(folder)
    said = bench.simulate(folder)
    assert (said.results, said.wrong) == (64, 0)


def test_sources_are_the_same_each_time() -> None:
    for model in (network(), trees()):
        once, again = (
            compiler.emit(model, FEATURES, target="verilog", classes=["a", "b"]).files for _ in range(2)
        )
        assert once == again and "ww_test_bench.v" in once
        bare = compiler.emit(model, FEATURES, target="verilog", classes=["a", "b"], vectors=0).files
        assert not [name for name in bare if "bench" in name or "expected" in name]


def test_a_file_holds_the_module_of_its_name() -> None:
    for model in (network(), trees()):
        files = compiler.emit(model, FEATURES, target="verilog", classes=["a", "b"]).files
        for name, text in files.items():
            if name.endswith(".v"):
                assert text.startswith("// SPDX") and text.count("\nmodule ") == 1
                assert f"\nmodule {name[:-2]} " in text or f"\nmodule {name[:-2]};" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parallel": 3}, "parallel 3: is no power of two from 1 to 256; try 8"),
        ({"parallel": 512}, "parallel 512: is no power of two from 1 to 256; try 8"),
        ({"modules": 0}, "modules 0: is not from 1 to 64; try 4"),
        ({"input": "bit"}, "input 'bit': is not known; did you mean 'bits'? there are: features, bits"),
        ({"width": 100}, "width 100: is no width of a beat; there are: 64, 128, 256, 512, 1024"),
        ({"vectors": -1}, "vectors -1: is not from 0 to 100,000; try 64"),
    ],
)
def test_options_that_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as refused:
        TARGETS.find("verilog").choose(options)
    assert str(refused.value) == said


def test_models_that_are_refused() -> None:
    with pytest.raises(InputError, match="q16-mlp: has no Verilog; use binary-mlp or tree-ensemble"):
        lower(random_fixed_point_mlp(np.random.default_rng(1)), Options())
    with pytest.raises(InputError, match="parallel 4: is for binary networks; trees take a record in every"):
        lower(trees(), Options(parallel=4))
    with pytest.raises(InputError, match="input bits: leaves out the features"):
        lower(bench.bounded(network(), np.random.default_rng(1)), Options(input="bits"))
    large = random_tree_ensemble(np.random.default_rng(1), n_trees=33, depth=11, full=True)
    with pytest.raises(InputError, match="has 67,584 leaves, the Verilog target takes 65,536"):
        lower(large, Options())
    with pytest.raises(InputError, match="reads 12 features, feature set 'two' has 2"):
        TARGETS.find("verilog").emit(random_tree_ensemble(np.random.default_rng(1)), FEATURES, Options())
