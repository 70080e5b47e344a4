# SPDX-License-Identifier: Apache-2.0
"""The best model for what it may cost, from a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wirewise import tuning
from wirewise.advice import in_python_terms
from wirewise.api.inputs import AnyFeatureSet, AnyPath, AnyTable, table_of
from wirewise.evaluate.networks import set_names
from wirewise.tuning import Found, Limits, Space


@in_python_terms
def search(
    table: AnyTable,
    space: Space | None = None,
    *,
    feature_set: AnyFeatureSet | None = None,
    trials: int = 24,
    method: str = "halving",
    folds: int = 5,
    max_instructions: int | None = None,
    max_ns: float | None = None,
    max_benign_loss: float | None = 0.01,
    measure: bool = False,
    group: str | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    refit: bool = False,
    jobs: int | None = 1,
    ray: str | None = None,
    journal: AnyPath | None = None,
) -> Found:
    """The model with the best F1 of attack against benign flows on captures it has not seen, within limits.

    - table, feature_set: as in `train`.
    - space: what there is to choose between; None is trees of all kinds.
    - trials: models to try. method: "halving", "random" or "optuna" (docs/search.md). folds: of the
      cross-validation over captures.
    - max_instructions, max_ns: of the whole program; ns a packet are measured in this kernel, which needs
      root.
    - max_benign_loss: share of benign flows that may lose a packet, at which models are compared; None: the
      largest score wins.
    - measure: measure ns without a limit, too.
    - group, test_share, seed: as in `train`; what is kept apart is never touched by the search.
    - refit: fit the best again to all rows in the end; the report is about the model before.
    - jobs: processes, None is one a CPU. ray: address of a Ray cluster instead.
    - journal: a file of finished trials, to go on with.

    Gives a `Found`: `training` (the best, which `compile` takes), `pareto`, `trials`, and `apart`, how the
    best did by flow on what was kept apart.

    Raises InputError where the table cannot be split, or nothing fits the limits; MissingFeatureError without
    clang, optuna or Ray where they are asked for.

    """
    found = tuning.search(
        table_of(table, feature_set), space, trials=trials, method=method, folds=folds,
        limits=Limits(max_instructions, max_ns, max_benign_loss), measure=measure, group=group,
        test_share=test_share, seed=seed, refit=refit, jobs=jobs, ray=ray,
        journal=None if journal is None else Path(journal),
    )  # fmt: skip
    training = found.training
    names = (training.classes, training.table.feature_set.feature_names)
    set_names(training.estimator, *(np.array(part, dtype=object) for part in names))
    return found
