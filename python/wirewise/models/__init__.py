# SPDX-License-Identifier: Apache-2.0
"""The model IR: models as integers, one module per family, each with its reference meaning and its rules."""

from __future__ import annotations

from typing import Any

from wirewise.errors import InputError
from wirewise.models.random import random_tree_ensemble
from wirewise.models.tree import MAX_CLASSES, MAX_FEATURES, Tree, TreeEnsemble

Model = TreeEnsemble  # the union of all families

MODELS: dict[str, type[Model]] = {model.family: model for model in (TreeEnsemble,)}

__all__ = [
    "MAX_CLASSES",
    "MAX_FEATURES",
    "MODELS",
    "Model",
    "Tree",
    "TreeEnsemble",
    "load",
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
