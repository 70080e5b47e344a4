# SPDX-License-Identifier: Apache-2.0
"""Who lowers which family of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from wirewise.feature_sets.feature_set import Feature
from wirewise.models import BinaryBank, BinaryMlp, FixedPointMlp, QuantizedMlp, TreeEnsemble
from wirewise.targets.ebpf import bank_code, binary_code, int8_code, q16_code, tree_code
from wirewise.targets.ebpf.shapes import Lowered


class Lower(Protocol):
    """Chooses a shape for a model and prints it.

    shape: one of SHAPES, or auto. constants: features that are the same for every packet, with their values;
    the program does not compute them. features: their ranges, and the names that comments give them. Raises
    InputError where the model does not fit the kernel's limits, saying what would.
    """

    def __call__(
        self, model: Any, shape: str, constants: Mapping[int, int], features: Sequence[Feature]
    ) -> Lowered: ...


LOWERINGS: dict[str, Lower] = {
    TreeEnsemble.family: tree_code.lower,
    QuantizedMlp.family: int8_code.lower,
    FixedPointMlp.family: q16_code.lower,
    BinaryMlp.family: binary_code.lower,
    BinaryBank.family: bank_code.lower,
}
