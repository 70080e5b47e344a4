# SPDX-License-Identifier: Apache-2.0
"""Which names there may be, one's own and those in files of others.

The agent has the same rules (crates/wirewised, `bundle/names.rs`); tests of both read
crates/wirewised/tests/fixtures/names.json.
"""

from __future__ import annotations

import re

from wirewise.text import is_harmless

MAX = 200  # characters

# Of ASCII a few signs: the names are in comments of generated sources, in messages and on pages.
_NOT_IN_A_SET_NAME = re.compile(r"[\x00-\x7f](?<![A-Za-z0-9 ._+(),:-])")
_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_FEATURE_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX - 1}}}")


def is_name(text: str) -> bool:
    """Whether classes, models and tools can have this name: 1 to 200 characters of text in one
    line, nothing that a terminal would obey or hide, and no space but the usual one.
    """
    return 1 <= len(text) <= MAX and is_harmless(text) and not any(c.isspace() and c != " " for c in text)


def is_set_name(text: str) -> bool:
    """Whether a feature set can have this name: a name, of ASCII with letters, digits and a few signs only,
    and without a space at its ends.
    """
    return is_name(text) and text == text.strip() and not _NOT_IN_A_SET_NAME.search(text)


def is_feature_name(text: str) -> bool:
    """Whether a feature can have this name, an identifier: lower-case letters, digits and _."""
    return _FEATURE_NAME.fullmatch(text) is not None


def is_network_name(text: str) -> bool:
    """Whether a network of a bank can have this name: 1 to 63 letters, digits and _ . -"""
    return _NETWORK_NAME.fullmatch(text) is not None
