# SPDX-License-Identifier: Apache-2.0
"""UBJSON, as far as XGBoost writes it: https://ubjson.org, with one object around everything."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_DEPTH = 32

# Marker -> numpy type, big-endian.
_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_CONSTANTS = {"T": True, "F": False, "Z": None}


def loads(data: bytes) -> Any:
    """The document in bytes. Raises ValueError naming the byte where it ends to make sense."""
    reader = _Reader(data)
    value = reader.value(reader.marker(), 0)
    if reader.at != len(data):
        raise reader.wrong("something follows the document")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def wrong(self, rule: str) -> ValueError:
        return ValueError(f"byte {self.at}: {rule}")

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise self.wrong(f"{count} bytes should follow, there are {len(self.data) - self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def marker(self) -> str:
        marker = "N"
        while marker == "N":  # means nothing
            marker = self.take(1).decode("latin-1")
        return marker

    def peek(self, marker: str) -> bool:
        """Whether this marker is next, which is then taken."""
        found = self.data[self.at : self.at + 1] == marker.encode()
        self.at += found
        return found

    def value(self, marker: str, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise self.wrong(f"it is more than {MOST_DEPTH} levels deep")
        if marker in _NUMBERS:
            kind = np.dtype(_NUMBERS[marker])
            return np.frombuffer(self.take(kind.itemsize), kind)[0].item()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in "SC":
            return self.text(1 if marker == "C" else self.count())
        if marker == "[":
            return self.array(depth)
        if marker == "{":
            return self.object(depth)
        raise self.wrong(f"{marker!r} begins no value")

    def count(self) -> int:
        value = self.value(self.marker(), MOST_DEPTH)
        if type(value) is not int or value < 0:
            raise self.wrong("a length is not a whole number")
        return value

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.wrong("a text is not UTF-8") from None

    def array(self, depth: int) -> list[Any]:
        kind = self.take(1).decode("latin-1") if self.peek("$") else None
        if not self.peek("#"):
            if kind:
                raise self.wrong("an array with a type has no length")
            values = []
            while not self.peek("]"):
                values.append(self.value(self.marker(), depth + 1))
            return values
        count = self.count()
        if kind is None:
            return [self.value(self.marker(), depth + 1) for _ in range(self.room_for(count))]
        if kind not in _NUMBERS:
            raise self.wrong(f"an array has the type {kind!r}")
        numbers = np.dtype(_NUMBERS[kind])
        values = np.frombuffer(self.take(count * numbers.itemsize), numbers).tolist()
        return list(values)

    def object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        count = self.room_for(self.count()) if self.peek("#") else None
        while len(found) < count if count is not None else not self.peek("}"):
            key = self.text(self.count())
            if key in found:
                raise self.wrong(f"the key {key[:40]!r} is there twice")
            found[key] = self.value(self.marker(), depth + 1)
        return found

    def room_for(self, count: int) -> int:
        """A number of values that the rest of the bytes can hold."""
        if count > len(self.data) - self.at:
            raise self.wrong(f"{count} values should follow, there are {len(self.data) - self.at} bytes")
        return count
