# SPDX-License-Identifier: Apache-2.0
"""Writes what bpf/abi.h and bpf/act/act_abi.h say for those who do not read C: the agent's types, the
toolkit's numbers and enums, headers with which clang proves the layout, and docs/abi.md.

    python -m scripts.abi            write them
    python -m scripts.abi --check    exit code 1, and the names of those that are not what these say
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[1]
BPF = ROOT / "bpf"
BUNDLE = "abi.h"
READERS = "act/metadata.h"
ACTOR = "act/act_abi.h"

_NOTE = "Written by scripts/abi.py from bpf/abi.h and bpf/act/act_abi.h, where the meaning of each stands."

_SIZES = {"__u8": 1, "__u16": 2, "__be16": 2, "__u32": 4, "__be32": 4, "__u64": 8, "__s64": 8}
_RUST = {
    "__u8": "u8", "__u16": "u16", "__be16": "[u8; 2]", "__u32": "u32", "__be32": "[u8; 4]", "__u64": "u64",
    "__s64": "i64",
}  # fmt: skip

_PYTHON_NUMBERS = (
    "ABI_VERSION", "MAX_FEATURES", "MAX_CLASSES", "MAX_WIDTH", "WAYS", "MAX_SAMPLES", "HASH_WORDS",
    "HASH_SEEDS", "MAX_AFTER", "ACT_STACK", "DENY_STACK", "TELL_STACK", "PLACES", "BAN_WAYS", "BAN_BUCKETS",
    "HANDSHAKES", "PROOF_BYTES",
)  # fmt: skip
_PYTHON_ENUMS = ("status", "action", "outcome", "each")
_COUNTED = ("HASH_WORDS", "POOLS", "BACKENDS", "TUNNELS")
"""The agent counts what it has in memory with these, beside the dimensions of arrays."""
_UNDERSCORED = ("status",)
"""Enums whose names in options, JSON and tables have `_` where others have `-`."""


@dataclass(frozen=True)
class Define:
    """A number. name : without WW_."""

    name: str
    value: int
    hexadecimal: bool
    about: str


@dataclass(frozen=True)
class Code:
    """A member of an enum. name : without the enum's prefix."""

    name: str
    value: int
    about: str


@dataclass(frozen=True)
class Enum:
    """name : without ww_. prefix : what all members begin with, WW_ apart. codes : without the one that only
    counts them. flags : they are bits.
    """

    name: str
    about: str
    prefix: str
    codes: tuple[Code, ...]
    flags: bool

    def texts(self) -> list[str]:
        """As options, JSON and tables have the codes."""
        between = "_" if self.name in _UNDERSCORED else "-"
        return [code.name.lower().replace("_", between) for code in self.codes]

    @property
    def counts_up(self) -> bool:
        return not self.flags and [code.value for code in self.codes] == list(range(len(self.codes)))


@dataclass(frozen=True)
class Field:
    """kind : of one element, as in C. sizes : of its dimensions, as texts. count : of all elements."""

    name: str
    kind: str
    sizes: tuple[str, ...]
    count: int
    offset: int
    about: str


@dataclass(frozen=True)
class Struct:
    """name : without ww_. size, align : bytes."""

    name: str
    about: str
    fields: tuple[Field, ...]
    size: int
    align: int


def totals(enum: str) -> tuple[str, str]:
    """What the member that only counts the others may be called, without WW_."""
    return f"{enum.upper()}S", f"{enum.upper()}ES"


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def words(comment: str | None) -> str:
    """The text of a comment, in one line."""
    text = re.sub(r"\s*\n\s*\*?\s*", " ", comment or "").strip()
    return re.sub(r"\s+", " ", text)


