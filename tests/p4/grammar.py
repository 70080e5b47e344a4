# SPDX-License-Identifier: Apache-2.0
"""Reads P4_16: the part of the language that a classifier needs. Knows nothing of what wirewise emits.

Precedence and casts are those of the language specification (version 1.2.4, section 8 and appendix G): note
that comparisons bind less than `&`, and `++` like `+`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.p4.nodes import (
    Action,
    Assign,
    Binary,
    Bits,
    Block,
    Call,
    Cast,
    Choice,
    Concat,
    Group,
    If,
    Instance,
    Name,
    Num,
    P4Error,
    Param,
    Program,
    Slice,
    State,
    Table,
    Unary,
)

TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#include[^\n]*)"
    r"|(?P<number>\d+w(?:0x[0-9a-fA-F]+|\d+)|0x[0-9a-fA-F]+|\d+)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>\+\+|<<|<=|>=|==|!=|&&|\|\||[-+~!&|^<>=?:;,.(){}\[\]@])",
    re.DOTALL,
)
LEVELS = [
    ["||"],
    ["&&"],
    ["==", "!="],
    ["<", ">", "<=", ">="],
    ["|"],
    ["^"],
    ["&"],
    ["<<", ">>"],
    ["++", "+", "-"],
]
RESERVED = {
    "abstract", "action", "bit", "bool", "const", "control", "default", "else", "enum", "error", "exit",
    "extern", "false", "for", "header", "header_union", "if", "in", "inout", "int", "match_kind", "out",
    "package", "parser", "return", "select", "string", "struct", "switch", "table", "this", "transition",
    "true", "tuple", "typedef", "value_set", "varbit", "void", "apply", "key", "actions", "state", "entries",
    "type",
}  # fmt: skip
"""Names that nothing may have."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    at: int


