# SPDX-License-Identifier: Apache-2.0
"""Packet fields that tests make feature sets of."""

from __future__ import annotations

from wirewise.feature_sets import FIELDS

ALONE = [
    name
    for name, field in FIELDS.items()
    if not (field.identity or field.of_aggregates or field.of_way or field.serial)
]
"""Those that are features by themselves under any flow key."""
