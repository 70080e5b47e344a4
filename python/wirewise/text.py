# SPDX-License-Identifier: Apache-2.0
"""What may go to a terminal, where names, messages and what captures hold were written by others; and how
addresses and lists are spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

# Control characters, those that have no width or turn the direction of writing, and halves of characters.
_HARMFUL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\ud800-\udfff]"
)


def is_harmless(text: str) -> bool:
    """Whether the text may go to a terminal as it is, in one line."""
    return not _HARMFUL.search(text)


def harmless(text: str, *, keep: str = "\n\t") -> str:
    r"""The text with such characters as JSON writes them (`\u001b`), so that JSON stays the same document."""

    def escape(match: re.Match[str]) -> str:
        if match[0] in keep:
            return match[0]
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _HARMFUL.sub(escape, text)


def file_name(path: Path) -> str:
    """The name of a file where it is kept or shown: names of files need not be text in UTF-8."""
    return harmless(path.name, keep="")


def listed(parts: Sequence[str]) -> str:
    """One or more in a sentence: `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def address_text(packed: bytes) -> str:
    """An address of 4 or 16 bytes as text, as the agent spells it.

    IPv4-mapped ones are `::ffff:192.0.2.1`, as Python writes them itself from 3.13 on only.
    """
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return f"::ffff:{mapped}" if mapped else str(address)


def harmless_document(value: Any) -> Any:
    """A JSON document all of whose texts, keys included, are one line each without such characters."""
    if isinstance(value, str):
        return harmless(" ".join(value.splitlines()), keep="")
    if isinstance(value, dict):
        return {harmless_document(key): harmless_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [harmless_document(item) for item in value]
    return value
