# SPDX-License-Identifier: Apache-2.0
"""What tests over a veth pair need of the machine."""

from __future__ import annotations

import os

import pytest

from wirewise.demo.network import check_needs
from wirewise.errors import MissingFeatureError


def marks(*, cpus: int = 1) -> list[pytest.MarkDecorator]:
    """For a module whose tests use `wire`, on so many CPUs: skipped where that is not to be had."""
    lacking = missing(cpus)
    return [pytest.mark.root, pytest.mark.skipif(bool(lacking), reason=lacking or "nothing missing")]


def missing(cpus: int = 1) -> str:
    if os.geteuid() != 0:
        return "root: network namespaces need root"
    try:
        check_needs()
    except MissingFeatureError as error:
        return f"tools: {error}"
    return f"cpus: {cpus} contend" if len(os.sched_getaffinity(0)) < cpus else ""
