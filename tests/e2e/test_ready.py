# SPDX-License-Identifier: Apache-2.0
"""Ready models from the command line to the interface, and made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import models
from tests.e2e import needs
from wirewise import agent, ready
from wirewise.demo.network import wire, within
from wirewise.formats.bundle import Bundle

CAPTURES = [Path(__file__).parents[3] / "shared" / "data" / name for name in ("captures", "more-captures")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["@voip-or-bulk", "@flood"])
def test_the_same_traffic_gives_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = models.made_traffic
    monkeypatch.setattr(models, "made_traffic", lambda features, profile, runs: whole(features, profile, 4))
    monkeypatch.setattr(models, "BUSY", 3_000)
    monkeypatch.setattr(models, "SEEDS", 1)
    first, second = (models.made(ready.READY[name], models.MAKINGS[name], []) for _ in range(2))
    assert first == second and set(first) == {f"{name[1:]}.json", f"{name[1:]}.md"}
    facts = json.loads(first[f"{name[1:]}.json"])
    committed = json.loads(ready.READY[name].file.read_text())
    assert facts["classes"] == committed["classes"] and facts["feature_names"] == committed["feature_names"]
    assert facts["training"]["feature_set"] == committed["training"]["feature_set"]


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(Path.is_dir, CAPTURES)), reason="captures: ../shared/data/captures is not there"
)
def test_the_captures_give_the_files_of_the_package() -> None:
    model = ready.READY["@flood"]
    again = models.made(model, models.MAKINGS["@flood"], CAPTURES)
    assert again == {file.name: file.read_bytes() for file in (model.file, model.file.with_suffix(".md"))}


@needs.marks()[0]
def test_the_agent_runs_one_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nclasses: {syn-flood: drop}\nallow: {established: true}\n")
    with wire() as made:
        there = within(made.inside)
        given = [
            "--interface",
            made.receiver,
            "--policy",
            policy,
            "--pin-root",
            f"/sys/fs/bpf/ready-{made.receiver}",
        ]
        attached = agent.call("run", "--model", "@flood", *given, within=there)
        try:
            bundle = Bundle.read(tmp_path / "wirewise" / "flood.wirewise")
            assert attached["status"]["bundle"]["name"] == "flood" and bundle.manifest.name == "flood"
            assert attached["status"]["mode"] == "observe"
            with pytest.raises(ready.InputError, match="which is less than a week"):
                agent.call("run", "--model", "@flood", *given, "--mode", "enforce", within=there)
        finally:
            agent.call("detach", *given[:2], *given[4:], within=there)
