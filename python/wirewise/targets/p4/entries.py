# SPDX-License-Identifier: Apache-2.0
"""What the control plane writes: table entries and registers, as JSON and as a switch's commands."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Key = int | tuple[int, int]
"""Of an exact match, a value; of a range, its first and last value."""


@dataclass(frozen=True)
class Entry:
    """A table's entry; its default action if it has no keys. data : the action's arguments, in order."""

    table: str
    action: str
    keys: tuple[Key, ...]
    data: tuple[int, ...]

    @property
    def priority(self) -> int | None:
        """Range matches must have one. Ours never overlap, so all have the same."""
        return 1 if any(isinstance(key, tuple) for key in self.keys) else None


@dataclass
class Entries:
    """All that a program needs before it classifies. registers : (name, index, value). last, last_registers :
    what switches the model on, once all else is written.
    """

    tables: list[Entry] = field(default_factory=list)
    registers: list[tuple[str, int, int]] = field(default_factory=list)
    last: list[Entry] = field(default_factory=list)
    last_registers: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, table: str, action: str, keys: tuple[Key, ...], *data: int) -> None:
        self.tables.append(Entry(table, action, keys, data))

    def to_json(self) -> str:
        """In the order in which they are written."""
        lines = [
            *(_table(entry) for entry in self.tables),
            *(_register(*one) for one in self.registers),
            *(_table(entry) for entry in self.last),
            *(_register(*one) for one in self.last_registers),
        ]
        return '{"format": "wirewise-p4-entries", "version": 1, "write": [\n' + ",\n".join(lines) + "\n]}\n"

    def to_simple_switch(self, control: str) -> str:
        """Commands of bmv2's simple_switch_CLI. control : the one that has tables and registers."""
        lines = []
        for tables, registers in ((self.tables, self.registers), (self.last, self.last_registers)):
            for entry in tables:
                data = [f"0x{value:x}" for value in entry.data]
                names = f"{control}.{entry.table} {control}.{entry.action}"
                if not entry.keys:
                    lines.append(" ".join(["table_set_default", names, *data]))
                    continue
                priority = [] if entry.priority is None else [str(entry.priority)]
                keys = [_simple_switch_key(key) for key in entry.keys]
                lines.append(" ".join(["table_add", names, *keys, "=>", *data, *priority]))
            for name, index, value in registers:
                lines.append(f"register_write {control}.{name} {index} {value}")
        return "".join(f"{line}\n" for line in lines)

    def to_sume(self) -> str:
        """Commands of P4-NetFPGA's command line (`commands.txt`)."""
        return "".join(
            f"table_cam_add_entry {entry.table} {entry.action} {' '.join(map(str, entry.keys))} => "
            f"{' '.join(hex(value) for value in entry.data)}\n"
            for entry in (*self.tables, *self.last)
        )


def _simple_switch_key(key: Key) -> str:
    return f"0x{key[0]:x}->0x{key[1]:x}" if isinstance(key, tuple) else f"0x{key:x}"


def _table(entry: Entry) -> str:
    """One line of JSON. Values are text: they may have hundreds of bits."""
    document: dict[str, Any] = {"table": entry.table}
    if entry.keys:
        document["keys"] = [
            [hex(key[0]), hex(key[1])] if isinstance(key, tuple) else hex(key) for key in entry.keys
        ]
    else:
        document["default"] = True
    if entry.priority is not None:
        document["priority"] = entry.priority
    document |= {"action": entry.action, "data": [hex(value) for value in entry.data]}
    return json.dumps(document)


def _register(name: str, index: int, value: int) -> str:
    return json.dumps({"register": name, "index": index, "value": hex(value)})
