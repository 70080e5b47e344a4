# SPDX-License-Identifier: Apache-2.0
"""`wirewised infer` gives the reference's class and scores, bit for bit."""

from __future__ import annotations

import hashlib
import io
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.multiplicity import seeds
from wirewise import agent
from wirewise.errors import InputError
from wirewise.feature_sets import PRESETS
from wirewise.formats.bundle import Bundle, feature_records
from wirewise.formats.manifest import meaning
from wirewise.models import BinaryMlp, Bounded, Model
from wirewise.models.random import random_binary_mlp, random_tree_ensemble
from wirewise.targets import ebpf
from wirewise.targets.rows import trying_rows

Rows = NDArray[np.int64]
Bundled = Callable[[Model], Path]
FEATURES = PRESETS["hara2023"]
NAMES = FEATURES.feature_names


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    """The bundle of any model over hara2023. `infer` runs no program, so all have that of the first."""
    folder = tmp_path_factory.mktemp("infer")
    first = random_binary_mlp(np.random.default_rng(0), input_bits=16, layers=(), steps=False)
    sources = ebpf.emit(first, FEATURES)
    options = ebpf.Options(verify="never")
    made = ebpf.EBPF.build(sources, first, FEATURES, ["a", "b"], options, lambda text: nullcontext())
    means = meaning(["a", "b"], NAMES, feature_records(FEATURES), made.flow, None)

    def write(model: Model) -> Path:
        bundle = Bundle.create(
            name="any", classes=[f"class-{index}" for index in range(model.n_classes)], model=model,
            feature_set=FEATURES, flow=made.flow, program=made.program, object_file=made.object_file,
            sources=sources.files, tools=made.tools,
        )  # fmt: skip
        program = bundle.program.replace(means, bundle.manifest.meaning)
        digests = bundle.manifest.digests | {"program.bpf.o": hashlib.sha256(program).hexdigest()}
        manifest = bundle.manifest.model_copy(update={"digests": digests})
        bundle = replace(bundle, program=program, manifest=manifest)
        path = folder / f"{model.digest[:16]}.wirewise"
        bundle.write(path)
        return path

    return write


def judged(bundle: Path, rows: Rows, folder: Path) -> tuple[list[str], Rows]:
    """Classes, and scores (n, n_outputs)."""
    np.save(folder / "rows.npy", rows)
    said = agent.call("infer", folder / "rows.npy", "--bundle", bundle, "-o", folder / "said.parquet")
    table = pl.read_parquet(folder / "said.parquet")
    assert said["rows"] == len(rows) == sum(said["classes"].values()) == len(table)
    return table["class"].to_list(), table.select(pl.exclude("class")).to_numpy()


def assert_the_same(model: Model, bundle: Path, rows: Rows, folder: Path) -> None:
    classes, scores = judged(bundle, rows, folder)
    own_classes, own_scores = model.predict(rows)
    expected = [f"class-{index}" for index in own_classes.tolist()]
    differing = [index for index in range(len(rows)) if classes[index] != expected[index]]
    differing += np.flatnonzero((scores != own_scores).any(axis=1)).tolist()
    assert not differing, (
        f"{len(differing)} of {len(rows)} rows differ, first {rows[differing[0]].tolist()}: "
        f"{classes[differing[0]]} {scores[differing[0]]}, "
        f"not {expected[differing[0]]} {own_scores[differing[0]]}"
    )


def random_model(seed: int) -> BinaryMlp:
    """8 to 256 inputs, 1 to 3 layers, half of them with extreme weights and thresholds."""
    rng = np.random.default_rng(seed)
    return random_binary_mlp(
        rng,
        n_features=len(NAMES),
        layers=rng.integers(1, 130, int(rng.integers(3))).tolist(),
        n_classes=int(rng.integers(2, 9)),
        input_bits=int(rng.integers(8, 257)),
        extreme=bool(seed % 2),
    )


@pytest.mark.parametrize("seed", seeds(8, of=24))
def test_random_networks(seed: int, bundled: Bundled, tmp_path: Path) -> None:
    model: Model = random_model(seed)
    if seed % 5 == 0:
        assert isinstance(model, BinaryMlp)
        model = Bounded.by(model, trying_rows(model, 5))
    assert_the_same(model, bundled(model), trying_rows(model, 300), tmp_path)


