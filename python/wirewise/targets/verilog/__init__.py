# SPDX-License-Identifier: Apache-2.0
"""The Verilog target: a binary network or trees as a circuit with AXI streams."""

from __future__ import annotations

from wirewise.targets.verilog.options import Options
from wirewise.targets.verilog.target import VERILOG, Sources, lower

__all__ = ["VERILOG", "Options", "Sources", "lower"]
