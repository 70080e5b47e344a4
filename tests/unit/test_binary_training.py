# SPDX-License-Identifier: Apache-2.0
"""Training binary networks: encodings, what training comes to, and the way to a model file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wirewise.cli import app
from wirewise.datasets import Table
from wirewise.errors import InputError, MissingFeatureError
from wirewise.evaluate import binary_training, train
from wirewise.evaluate.binary_encoding import ENCODINGS, choose_inputs
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.feature_sets import FeatureSet
from wirewise.formats import training_file
from wirewise.importers import import_model
from wirewise.models import BinaryMlp
from wirewise.models.binary_mlp import BitsInput, StepsInput
from wirewise.quantize import Options
from wirewise.quantize.binarised import encode

# One worker runs them all: what they start from is trained once.
pytestmark = pytest.mark.xdist_group("binary")

FEATURES = FeatureSet.from_dict({"name": "three", "features": ["length", "ttl", "tcp_flags"]})
CLASSES = ["benign", "flood", "scan"]


def data(rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A band of lengths is a flood, unless a flag is set; high TTLs are scans. The middle bits are noise."""
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(40, 1500, rows), rng.integers(1, 255, rows), rng.integers(0, 4, rows)], axis=1)
    flood = (x[:, 0] > 700) & (x[:, 0] <= 1100) & (x[:, 2] & 2 == 0)
    return x, np.where(x[:, 1] > 200, 2, flood)


def table(rows: int = 600) -> Table:
    x, y = data(rows)
    columns = dict(zip(FEATURES.feature_names, x.T, strict=True))
    frame = {
        "time_ns": np.arange(rows), "capture": ["a"] * rows, "packet": np.arange(1, rows + 1),
        "flow": [f"f{row // 2}" for row in range(rows)], **columns,
        "label": [CLASSES[number] for number in y], "status": np.zeros(rows, np.int32),
    }  # fmt: skip
    return Table(pl.DataFrame(frame), FEATURES)


@pytest.fixture(scope="module")
def fitted() -> BinaryClassifier:
    return BinaryClassifier((12, 8), bits=40).fit(*data())


# -- training


def test_it_learns_what_no_threshold_on_one_feature_says(fitted: BinaryClassifier) -> None:
    rows, labels = data(400, seed=1)
    assert np.mean(fitted.predict(rows) == labels) > 0.9


def test_the_integer_network_is_the_one_that_was_trained(fitted: BinaryClassifier) -> None:
    rng = np.random.default_rng(2)
    seen, _ = data()
    for rows in (seen, rng.integers(-(2**62), 2**62, (2000, 3)), rng.integers(0, 2000, (2000, 3))):
        classes, scores = fitted.model.predict(rows)
        np.testing.assert_array_equal(classes, fitted.predict(rows))
        whole = fitted.network.scores(rows)  # dot products and biases: twice the scores, but for the offset
        np.testing.assert_array_equal(np.diff(whole, axis=1), 2 * np.diff(scores, axis=1))
    assert fitted.model.describe() == "binary network 40-12-8-3, 3 of 3 features used, 3 classes"
    assert {norm.mean.shape for layer in fitted.network.layers if (norm := layer.normalisation)} == {
        (12,),
        (8,),
    }


def test_normalisations_are_those_of_the_rows(fitted: BinaryClassifier) -> None:
    rows, _ = data()
    first = fitted.network.layers[0]
    dot = (2.0 * encode(fitted.network.inputs, rows) - 1) @ np.where(first.kernel >= 0, 1, -1)
    assert first.normalisation is not None
    np.testing.assert_allclose(first.normalisation.mean, dot.mean(axis=0))
    np.testing.assert_allclose(first.normalisation.variance, dot.var(axis=0))
    assert all(np.abs(layer.kernel).max() <= 1 for layer in fitted.network.layers)  # clipped


def test_equal_seeds_give_equal_networks(fitted: BinaryClassifier) -> None:
    assert BinaryClassifier((12, 8), bits=40).fit(*data()).model == fitted.model


def test_weights_count(fitted: BinaryClassifier) -> None:
    rows, labels = data()
    noisy = np.where(np.random.default_rng(0).random(len(labels)) < 0.4, 0, labels)
    heavy = BinaryClassifier((12, 8), bits=40).fit(rows, noisy, np.where(noisy == 0, 20.0, 1.0))
    light = BinaryClassifier((12, 8), bits=40).fit(rows, noisy, np.where(noisy == 0, 0.05, 1.0))
    share = [np.mean(one.predict(rows) == 0) for one in (heavy, light)]
    assert share[0] > share[1] + 0.2


