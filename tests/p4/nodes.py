# SPDX-License-Identifier: Apache-2.0
"""What a P4 program consists of, once it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class P4Error(Exception):
    """The text is no P4 of this subset."""


@dataclass(frozen=True)
class Num:
    width: int | None
    value: int


@dataclass(frozen=True)
class Name:
    path: tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    of: Any
    high: int
    low: int


@dataclass(frozen=True)
class Cast:
    to: Any
    of: Any


@dataclass(frozen=True)
class Unary:
    op: str
    of: Any


@dataclass(frozen=True)
class Binary:
    op: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Concat:
    parts: list[Any]


@dataclass(frozen=True)
class Choice:
    test: Any
    yes: Any
    no: Any


@dataclass(frozen=True)
class Group:
    parts: list[Any]


@dataclass(frozen=True)
class Call:
    path: tuple[str, ...]
    given: list[Any]


@dataclass(frozen=True)
class Assign:
    to: Any
    value: Any


@dataclass(frozen=True)
class If:
    test: Any
    yes: list[Any]
    no: list[Any]


@dataclass(frozen=True)
class Bits:
    width: int


@dataclass(frozen=True)
class Param:
    direction: str
    type: Any
    name: str


@dataclass
class Action:
    name: str
    params: list[Param]
    body: list[Any]


@dataclass
class Table:
    name: str
    keys: list[tuple[Any, str]] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    size: int = 1024
    default: Call | None = None


@dataclass
class Instance:
    name: str
    type: str
    of: Any
    given: list[Any]


@dataclass
class State:
    body: list[Any]
    select: list[Any]
    cases: list[tuple[list[Any], str]]


@dataclass
class Block:
    """A parser or a control."""

    name: str
    params: list[Param]
    states: dict[str, State] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    apply: list[Any] = field(default_factory=list)


@dataclass
class Program:
    headers: dict[str, list[tuple[Any, str]]] = field(default_factory=dict)
    structs: dict[str, list[tuple[Any, str]]] = field(default_factory=dict)
    constants: list[tuple[Any, str, Any]] = field(default_factory=list)
    externs: dict[str, list[Param]] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    package: str = ""
    main: list[str] = field(default_factory=list)
