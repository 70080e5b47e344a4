# SPDX-License-Identifier: Apache-2.0
"""Feature sets: the catalogue of packet fields and accumulators, their definitions and their reference."""

from wirewise.feature_sets import presets as presets  # which adds to PRESETS
from wirewise.feature_sets.accumulators import ACCUMULATORS
from wirewise.feature_sets.feature_set import KEYS, PRESETS, Feature, FeatureSet
from wirewise.feature_sets.fields import FIELDS
from wirewise.feature_sets.reference import Extractor, Observation
from wirewise.feature_sets.state import keeping

__all__ = [
    "ACCUMULATORS",
    "FIELDS",
    "KEYS",
    "PRESETS",
    "Extractor",
    "Feature",
    "FeatureSet",
    "Observation",
    "keeping",
]
