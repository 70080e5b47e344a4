# SPDX-License-Identifier: Apache-2.0
"""Reads the commands of simple_switch_CLI and of P4-NetFPGA's command line, as the switches' own tools do."""

from __future__ import annotations

from typing import Any


def read(text: str) -> dict[str, Any]:
    """The writes that the commands make, as `machine.Switch.write` takes them."""
    return {"write": [_one(line.split()) for line in text.splitlines()]}


def _one(words: list[str]) -> dict[str, Any]:
    verb, *rest = words
    if verb == "register_write":
        name, index, value = rest
        return {"register": _short(name), "index": int(index), "value": value}
    table, action, *rest = rest
    write: dict[str, Any] = {"table": _short(table), "action": _short(action)}
    if verb == "table_set_default":
        return {**write, "default": True, "data": rest}
    if verb not in ("table_add", "table_cam_add_entry"):
        raise ValueError(f"there is no command {verb}")
    at = rest.index("=>")
    keys: list[Any] = [key.split("->") if "->" in key else key for key in rest[:at]]
    data = rest[at + 1 :]
    if any(isinstance(key, list) for key in keys):
        *data, priority = data
        write["priority"] = int(priority)
    return {**write, "keys": keys, "data": data}


def _short(name: str) -> str:
    return name.removeprefix("WwIngress.")
