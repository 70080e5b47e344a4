# SPDX-License-Identifier: Apache-2.0
"""Registries: what there is of a kind, by name. Packet fields, accumulators, importers, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from wirewise.errors import InputError, choose

T = TypeVar("T")


class Registry(dict[str, T]):
    """Entries by name, in the order in which they were added.

    All that knows of a kind of entry (dispatch, help, documentation) reads its registry, so that a package
    outside of wirewise adds an entry with `add`, and nothing else has to change. kind : what an entry is
    called. name_of : the name of an entry.
    """

    def __init__(self, kind: str, name_of: Callable[[T], str], entries: Iterable[T] = ()) -> None:
        super().__init__()
        self._kind = kind
        self._name_of = name_of
        for entry in entries:
            self.add(entry)

    def add(self, entry: T) -> T:
        """Adds an entry and gives it back. Raises InputError if the name is taken."""
        name = self._name_of(entry)
        if name in self:
            raise InputError(f"{self._kind} {name!r}", "is there already", "choose another name")
        self[name] = entry
        return entry

    def find(self, name: str) -> T:
        """The entry of this name. Raises InputError, which names those there are."""
        if name not in self:
            raise InputError(f"{self._kind} {name!r}", "is not known", choose(name, self))
        return self[name]
