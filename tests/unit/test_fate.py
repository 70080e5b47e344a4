# SPDX-License-Identifier: Apache-2.0
"""What outcomes and malformed packets come to."""

from __future__ import annotations

from wirewise.abi import Outcome, Status
from wirewise.fate import Fate, fate


def test_only_what_the_policy_drops_has_the_fate_of_being_dropped() -> None:
    fates = {outcome: fate(Status.CLASSIFIED, outcome, drop_malformed=True) for outcome in Outcome}
    assert [str(outcome) for outcome in Outcome if fates[outcome] is Fate.DROP] == ["drop", "limited", "ban"]


def test_what_is_not_classified_passes_unless_it_is_malformed_and_that_is_dropped() -> None:
    malformed = {status for status in Status if fate(status, None, drop_malformed=True) is Fate.DROP}
    assert {status.name for status in malformed} == {
        name for name in Status.__members__ if name.startswith("MALFORMED_") or name == "TOO_MANY_EXTENSIONS"
    }
    assert all(fate(status, None, drop_malformed=False) is Fate.PASS for status in Status)


def test_what_is_denied_is_dropped_where_that_is_enforced() -> None:
    denied = {s for s in Status if fate(s, None, drop_malformed=False, enforced=True) is Fate.DROP}
    assert {status.name for status in denied} == {"DENIED_PREFIX", "DENIED_PORT", "BANNED"}