class Contract:
    """What a header says, or several. Raises ValueError, naming the place, for what has no certain layout."""

    def __init__(self, text: str) -> None:
        self._numbers: dict[str, int] = {}
        self.defines: list[Define] = []
        self.enums: list[Enum] = []
        self.structs: dict[str, Struct] = {}
        # A number may be made of others that stand further down.
        self._sources = {
            name: (re.sub(r"/\*.*", "", value, flags=re.DOTALL).strip(), words(self._comment(value)))
            for name, value in re.findall(
                r"^#define (WW_\w+)[ \t]+((?:(?!/\*).)+(?:/\*(?:(?!\*/)[\s\S])*\*/)?)", text, re.MULTILINE
            )
        }
        declared = re.compile(r"(?:/\*((?:(?!\*/).)*)\*/\n)?(enum|struct) ww_(\w+) \{(.*?)\n?\};", re.DOTALL)
        found = list(declared.finditer(text))
        for comment, kind, name, body in (match.groups() for match in found):
            if kind == "enum":
                self.enums.append(self._enum(name, words(comment), body))
        for name, (value, about) in self._sources.items():
            self.defines.append(
                Define(name.removeprefix("WW_"), self._number(value), value.startswith("0x"), about)
            )
        for comment, kind, name, body in (match.groups() for match in found):
            if kind == "struct":
                self.structs[name] = self._struct(name, words(comment), body)

    @staticmethod
    def _comment(text: str) -> str | None:
        found = re.search(r"/\*(.*?)\*/", text, re.DOTALL)
        return found and found[1]

    def _number(self, text: str) -> int:
        """Of numbers, names and the operators + - * | << in parentheses."""

        def value(match: re.Match[str]) -> str:
            name = match[0]
            if name not in self._numbers:
                if name not in self._sources:
                    raise ValueError(f"abi.h: {name} is not known where {text!r} needs it")
                self._numbers[name] = self._number(self._sources[name][0])
            return str(self._numbers[name])

        plain = re.sub(r"\bWW_\w+", value, text)
        if not re.fullmatch(r"[\s\d()+*|<a-fx-]+", plain):
            raise ValueError(f"abi.h: {text!r} is no number")
        return int(eval(plain, {"__builtins__": {}}))

    def _enum(self, name: str, about: str, body: str) -> Enum:
        codes: list[Code] = []
        following = 0
        # A comment in a line of its own is about what comes after it.
        member = re.compile(r"(WW_\w+)\s*(?:=\s*([^,/]+?))?\s*(?:,|$)[ \t]*(?:/\*(.*?)\*/)?", re.DOTALL)
        for full, given, comment in member.findall(re.sub(r"\n\s*/\*[^\n]*\*/(?=\n)", "", body)):
            following = self._number(given) if given else following
            self._numbers[full] = following
            codes.append(Code(full, following, words(comment)))
            following += 1
        flags = len(codes) > 1 and all(code.value & (code.value - 1) == 0 and code.value for code in codes)
        members = [code for code in codes if code.name.removeprefix("WW_") not in totals(name)]
        prefix = self._prefix(name, [code.name for code in members])
        own = (Code(code.name.removeprefix(prefix), code.value, code.about) for code in members)
        return Enum(name, about, prefix.removeprefix("WW_"), tuple(own), flags)

    @staticmethod
    def _prefix(name: str, members: list[str]) -> str:
        """The enum's own name or the beginning of it, else what all members have in common."""
        parts = name.upper().split("_")
        for count in range(len(parts), 0, -1):
            prefix = "_".join(["WW", *parts[:count], ""])
            if all(member.startswith(prefix) for member in members):
                return prefix
        common = members[0]
        for member in members[1:]:
            while not member.startswith(common):
                common = common[: common.rstrip("_").rfind("_") + 1]
        return common

    def _struct(self, name: str, about: str, body: str) -> Struct:
        fields: list[Field] = []
        at, most = 0, 1
        field = re.compile(
            r"(?:struct ww_)?(\w+)\s+(\w+)\s*((?:\[[^]]+\]\s*)*);[ \t]*(?:/\*(.*?)\*/)?|/\*.*?\*/", re.DOTALL
        )
        if rest := field.sub("", body).strip():
            raise ValueError(f"abi.h: struct ww_{name}: {rest.splitlines()[0]!r} cannot be read")
        for kind, own, sizes, comment in field.findall(body):
            if not kind:
                continue
            dimensions = tuple(re.findall(r"\[([^]]+)\]", sizes))
            count = prod(self._number(dimension) for dimension in dimensions)
            if kind in self.structs:
                size, align = self.structs[kind].size, self.structs[kind].align
            elif kind in _SIZES:
                size = align = _SIZES[kind]
            else:
                raise ValueError(f"abi.h: struct ww_{name}: {own} is of the unknown type {kind}")
            if at % align:
                raise ValueError(
                    f"abi.h: struct ww_{name}: a hole of {align - at % align} bytes before {own}"
                )
            fields.append(Field(own, kind, dimensions, count, at, words(comment)))
            at, most = at + size * count, max(most, align)
        if not fields or at % most:
            raise ValueError(
                f"abi.h: struct ww_{name}: its end is not aligned to {most} bytes, or it is empty"
            )
        return Struct(name, about, tuple(fields), at, most)

    def dimensions(self) -> set[str]:
        """Names of the numbers that arrays have as dimensions, without WW_."""
        texts = " ".join(
            size for struct in self.structs.values() for field in struct.fields for size in field.sizes
        )
        return {name.removeprefix("WW_") for name in re.findall(r"WW_\w+", texts)}

    def field_of(self, named: str) -> str:
        """The C type of the fields that hold an enum's code or flags, as their comments say."""
        kinds = {
            field.kind for struct in self.structs.values() for field in struct.fields if named in field.about
        }
        return min(kinds, key=lambda kind: _SIZES[kind], default="__u32")


