# SPDX-License-Identifier: Apache-2.0
"""Errors of the agent as errors of the toolkit."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirewise import agent
from wirewise.errors import InputError, MissingFeatureError


def test_an_error_has_the_agents_message_with_json_and_without(tmp_path: Path) -> None:
    missing = tmp_path / "nonesuch.wirewise"
    with pytest.raises(InputError, match=r"nonesuch\.wirewise: does not exist") as told:
        agent.call("verify", "--bundle", missing)
    assert "{" not in str(told.value)
    with pytest.raises(InputError, match=r"nonesuch\.wirewise: does not exist"):
        agent.run("verify", "--bundle", missing)
    with pytest.raises(InputError, match="unexpected argument '--nonesuch'"):
        agent.call("verify", "--nonesuch")


def test_the_agent_that_a_variable_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "wirewised"
    monkeypatch.setenv("WIREWISED", str(named))
    with pytest.raises(MissingFeatureError, match="which is no file; name the agent, or unset it"):
        agent.find()
    named.touch()
    assert agent.find() == named
    monkeypatch.setenv("WIREWISED", "")
    assert agent.find() != named
