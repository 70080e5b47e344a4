# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import yaml

from wirewise.features import KEYS, FeatureSet


def test_the_documented_feature_set_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "feature-sets.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    features = FeatureSet.from_dict(yaml.safe_load(text), source="docs/feature-sets.md")
    assert len(features.features) == 5 and features.feature_names[-1] == "burst"
    assert features.decapsulate == ("gtp-u",)
    assert all(key in page for key in KEYS)
