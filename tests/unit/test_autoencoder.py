# SPDX-License-Identifier: Apache-2.0
"""An autoencoder is an ordinary network, learns benign rows alone, and needs no others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import train
from wirewise.evaluate.autoencoder import Autoencoder
from wirewise.feature_sets import FeatureSet
from wirewise.importers import import_model
from wirewise.quantize import Options

FEATURES = ["length", "payload_length", "ttl", "count"]


def usual(rng: np.random.Generator, rows: int) -> NDArray[np.int64]:
    """Lengths that differ by their headers, and a count that goes with them."""
    payload = rng.integers(0, 1400, rows)
    return np.stack([payload + 40, payload, rng.choice([64, 128], rows), payload // 100 + 1], axis=1)


def odd(rng: np.random.Generator, rows: int) -> NDArray[np.int64]:
    """Each value is usual by itself."""
    made = usual(rng, rows)
    made[:, 3] = np.where(made[:, 1] < 700, 14, 1)
    return made


def test_what_cannot_be_restored_is_an_attack() -> None:
    rng = np.random.default_rng(1)
    fitted = Autoencoder((4,)).fit(usual(rng, 4000), np.zeros(4000, np.int64))
    assert fitted.predict(usual(rng, 2000)).mean() < 0.05
    assert fitted.predict(odd(rng, 2000)).mean() > 0.8


def test_rows_of_attacks_are_not_learned_from() -> None:
    rng = np.random.default_rng(2)
    benign, attacks = usual(rng, 3000), odd(rng, 3000)
    alone = Autoencoder((4,)).fit(benign, np.zeros(3000, np.int64))
    both = Autoencoder((4,)).fit(np.concatenate([benign, attacks]), np.repeat([0, 1], 3000))
    assert (alone.predict_proba(attacks) == both.predict_proba(attacks)).all()


def test_the_score_is_the_sum_of_absolute_errors() -> None:
    rng = np.random.default_rng(3)
    fitted = Autoencoder((3,)).fit(usual(rng, 2000), np.zeros(2000, np.int64))
    scaler, network = fitted[0], fitted[-1]
    rows = np.concatenate([usual(rng, 50), odd(rng, 50)])
    scaled = scaler.transform(rows)
    remembered = np.maximum(scaled @ network.coefs_[0][:, :3] + network.intercepts_[0][:3], 0)
    restored = remembered @ network.coefs_[1][:3, :4] + network.intercepts_[1][:4]
    share = np.abs(restored - scaled).sum(axis=1) * network.coefs_[2][0, 0]
    logit = np.log(fitted.predict_proba(rows)[:, 1] / fitted.predict_proba(rows)[:, 0])
    assert np.allclose(logit, share - 1, atol=1e-3)


def test_integers_say_the_same() -> None:
    rng = np.random.default_rng(4)
    fitted = Autoencoder().fit(usual(rng, 4000), np.zeros(4000, np.int64))
    imported = import_model(fitted, rows=usual(rng, 2000), options=Options("q16"))
    rows = np.concatenate([usual(rng, 1000), odd(rng, 1000)])
    assert (imported.model.predict(rows)[0] == fitted.predict(rows)).mean() > 0.995


def benign_table(rng: np.random.Generator) -> Table:
    rows = usual(rng, 1200)
    frame = pl.DataFrame({name: rows[:, at] for at, name in enumerate(FEATURES)}).with_columns(
        capture=pl.Series([f"c{at // 200}" for at in range(1200)]),
        flow=pl.Series([f"f{at // 4}" for at in range(1200)]),
        sender=pl.lit(1),
        status=pl.lit(0),
        label=pl.lit("benign"),
    )
    return Table(frame, FeatureSet("usual", FEATURES))


def test_a_table_needs_no_attacks() -> None:
    table = benign_table(np.random.default_rng(5))
    training = train(table, "autoencoder", hidden=(4,))
    assert training.classes == ["benign", "attack"]
    assert training.report.accuracy > 0.9
    assert training.folds is None and not training.doubts
    with pytest.raises(InputError, match="at least two classes"):
        train(table, "forest")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": (4, 4)}, "must be one of 1 to 127 neurons"),
        ({"hidden": (127,)}, "has 4 features, an autoencoder may have 1"),
        ({"teacher": "forest"}, "nothing to say to an autoencoder"),
    ],
)
def test_what_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train(benign_table(np.random.default_rng(6)), "autoencoder", **options)  # type: ignore[arg-type]
