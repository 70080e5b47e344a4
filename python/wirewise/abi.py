# SPDX-License-Identifier: Apache-2.0
"""What user space shares with the data path: the Python side of bpf/wirewise/abi.h.

Limits and codes stand here once for all of the package, and a test compares each with the header
(tests/unit/test_abi.py).
"""

from __future__ import annotations

from enum import Enum, IntEnum

VERSION = 11

MAX_FEATURES = 128
MAX_CLASSES = 64
MAX_WIDTH = 128
WAYS = 4
MAX_SAMPLES = 64
HASH_WORDS = 12
HASH_SEEDS = 13
TRIGGER_WORDS = 16
MAX_AFTER = 15

SLOT_SIZE = 16
KEY_SIZE = {4: 16, 6: 40}
TUNNEL_SIZE = 8
"""Bytes of struct ww_slot; of struct ww_key4 and ww_key6, by IP version; and of what ww_tunnel_key4 and
ww_tunnel_key6 have beside those.
"""


class Status(IntEnum):
    """Why a packet was or was not classified: enum ww_status."""

    CLASSIFIED = 0
    NOT_IP = 1
    MALFORMED_ETHERNET = 2
    MALFORMED_IP = 3
    MALFORMED_TRANSPORT = 4
    MALFORMED_TUNNEL = 5
    TOO_MANY_EXTENSIONS = 6
    ALLOWED_PREFIX = 7
    ALLOWED_PORT = 8
    NO_POLICY = 9
    UNDECIDED = 10
    ALLOWED_ESSENTIAL = 11

    @property
    def malformed(self) -> bool:
        """What a policy with `malformed: drop` drops."""
        return Status.MALFORMED_ETHERNET <= self <= Status.TOO_MANY_EXTENSIONS


class Action(IntEnum):
    """What the policy asks for a class: enum ww_action."""

    PASS = 0
    DROP = 1
    COUNT = 2
    RATE_LIMIT = 3
    STEER = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


class Fate(Enum):
    """Where a packet goes."""

    PASS = "passes"
    DROP = "is dropped"
    BOUNCE = "goes back to who sent it"
    REDIRECT = "goes to another interface"


class Outcome(IntEnum):
    """What became of a classified packet, and its fate: enum ww_outcome. The would-be outcomes are those of
    observe mode. What is steered passes, unless its class says that it goes elsewhere (`Steering.fate`).
    """

    fate: Fate

    def __new__(cls, code: int, fate: Fate) -> Outcome:
        outcome = int.__new__(cls, code)
        outcome._value_ = code
        outcome.fate = fate
        return outcome

    PASS = 0, Fate.PASS
    DROP = 1, Fate.DROP
    LIMITED = 2, Fate.DROP
    WOULD_DROP = 3, Fate.PASS
    WOULD_LIMIT = 4, Fate.PASS
    ESTABLISHED = 5, Fate.PASS
    """In either mode, where it would be dropped: of a connection of the host."""
    STEERED = 6, Fate.PASS
    WOULD_STEER = 7, Fate.PASS
    UNSTEERED = 8, Fate.PASS
    """It could not be done, as when an interface is gone or no backend is for it: passes unchanged."""

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")

    @property
    def drops(self) -> bool:
        return self.fate is Fate.DROP


def fate(status: Status, outcome: Outcome | None, *, drop_malformed: bool) -> Fate:
    """Where a packet goes. outcome: None unless it was classified. drop_malformed: the policy says so and is
    enforced.
    """
    if outcome is not None:
        return outcome.fate
    return Fate.DROP if status.malformed and drop_malformed else Fate.PASS
