# SPDX-License-Identifier: Apache-2.0
"""What is kept by source, service, pair and so on: every accumulator, in tables that run full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.multiplicity import few
from tests.parity.cases import Case, model_of_kind, observed_values, random_fuzzer, spelled
from tests.parity.harness import assert_agree, needs_kernel
from wirewise.feature_sets import ACCUMULATORS, FIELDS, FeatureSet
from wirewise.feature_sets.baseline import COMPARISONS
from wirewise.feature_sets.feature_set import AGGREGATES, CLIENT_AGGREGATES

pytestmark = needs_kernel

# Few accumulators take identities, so three fields share a program.
FIELDS_KEPT = (
    ("length",),
    ("iat",),
    ("duration",),
    ("direction",),
    ("new_flow",),
    ("flow_gap",),
    ("handshake",),
    ("source", "destination", "client"),
    ("server", "server_port", "flow"),
)


def specs(field: str, by: str) -> list[str]:
    window = "1s" if FIELDS[field].of_aggregates else "40ms"  # a baseline of eight of them is warm after two
    scopes = (f"by={by}, window={window}", f"by={by}, window={window}, previous")
    found = [f"count({scope})" for scope in scopes]
    for name, accumulator in ACCUMULATORS.items():
        if accumulator.of_serial or (FIELDS[field].identity and not accumulator.of_identity):
            continue
        found += [spelled(name, field, scope) for scope in scopes[: 1 if accumulator.of_sample else 2]]
        if accumulator.of_window:
            learned = f"{name}({field}, {scopes[0]}), baseline={'8s' if window == '1s' else '320ms'}"
            found += [f"{comparison}({learned})" for comparison in COMPARISONS]
    return found


def spelled_out(value: tuple[str, ...] | str) -> str:
    return value if isinstance(value, str) else "+".join(value)


@pytest.mark.parametrize(("fields", "by"), few(FIELDS_KEPT, AGGREGATES), ids=spelled_out)
def test_every_accumulator_of_aggregates(fields: tuple[str, ...], by: str, tmp_path: Path) -> None:
    name = f"{' '.join(fields)} by {by}"
    random = Random(name)
    gaps = any(FIELDS[field].of_aggregates for field in fields)  # takes aggregates that stay, of many flows
    keys = ("five-tuple", "five-tuple-bidirectional", "five-tuple" if gaps else "source")
    key = keys[1] if by in CLIENT_AGGREGATES else random.choice(keys)
    features = dict.fromkeys(spec for field in fields for spec in specs(field, by))
    feature_set = FeatureSet.from_dict(
        {
            "name": "aggregates", "key": key, "features": ["length", *features],
            "table_size": random.choice((8, 64)),
            "aggregates_size": 64 if gaps else random.choice((4, 8, 65536)),
            "proven_packets": random.choice((1, 4)), "grace": "10ms", "idle_timeout": "1s",
        }
    )  # fmt: skip
    frames = random_fuzzer(random, feature_set).packets(1500)
    model = model_of_kind("majority", random, feature_set, frames)
    assert_agree(Case(name, feature_set, model, {"version": 1, "classes": {}}), frames, tmp_path)
    values = observed_values(feature_set, frames)
    assert sum(len(column) > 1 for column in values) > len(values) // 3, "features say something"
    warm = [
        column for column, f in zip(values, feature_set.features, strict=True) if f.name.startswith("warm_")
    ]
    assert all(set(column) == {0, 1} for column in warm)


def test_flows_without_a_place_are_new_with_every_packet(tmp_path: Path) -> None:
    random = Random("refused")
    feature_set = FeatureSet.from_dict(
        {
            "name": "refused", "features": ["sum(new_flow, by=destination, window=1h)", "count"],
            "table_size": 4, "proven_packets": 1, "grace": "1h",
        }
    )  # fmt: skip
    frames = random_fuzzer(random, feature_set).packets(800)
    model = model_of_kind("majority", random, feature_set, frames)
    case = Case("refused", feature_set, model, {"version": 1, "classes": {}})
    comparison = assert_agree(case, frames, tmp_path)
    assert (comparison.reference(frames).heads[:, 5] > 0).any()
    # The same with tables that all CPUs share.
    shared = replace(case, feature_set=replace(feature_set, sharing="shared"))
    assert_agree(shared, frames, tmp_path)
