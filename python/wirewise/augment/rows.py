# SPDX-License-Identifier: Apache-2.0
"""Variants of feature rows, where the rows say enough: exactly what the changed packets would give.

That is so for a value that is the same shift, or the same replacement, for all packets behind a feature. So
the flow key must be the directional five-tuple: an entry of any other key holds packets of both directions or
of many conversations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from wirewise.augment.draw import known_as, number, permutation
from wirewise.augment.frames import new_path
from wirewise.augment.kinds import Augmentation
from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.feature_sets import Feature, FeatureSet
from wirewise.feature_sets.fields import ends_of_key

_SAME = ("first", "min", "max", "mean")
"""Accumulators that give the value itself where all samples are the same, and shift as the samples do."""
_UNTOUCHED = ("variance", "mean_abs_deviation", "deviation_from_mean")
"""Accumulators that do not see it if all samples shift alike."""


def vary(table: Table, what: Sequence[Augmentation], copies: int, seed: int) -> pl.DataFrame:
    """Variants of all rows of a table, `copies` one after the other, with all that is asked changed in each.

    Raises InputError where the feature set does not allow it.
    """
    pool = service_ports(table.frame)
    made = []
    for copy in range(copies):
        frame = table.frame
        for entry in what:
            assert entry.rows is not None
            frame = entry.rows(frame, table.feature_set, number(seed, "copy", copy), pool)
        made.append(frame)
    return pl.concat(made) if made else table.frame.clear()


def service_ports(frame: pl.DataFrame) -> list[int]:
    """The lower ports of all conversations over TCP and UDP in a table, each once, in order."""
    low = frame.select(pl.col("flow").unique()).select(_low()).to_series().drop_nulls().unique()
    return sorted(port for port in low.to_list() if port)


def _low() -> pl.Expr:
    """The lower port of a row's conversation; null without ports."""
    flow = pl.col("flow")
    ends = flow.str.extract_groups(r"^(?:6|17) \S*\|(\d+) \S*\|(\d+)$")
    return pl.min_horizontal(ends.struct.field("1").cast(pl.Int64), ends.struct.field("2").cast(pl.Int64))


def vary_ports(frame: pl.DataFrame, feature_set: FeatureSet, seed: int, pool: Sequence[int]) -> pl.DataFrame:
    """The service's port of each conversation becomes another, the same for the whole capture."""
    fields = ("source_port", "destination_port")
    columns = _columns("ports", feature_set, fields)
    maps = [
        (capture, low, new)
        for capture, known in known_as(frame["capture"].unique().to_list()).items()
        for low, new in permutation(pool, seed, "ports", known).items()
    ]
    drawn = pl.DataFrame(
        maps, schema={"capture": pl.String, "_low": pl.Int64, "_new": pl.Int64}, orient="row"
    )
    with_new = frame.with_columns(_low=_low()).join(
        drawn, on=["capture", "_low"], how="left", maintain_order="left"
    )
    changed = [
        pl.when((pl.col(each.name) == pl.col("_low") * 2**each.fraction_bits) & pl.col("_new").is_not_null())
        .then(pl.col("_new") * 2**each.fraction_bits)
        .otherwise(pl.col(each.name))
        .alias(each.name)
        for each in columns
    ]
    return with_new.with_columns(changed).drop("_low", "_new")


def vary_ttl(frame: pl.DataFrame, feature_set: FeatureSet, seed: int, pool: Sequence[int]) -> pl.DataFrame:
    """All TTLs of a conversation shift alike, as far as all of them stay from 1 to 255."""
    columns = _columns("ttl", feature_set, ("ttl",))
    key = ["capture", "flow"]
    bounds = [pl.col(each.name) / 2**each.fraction_bits for each in columns]
    flows = frame.group_by(key, maintain_order=True).agg(
        _least=pl.min_horizontal(*(each.min() for each in bounds)).floor().cast(pl.Int64),
        _most=pl.max_horizontal(*(each.max() for each in bounds)).ceil().cast(pl.Int64),
    )
    known = known_as(frame["capture"].unique().to_list())
    paths = [new_path(seed, known[capture], flow) for capture, flow in flows.select(key).iter_rows()]
    wanted = np.array([initial - hops for initial, hops in paths], np.int64)
    least, most = flows["_least"].to_numpy(), flows["_most"].to_numpy()
    shift = np.clip(wanted - most, 1 - least, 255 - most)
    flows = flows.with_columns(_shift=pl.Series(shift)).drop("_least", "_most")
    shifted = frame.join(flows, on=key, how="left", maintain_order="left")
    changed = [
        (pl.col(each.name) + pl.col("_shift") * 2**each.fraction_bits).alias(each.name) for each in columns
    ]
    return shifted.with_columns(changed).drop("_shift")


def _columns(name: str, feature_set: FeatureSet, fields: Sequence[str]) -> list[Feature]:
    """The features that a change of these fields changes. Raises InputError where it cannot be told how."""
    reading = [each for each in feature_set.features if each.field and each.field.name in fields]
    way_out = f"make the table with `wirewise features --augment {name}`, which changes the packets"
    if not reading:
        raise InputError(
            f"augmentation {name!r}", f"changes nothing here: no feature reads {' or '.join(fields)}",
            "leave it out",
        )  # fmt: skip
    if ends_of_key(feature_set.key) != "five-tuple":
        raise InputError(
            f"augmentation {name!r}",
            f"cannot be done on a table with flow key {feature_set.key}: an entry holds more than one "
            "direction of one conversation",
            way_out,
        )
    found = []
    for each in reading:
        kind = each.accumulator.name if each.accumulator else "last"
        if each.scope.window_ns or kind not in ("last", *_SAME, *_UNTOUCHED):
            raise InputError(
                f"augmentation {name!r}",
                f"cannot be done on feature {each.name!r} ({each.spec}): a row does not say how many samples "
                "it holds",
                way_out,
            )
        if kind not in _UNTOUCHED:
            found.append(each)
    return found
