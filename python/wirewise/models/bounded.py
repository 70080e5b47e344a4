# SPDX-License-Identifier: Apache-2.0
"""A model that says when it does not know: of a packet with a feature outside what training saw.

Whatever the family, the last class is `unknown`. It has no score. It is said where any bounded feature is
outside its bounds; elsewhere the model inside decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.models import rules
from wirewise.models.families import Family, load_family

UNKNOWN = "unknown"
"""Name of the class."""


@dataclass(frozen=True)
class Bound:
    """What training saw of a feature: low to high, both of 0 to 2^63 - 1, both inside."""

    feature: int
    low: int
    high: int


@dataclass(frozen=True, repr=False)
class Bounded:
    """A model, and what it has seen of the features that it reads. Raises InputError for bounds that are none
    or of a feature that the model does not have, and for a model with as many classes as there may be.
    """

    model: Family
    bounds: tuple[Bound, ...]

    family: ClassVar[str] = "bounded"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        rules.check_size(self.n_features, self.n_classes)
        features = [bound.feature for bound in self.bounds]
        if not features or features != sorted(set(features)):
            raise InputError("model", "bounds are missing, or not in the order of their features")
        for bound in self.bounds:
            if not rules.is_int(bound.feature, 0, self.n_features - 1):
                raise InputError("model", f"has bounds of feature {bound.feature}, which does not exist")
            low, high = bound.low, bound.high
            if not (rules.is_int(low, 0, rules.INT64_MAX) and rules.is_int(high, low, rules.INT64_MAX)):
                raise InputError("model", f"bounds {low} to {high} are not ascending numbers from 0 on")

    @classmethod
    def by(cls, model: Family, rows: NDArray[np.int64]) -> Bounded:
        """A model bounded by what rows, shape (n, n_features), have of the features that it reads."""
        if not len(rows):
            raise InputError("the table", "has no rows to take bounds from")
        return cls(
            model,
            tuple(
                Bound(index, max(0, int(rows[:, index].min())), max(0, int(rows[:, index].max())))
                for index in model.used_features
            ),
        )

    # -- meaning

    def predict_one(self, row: Sequence[int]) -> tuple[int, list[int]]:
        """Class and scores of one row: the meaning that all else is tested against."""
        class_id, scores = self.model.predict_one(row)
        inside = all(bound.low <= row[bound.feature] <= bound.high for bound in self.bounds)
        return class_id if inside else self.n_classes - 1, scores

    def predict(self, x: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Classes (n,) and scores (n, n_outputs) of rows (n, n_features); same meaning as `predict_one`."""
        x = rules.as_rows(x, self.n_features)
        classes, scores = self.model.predict(x)
        return np.where(self.outside(x), np.int32(self.n_classes - 1), classes), scores

    def outside(self, x: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows, shape (n, n_features), have a feature outside its bounds."""
        found = np.zeros(len(x), np.bool_)
        for bound in self.bounds:
            found |= (x[:, bound.feature] < bound.low) | (x[:, bound.feature] > bound.high)
        return found

    def favour(self, by: int) -> Bounded:
        """As that of the model inside; what is unknown stays so."""
        return replace(self, model=self.model.favour(by))

    def renumbered(self, first: int) -> Bounded:
        """As that of the model inside; `unknown` stays the last class. Raises InputError for that one."""
        if first == self.n_classes - 1:
            raise InputError("model", f"class {UNKNOWN} has no score", "choose another class")
        return replace(self, model=self.model.renumbered(first))

    # -- facts

    @property
    def n_features(self) -> int:
        return self.model.n_features

    @property
    def n_classes(self) -> int:
        return self.model.n_classes + 1

    @property
    def n_outputs(self) -> int:
        return self.model.n_outputs

    @cached_property
    def used_features(self) -> tuple[int, ...]:
        """Indices of the features that the model reads or that have bounds, ascending."""
        return tuple(sorted({*self.model.used_features, *(bound.feature for bound in self.bounds)}))

    @property
    def reads(self) -> tuple[int, ...]:
        """As of the model inside."""
        return self.model.reads

    def details(self) -> dict[str, Any]:
        return {**self.model.details(), "bounds": len(self.bounds)}

    def describe(self) -> str:
        """One line for people."""
        return f"{self.model.describe()}, unknown outside the bounds of {len(self.bounds)} features"

    def __repr__(self) -> str:
        return f"<Bounded: {self.describe()}>"

    # -- serialisation

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and integers, ready for JSON."""
        return {
            "family": self.family,
            "version": self.version,
            "model": self.model.to_dict(),
            "bounds": [[bound.feature, bound.low, bound.high] for bound in self.bounds],
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Bounded:
        """The inverse of `to_dict`; InputError: unknown version, missing or unknown key, broken rule."""
        rules.check_family(document, cls.family, cls.version)
        rules.check_keys("model", document, {"family", "version", "model", "bounds"})
        bounds = document["bounds"]
        if not isinstance(bounds, list) or not all(isinstance(b, list) and len(b) == 3 for b in bounds):
            raise InputError("model", "bounds are not a list of feature, low and high")
        return cls(load_family(document["model"]), tuple(Bound(*bound) for bound in bounds))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of `to_dict`."""
        return rules.digest(self.to_dict())
