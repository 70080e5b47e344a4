# SPDX-License-Identifier: Apache-2.0
"""docs/feature-sets.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import yaml

from wirewise.feature_sets import KEYS, FeatureSet
from wirewise.feature_sets.catalogue import accumulators_table, comparisons_table, fields_table
from wirewise.feature_sets.packet import TUNNELS

PAGE = (Path(__file__).parents[2] / "docs" / "feature-sets.md").read_text()
EXAMPLE = PAGE.split("```yaml\n")[1].split("```")[0]


def test_the_documented_feature_set_is_one() -> None:
    features = FeatureSet.from_dict(yaml.safe_load(EXAMPLE), source="docs/feature-sets.md")
    assert len(features.features) == 6 and features.feature_names[-1] == "burst"
    assert features.decapsulate == ("gtp-u",)
    assert all(name in PAGE for name in (*KEYS, *TUNNELS))


def test_the_values_it_shows_are_the_defaults() -> None:
    shown = yaml.safe_load(EXAMPLE)
    bare = {key: shown[key] for key in ("features", "decapsulate", "keeps")} | {"name": "mine"}
    assert FeatureSet.from_dict(shown) == FeatureSet.from_dict(bare)


def test_its_python_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(EXAMPLE)
    code = PAGE.split("```python\n")[1].split("```")[0].replace("mine.yaml", str(tmp_path / "mine.yaml"))
    exec(compile(code, "docs/feature-sets.md", "exec"), {})


def test_its_tables_are_those_of_the_registries() -> None:
    assert fields_table() in PAGE, (
        "docs/feature-sets.md: replace its table with wirewise.feature_sets.catalogue.fields_table()"
    )
    assert accumulators_table() in PAGE, (
        "docs/feature-sets.md: replace its table with wirewise.feature_sets.catalogue.accumulators_table()"
    )
    assert comparisons_table() in PAGE, (
        "docs/feature-sets.md: replace its table with wirewise.feature_sets.catalogue.comparisons_table()"
    )
