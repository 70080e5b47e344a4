# SPDX-License-Identifier: Apache-2.0
"""The largest models that are promised to load."""

from __future__ import annotations

from itertools import product

import numpy as np

from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.models import (
    BinaryMlp,
    Model,
    StepsInput,
    TreeEnsemble,
    random_binary_bank,
    random_quantized_mlp,
)
from wirewise.models.random import random_binary_layers, random_tree_ensemble

FIELDS = ("length", "payload_length", "ttl", "tcp_window", "iat", "tos")
WHOLE = ("first", "sum", "count", "min", "max", "mean", "variance", "mean_abs_deviation")
WINDOWED = ("mean", "max", "min", "sum")


def features() -> FeatureSet:
    """64 features, 16 of them over windows."""
    specs = [f"{name}({field})" for field, name in product(FIELDS, WHOLE)]
    specs += [f"{name}({field}, window=500ms)" for field, name in product(FIELDS[:4], WINDOWED)]
    return FeatureSet.from_dict({"name": "largest", "features": specs})


def forest() -> tuple[TreeEnsemble, FeatureSet]:
    """100 full trees of depth 10, 64 features, 16 classes."""
    feature_set = features()
    model = random_tree_ensemble(
        np.random.default_rng(1),
        n_features=len(feature_set.features),
        n_classes=16,
        n_trees=100,
        depth=10,
        votes="majority",
        full=True,
        thresholds=(0, 100_000),
    )
    assert (len(model.used_features), model.n_nodes) == (64, 100 * 2047)
    return model, feature_set


def wide() -> tuple[Model, FeatureSet]:
    """int8 64-128-64-16 over 64 features."""
    model = random_quantized_mlp(
        np.random.default_rng(1), n_features=64, layers=(128, 64), n_classes=16, ranges=(0, 100_000)
    )
    assert len(model.used_features) == 64
    return model, features()


def many_classes() -> tuple[Model, FeatureSet]:
    """int8 12-64-64-7."""
    return random_quantized_mlp(np.random.default_rng(1), layers=(64, 64), n_classes=7), PRESETS["hara2023"]


def bank() -> tuple[Model, FeatureSet]:
    """17 networks 152-128-64-2 over rounds of probes, each with steps of its own."""
    features = FeatureSet.from_dict(
        {
            "name": "rounds",
            "key": "destination",
            "features": [f"round(probe_delay, path={path})" for path in range(19)],
        }
    )
    model = random_binary_bank(
        np.random.default_rng(1), networks=17, n_features=19, layers=(128, 64), input_bits=152, steps=True,
        same_inputs=False, ranges=(0, 255),
    )  # fmt: skip
    return model, features


def thermometer() -> tuple[Model, FeatureSet]:
    """A binary network of 200 steps of one feature, and 64 classes."""
    features = PRESETS["hara2023"]
    names = [feature.name for feature in features.features]
    index = names.index("mean_iat")
    steps = StepsInput(index, tuple(range(1, features.features[index].maximum, 2**20))[:200])
    layers = random_binary_layers(np.random.default_rng(1), (steps.width, 64))
    return BinaryMlp(len(names), 64, (steps,), layers), features