def test_many_rows_and_none(bundled: Bundled, tmp_path: Path) -> None:
    model = random_model(2)
    assert_the_same(model, bundled(model), trying_rows(model, 20_001), tmp_path)
    assert judged(bundled(model), np.zeros((0, len(NAMES)), np.int64), tmp_path)[0] == []


def test_csv_and_arrays_from_a_pipe(bundled: Bundled, tmp_path: Path) -> None:
    model = random_model(4)
    bundle, rows = bundled(model), trying_rows(model, 5_000)
    expected = [f"class-{index}" for index in model.predict(rows)[0].tolist()]
    array = io.BytesIO()
    np.save(array, rows)
    # Other columns, and another order.
    names = [*NAMES[::-1], "label"]
    table = pl.DataFrame(rows[:, ::-1], schema=list(NAMES[::-1])).with_columns(label=pl.lit("x"))
    for given in (array.getvalue(), table.select(names).write_csv().encode()):
        command = [str(agent.find()), "infer", "-", "--bundle", str(bundle), "-o", "said.jsonl"]
        subprocess.run(command, input=given, cwd=tmp_path, capture_output=True, check=True)
        assert pl.read_ndjson(tmp_path / "said.jsonl")["class"].to_list() == expected


def npy(rows: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


GOOD = npy(np.zeros((3, len(NAMES)), np.int64))
HEAD = ",".join(NAMES)
BROKEN = {
    "nothing": (b"", "has no column"),
    "no names": (b"1,2,3\n", "has no column"),
    "an empty value": (f"{HEAD}\n{',' * (len(NAMES) - 1)}\n".encode(), "line 2: "),
    "a value that is too large": (f"{HEAD}\n{','.join(['9' * 30] * len(NAMES))}\n".encode(), "line 2: "),
    "a short line": (f"{HEAD}\n1,2\n".encode(), "neither a NumPy array nor CSV"),
    "an endless line": (b"x" * (3 << 20), "more than 1048576 bytes"),
    "floats": (npy(np.zeros((3, len(NAMES)))), "not of int64"),
    "int32": (npy(np.zeros((3, len(NAMES)), np.int32)), "not of int64"),
    "objects": (GOOD.replace(b"<i8", b"|O8"), "not of int64"),
    "Fortran order": (npy(np.asfortranarray(np.zeros((3, len(NAMES)), np.int64))), "Fortran order"),
    "other features": (npy(np.zeros((3, 5), np.int64)), "shape [3, 5]"),
    "one axis": (npy(np.zeros(len(NAMES), np.int64)), "shape [12]"),
    "cut off": (GOOD[:-1], "breaks off after row 0"),
    "a header cut off": (GOOD[:60], "header cannot be read"),
    "an impossible header": (GOOD[:8] + b"\xff\xff" + GOOD[10:], "no array of NumPy's"),
    "another version": (GOOD[:6] + b"\x09" + GOOD[7:], "no array of NumPy's"),
    "a huge shape": (GOOD.replace(b"(3, 12), }", b"(9999999999999999999, 12), }"), "breaks off after row 0"),
    "a negative shape": (GOOD.replace(b"(3,", b"(-3,"), "an invalid shape in its .npy header"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_rows_are_refused_in_a_line(what: str, bundled: Bundled, tmp_path: Path) -> None:
    content, rule = BROKEN[what]
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(InputError, match="rows") as refused:
        agent.call(
            "infer", tmp_path / "rows", "--bundle", bundled(random_model(2)), "-o", tmp_path / "x.jsonl"
        )
    assert rule in str(refused.value) and "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_other_models_are_refused(bundled: Bundled, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(GOOD)
    bundle = bundled(random_tree_ensemble(np.random.default_rng(1), n_trees=1, depth=2))
    with pytest.raises(InputError, match=r"tree-ensemble is not one of: binary-mlp.*wirewise evaluate"):
        agent.call("infer", tmp_path / "rows", "--bundle", bundle)
    with pytest.raises(InputError, match="does not exist"):
        agent.call("infer", tmp_path / "nowhere.npy", "--bundle", bundled(random_model(2)))
