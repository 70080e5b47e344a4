# SPDX-License-Identifier: Apache-2.0
"""The model IR: models as integers, one module per family, each with its reference meaning and its rules."""

from __future__ import annotations

from typing import Any, TypeAlias

from wirewise.abi import MAX_CLASSES, MAX_FEATURES
from wirewise.models.binary_bank import BinaryBank
from wirewise.models.binary_mlp import BinaryLayer, BinaryMlp, BitsInput, StepsInput
from wirewise.models.bounded import UNKNOWN, Bound, Bounded
from wirewise.models.families import FAMILIES, Family, load_family
from wirewise.models.fixed_point_mlp import FixedPointLayer, FixedPointMlp
from wirewise.models.network import InputScaler, Network
from wirewise.models.quantized_mlp import InputQuantizer, QuantizedLayer, QuantizedMlp
from wirewise.models.random import (
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.models.tree import Tree, TreeEnsemble

Model: TypeAlias = Family | Bounded

MODELS: dict[str, type[Model]] = {**FAMILIES, Bounded.family: Bounded}

__all__ = [
    "MAX_CLASSES",
    "MAX_FEATURES",
    "MODELS",
    "UNKNOWN",
    "BinaryBank",
    "BinaryLayer",
    "BinaryMlp",
    "BitsInput",
    "Bound",
    "Bounded",
    "Family",
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
    "random_binary_bank",
    "random_binary_mlp",
    "random_fixed_point_mlp",
    "random_quantized_mlp",
    "random_tree_ensemble",
]


def load(document: Any) -> Model:
    """The model that `to_dict` wrote, whatever its family. InputError if it is not one."""
    if isinstance(document, dict) and document.get("family") == Bounded.family:
        return Bounded.from_dict(document)
    return load_family(document)