def rust(contract: Contract) -> str:
    dimensions = contract.dimensions()
    sizes = {enum.name: f"{camel(enum.name)}::COUNT" for enum in contract.enums if enum.counts_up}

    def constant(name: str, kind: str, value: object) -> str:
        return f"pub const {name}: {kind} = {value};"

    def dimension(text: str) -> str:
        name = text.removeprefix("WW_")
        for enum, count in sizes.items():
            if name in totals(enum):
                return count
        return name

    def kind(field: Field) -> str:
        text = camel(field.kind) if field.kind in contract.structs else _RUST[field.kind]
        for size in reversed(field.sizes):
            text = f"[{text}; {dimension(size)}]"
        return text

    lines = ["// SPDX-License-Identifier: Apache-2.0", f"//! {_NOTE}", ""]
    lines += ["use std::mem::{offset_of, size_of};", "", "use bytemuck::{Pod, Zeroable};", ""]
    for define in contract.defines:
        counted = define.name in dimensions or define.name in _COUNTED
        slot = define.name.startswith("SLOT_")
        own = "usize" if counted else _RUST[contract.field_of("WW_SLOT_*")] if slot else "u32"
        value = f"0x{define.value:08x}" if define.hexadecimal else str(define.value)
        lines.append(constant(define.name, own, grouped(value)))
    for enum in contract.enums:
        lines.append("")
        if enum.counts_up:
            lines += ["codes! {", f"    /// `enum ww_{enum.name}`.", f"    {camel(enum.name)} {{"]
            lines += [
                f'        {camel(code.name)} = "{text}",'
                for code, text in zip(enum.codes, enum.texts(), strict=True)
            ]
            lines += ["    }", "}"]
        else:
            own = _RUST[contract.field_of(f"enum ww_{enum.name}")]
            lines.append(f"// `enum ww_{enum.name}`")
            lines += [constant(enum.prefix + code.name, own, grouped(str(code.value))) for code in enum.codes]
    for struct in contract.structs.values():
        lines += ["", f"/// `struct ww_{struct.name}`."]
        lines += [
            "#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]",
            "#[repr(C)]",
        ]
        lines += [f"pub struct {camel(struct.name)} {{"]
        lines += [f"    pub {field.name}: {kind(field)}," for field in struct.fields]
        lines += ["}", "", "const _: () = {"]
        lines.append(f"    assert!(size_of::<{camel(struct.name)}>() == {struct.size});")
        lines += [
            f"    assert!(offset_of!({camel(struct.name)}, {field.name}) == {field.offset});"
            for field in struct.fields
        ]
        lines.append("};")
    return "\n".join(lines) + "\n"


def grouped(number: str) -> str:
    """As clippy wants long literals."""
    if number.startswith("0x"):
        return f"0x{number[2:6]}_{number[6:]}"
    return f"{int(number):_}" if len(number) > 4 else number


def python(contract: Contract) -> str:
    numbers = {define.name: define.value for define in contract.defines}
    structs = contract.structs
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""What the toolkit needs of the contract with the data path.',
        "",
        _NOTE,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
    ]
    lines += [f"{name} = {grouped(str(numbers[name]))}" for name in _PYTHON_NUMBERS]
    lines += [
        "",
        f"SLOT_SIZE = {structs['slot'].size}",
        f"KEY_SIZE = {{4: {structs['key4'].size}, 6: {structs['key6'].size}}}",
        f"TUNNEL_SIZE = {structs['tunnel_key4'].size - structs['key4'].size}",
        '"""Bytes of struct ww_slot; of struct ww_key4 and ww_key6, by IP version; and of the rest of',
        "ww_tunnel_key4 and ww_tunnel_key6.",
        '"""',
    ]
    for enum in contract.enums:
        if enum.name in _PYTHON_ENUMS:
            lines += [
                "",
                "",
                f"class {camel(enum.name)}(IntEnum):",
                *docstring(enum),
                "",
            ]
            lines += [f"    {code.name} = {code.value}" for code in enum.codes]
            dashes = '.replace("_", "-")' if enum.name not in _UNDERSCORED else ""
            lines += ["", "    def __str__(self) -> str:", f"        return self.name.lower(){dashes}"]
    return "\n".join(lines) + "\n"


