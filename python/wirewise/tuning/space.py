# SPDX-License-Identifier: Apache-2.0
"""What a search chooses between, and how it draws from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from wirewise.arguments import check_fields
from wirewise.errors import InputError, choose
from wirewise.evaluate.networks import make_mlp
from wirewise.evaluate.train import MOST_LEAF, TREES

METHODS = ("halving", "random", "optuna")
"""halving : all trials on some folds, the better half on more. random : every trial on all folds. optuna :
the same, but later trials are drawn where earlier ones did well (TPE)."""
LEARN = ("every", "first")
"""Rows to learn from: those of every packet, or of each flow's packets up to the one that decides."""
ESTIMATORS = (*TREES, "mlp")
"""Names of `train` that can be searched."""
BALANCED = "balanced"
EVEN = "captures"
WEIGH = ("rows", EVEN)
"""rows : all weigh the same. captures : those of a capture with many flows weigh less (trial.MOST_FLOWS)."""


@dataclass(frozen=True)
class Settings:
    """One model to try.

    leaf : least rows of a leaf (for trees). hidden : neurons of each hidden layer (for networks). benign :
    how much heavier a benign row weighs than others, or "balanced" (all classes the same). features : how
    many, the best for what they cost. packet : of a flow, the one that decides. learn : one of LEARN.
    weigh : one of WEIGH.
    """

    estimator: str
    depth: int
    trees: int
    leaf: int
    hidden: tuple[int, ...]
    benign: str
    features: int
    packet: int
    learn: str
    weigh: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def describe(self) -> str:
        """For people, in a few words."""
        if self.hidden:
            size = "-".join(map(str, self.hidden))
        else:
            trees = "" if self.estimator == "tree" else f" {self.trees} x"
            size = f"{trees} depth {self.depth}, leaf {self.leaf}".strip()
        weight = "" if self.benign == "1" else f", benign {self.benign}"
        even = ", captures alike" if self.weigh == EVEN else ""
        return f"{self.estimator} {size}{weight}, learns {self.learn}{even}"

    def make(self, seed: int) -> Any:
        """The unfitted estimator, which takes one thread."""
        if self.hidden:
            return make_mlp(self.hidden, seed)
        made = TREES[self.estimator](self.depth, self.trees, seed).set_params(min_samples_leaf=self.leaf)
        return made.set_params(n_jobs=1) if "n_jobs" in made.get_params() else made


class Chooser(Protocol):
    """Who decides: a random number, or a sampler that has seen earlier trials."""

    def one_of(self, name: str, options: Sequence[Any]) -> Any: ...

    def whole(self, name: str, least: int, most: int) -> int:
        """On a logarithmic scale; both ends are possible."""
        ...


@dataclass(frozen=True)
class Space:
    """What there is to choose between; ranges with both ends, every other field a list of options."""

    estimators: tuple[str, ...] = ("tree", "forest", "extra-trees", "boosting")
    depth: tuple[int, int] = (3, 16)
    trees: tuple[int, int] = (3, 40)
    leaf: tuple[int, int] = (1, 200)
    hidden: tuple[tuple[int, ...], ...] = ((8,), (16, 16), (32, 16))
    benign: tuple[str, ...] = ("1", "3", "10", BALANCED)
    features: tuple[int, ...] = ()
    packets: tuple[int, ...] = (5,)
    learn: tuple[str, ...] = LEARN
    weigh: tuple[str, ...] = WEIGH

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.estimators:
            if name not in ESTIMATORS:
                raise InputError(f"estimator {name!r}", "cannot be searched", choose(name, ESTIMATORS))
        for what, given, known in (("learn", self.learn, LEARN), ("weigh", self.weigh, WEIGH)):
            for name in given:
                if name not in known:
                    raise InputError(f"{what} {name!r}", "is not known", choose(name, known))
        limits = {"depth": (1, 32), "trees": (1, 1000), "leaf": (1, MOST_LEAF)}
        for name, (lowest, highest) in limits.items():
            least, most = getattr(self, name)
            if not lowest <= least <= most <= highest:
                raise InputError(
                    f"{name} {least}-{most}", f"must lie within {lowest} to {highest}", f"write {lowest}-8"
                )
        for weight in self.benign:
            if weight != BALANCED and not _positive(weight):
                raise InputError(f"benign weight {weight!r}", "is neither positive nor `balanced`")
        if min(self.packets, default=0) < 1 or max(self.packets) > 1023:
            raise InputError(
                f"packets {self.packets}", "must be packet numbers of a flow, 1 to 1023", "write 1,3,5"
            )
        if not self.estimators or not self.learn or not self.weigh or not self.benign or not self.hidden:
            raise InputError("the search", "has nothing to choose from", "leave the empty list out")
        for widths in self.hidden:
            make_mlp(widths, 0)  # says so, if it cannot be compiled

    def with_features(self, most: int) -> Space:
        """The same, with numbers of features that a table of so many has. Raises InputError."""
        from dataclasses import replace

        if not self.features:
            shares = {most, math.ceil(most * 2 / 3), math.ceil(most / 2), math.ceil(most / 3)}
            return replace(self, features=tuple(sorted(shares, reverse=True)))
        if min(self.features) < 1 or max(self.features) > most:
            raise InputError(f"features {self.features}", f"must be numbers from 1 to the table's {most}")
        return self

    def pick(self, chooser: Chooser) -> Settings:
        """One model to try."""
        estimator = chooser.one_of("estimator", self.estimators)
        network = estimator == "mlp"
        return Settings(
            estimator,
            depth=0 if network else chooser.whole("depth", *self.depth),
            trees=0 if network else 1 if estimator == "tree" else chooser.whole("trees", *self.trees),
            leaf=0 if network else chooser.whole("leaf", *self.leaf),
            hidden=tuple(chooser.one_of("hidden", self.hidden)) if network else (),
            benign=chooser.one_of("benign", self.benign),
            features=chooser.one_of("features", self.features),
            packet=chooser.one_of("packet", self.packets),
            learn=chooser.one_of("learn", self.learn),
            weigh=chooser.one_of("weigh", self.weigh),
        )


@dataclass
class AtRandom:
    """Chooses by random numbers."""

    rng: np.random.Generator

    def one_of(self, name: str, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def whole(self, name: str, least: int, most: int) -> int:
        return int(math.exp(self.rng.uniform(math.log(least), math.log(most + 1 - 1e-9))))


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < 1e9
    except ValueError:
        return False
