# SPDX-License-Identifier: Apache-2.0
"""Which trials come next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wirewise.errors import MissingFeatureError
from wirewise.tuning.space import AtRandom, Settings, Space

BATCH = 8
"""Trials that are drawn at once, unless all are; the same for any number of jobs, so that the result is."""
_MOST_TRIES = 50
"""To draw settings that were not drawn before."""


def batches(
    method: str, space: Space, count: int, seed: int, done: Sequence[Any]
) -> Iterator[list[Settings]]:
    """Yields settings to try, in all at most `count`. done : the trials so far, which grow in between."""
    if method == "optuna":
        yield from _optuna(space, count, seed, done)
        return
    chooser = AtRandom(np.random.default_rng(seed))
    drawn: dict[Settings, None] = {}
    for _ in range(_MOST_TRIES * count):
        drawn.setdefault(space.pick(chooser))
        if len(drawn) == count:
            break
    size = len(drawn) if method == "halving" else BATCH
    for start in range(0, len(drawn), size):
        yield list(drawn)[start : start + size]


class _Suggested:
    """Chooses by an optuna trial."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def one_of(self, name: str, options: Sequence[Any]) -> Any:
        return options[self._trial.suggest_categorical(name, range(len(options)))]

    def whole(self, name: str, least: int, most: int) -> int:
        return int(self._trial.suggest_int(name, least, most, log=True))


def _optuna(space: Space, count: int, seed: int, done: Sequence[Any]) -> Iterator[list[Settings]]:
    try:
        import optuna
    except ImportError as error:
        raise MissingFeatureError(
            f"--method optuna needs optuna, which cannot be imported ({error}); "
            "pip install 'wirewise[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for start in range(0, count, BATCH):
        asked = [study.ask() for _ in range(min(BATCH, count - start))]
        yield [space.pick(_Suggested(trial)) for trial in asked]
        for trial, tried in zip(asked, done[start:], strict=True):
            study.tell(trial, tried.f1)
