# SPDX-License-Identifier: Apache-2.0
"""wirewise/abi.py says what bpf/wirewise/abi.h says: limits, codes, sizes."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import pytest

from wirewise import abi
from wirewise.abi import Action, Fate, Outcome, Status
from wirewise.policy import MAX_TRIGGER_PACKET

HEADER = re.sub(
    r"/\*.*?\*/",
    "",
    (Path(__file__).parents[2] / "bpf" / "wirewise" / "abi.h").read_text(),
    flags=re.DOTALL,
)
DEFINES = {name: int(value) for name, value in re.findall(r"#define WW_(\w+) (\d+)\b", HEADER)}


def enum_in_header(name: str) -> list[str]:
    """The members of an enum whose codes count up from 0, without the last, which counts them."""
    body = re.search(rf"enum ww_{name} \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body is not None
    members = [member.strip() for member in body[1].split(",") if member.strip()]
    assert members[0].endswith("= 0") or "=" not in members[0]
    assert not any("=" in member for member in members[1:])
    return [member.removesuffix("= 0").strip() for member in members][:-1]


def size_in_header(name: str) -> int:
    """Bytes of a struct of plain integers that has no holes."""
    body = re.search(rf"struct ww_{name} \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body is not None
    size = 0
    for kind, count in re.findall(r"__(?:u|be|s)(\d+) \w+(?:\[(\d+)\])?;", body[1]):
        assert size % (int(kind) // 8) == 0, "a hole"
        size += int(kind) // 8 * int(count or 1)
    return size


def test_limits_are_those_of_the_header() -> None:
    ours = {name: value for name, value in vars(abi).items() if type(value) is int}
    assert ours.pop("VERSION") == DEFINES["ABI_VERSION"]
    assert ours.pop("SLOT_SIZE") == size_in_header("slot")
    # size_in_header counts plain integers, so of these what they have beside the key.
    tunnel_size = ours.pop("TUNNEL_SIZE")
    assert {size_in_header(f"tunnel_key{version}") for version in (4, 6)} == {tunnel_size}
    assert ours and ours == {name: DEFINES[name] for name in ours}
    assert {version: size_in_header(f"key{version}") for version in (4, 6)} == abi.KEY_SIZE
    assert 64 * DEFINES["TRIGGER_WORDS"] - 1 == MAX_TRIGGER_PACKET


@pytest.mark.parametrize(
    ("ours", "name", "prefix"),
    [(Status, "status", "WW_"), (Action, "action", "WW_ACTION_"), (Outcome, "outcome", "WW_OUTCOME_")],
)
def test_codes_are_those_of_the_header(ours: type[IntEnum], name: str, prefix: str) -> None:
    theirs = [member.removeprefix(prefix) for member in enum_in_header(name)]
    assert [(code.name, code.value) for code in ours] == [(name, code) for code, name in enumerate(theirs)]


def test_only_what_the_policy_drops_has_the_fate_of_being_dropped() -> None:
    assert [str(outcome) for outcome in Outcome if outcome.fate is Fate.DROP] == ["drop", "limited"]
    assert all(outcome.fate is Fate.PASS for outcome in Outcome if outcome.name.startswith("WOULD_"))
    assert Outcome(3) is Outcome.WOULD_DROP


def test_what_is_not_classified_passes_unless_it_is_malformed_and_that_is_dropped() -> None:
    malformed = {status for status in Status if abi.fate(status, None, drop_malformed=True) is Fate.DROP}
    assert {status.name for status in malformed} == {
        name for name in Status.__members__ if name.startswith("MALFORMED_") or name == "TOO_MANY_EXTENSIONS"
    }
    assert all(abi.fate(status, None, drop_malformed=False) is Fate.PASS for status in Status)
    assert abi.fate(Status.CLASSIFIED, Outcome.LIMITED, drop_malformed=False) is Fate.DROP