def docstring(enum: Enum) -> list[str]:
    text = wrap(f'"""enum ww_{enum.name}. {enum.about}"""', 106)
    if len(text) > 1:
        text = [*text[:-1], text[-1].removesuffix('"""'), '"""']
    return [f"    {line}" for line in text]


def assertions(contract: Contract, header: str, within: str = "") -> str:
    """For the structures that this header declares, and `within`, which it includes."""
    text = "".join((BPF / name).read_text() for name in (header, within) if name)
    structs = [struct for struct in contract.structs.values() if f"struct ww_{struct.name} {{" in text]
    guard = f"WW_{Path(header).stem.upper()}_LAYOUT_H"
    lines = [
        "/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */",
        f"/* Proves that the compiler lays out {Path(header).name} as user space reads it.",
        " *",
        f" * Written by scripts/abi.py from {header}: `make abi`.",
        " */",
        "/* clang-format off */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        f'#include "{header}"',
        "",
        "#define WW_AT(type, field, place) \\",
        '\t_Static_assert(__builtin_offsetof(struct type, field) == (place), "struct " #type ": " #field)',
        '#define WW_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "struct " #type)',
    ]
    for struct in structs:
        lines += ["", f"WW_SIZE(ww_{struct.name}, {struct.size});"]
        lines += [f"WW_AT(ww_{struct.name}, {field.name}, {field.offset});" for field in struct.fields]
    return "\n".join([*lines, "", "#undef WW_AT", "#undef WW_SIZE", "", "#endif", ""])


def page(contract: Contract) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("<", "&lt;")

    def table(head: str, rows: Iterator[tuple[object, ...]]) -> list[str]:
        columns = head.count("|") - 1
        lines = ["", head, "|" + " --- |" * columns]
        return lines + ["| " + " | ".join(str(each) for each in row) + " |" for row in rows]

    version = next(define.value for define in contract.defines if define.name == "ABI_VERSION")
    lines = [
        "# What data path and user space share",
        "",
        "<!-- Written by scripts/abi.py from abi.h and act/act_abi.h in bpf/: `make abi`. -->",
        "",
        f"Version {version}. A bundle, the agent and the toolkit have the same or refuse each other.",
        "Integers are in the host's byte order, those of type `__be16` and `__be32` in the packet's.",
        "",
        "## Numbers",
    ]
    lines += table(
        "| name | value | |",
        (
            (
                f"`WW_{define.name}`",
                f"{define.value:#x}" if define.hexadecimal else define.value,
                cell(define.about),
            )
            for define in contract.defines
        ),
    )
    for enum in contract.enums:
        lines += ["", f"## enum ww_{enum.name}", *(["", cell(enum.about)] if enum.about else [])]
        lines += table(
            "| code | name | |",
            ((code.value, f"`WW_{enum.prefix}{code.name}`", cell(code.about)) for code in enum.codes),
        )
    for struct in contract.structs.values():
        lines += [
            "",
            f"## struct ww_{struct.name}",
            "",
            f"{struct.size} bytes. {cell(struct.about)}".rstrip(),
        ]
        lines += table(
            "| offset | field | type | |",
            (
                (field.offset, f"`{field.name}`", f"`{_c_type(contract, field)}`", cell(field.about))
                for field in struct.fields
            ),
        )
    return "\n".join(lines) + "\n"


def _c_type(contract: Contract, field: Field) -> str:
    kind = f"struct ww_{field.kind}" if field.kind in contract.structs else field.kind
    return kind + "".join(f"[{size}]" for size in field.sizes)


WRITTEN: dict[Path, Callable[[Contract], str]] = {
    ROOT / "crates" / "wirewised" / "src" / "abi" / "contract.rs": rust,
    ROOT / "python" / "wirewise" / "abi.py": python,
    BPF / "abi_layout.h": partial(assertions, header=BUNDLE),
    BPF / "act" / "act_abi_layout.h": partial(assertions, header=ACTOR, within=READERS),
    ROOT / "docs" / "abi.md": page,
}


def whole() -> Contract:
    """What the headers say together."""
    return Contract("".join((BPF / header).read_text() for header in (BUNDLE, READERS, ACTOR)))


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    contract = whole()
    stale = [
        path for path, write in WRITTEN.items() if not path.exists() or path.read_text() != write(contract)
    ]
    for path in stale:
        if arguments:
            print(
                f"error: {path.relative_to(ROOT)} is not what the headers in bpf/ say: run `make abi`",
                file=sys.stderr,
            )
        else:
            path.write_text(WRITTEN[path](contract))
            print(path.relative_to(ROOT))
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