def test_an_estimator_is_imported_as_it_is(fitted: BinaryClassifier) -> None:
    imported = import_model(fitted, classes=CLASSES, n_features=3)
    assert imported.model is fitted.model and imported.classes == CLASSES and not imported.notes
    rows, _ = data(100, seed=5)
    np.testing.assert_array_equal(imported.predict(rows), imported.model.predict(rows)[0])
    with pytest.raises(InputError, match="nothing is to be quantised; leave out its options"):
        import_model(fitted, options=Options("int8"))
    with pytest.raises(InputError, match="is not fitted; call fit first"):
        import_model(BinaryClassifier())
    with pytest.raises(InputError, match="trained on 3 features, the feature set has 4"):
        import_model(fitted, n_features=4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hidden": ()}, "must be 1 to 7 layers"),
        ({"hidden": (257,)}, "1 to 256 neurons"),
        ({"dropout": 1.0}, "dropout 1.0: must be 0 or more"),
        ({"bits": 0}, "0 input bits: must be 1 to 1024"),
        ({"encoding": "gray"}, r"encoding 'gray': is not known; there are: steps, quantiles, bits"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        BinaryClassifier(**settings).fit(*data(50))  # type: ignore[arg-type]


def test_without_jax_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setattr(binary_training, "_compiled", binary_training._compiled.__wrapped__)
    with pytest.raises(MissingFeatureError, match=r"library jax.*pip install jax"):
        train(table(100), "bnn")


# -- encodings


@pytest.mark.parametrize("bits", [3, 10, 100])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_stay_within_their_bits_and_tell_values_apart(encoding: str, bits: int) -> None:
    rows, labels = data()
    rows = np.column_stack([rows, np.full(len(rows), 7)])  # says nothing
    inputs = choose_inputs(encoding, rows, labels, bits=bits)
    assert 3 - (encoding == "steps") <= len(inputs) <= 3
    assert sum(one.width for one in inputs) <= bits and 3 not in {one.feature for one in inputs}
    encoded = encode(inputs, rows)
    assert (encoded.min(axis=0) == 0).all() and (encoded.max(axis=0) == 1).all()  # no bit is always the same
    BinaryMlp(4, 2, inputs, random_layers(sum(one.width for one in inputs)))  # the rules accept them


def random_layers(width: int) -> tuple[object, ...]:
    from wirewise.models.random import random_binary_layers

    return random_binary_layers(np.random.default_rng(0), (width, 2))


def test_steps_are_where_classes_part() -> None:
    rows, labels = data(3000)
    inputs = {one.feature: one for one in choose_inputs("steps", rows, labels, bits=8)}
    steps = [(k, t) for k, one in inputs.items() if isinstance(one, StepsInput) for t in one.thresholds]
    for feature, edge, near in ((0, 700, 8), (0, 1100, 8), (1, 200, 0), (2, 1, 0)):
        assert any(k == feature and abs(t - edge) <= near for k, t in steps), (feature, edge, steps)


def test_quantiles_part_the_rows_evenly_and_few_values_exactly() -> None:
    rows, labels = data(3000)
    length, ttl, flags = choose_inputs("quantiles", rows, labels, bits=33)
    assert isinstance(flags, StepsInput) and flags.thresholds == (0, 1, 2)
    assert length.width == ttl.width == 15
    parts = np.bincount(encode([length], rows).sum(axis=1), minlength=16)
    assert parts.min() > 3000 / 16 * 0.8


def test_bits_are_the_highest_of_each_value() -> None:
    rows, labels = data()
    inputs = choose_inputs("bits", rows, labels, bits=12)
    assert inputs == (BitsInput(0, 6, 5), BitsInput(1, 3, 5), BitsInput(2, 0, 2))


def test_what_does_not_vary_cannot_be_encoded() -> None:
    with pytest.raises(InputError, match="has no feature that tells its classes apart"):
        choose_inputs("steps", np.ones((20, 2), np.int64), np.arange(20) % 2)
    with pytest.raises(InputError, match="3 columns need one each"):
        choose_inputs("quantiles", *data(), bits=2)


# -- the command


def test_from_table_to_model_file(tmp_path: Path) -> None:
    path, out = tmp_path / "table.parquet", tmp_path / "model.bnn"
    loaded = table()
    loaded.write(path)
    run = CliRunner().invoke(
        app, ["train", str(path), "-e", "bnn", "--hidden", "12,8", "-o", str(out), "--json"]
    )
    assert run.exit_code == 0, run.output
    said = json.loads(run.output)
    assert said["accuracy"]["accuracy"] > 0.85 and said["training"]["hidden"] == [12, 8]
    record = training_file.read(out)
    assert record is not None and record.training["encoding"] == "steps"
    imported = import_model(out)
    assert (imported.classes, imported.feature_names) == (CLASSES, FEATURES.feature_names)
    again = train(loaded, "bnn", hidden=(12, 8))
    assert imported.model == again.estimator.model
    said = CliRunner().invoke(app, ["evaluate", str(out), str(path), "--json"])
    assert said.exit_code == 0, said.output
    judged = json.loads(said.output)
    assert judged["fidelity"]["agree"] == judged["fidelity"]["rows"] == judged["packets"] < len(loaded.frame)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-e", "bnn", "-o", "model.pkl"], "must end in .bnn"),
        (["-e", "forest", "-o", "model.bnn"], "must end in .pkl"),
        (["-e", "bnn", "--network", "int8"], "is for mlp: bnn is binary already"),
        (["-e", "mlp", "--encoding", "bits"], "is for binary networks"),
        (["-e", "bnn", "--hidden", "0"], "must be 1 to 7 layers"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    path = tmp_path / "table.parquet"
    table(60).write(path)
    result = CliRunner().invoke(app, ["train", str(path), *arguments])
    assert isinstance(result.exception, InputError) and says in str(result.exception)
