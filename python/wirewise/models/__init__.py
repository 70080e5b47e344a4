# SPDX-License-Identifier: Apache-2.0
"""The model IR: models as integers, one module per family, each with its reference meaning and its rules."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

from wirewise.errors import InputError
from wirewise.models.binary_mlp import BinaryLayer, BinaryMlp, BitsInput, StepsInput
from wirewise.models.fixed_point_mlp import FixedPointLayer, FixedPointMlp
from wirewise.models.network import InputScaler, Network
from wirewise.models.quantized_mlp import InputQuantizer, QuantizedLayer, QuantizedMlp
from wirewise.models.random import (
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.models.rules import MAX_CLASSES, MAX_FEATURES
from wirewise.models.tree import Tree, TreeEnsemble

Model: TypeAlias = TreeEnsemble | QuantizedMlp | FixedPointMlp | BinaryMlp  # the union of all families

MODELS: dict[str, type[Model]] = {model.family: model for model in get_args(Model)}

__all__ = [
    "MAX_CLASSES",
    "MAX_FEATURES",
    "MODELS",
    "BinaryLayer",
    "BinaryMlp",
    "BitsInput",
    "FixedPointLayer",
    "FixedPointMlp",
    "InputQuantizer",
    "InputScaler",
    "Model",
    "Network",
    "QuantizedLayer",
    "QuantizedMlp",
    "StepsInput",
    "Tree",
    "TreeEnsemble",
    "load",
    "random_binary_mlp",
    "random_fixed_point_mlp",
    "random_quantized_mlp",
    "random_tree_ensemble",
]


def load(document: Any) -> Model:
    """The model that `to_dict` wrote, whatever its family. InputError if it is not one."""
    if not isinstance(document, dict):
        raise InputError("model", "is not an object")
    family = document.get("family")
    if not isinstance(family, str) or family not in MODELS:
        raise InputError("model", f"family {family!r} is unknown", f"known families: {', '.join(MODELS)}")
    return MODELS[family].from_dict(document)
