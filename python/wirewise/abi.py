# SPDX-License-Identifier: Apache-2.0
"""What the toolkit needs of the contract with the data path.

Written by scripts/abi.py from bpf/abi.h and bpf/act/act_abi.h, where the meaning of each stands.
"""

from __future__ import annotations

from enum import IntEnum

ABI_VERSION = 17
MAX_FEATURES = 128
MAX_CLASSES = 64
MAX_WIDTH = 128
WAYS = 4
MAX_SAMPLES = 64
HASH_WORDS = 12
HASH_SEEDS = 13
MAX_AFTER = 15
ACT_STACK = 224
DENY_STACK = 96
TELL_STACK = 64
PLACES = 65_537
BAN_WAYS = 4
BAN_BUCKETS = 16_384
HANDSHAKES = 65_536
PROOF_BYTES = 65_536

SLOT_SIZE = 16
KEY_SIZE = {4: 16, 6: 40}
TUNNEL_SIZE = 8
"""Bytes of struct ww_slot; of struct ww_key4 and ww_key6, by IP version; and of the rest of
ww_tunnel_key4 and ww_tunnel_key6.
"""


class Status(IntEnum):
    """enum ww_status. Why a packet was or was not classified. Order is the order of ww_stats.status."""

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
    DENIED_PREFIX = 12
    DENIED_PORT = 13
    BANNED = 14

    def __str__(self) -> str:
        return self.name.lower()


class Action(IntEnum):
    """enum ww_action. What the policy asks for a class."""

    PASS = 0
    DROP = 1
    COUNT = 2
    RATE_LIMIT = 3
    ACT = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


class Outcome(IntEnum):
    """enum ww_outcome. What became of a classified packet. The would_ outcomes are those of observe mode: the
    packet passed.
    """

    PASS = 0
    DROP = 1
    LIMITED = 2
    WOULD_DROP = 3
    WOULD_LIMIT = 4
    ESTABLISHED = 5
    ACTED = 6
    WOULD_ACT = 7
    NOT_ACTED = 8
    BAN = 9
    WOULD_BAN = 10

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


class Each(IntEnum):
    """enum ww_each. What an event is of."""

    PACKET = 0
    FLOW = 1
    SOURCE = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")
