# SPDX-License-Identifier: Apache-2.0
"""The eBPF target: IR and feature set to readable C, and that to one object.

sources = emit(model, feature_set)
built = build(sources)
"""

from __future__ import annotations

from wirewise.targets.ebpf.clang import Built
from wirewise.targets.ebpf.feature_code import (
    StateField,
    cache_lines,
    claim_offset,
    dear_features,
    entry_size,
    state_fields,
)
from wirewise.targets.ebpf.shapes import SHAPES
from wirewise.targets.ebpf.sources import Sources, emit
from wirewise.targets.ebpf.target import EBPF, Options, build

__all__ = [
    "EBPF",
    "SHAPES",
    "Built",
    "Options",
    "Sources",
    "StateField",
    "build",
    "cache_lines",
    "claim_offset",
    "dear_features",
    "emit",
    "entry_size",
    "state_fields",
]
