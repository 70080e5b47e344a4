# SPDX-License-Identifier: Apache-2.0
"""Captures of a folder that are left out, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirewise.console import listing, progress_console

if TYPE_CHECKING:
    from wirewise.datasets.manifest import LeftOut


def print_left_out(left_out: Sequence[LeftOut]) -> None:
    """A row for each reason, on standard error; nothing if no capture is left out."""
    if left_out:
        head = ("captures left out", "reason", "for example")
        rows = [(f"{one.captures:,}", one.reason, one.example) for one in left_out]
        listing(head, rows, right=(0,), on=progress_console)
