# SPDX-License-Identifier: Apache-2.0
"""Where packets go: what an outcome, or a packet without one, comes to."""

from __future__ import annotations

from enum import Enum

from wirewise.abi import Outcome, Status


class Fate(Enum):
    """Where a packet goes."""

    PASS = "passes"
    DROP = "is dropped"
    BOUNCE = "goes back to who sent it"
    REDIRECT = "goes to another interface"


DROPPING = (Outcome.DROP, Outcome.LIMITED, Outcome.BAN)
"""Outcomes of packets that are dropped."""

MALFORMED = (
    Status.MALFORMED_ETHERNET, Status.MALFORMED_IP, Status.MALFORMED_TRANSPORT, Status.MALFORMED_TUNNEL,
    Status.TOO_MANY_EXTENSIONS,
)  # fmt: skip
"""What a policy with `malformed: drop` drops."""

DENIED = (Status.DENIED_PREFIX, Status.DENIED_PORT, Status.BANNED)
"""What an enforced policy drops before anything is computed: on the deny list, or banned."""


def fate(status: Status, outcome: Outcome | None, *, drop_malformed: bool, enforced: bool = False) -> Fate:
    """Where a packet goes. What a policy redirects or rewrites passes, unless its class goes elsewhere
    (`Steering.fate`). outcome: None unless it was classified. drop_malformed: the policy says so and is
    enforced. enforced: what is denied is dropped.
    """
    dropped = outcome in DROPPING or (outcome is None and drop_malformed and status in MALFORMED)
    dropped = dropped or (enforced and status in DENIED)
    return Fate.DROP if dropped else Fate.PASS
