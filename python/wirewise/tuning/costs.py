# SPDX-License-Identifier: Apache-2.0
"""What programs and features cost in the kernel: instructions as compiled, nanoseconds as measured."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.errors import InputError, RefusedError
from wirewise.feature_sets import Feature, FeatureSet
from wirewise.files import write_atomically
from wirewise.importers import ImportOptions, import_with
from wirewise.models import Model
from wirewise.stages import bench
from wirewise.targets.ebpf import Built, build, emit
from wirewise.targets.ebpf.clang import data_path_digest
from wirewise.tuning.space import Settings
from wirewise.tuning.trial import Data, fit

MOST_CALIBRATION_ROWS = 20_000
"""Rows that a network is quantised with for its cost."""


@dataclass(frozen=True)
class Price:
    """Of one program: instructions of its code, of which a packet runs a part, and its object (empty unless
    it is to be measured); or why it cannot be built.
    """

    instructions: int
    object: bytes
    refused: str = ""


def price(data: Data, task: tuple[Settings, dict[str, Any], bool, bool]) -> Price:
    """What the model of some settings costs, fitted to all rows.

    task : the settings, the whole feature set as JSON, whether the scores must leave room for a margin, and
    whether the object is wanted.
    """
    settings, feature_set, margin, wanted = task
    fitted = fit(data, settings, np.arange(len(data.rows)))
    columns = data.columns(settings)
    asked = ImportOptions(margin=margin, classes=[data.classes[index] for index in fitted.classes_])
    if settings.hidden:
        drawn = np.random.default_rng(data.seed).permutation(len(data.rows))[:MOST_CALIBRATION_ROWS]
        labels = [data.classes[index] for index in data.labels[drawn]]
        asked = replace(asked, rows=data.rows[drawn][:, columns], labels=labels)
    try:
        model = import_with(fitted, asked).model
        built = built_of(model, narrowed(FeatureSet.from_dict(feature_set), columns))
    except (InputError, RefusedError) as error:
        return Price(0, b"", str(error))
    return Price(built.instructions, built.object if wanted else b"")


def narrowed(feature_set: FeatureSet, columns: Sequence[int]) -> FeatureSet:
    """The feature set with only these features, by number, under a name of its own."""
    if len(columns) == len(feature_set.features):
        return feature_set
    name = f"{feature_set.name[:190]}-{len(columns)}"
    return replace(feature_set, name=name, features=tuple(feature_set.features[index] for index in columns))


def built_of(model: Model | None, feature_set: FeatureSet) -> Built:
    """The program of a model, or of the features alone."""
    return build(emit(model, feature_set))


def nanoseconds(objects: Sequence[bytes]) -> list[float]:
    """Ns a packet of each program, packets of one flow, in turns in this kernel. Needs the privilege to load
    programs: raises MissingFeatureError without. Nothing is attached.
    """
    return [float(result["ns_per_packet"]) for result in bench(list(objects))["results"]]


@dataclass(frozen=True)
class FeatureCost:
    """What one feature adds to a program that computes the others as well: instructions, and ns a packet if
    that was measured. Noise can make the time negative, and the compiler's choices for the rest a cheap
    feature's instructions.
    """

    instructions: int
    ns: float | None = None


def feature_costs(feature_set: FeatureSet, *, measure: bool = False) -> dict[str, FeatureCost]:
    """The cost of each feature: of the program with all of them, less that of the program without it.

    Features share state and code (mean and variance of one field), so the costs do not add up, and those of
    a smaller set are others. Instructions are kept in a cache (`cache_folder`), as building takes 0.4 s a
    feature. Raises MissingFeatureError without clang, or if it must measure and may not.
    """
    variants = [feature_set, *(_without(feature_set, index) for index in range(len(feature_set.features)))]
    if not measure:
        counts = [instructions(variant) for variant in variants]
        return {
            name: FeatureCost(counts[0] - count)
            for name, count in zip(feature_set.feature_names, counts[1:], strict=True)
        }
    built = [built_of(None, variant) for variant in variants]
    times = nanoseconds([each.object for each in built])
    return {
        name: FeatureCost(built[0].instructions - each.instructions, times[0] - time)
        for name, each, time in zip(feature_set.feature_names, built[1:], times[1:], strict=True)
    }


def _without(feature_set: FeatureSet, index: int) -> FeatureSet:
    left = tuple(feature for number, feature in enumerate(feature_set.features) if number != index)
    return replace(feature_set, features=left or (Feature.parse("length"),))


def cache_folder() -> Path:
    """Where costs are kept from one run to the next: below $XDG_CACHE_HOME, else ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "wirewise" / "costs"


def instructions(feature_set: FeatureSet) -> int:
    """Of the program that computes these features; the cache knows it by all that it is made of."""
    sources = emit(None, feature_set)
    parts: Mapping[str, Any] = {"files": sources.files, "data path": data_path_digest()}
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    entry = cache_folder() / f"{key}.json"
    try:
        known = json.loads(entry.read_text(encoding="utf-8"))["instructions"]
        if type(known) is int and known > 0:
            return known
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not there, or not ours: build it
    found = build(sources).instructions
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, json.dumps({"instructions": found}).encode())
    except (OSError, InputError):
        pass  # a home that cannot be written to has no cache; the number is right all the same
    return found
