# SPDX-License-Identifier: Apache-2.0
"""How flows looked when the model learned: what the agent compares live ones with, `stats --drift`.

Only features that a flow's state alone gives are in it, as only they can be read of a flow between packets.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.evaluate.classes import matrix
from wirewise.feature_sets.fields import BIDIRECTIONAL, ends_of_key
from wirewise.formats.manifest import Flow, Histogram, Reference
from wirewise.models import Model

BINS = 10
"""Quantiles that a histogram is made by; heavy values get bins of their own, which may give it some more."""


def reference_of(learned: Table, model: Model, flow: Flow) -> Reference | None:
    """What rows that a model learned from say of flows: each at its last row.

    model : as it is compiled, whose classes the flows are counted by. flow : the program's, which says what
    can be read of live ones. None where the rows do not tell flows apart as the program does: no rows, no
    column `sender` though each direction is a flow, or tunnels that the feature set looks into.
    """
    last = last_of_flows(learned, flow.key)
    if last is None or not len(last):
        return None
    classes = model.predict(matrix(learned))[0]
    columns = [learned.feature_set.feature_names[index] for index in model.used_features]
    readable = [name for name in dict.fromkeys(f.name for f in flow.features) if name in columns]
    return Reference(
        packets=_count(classes, model.n_classes),
        flows=_count(classes[last], model.n_classes),
        features=[
            _histogram(name, learned.frame[name].to_numpy()[last], classes[last], model.n_classes)
            for name in readable
        ],
    )


def last_of_flows(table: Table, key: str) -> NDArray[np.int64] | None:
    """The last row of each flow, as flow tables with this key have flows; None as in `reference_of`."""
    flows = _flow_numbers(table, key)
    if flows is None:
        return None
    return len(flows) - 1 - np.unique(flows[::-1], return_index=True)[1]


def _flow_numbers(table: Table, key: str) -> NDArray[np.int64] | None:
    """Of each row, a number that is its flow's alone, as flow tables with this key have flows."""
    frame = table.frame
    directed = key != BIDIRECTIONAL
    # Rows name a flow by its outermost addresses and ports.
    if (
        table.feature_set.decapsulate
        or key != ends_of_key(key)
        or (directed and "sender" not in frame.columns)
    ):
        return None
    parts = [pl.col("flow")]
    if key == "five-tuple":
        parts.append(pl.col("sender"))
    elif directed:
        ends = pl.col("flow").str.split(" ")  # `protocol address|port address|port`
        sent = {"source": pl.col("sender"), "destination": 3 - pl.col("sender")}
        parts = [ends.list.get(sent[end]).str.split("|").list.first().alias(end) for end in key.split("-")]
    rows = frame.select(pl.struct("capture", *parts).rank("dense").alias("number"))
    numbers: NDArray[np.int64] = rows["number"].cast(pl.Int64).to_numpy()
    return numbers


def _count(classes: NDArray[np.int32], n_classes: int) -> list[int]:
    return [int(count) for count in np.bincount(classes, minlength=n_classes)]


def _histogram(name: str, values: NDArray[np.int64], classes: NDArray[np.int32], n_classes: int) -> Histogram:
    edges = _edges(values)
    counts = np.zeros((n_classes, len(edges) + 1), np.int64)
    np.add.at(counts, (classes, np.searchsorted(edges, values, side="right")), 1)
    return Histogram(
        name=name, low=int(values.min()), high=int(values.max()), edges=edges, counts=counts.tolist()
    )


def _edges(values: NDArray[np.int64]) -> list[int]:
    """The first values of all bins but the first: quantiles, and what follows a value that is several.

    Each is a value that occurs, so no bin is empty.
    """
    ordered = np.sort(values)
    cuts = [int(ordered[len(ordered) * part // BINS]) for part in range(BINS)]
    heavy = np.array([one for one, following in pairwise(cuts) if one == following], np.int64)
    places = np.searchsorted(ordered, heavy, side="right")
    after = ordered[places[places < len(ordered)]].tolist()
    return sorted(edge for edge in {*cuts, *after} if edge > ordered[0])
