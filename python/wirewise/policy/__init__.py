# SPDX-License-Identifier: Apache-2.0
"""Policies: `meaning.py` says what a policy does with packets, `act/` what actions do to captured ones."""

from wirewise.policy.meaning import (
    ClassPolicy,
    Decider,
    Limit,
    Metadata,
    Observed,
    Policy,
    Port,
    Selector,
    Teller,
    Trigger,
)

__all__ = [
    "ClassPolicy",
    "Decider",
    "Limit",
    "Metadata",
    "Observed",
    "Policy",
    "Port",
    "Selector",
    "Teller",
    "Trigger",
]
