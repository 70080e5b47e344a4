# SPDX-License-Identifier: Apache-2.0
"""`wirewise.run` and `wirewise.check`: the guards of the agent's commands, on an interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.ensemble import RandomForestClassifier

import wirewise as ww
from tests.e2e import needs
from wirewise import agent
from wirewise.demo.network import wire
from wirewise.errors import InputError, WirewiseError

pytestmark = needs.marks()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    forest = RandomForestClassifier(1, max_depth=1, random_state=0).fit([[0], [1]], ["attack", "benign"])
    compiled = ww.compile(forest, {"name": "one", "features": ["length"]}, verify="never")
    compiled.write(tmp_path / "m.wirewise")
    return tmp_path / "m.wirewise"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("{version: 1, classes: {attack: drop}}")
    return path


def test_enforcing_without_an_allow_list_is_refused(bundle: Path, policy: Path) -> None:
    with wire() as made:
        with pytest.raises(InputError, match="yes=True"):
            ww.run(bundle, made.receiver, policy, mode="enforce", netns=made.inside)
        assert attachments(made.inside) == []


def test_a_policy_in_memory_is_kept_where_status_finds_it(bundle: Path) -> None:
    policy = {"version": 1, "classes": {"attack": "drop"}, "allow": {"ports": [22]}}
    with wire() as made:
        with ww.run(bundle, made.receiver, policy, mode="enforce", netns=made.inside) as attached:
            assert attached.stats()["action"].to_list() == ["pass", "drop"]
            (row,) = attached.status()["attachments"]
            kept = Path(row["policy"]["file"])
            assert ww.Policy.load(kept, ["benign", "attack"]) is not None
        kept.unlink()
        with pytest.raises(InputError, match="policy: holds what no file could"):
            ww.run(bundle, made.receiver, {"version": {1}}, netns=made.inside)
        with pytest.raises(
            InputError, match="policy=5: cannot be of type int; give a path or a dict or None"
        ):
            ww.run(bundle, made.receiver, 5, netns=made.inside)  # type: ignore[arg-type]


def test_a_check_attaches_nothing(bundle: Path, policy: Path) -> None:
    with wire() as made:
        plan = ww.check(bundle, made.receiver, policy, netns=made.inside)
        assert plan["action"] != "attached"
        assert attachments(made.inside) == []
        with pytest.raises(WirewiseError, match="nosuch0"):
            ww.check(bundle, "nosuch0", netns=made.inside)


def test_a_block_ends_what_it_attached(bundle: Path, policy: Path) -> None:
    with wire() as made:
        with ww.run(bundle, made.receiver, policy, mode="enforce", yes=True, netns=made.inside) as attached:
            assert attached.status()["attachments"][0]["mode"] == "enforce"
            stats = attached.stats()
            assert stats["class"].to_list() == ["benign", "attack"]
            assert {"packets", "drop", "would_drop"} <= set(stats.columns)
        assert attachments(made.inside) == []


def test_without_a_block_it_outlives_the_call(bundle: Path) -> None:
    with wire() as made:
        ww.run(bundle, made.receiver, netns=made.inside)
        assert [row["mode"] for row in attachments(made.inside)] == ["observe"]
        ww.run(bundle, made.receiver, netns=made.inside).detach()
        assert attachments(made.inside) == []


def test_what_is_attached_must_outlive_python() -> None:
    with pytest.raises(InputError, match="bundle of type dict: is no file"):
        ww.run({}, "eth0")  # type: ignore[arg-type]


def attachments(namespace: str) -> list[dict[str, object]]:
    """Those of the namespace: of others, where other tests run, the agent says which they are in."""
    found = agent.call("status", "--netns", namespace)["attachments"]
    return [row for row in found if row["attached"] and row["network_namespace"] is None]


def test_tc_is_a_plane_like_the_others(bundle: Path, policy: Path) -> None:
    with wire() as made:
        kept: dict[str, Any] = {"netns": made.inside, "yes": True, "offloads_off": True}
        for plane in ("tc-ingress", "tc-egress"):
            with ww.run(
                bundle, made.receiver, policy, mode="enforce", plane=plane, order="last", **kept
            ) as attached:
                assert attached.status()["attachments"][0]["plane_obtained"] == plane
        assert attachments(made.inside) == []
