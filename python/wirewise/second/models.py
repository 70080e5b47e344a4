# SPDX-License-Identifier: Apache-2.0
"""The two models: one in the kernel, and a larger one that reads the same features here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.files import read_bytes
from wirewise.formats import training_file
from wirewise.formats.bundle import MAX_BYTES, SEAL, Bundle
from wirewise.importers.original import open_original
from wirewise.importers.request import Original
from wirewise.models.scores import n_scores
from wirewise.text import listed


@dataclass(frozen=True)
class Pair:
    """name, big_name : of their files. digest : the bundle's, as the agent says it. columns : the place in
    the bundle's feature set of each feature that the big model reads, in its order. training : the facts of
    the big model's record, None if it has none.
    """

    name: str
    bundle: Bundle
    digest: str
    big_name: str
    big: Original
    columns: list[int] = field(repr=False)
    training: dict[str, Any] | None = field(repr=False)

    @classmethod
    def read(
        cls, bundle: Path, big: Path, *, classes: Sequence[str] | None = None, benign: str | None = None
    ) -> Pair:
        """classes, benign : of the big model, see `open_original`. Raises InputError for a bundle whose model
        gives no scores, and a big model that reads what events do not have.
        """
        data = read_bytes(bundle, what="bundle", limit=MAX_BYTES)
        small = Bundle.from_bytes(data, source=str(bundle))
        if not n_scores(small.model):
            raise InputError(
                str(bundle), "its model gives no scores, so nothing says when it is unsure",
                "compile a forest, boosted trees or a network, or a lone tree with --max-benign-loss",
            )  # fmt: skip
        if "source" not in small.feature_set.key and "five-tuple" not in small.feature_set.key:
            raise InputError(
                str(bundle), f"its flows have no source (key: {small.feature_set.key})",
                "use a bundle whose flow key has one",
            )  # fmt: skip
        record = training_file.read(big)
        opened = open_original(big, classes=classes, benign=benign)
        names = record.feature_set.feature_names if record else opened.feature_names
        columns = _columns(small, bundle.name, names, opened.n_features, str(big))
        return cls(
            bundle.name,
            small,
            data[-SEAL:].decode(),
            big.name,
            opened,
            columns,
            record.training if record else None,
        )

    def attack(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """How probable an attack is, says the big model, 0 to 1, (n,), of rows of the bundle's features."""
        return self.big.attack(rows[:, self.columns])


def _columns(
    small: Bundle, name: str, names: list[str] | None, n_features: int | None, big: str
) -> list[int]:
    own = small.feature_set.feature_names
    if names is None and n_features not in (None, len(own)):
        raise InputError(
            big, f"reads {n_features} features and does not name them; {name} has {len(own)}",
            "train it on a data frame with the columns of `wirewise features`",
        )  # fmt: skip
    names = own if names is None else names
    if unknown := [feature for feature in names if feature not in own]:
        raise InputError(
            big, f"reads {unknown[0]!r}, which {name} does not have", f"it has: {', '.join(own)}"
        )
    columns = [own.index(feature) for feature in names]
    used = set(small.model.used_features)
    if unread := [own[column] for column in columns if column not in used]:
        both = [own[column] for column in columns if column in used]
        raise InputError(
            big, f"reads {listed(unread)}, which the model of {name} does not, so no event has them",
            f"train it on {', '.join(both) or 'others'}",
        )  # fmt: skip
    return columns
