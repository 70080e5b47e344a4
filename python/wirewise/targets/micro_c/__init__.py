# SPDX-License-Identifier: Apache-2.0
"""The micro-C target: binary networks for Netronome's NFP (siracusano-n3ic, section 4.1 and appendix A)."""

from __future__ import annotations

from wirewise.targets.micro_c.options import Options
from wirewise.targets.micro_c.target import MICRO_C, Sources, emit

__all__ = ["MICRO_C", "Options", "Sources", "emit"]
