# SPDX-License-Identifier: Apache-2.0
"""For all tests: which property-based examples, before pytest's --hypothesis-profile chooses others."""

from __future__ import annotations

from hypothesis import settings

import tests.examples  # noqa: F401  (registers the profiles)

settings.load_profile("fixed")
