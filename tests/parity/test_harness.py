# SPDX-License-Identifier: Apache-2.0
"""The proof is worth something: random cases reach all there is, and a difference is found and shrunk."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import yaml

from tests.parity import fuzz
from tests.parity.cases import MODEL_KINDS, Case, random_case, random_feature_set
from tests.parity.harness import PLANES, assert_agree, needs_kernel
from tests.parity.test_limits import full_table
from wirewise.abi import Action, Outcome, Status
from wirewise.datapath import DataPath
from wirewise.feature_sets import ACCUMULATORS, FIELDS, KEYS
from wirewise.feature_sets.baseline import COMPARISONS
from wirewise.feature_sets.feature_set import AGGREGATES
from wirewise.feature_sets.flow import FlowTable, Lookup
from wirewise.feature_sets.packet import TUNNELS
from wirewise.policy import Policy
from wirewise.targets.ebpf import SHAPES

FIRST_SEEDS = [f"8-{number}" for number in range(60)]


def test_feature_sets_use_the_whole_vocabulary() -> None:
    sets = [random_feature_set(Random(f"6-{number}")) for number in range(120)]
    features = [feature for feature_set in sets for feature in feature_set.features]
    assert {feature.field.name for feature in features if feature.field} == set(FIELDS)
    for window in (False, True):
        of_scope = [f for f in features if bool(f.scope.window_ns) is window and f.accumulator and f.field]
        assert {f.accumulator.name for f in of_scope if f.accumulator} == set(ACCUMULATORS)
    assert any(feature.scope.previous for feature in features)
    assert {f.against.comparison.name for f in features if f.against} == set(COMPARISONS)
    assert {feature.scope.by for feature in features} == {"", *AGGREGATES}
    assert {feature_set.key for feature_set in sets} == set(KEYS)
    assert {tunnel for feature_set in sets for tunnel in feature_set.decapsulate} == set(TUNNELS)
    assert any(set(feature_set.decapsulate) == set(TUNNELS) for feature_set in sets)


def test_cases_reach_every_status_action_and_table_rule() -> None:
    """NO_POLICY and ESTABLISHED aside: a trace has a policy and no sockets."""
    kinds, shapes, lookups, statuses, outcomes, actions = (set[object]() for _ in range(6))
    for seed in FIRST_SEEDS:
        case, frames = random_case(seed, 400)
        kinds.add(case.kind)
        shapes.add(case.shape)
        policy = Policy.parse(yaml.safe_dump(case.policy), case.classes)
        path = DataPath(case.feature_set, case.model, policy, enforce=case.mode == "enforce")
        for time_ns, frame in frames:
            said = path.process(frame, time_ns)
            statuses.add(said.status)
            outcomes.add(said.outcome)
            actions.add(said.action)
            if said.observation:
                lookups.add(said.observation.lookup)
    assert kinds == set(MODEL_KINDS)
    assert shapes == {"auto", *SHAPES}
    assert lookups == set(Lookup)
    assert statuses == set(Status) - {Status.NO_POLICY}
    assert outcomes == {*Outcome, None} - {Outcome.ESTABLISHED}
    assert actions == {*Action, None}


@needs_kernel
def test_a_difference_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reference that protects no flow: four packets fill the bucket, the fifth shows it."""
    feature_set, model, frames = full_table(proven_packets=1)
    case = Case("a seed", feature_set, model, {"version": 1})
    monkeypatch.setattr(FlowTable, "_protected", lambda table, entry, now_ns: False)
    with pytest.raises(pytest.fail.Exception) as failure:
        assert_agree(case, frames, tmp_path)
    report = str(failure.value)
    assert report.startswith(f"packet 5: refused: reference 0, {PLANES[0]} 1\nseed: a seed\n")
    assert "5 packets (ns, frame):" in report


@needs_kernel
def test_fuzz_compares_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seconds", "0", "--packets", "300", "--seed", "1"]) == 0
    assert capsys.readouterr().out.endswith(" packets, no difference\n")
