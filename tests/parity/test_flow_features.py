# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of a flow's state for people: what the reference says, for every accumulator.

The harness compares the values; here none may be missing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.parity.cases import Case, model_of_kind, random_fuzzer, spelled
from tests.parity.harness import assert_agree, needs_kernel
from wirewise.feature_sets import ACCUMULATORS, Feature, FeatureSet

pytestmark = needs_kernel

SCOPES = ("", "window=40ms", "window=40ms, previous")


def specs(field: str) -> list[str]:
    """Every accumulator of the field in every scope that it has a meaning in."""
    found = [f"count({scope})" if scope else "count" for scope in SCOPES]
    for name, accumulator in ACCUMULATORS.items():
        scopes = SCOPES[:2] if accumulator.of_sample else SCOPES
        found += [spelled(name, "tcp_end" if accumulator.of_serial else field, scope) for scope in scopes]
    return found


@pytest.mark.parametrize("field", ["length", "iat", "tcp_flags"])
def test_every_accumulator_is_read_from_the_state(field: str, tmp_path: Path) -> None:
    random = Random(f"flow features of {field}")
    features = ["length", "iat", *specs(field)]
    feature_set = FeatureSet.from_dict({"name": "all", "features": features, "table_size": 64})
    feature_set = replace(feature_set, kept=(Feature.parse("max(ttl)"), Feature.parse("mean(ttl)")))
    frames = random_fuzzer(random, feature_set).packets(1500)
    model = model_of_kind("majority", random, feature_set, frames)
    case = Case(field, feature_set, model, {"version": 1, "classes": {}}, kind="majority")
    comparison = assert_agree(case, frames, tmp_path)
    used = [feature_set.features[index] for index in model.used_features]
    readable = {
        f.name
        for f in used
        if f.field is None or f.scope.previous or (f.accumulator and f.accumulator.of_state)
    }
    assert len(readable) > 20
    flows = comparison.traced(frames, "engine").flows
    assert flows
    for flow in flows.values():
        assert {feature["name"] for feature in flow["features"]} == readable | {"max_ttl", "mean_ttl"}
        assert all(feature["unit"] for feature in flow["features"])
