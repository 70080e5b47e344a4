# SPDX-License-Identifier: Apache-2.0
"""Banks of binary networks: several that say yes or no, each of a matter of its own, of the same features.

The score of a network is what its second output is ahead of its first; above 0 it says yes. The answers are a
word with a bit for each network; the bank's class is 1 if any says yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wirewise.abi import MAX_CLASSES
from wirewise.errors import InputError
from wirewise.models import rules
from wirewise.models.binary_mlp import BinaryInput, BinaryMlp
from wirewise.models.network import Ints, Network, Rows
from wirewise.names import is_network_name

MAX_NETWORKS = MAX_CLASSES  # whose scores find room


@dataclass(frozen=True, repr=False)
class BinaryBank(Network):
    """names: of the networks, in their order. Raises InputError, naming the network, when a rule is broken.

    2 to 64 networks of two classes over the same features, with the same hidden layers, at least one; inputs
    may differ, though equal ones are encoded once.
    """

    names: tuple[str, ...]
    networks: tuple[BinaryMlp, ...]

    family: ClassVar[str] = "binary-bank"

    def __post_init__(self) -> None:
        if not 2 <= len(self.networks) <= MAX_NETWORKS:
            raise InputError("model", f"has {len(self.networks)} networks, allowed are 2 to {MAX_NETWORKS}")
        if len(self.names) != len(self.networks):
            raise InputError("model", f"has {len(self.names)} names for {len(self.networks)} networks")
        for index, name in enumerate(self.names):
            if not isinstance(name, str) or not is_network_name(name):
                raise InputError(
                    f"model, network {index}",
                    f"is called {name!r}",
                    "use letters, digits, _ . and -, 63 at most",
                )
            if name in self.names[:index]:
                raise InputError(f"model, network {index}", f"is called {name}, as one before it")
        first = self.networks[0]
        for name, one in zip(self.names, self.networks, strict=True):
            where = f"model, network {name}"
            if one.n_classes != 2:
                raise InputError(where, f"has {one.n_classes} classes, in a bank all have 2")
            if one.n_features != first.n_features:
                raise InputError(
                    where, f"reads {one.n_features} features, {self.names[0]} {first.n_features}"
                )
            if one.hidden != first.hidden or not one.hidden:
                shown = ["-".join(map(str, each.hidden)) or "none" for each in (one, first)]
                raise InputError(
                    where, f"its hidden layers are {shown[0]}, those of {self.names[0]} {shown[1]}",
                    "train all with the same --hidden",
                )  # fmt: skip

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.networks[0].n_features

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return 2

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return len(self.networks)

    # -- meaning

    def activations(self, row: Sequence[int]) -> list[list[int]]:
        """Of all networks one after the other, layer by layer, then the scores."""
        each = [one.activations(row) for one in self.networks]
        steps = [[value for layers in each for value in layers[at]] for at in range(len(each[0]) - 1)]
        return [*steps, [layers[-1][1] - layers[-1][0] for layers in each]]

    def scores(self, x: Rows) -> Rows:
        def ahead(one: BinaryMlp) -> Rows:
            scores = one.scores(x)
            return scores[:, 1] - scores[:, 0]

        return np.stack([ahead(one) for one in self.networks], axis=1)

    def predict_one(self, row: Sequence[int]) -> tuple[int, list[int]]:
        scores = self.activations(row)[-1]
        return int(answers(scores) != 0), scores

    def predict(self, x: Rows) -> tuple[NDArray[np.int32], Rows]:
        scores = self.scores(rules.as_rows(x, self.n_features))
        return (scores.max(axis=1) > 0).astype(np.int32), scores

    def favour(self, by: int) -> BinaryBank:
        return replace(self, networks=tuple(one.favour(by) for one in self.networks))

    def renumbered(self, first: int) -> BinaryBank:
        """Raises InputError: class 0 is that no network says yes."""
        if first:
            raise InputError(
                "model", "class 0 of a bank is that no network says yes", "name the classes in that order"
            )
        return self

    # -- facts

    @cached_property
    def encodings(self) -> tuple[tuple[BinaryInput, ...], ...]:
        """The inputs that there are, each once."""
        return tuple(dict.fromkeys(one.inputs for one in self.networks))

    @cached_property
    def used_features(self) -> Ints:
        return tuple(sorted({feature for one in self.networks for feature in one.used_features}))

    @cached_property
    def reads(self) -> Ints:
        return tuple(map(sum, zip(*(one.reads for one in self.networks), strict=True)))

    def details(self) -> dict[str, Any]:
        each = [one.details() for one in self.networks]
        return {
            "networks": list(self.names),
            "layers": each[0]["layers"],
            "outputs": self.n_outputs,
            "weights": {"all": sum(one["weights"]["all"] for one in each)},
        }

    def describe(self) -> str:
        bits = sorted({one.input_bits for one in self.networks})
        fan_in = f"{bits[0]}" if len(bits) == 1 else f"({bits[0]} to {bits[-1]})"
        shape = "-".join([fan_in, *map(str, self.networks[0].hidden), "2"])
        return (
            f"bank of {len(self.networks)} binary networks {shape}, "
            f"{len(self.used_features)} of {self.n_features} features used"
        )

    # -- serialisation

    def to_dict(self) -> dict[str, Any]:
        networks = [one.to_dict() for one in self.networks]
        return {
            "family": self.family,
            "version": self.version,
            "n_outputs": self.n_outputs,
            "names": list(self.names),
            "networks": networks,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> BinaryBank:
        """The inverse of `to_dict`; InputError: unknown version, missing or unknown key, broken rule."""
        rules.check_family(document, cls.family, cls.version)
        rules.check_keys("model", document, {"family", "version", "n_outputs", "names", "networks"})
        names = rules.as_tuple("model", "names", document["names"])
        parts = rules.as_tuple("model", "networks", document["networks"])
        if document["n_outputs"] != len(parts):
            raise InputError("model", "n_outputs must be the number of networks")
        networks = []
        for index, part in enumerate(parts):
            if not isinstance(part, dict):
                raise InputError(f"model, network {index}", "is not an object")
            networks.append(BinaryMlp.from_dict(part))
        return cls(names, tuple(networks))


def answers(scores: Sequence[int]) -> int:
    """The word that says which networks say yes: bit n is that of network n."""
    return sum(1 << index for index, score in enumerate(scores) if score > 0)
