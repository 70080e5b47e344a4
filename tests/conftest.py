# SPDX-License-Identifier: Apache-2.0
"""For all tests: the examples of property tests, before --hypothesis-profile chooses others; kept objects
and warm processes; what becomes of those that lack something."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import settings

import tests.examples  # noqa: F401  (registers the profiles)
from tests import objects
from tests.needs import (  # noqa: F401  (hooks)
    pytest_configure,
    pytest_make_collect_report,
    pytest_runtest_makereport,
)
from tests.warm import WARM
from wirewise.importers import isolated
from wirewise.targets.ebpf import target

settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def kept_objects() -> Iterator[None]:
    with patch.object(target, "compile_sources", objects.compile_sources):
        yield
    objects.forget()


@pytest.fixture(scope="session", autouse=True)
def warm_readers() -> Iterator[None]:
    """Models are read in forked processes. Commands that a test starts begin theirs as always."""
    with patch.object(isolated, "start", WARM.start):
        yield