def lex(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise P4Error(f"unknown text {text[at : at + 20]!r}")
        if found.lastgroup != "skip":
            tokens.append(Token(str(found.lastgroup), found.group(), at))
        at = found.end()
    return [*tokens, Token("end", "", at)]


class Reader:
    def __init__(self, text: str) -> None:
        self.tokens, self.at = lex(text), 0

    # -- tokens

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self, text: str | None = None) -> str:
        token = self.next
        if text is not None and token.text != text:
            near = " ".join(one.text for one in self.tokens[max(0, self.at - 5) : self.at + 5])
            raise P4Error(f"{text!r} expected, found {token.text!r} in: {near}")
        self.at += 1
        return token.text

    def has(self, text: str) -> bool:
        if self.next.text == text:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        if self.next.kind != "name" or self.next.text in RESERVED:
            raise P4Error(f"a name expected, found {self.next.text!r}")
        return self.take()

    def integer(self) -> int:
        number = self.primary()
        if not isinstance(number, Num):
            raise P4Error("a number expected")
        return number.value

    def path(self) -> tuple[str, ...]:
        names = [self.name()]
        while self.has("."):
            names.append(self.take() if self.next.text == "apply" else self.name())
        return tuple(names)

    # -- declarations

    def program(self) -> Program:
        program = Program()
        while self.next.kind != "end":
            self.annotations()
            word = self.next.text
            if word in ("header", "struct"):
                self.take()
                name = self.name()
                if name in program.headers or name in program.structs:
                    raise P4Error(f"{name} is declared twice")
                (program.headers if word == "header" else program.structs)[name] = self.fields()
            elif word == "const":
                self.take()
                program.constants.append((self.type(), self.name(), self.assigned()))
                self.take(";")
            elif word == "extern":
                self.take()
                self.type()
                name = self.name()
                program.externs[name] = self.params()
                self.take(";")
            elif word in ("parser", "control"):
                block = self.block(self.take())
                if block.name in program.blocks:
                    raise P4Error(f"{block.name} is declared twice")
                program.blocks[block.name] = block
            else:
                self.main(program)
        return program

    def annotations(self) -> None:
        while self.has("@"):
            self.name()
            if self.has("("):
                while not self.has(")"):
                    self.take()

    def main(self, program: Program) -> None:
        program.package = self.name()
        self.take("(")
        while not self.has(")"):
            program.main.append(self.name())
            self.take("(")
            self.take(")")
            self.has(",")
        if self.name() != "main":
            raise P4Error("the package is not called main")
        self.take(";")

    def fields(self) -> list[tuple[Any, str]]:
        self.take("{")
        fields = []
        while not self.has("}"):
            fields.append((self.type(), self.name()))
            self.take(";")
        if len({name for _, name in fields}) != len(fields):
            raise P4Error("a field is declared twice")
        return fields

    def type(self) -> Any:
        if self.has("bit"):
            self.take("<")
            width = self.integer()
            self.take(">")
            return Bits(width)
        if self.has("void"):
            return "void"
        return "bool" if self.has("bool") else self.name()

    def assigned(self) -> Any:
        self.take("=")
        return self.expression()

    def params(self) -> list[Param]:
        self.take("(")
        params = []
        while not self.has(")"):
            direction = self.take() if self.next.text in ("in", "out", "inout") else ""
            params.append(Param(direction, self.type(), self.name()))
            if self.next.text != ")":
                self.take(",")
        return params

    def block(self, kind: str) -> Block:
        block = Block(self.name(), self.params())
        self.take("{")
        while not self.has("}"):
            word = self.next.text
            if kind == "parser" and word == "state":
                self.take()
                name = self.name()
                block.states[name] = self.state()
            elif word == "action":
                self.take()
                block.actions.append(Action(self.name(), self.params(), self.statements()))
            elif word == "table":
                self.take()
                block.tables.append(self.table())
            elif word == "apply":
                self.take()
                block.apply = self.statements()
            else:
                block.instances.append(self.instance())
        return block

    def instance(self) -> Instance:
        kind, of = self.name(), None
        if self.has("<"):
            of = self.type()
            self.take(">")
        self.take("(")
        given = self.arguments()
        instance = Instance(self.name(), kind, of, given)
        self.take(";")
        return instance

    def state(self) -> State:
        self.take("{")
        body = []
        while self.next.text != "transition":
            body.append(self.statement())
        self.take("transition")
        if not self.has("select"):
            state = State(body, [], [([], self.name())])
            self.take(";")
            self.take("}")
            return state
        self.take("(")
        state = State(body, self.arguments(), [])
        self.take("{")
        while not self.has("}"):
            if self.has("default"):
                values = []
            elif self.has("("):
                values = self.arguments()
            else:
                values = [self.expression()]
            if values and len(values) != len(state.select):
                raise P4Error("a case has another number of values than its select")
            self.take(":")
            state.cases.append((values, self.name()))
            self.take(";")
        self.take("}")
        return state

    def table(self) -> Table:
        table = Table(self.name())
        self.take("{")
        while not self.has("}"):
            what = self.take()
            self.take("=")
            if what == "key":
                self.take("{")
                while not self.has("}"):
                    key = self.expression()
                    self.take(":")
                    table.keys.append((key, self.name()))
                    self.take(";")
                continue
            if what == "actions":
                self.take("{")
                while not self.has("}"):
                    table.actions.append(self.name())
                    self.take(";")
                continue
            if what == "size":
                table.size = self.integer()
            elif what == "default_action":
                path = self.path()
                self.take("(")
                table.default = Call(path, self.arguments())
            else:
                raise P4Error(f"a table has no {what}")
            self.take(";")
        return table

    # -- statements

    def statements(self) -> list[Any]:
        self.take("{")
        found = []
        while not self.has("}"):
            found.append(self.statement())
        return found

    def statement(self) -> Any:
        if self.has("if"):
            self.take("(")
            test = self.expression()
            self.take(")")
            yes = self.statements()
            no: list[Any] = []
            if self.has("else"):
                no = [self.statement()] if self.next.text == "if" else self.statements()
            return If(test, yes, no)
        path = self.path()
        if self.has("("):
            call = Call(path, self.arguments())
            self.take(";")
            return call
        to: Any = self.slices(Name(path))
        assign = Assign(to, self.assigned())
        self.take(";")
        return assign

    def arguments(self) -> list[Any]:
        """Up to the closing parenthesis."""
        given = []
        while not self.has(")"):
            given.append(self.expression())
            if self.next.text != ")":
                self.take(",")
        return given

    # -- expressions

    def expression(self) -> Any:
        test = self.binary(0)
        if not self.has("?"):
            return test
        yes = self.expression()
        self.take(":")
        return Choice(test, yes, self.expression())

    def operator(self) -> str:
        """The one that comes next; `>>` is two tokens, as `bit<8>>` ends two types."""
        first, second = self.next, self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if first.text == second.text == ">" and second.at == first.at + 1:
            return ">>"
        return first.text

    def binary(self, level: int) -> Any:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (op := self.operator()) in LEVELS[level]:
            self.at += 2 if op == ">>" else 1
            right = self.binary(level + 1)
            if op == "++":
                left = Concat([*(left.parts if isinstance(left, Concat) else [left]), right])
            else:
                left = Binary(op, left, right)
        return left

    def unary(self) -> Any:
        for op in ("~", "!", "-"):
            if self.has(op):
                return Unary(op, self.unary())
        if self.next.text == "(" and self.tokens[self.at + 1].text in ("bit", "bool"):
            self.take("(")
            to = self.type()
            self.take(")")
            return Cast(to, self.unary())
        return self.slices(self.primary())

    def slices(self, of: Any) -> Any:
        while self.has("["):
            high = self.integer()
            self.take(":")
            of = Slice(of, high, self.integer())
            self.take("]")
        return of

    def primary(self) -> Any:
        if self.next.kind == "number":
            width, _, digits = self.take().rpartition("w")
            return Num(int(width) if width else None, int(digits, 0))
        if self.has("("):
            inner = self.expression()
            self.take(")")
            # a concatenation in parentheses is one operand of another
            return Concat([inner]) if isinstance(inner, Concat) else inner
        if self.has("{"):
            parts = []
            while not self.has("}"):
                parts.append(self.expression())
                self.has(",")
            return Group(parts)
        if self.next.text in ("true", "false"):
            return Num(1, int(self.take() == "true"))
        path = self.path()
        return Call(path, self.arguments()) if self.has("(") else Name(path)


def read(text: str) -> Program:
    return Reader(text).program()
