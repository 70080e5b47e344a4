# SPDX-License-Identifier: Apache-2.0
"""Feature sets: the catalogue of packet fields and accumulators, their definitions and their reference."""

from wirewise.features.accumulators import ACCUMULATORS
from wirewise.features.feature_set import KEYS, Feature, FeatureSet
from wirewise.features.fields import FIELDS
from wirewise.features.presets import PRESETS
from wirewise.features.reference import Extractor, Observation

__all__ = ["ACCUMULATORS", "FIELDS", "KEYS", "PRESETS", "Extractor", "Feature", "FeatureSet", "Observation"]
