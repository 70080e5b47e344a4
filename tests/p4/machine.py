# SPDX-License-Identifier: Apache-2.0
"""Runs a P4 program: parser states, controls, tables with entries written at run time, registers, deparser.

Two architectures: `V1Switch` (v1model, as bmv2's simple_switch does it) and `SimpleSumeSwitch` (P4-NetFPGA).
The latter also checks what P4-SDNet refuses: an `if` in an action, a look-up of more than 32 bytes.

    switch = Switch(text)
    switch.write(json.loads(entries))
    out = switch.run(port, frame)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.p4 import nodes as g
from tests.p4.grammar import read
from tests.p4.nodes import P4Error
from tests.p4.values import Header, Scope, Store, Value, Word, fit, fixed, prepare

Step = Callable[["Running"], None]
SUME_TABLE_BYTES = 32
DROP = 511
STANDARD = {
    "standard_metadata_t": {
        "ingress_port": 9, "egress_spec": 9, "egress_port": 9, "packet_length": 32, "mcast_grp": 16,
    },
    "sume_metadata_t": {
        "dma_q_size": 16, "nf3_q_size": 16, "nf2_q_size": 16, "nf1_q_size": 16, "nf0_q_size": 16,
        "send_dig_to_cpu": 8, "drop": 8, "dst_port": 8, "src_port": 8, "pkt_len": 16,
    },
}  # fmt: skip
BLOCKS = {
    "V1Switch": [
        ["packet_in", "H", "M", "standard_metadata_t"], ["H", "M"], ["H", "M", "standard_metadata_t"],
        ["H", "M", "standard_metadata_t"], ["H", "M"], ["packet_out", "H"],
    ],
    "SimpleSumeSwitch": [
        ["packet_in", "H", "M", "D", "sume_metadata_t"], ["H", "M", "D", "sume_metadata_t"],
        ["packet_out", "H", "M", "D", "sume_metadata_t"],
    ],
}  # fmt: skip
"""Types of the parameters of a package's blocks, in order."""


Key = tuple[int, int, int]


class ShortPacket(Exception):
    """A header is longer than what is left of the packet."""


@dataclass
class Running:
    """One packet on its way."""

    store: Store
    packet: bytes
    at: int = 0  # bits
    out: list[tuple[int, int]] = field(default_factory=list)  # (bits, value)


@dataclass(frozen=True)
class Output:
    """port : None if the packet is dropped. meta : the user's metadata, None where nothing was written."""

    port: int | None
    frame: bytes
    meta: dict[str, Any]


@dataclass
class ActionCode:
    params: list[Word]
    body: list[Step]

    def call(self, running: Running, data: tuple[int, ...]) -> None:
        for word, value in zip(self.params, data, strict=True):
            running.store[word.slot] = value
        for step in self.body:
            step(running)


@dataclass
class TableCode:
    """entries : (keys, priority, action, data). A key is (mask, first, last) of what it matches."""

    keys: list[tuple[Value, str]]
    actions: dict[str, ActionCode]
    size: int
    default: tuple[ActionCode, tuple[int, ...]]
    entries: list[tuple[list[Key], int, ActionCode, tuple[int, ...]]] = field(default_factory=list)

    def apply(self, running: Running) -> None:
        values = [key.run(running.store) for key, _ in self.keys]
        best = None
        for keys, priority, action, data in self.entries:
            pairs = zip(values, keys, strict=True)
            inside = all(low <= value & mask <= high for value, (mask, low, high) in pairs)
            if inside and (best is None or priority < best[0]):
                best = (priority, action, data)
        _, action, data = best or (0, *self.default)
        action.call(running, data)

    def add(self, keys: list[Any], priority: int | None, action: str, data: tuple[int, ...]) -> None:
        code = self.actions[action]
        check_data(code, data)
        ranges = [
            _key(given, value.width or 0, kind) for given, (value, kind) in zip(keys, self.keys, strict=True)
        ]
        if (priority is not None) != any(kind != "exact" for _, kind in self.keys):
            raise P4Error("a priority is for tables with ranges or masks, and they need one")
        if any(old == ranges for old, *_ in self.entries):
            raise P4Error("an entry for these keys is there already")
        if len(self.entries) == self.size:
            raise P4Error("the table is full")
        self.entries.append((ranges, priority or 0, code, data))


def check_data(code: ActionCode, data: tuple[int, ...]) -> None:
    for word, value in zip(code.params, data, strict=True):
        fixed(word.width, value)


