# SPDX-License-Identifier: Apache-2.0
"""How many examples the property tests draw: always the same few, or ten times as many of other ones.

`make test` has the first, so that it is short and gives the same result twice; `make fuzz` the second
(`pytest --hypothesis-profile=full`).
"""

from __future__ import annotations

from hypothesis import settings

FIXED = 50

settings.register_profile("fixed", settings.get_profile("ci"), max_examples=FIXED)
settings.register_profile("full", max_examples=10 * FIXED, deadline=None)


def examples(count: int) -> settings:
    """For a test that draws `count` instead of FIXED, and as many times more under another profile."""
    return settings(max_examples=count * settings().max_examples // FIXED, deadline=None)
