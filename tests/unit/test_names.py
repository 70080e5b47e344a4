# SPDX-License-Identifier: Apache-2.0
"""The rules for names, by the cases that the agent's test reads too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirewise import names

RULES = json.loads(
    (Path(__file__).parents[2] / "crates" / "wirewised" / "tests" / "fixtures" / "names.json").read_text()
)
CHECKS: dict[str, Callable[[str], bool]] = {
    "name": names.is_name,
    "set": names.is_set_name,
    "feature": names.is_feature_name,
    "network": names.is_network_name,
}
ASCII = range(0x80)
BEYOND = [code for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
"""Without surrogates, which no file of text holds."""


def characters(is_one: Callable[[str], bool], codes: Any) -> list[str]:
    return [chr(code) for code in codes if is_one(f"a{chr(code)}a")]


@pytest.mark.parametrize("kind", RULES["names"])
def test_rules_are_those_of_the_agent(kind: str) -> None:
    is_one, cases = CHECKS[kind], RULES["names"][kind]
    assert [name for name in cases["allowed"] if not is_one(name)] == []
    assert [name for name in cases["refused"] if is_one(name)] == []
    assert "".join(characters(is_one, ASCII)) == cases["ascii"]
    assert is_one("x" * cases["length"]) and not is_one("x" * (cases["length"] + 1))
    refused = {code for first, last in RULES["refused"] for code in range(first, last + 1)}
    expected = [chr(code) for code in BEYOND if kind in ("name", "set") and code not in refused]
    assert characters(is_one, BEYOND) == expected
