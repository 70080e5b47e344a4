# SPDX-License-Identifier: Apache-2.0
"""Timing inference alone: the C is the model, and every way to predict says what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import inference, native
from bench.programs import SEED, forest, network
from wirewise.errors import WirewiseError
from wirewise.feature_sets import PRESETS
from wirewise.models import TreeEnsemble
from wirewise.quantize import Options
from wirewise.targets import ebpf
from wirewise.targets.ebpf import clang


@pytest.mark.slow
def test_ways_to_predict_are_timed_and_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {
        "tree-5": inference.MODELS["tree-5"],
        "mlp": ("mlp", {"hidden": (4,)}, Options("q16")),
        "bnn": ("bnn", {"hidden": (8,)}, None),
    }
    monkeypatch.setattr(inference, "MODELS", chosen)
    monkeypatch.setattr(inference, "CALLS", 5)
    rows = inference.measure(tmp_path, clang.find_clang(), 2, packets=1500)
    by_model = {name: [row for row in rows if row["model"] == name] for name in chosen}
    assert [row["plane"] for row in by_model["bnn"]] == ["native", "numpy"]
    for name in ("tree-5", "mlp"):
        planes = [row["plane"] for row in by_model[name]]
        assert planes[:2] == ["native", "scikit-learn"]
        assert "onnxruntime" in planes or "left out: onnxruntime" in capsys.readouterr().err
    for own in by_model.values():
        accuracy = [row["accuracy"] for row in own]
        assert max(accuracy) - min(accuracy) < 0.01  # one model, however it is run
        assert all(row["ns_per_packet"] > 0 and len(row["rounds_ns"]) == 2 for row in own)
        assert own[0]["ratio"] == 1 < own[1]["ratio"]  # a call from Python is no match for C
    inference.show(rows)
    assert "bnn, native" in capsys.readouterr().out


def test_c_of_another_model_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(SEED).integers(0, 2000, (500, 12))
    other = ebpf.emit(network("binary", 8), PRESETS["hara2023"])
    monkeypatch.setattr(ebpf, "emit", lambda *_: other)
    model = forest(1, 5)
    assert isinstance(model, TreeEnsemble)
    with pytest.raises(WirewiseError, match="they disagree on row"):
        inference._native(model, rows, tmp_path / "other", clang.find_clang(), 1)


def test_the_whole_program_is_compiled_apart(tmp_path: Path) -> None:
    """Names of what is compiled do not clash: the digest says which it is."""
    sources, path = ebpf.emit(forest(1, 5), PRESETS["hara2023"]), clang.find_clang()
    made = {
        native.compiled(
            sources, tmp_path / "x", path, "native", seed=1, table_size=4, check=False, files=files
        )
        for files in (native.PROGRAM, native.INFERENCE)
    }
    assert len(made) == 2


def test_a_warning_about_the_processor_is_no_error(tmp_path: Path) -> None:
    """clang 19 warns of `-march=native` on processors with AVX10; here it is made to warn on any."""
    warning = tmp_path / "clang"
    warning.write_text(
        '#!/bin/sh\ncase " $* " in *" -march=native "*) set -- "$@" -Wabout-this-processor ;; esac\n'
        f'exec "{clang.find_clang()}" "$@"\n'
    )
    warning.chmod(0o755)
    sources = ebpf.emit(forest(1, 5), PRESETS["hara2023"])
    for plane in native.OPTIMISED:
        so = native.compiled(
            sources, tmp_path / "x", str(warning), plane, seed=1, table_size=4, check=False,
            files=native.INFERENCE,
        )  # fmt: skip
        assert so.is_file()


def test_a_warning_about_the_code_is_an_error(tmp_path: Path) -> None:
    sources = ebpf.emit(forest(1, 5), PRESETS["hara2023"])
    model = sources.files["ww_model.h"] + "\nvoid careless(void) { int x; x; }\n"
    careless = replace(sources, files={**sources.files, "ww_model.h": model})
    with pytest.raises(WirewiseError, match="unused"):
        native.compiled(
            careless, tmp_path / "x", clang.find_clang(), "native", seed=1, table_size=4, check=False,
            files=native.INFERENCE,
        )  # fmt: skip
