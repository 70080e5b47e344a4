# SPDX-License-Identifier: Apache-2.0
"""The families that decide by themselves, and how to read one from its file."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

from wirewise.errors import InputError, choose
from wirewise.models.binary_bank import BinaryBank
from wirewise.models.binary_mlp import BinaryMlp
from wirewise.models.fixed_point_mlp import FixedPointMlp
from wirewise.models.quantized_mlp import QuantizedMlp
from wirewise.models.tree import TreeEnsemble

Family: TypeAlias = TreeEnsemble | QuantizedMlp | FixedPointMlp | BinaryMlp | BinaryBank

FAMILIES: dict[str, type[Family]] = {model.family: model for model in get_args(Family)}


def load_family(document: Any) -> Family:
    """The model that `to_dict` wrote. InputError if it is not one of these families."""
    if not isinstance(document, dict):
        raise InputError("model", "is not an object")
    family = document.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError("model", f"family {family!r} is unknown", choose(family, FAMILIES))
    return FAMILIES[family].from_dict(document)
