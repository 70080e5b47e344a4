# SPDX-License-Identifier: Apache-2.0
"""What a model is lowered to, one folder a target. `TARGETS.add` adds one from outside of this package."""

from __future__ import annotations

from typing import Any

from wirewise.registry import Registry
from wirewise.targets.ebpf import EBPF
from wirewise.targets.micro_c import MICRO_C
from wirewise.targets.p4 import P4
from wirewise.targets.target import ProgramTarget, Sources, Target, option
from wirewise.targets.verilog import VERILOG

__all__ = ["TARGETS", "ProgramTarget", "Sources", "Target", "option"]

TARGETS: Registry[Target[Any, Any]] = Registry(
    "target", lambda target: target.name, (EBPF, P4, VERILOG, MICRO_C)
)