def _key(given: Any, width: int, kind: str) -> Key:
    """Of an exact match a value, of a range its ends, of a ternary one `value&&&mask`."""
    if (kind == "range") != isinstance(given, list) or (kind == "ternary") != ("&&&" in given):
        raise P4Error(f"{given} is no {kind} match")
    if kind == "ternary":
        value, mask = (int(part, 0) for part in given.split("&&&"))
        low = high = value & mask
    else:
        low, high = (int(part, 0) for part in (given if kind == "range" else [given, given]))
        mask = (1 << width) - 1
    if low > high or (high | mask) >> width:
        raise P4Error(f"{given} are no ascending numbers of {width} bits")
    return mask, low, high


class Switch:
    def __init__(self, text: str) -> None:
        self.program = read(text)
        if self.program.package not in BLOCKS:
            raise P4Error(f"there is no architecture {self.program.package!r}")
        self.sume = self.program.package == "SimpleSumeSwitch"
        self.words: list[int] = []  # width by slot
        self.registers: dict[str, tuple[int, list[int]]] = {}
        self.tables: dict[str, TableCode] = {}
        self.shared: dict[str, Any] = {}
        globals_: dict[str, Any] = {}
        for kind, name, value in self.program.constants:
            globals_[name] = fit(prepare(value, Scope(globals_)), kind.width)
        self.globals = Scope(globals_)
        shapes = BLOCKS[self.program.package]
        blocks = [self.program.blocks[name] for name in self.program.main]
        if len(blocks) != len(shapes):
            raise P4Error(f"{self.program.package} has {len(shapes)} blocks")
        self.states: dict[str, Any] = {}
        self.runs: list[list[Step]] = []
        for index, (block, shape) in enumerate(zip(blocks, shapes, strict=True)):
            scope = self._scope(block, shape)
            if index == 0:
                self.states = {name: self._state(state, scope) for name, state in block.states.items()}
                self._check_states()
            else:
                self.runs.append(self._control(block, scope))

    # -- at run time

    def write(self, document: dict[str, Any]) -> None:
        """Entries and registers, as wirewise gives them beside a program."""
        for one in document["write"]:
            if "register" in one:
                width, values = self.registers[one["register"]]
                values[one["index"]] = fixed(width, int(one["value"], 0)).run([])
                continue
            table, data = self.tables[one["table"]], tuple(int(value, 0) for value in one["data"])
            if one.get("default"):
                if table.keys and self.sume:
                    raise P4Error("P4-NetFPGA writes no default actions at run time")
                check_data(table.actions[one["action"]], data)
                table.default = (table.actions[one["action"]], data)
            else:
                table.add(one["keys"], one.get("priority"), one["action"], data)

    def run(self, port: int, frame: bytes) -> Output:
        running = Running([None if self.sume else 0] * len(self.words), frame)
        standard = self.shared["sume_metadata_t" if self.sume else "standard_metadata_t"]
        for word in standard.values():
            running.store[word.slot] = 0
        for header in self.shared["H"].values():
            running.store[header.valid] = 0
        running.store[standard["src_port" if self.sume else "ingress_port"].slot] = port
        length = standard["pkt_len" if self.sume else "packet_length"]
        running.store[length.slot] = len(frame)
        self._parse(running)
        for steps in self.runs:
            for step in steps:
                step(running)
        leaves = running.store[standard["dst_port" if self.sume else "egress_spec"].slot]
        bits = sum(width for width, _ in running.out)
        head = 0
        for width, value in running.out:
            head = head << width | value
        meta = {name: running.store[word.slot] for name, word in self.shared["M"].items()}
        rest = frame[running.at // 8 :]
        dropped = leaves == 0 if self.sume else leaves == DROP
        return Output(None if dropped else leaves, head.to_bytes(bits // 8, "big") + rest, meta)

    def _parse(self, running: Running) -> None:
        state = "start"
        try:
            while state not in ("accept", "reject"):
                steps, transition = self.states[state]
                for step in steps:
                    step(running)
                state = transition(running.store)
        except ShortPacket:
            return  # as simple_switch: the packet goes on, with the headers there were

    # -- preparing

    def _slot(self, width: int) -> Word:
        self.words.append(width)
        return Word(len(self.words) - 1, width)

    def _scope(self, block: g.Block, shape: list[str]) -> Scope:
        names: dict[str, Any] = {}
        if len(block.params) != len(shape):
            raise P4Error(f"{block.name} has {len(block.params)} parameters, not {len(shape)}")
        for param, role in zip(block.params, shape, strict=True):
            if len(role) > 1 and param.type != role:
                raise P4Error(f"parameter {param.name} of {block.name} is no {role}")
            if role.startswith("packet_"):
                names[param.name] = role
                continue
            if role not in self.shared:
                self.shared[role] = self._struct(param.type)
            names[param.name] = self.shared[role]
        return Scope(names, self.globals)

    def _struct(self, name: str) -> dict[str, Any]:
        if name in STANDARD:
            return {inside: self._slot(width) for inside, width in STANDARD[name].items()}
        made: dict[str, Any] = {}
        for kind, inside in self.program.structs[name]:
            made[inside] = self._slot(kind.width) if isinstance(kind, g.Bits) else self._header(kind)
        return made

    def _header(self, name: str) -> Header:
        fields = {inside: self._slot(kind.width) for kind, inside in self.program.headers[name]}
        if sum(word.width for word in fields.values()) % 8:
            raise P4Error(f"header {name} is no whole number of bytes")
        return Header(self._slot(0).slot, fields)

    def _check_states(self) -> None:
        if "start" not in self.states:
            raise P4Error("the parser has no state start")

    def _state(self, state: g.State, scope: Scope) -> Any:
        steps = [self._statement(one, scope, {}) for one in state.body]
        for _, name in state.cases:
            if name not in self.program.blocks[self.program.main[0]].states and name not in (
                "accept",
                "reject",
            ):
                raise P4Error(f"there is no state {name}")
        select = [prepare(e, scope) for e in state.select]
        cases = []
        for values, name in state.cases:
            fitted = [
                fit(prepare(value, scope), asked.width or 0).run([])
                for value, asked in zip(values, select, strict=bool(values))
            ]
            cases.append((fitted, name))

        def transition(store: Store) -> str:
            found = [value.run(store) for value in select]
            return next((name for values, name in cases if not values or values == found), "reject")

        return steps, transition

    def _control(self, block: g.Block, outer: Scope) -> list[Step]:
        scope = Scope({}, outer)
        names = [one.name for one in (*block.actions, *block.tables, *block.instances)]
        if len(set(names)) != len(names):
            raise P4Error(f"{block.name} declares a name twice")
        for instance in block.instances:
            if instance.type != "register" or self.sume:
                raise P4Error(f"there is no {instance.type}")
            size = prepare(instance.given[0], scope).constant
            assert size is not None
            self.registers[instance.name] = (instance.of.width, [0] * size)
        actions = {one.name: self._action(one, scope) for one in block.actions}
        actions["NoAction"] = ActionCode([], [])
        for table in block.tables:
            self.tables[table.name] = self._table(table, actions, scope)
        return [self._statement(one, scope, actions) for one in block.apply]

    def _action(self, action: g.Action, scope: Scope) -> ActionCode:
        words = [self._slot(param.type.width) for param in action.params]
        inner = Scope({param.name: word for param, word in zip(action.params, words, strict=True)}, scope)
        if self.sume and any(isinstance(one, g.If) for one in action.body):
            raise P4Error(f"action {action.name} has an if, which P4-SDNet refuses")
        return ActionCode(words, [self._statement(one, inner, {}) for one in action.body])

    def _table(self, table: g.Table, actions: dict[str, ActionCode], scope: Scope) -> TableCode:
        keys = [(prepare(key, scope), kind) for key, kind in table.keys]
        known = ("exact", "ternary") if self.sume else ("exact", "range", "ternary")
        if any(kind not in known for _, kind in keys):
            raise P4Error(f"table {table.name} has a match that the architecture lacks")
        own = {name: actions[name] for name in table.actions}
        if table.default is None or table.default.path[-1] not in own:
            raise P4Error(f"table {table.name} has no default action, or one that is none of its actions")
        for code in own.values():
            if self.sume and sum(word.width for word in code.params) > 8 * SUME_TABLE_BYTES:
                raise P4Error(f"a look-up in {table.name} gives more than {SUME_TABLE_BYTES} bytes")
        return TableCode(keys, own, table.size, (own[table.default.path[-1]], ()))

    # -- statements

    def _statement(self, one: Any, scope: Scope, actions: dict[str, ActionCode]) -> Step:
        if isinstance(one, g.Assign):
            return self._assign(one, scope)
        if isinstance(one, g.If):
            test = prepare(one.test, scope)
            if test.width != 0:
                raise P4Error("the condition of an if is no bool")
            yes = [self._statement(inner, scope, actions) for inner in one.yes]
            no = [self._statement(inner, scope, actions) for inner in one.no]

            def branch(running: Running) -> None:
                for step in yes if test.run(running.store) else no:
                    step(running)

            return branch
        assert isinstance(one, g.Call)
        return self._call(one, scope, actions)

    def _assign(self, one: g.Assign, scope: Scope) -> Step:
        if not isinstance(one.to, g.Name):
            raise P4Error("a part of a word is assigned to")
        word = scope.find(one.to.path)
        if not isinstance(word, Word):
            raise P4Error(f"{'.'.join(one.to.path)} cannot be assigned to")
        slot, run = word.slot, fit(prepare(one.value, scope), word.width).run

        def assign(running: Running) -> None:
            running.store[slot] = run(running.store)

        return assign

    def _call(self, one: g.Call, scope: Scope, actions: dict[str, ActionCode]) -> Step:
        *owner, verb = one.path
        if verb == "apply" and owner and owner[0] in self.tables:
            return self.tables[owner[0]].apply
        if verb == "read" and owner and owner[0] in self.registers:
            return self._read(self.registers[owner[0]], one, scope)
        if verb == "extract" and scope.find((owner[0],)) == "packet_in":
            return self._extract(scope.find(one.given[0].path))
        if verb == "emit" and scope.find((owner[0],)) == "packet_out":
            return self._emit(scope.find(one.given[0].path))
        if one.path == ("mark_to_drop",) and not self.sume:
            slot = scope.find(one.given[0].path)["egress_spec"].slot
            return lambda running: running.store.__setitem__(slot, DROP)
        if one.path == ("hash",) and not self.sume:
            return self._hash(one, scope)
        if len(one.path) == 1 and one.path[0] in self.program.externs:
            return self._extern(one, scope)
        if len(one.path) == 1 and one.path[0] in actions:
            code = actions[one.path[0]]
            return lambda running: code.call(running, ())
        raise P4Error(f"there is no {'.'.join(one.path)}")

    def _read(self, register: tuple[int, list[int]], one: g.Call, scope: Scope) -> Step:
        word, index = scope.find(one.given[0].path), fit(prepare(one.given[1], scope), 32)
        if word.width != register[0]:
            raise P4Error("a register is read into a word of another width")

        def read(running: Running) -> None:
            running.store[word.slot] = register[1][index.run(running.store)]

        return read

    def _hash(self, one: g.Call, scope: Scope) -> Step:
        to, algorithm, base, data, most = one.given
        word, base, most = scope.find(to.path), prepare(base, scope), prepare(most, scope)
        parts = [prepare(part, scope) for part in data.parts]
        if algorithm.path != ("HashAlgorithm", "crc32"):
            raise P4Error(f"there is no {algorithm}")

        def run(running: Running) -> None:
            value = 0
            for part in parts:
                value = value << (part.width or 0) | part.run(running.store)
            size = sum(part.width or 0 for part in parts)
            hashed = zlib.crc32(value.to_bytes(-(-size // 8), "big"))
            running.store[word.slot] = base.run(running.store) + hashed % most.run(running.store)

        return run

    def _extern(self, one: g.Call, scope: Scope) -> Step:
        """A register of P4-NetFPGA: NAME_reg_rw(index, new value, code: 0 to read, 1 to write, result)."""
        name, params = one.path[0], self.program.externs[one.path[0]]
        if not self.sume or not name.endswith("_reg_rw") or name in self.registers:
            raise P4Error(f"{name} is no register, or is used twice")
        self.registers[name] = (params[3].type.width, [0] * (1 << params[0].type.width))
        index, new, code = (
            fit(prepare(given, scope), param.type.width)
            for given, param in zip(one.given[:3], params[:3], strict=True)
        )
        word, values = scope.find(one.given[3].path), self.registers[name][1]
        if word.width != params[3].type.width:
            raise P4Error("a register is read into a word of another width")

        def run(running: Running) -> None:
            at = index.run(running.store)
            if code.run(running.store) == 1:
                values[at] = new.run(running.store)
            running.store[word.slot] = values[at]

        return run

    def _extract(self, header: Header) -> Step:
        words = list(header.fields.values())
        size = sum(word.width for word in words)

        def extract(running: Running) -> None:
            if running.at + size > 8 * len(running.packet):
                raise ShortPacket
            left = int.from_bytes(running.packet[running.at // 8 : (running.at + size) // 8], "big")
            for word in reversed(words):
                running.store[word.slot] = left & (1 << word.width) - 1
                left >>= word.width
            running.store[header.valid] = 1
            running.at += size

        return extract

    def _emit(self, header: Header) -> Step:
        words = list(header.fields.values())

        def emit(running: Running) -> None:
            if running.store[header.valid]:
                running.out += [(word.width, running.store[word.slot]) for word in words]

        return emit
