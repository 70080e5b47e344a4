# SPDX-License-Identifier: Apache-2.0
"""What the tests of the service have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import Lab, lab_in, make_bundles


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of `make_bundles`, compiled once."""
    folder = tmp_path_factory.mktemp("bundles")
    make_bundles(folder)
    return folder


@pytest.fixture
def lab(tmp_path: Path, bundles: Path) -> Iterator[Lab]:
    with lab_in(tmp_path, bundles) as lab:
        yield lab
