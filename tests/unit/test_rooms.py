# SPDX-License-Identifier: Apache-2.0
"""Modules of the package and of the crates: none needs itself by way of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "wirewise"
CRATES = [f"wirewise{name}" for name in ("d", "-capture", "-dpdk", "-engine")]


def modules() -> dict[str, Path]:
    """Name -> file, of all but the doors: the package itself, and what `python -m` runs."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if "." in name and not name.endswith("__main__")}


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that one imports, at any place in it, be it for a type."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in known else node.module
                if target in known:
                    yield target


def rooms(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same between folders and the modules beside them."""
    found: dict[str, set[str]] = {}
    for name, needs in arrows.items():
        room = name.split(".")[1]
        found.setdefault(room, set()).update({need.split(".")[1] for need in needs} - {room})
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[str]:
    """What is left when all that needs nothing of what is left, or that nothing left needs, is taken away."""
    left = dict(arrows)
    while True:
        needed = set().union(*left.values())
        free = [name for name, needs in left.items() if not needs & left.keys() or name not in needed]
        if not free:
            return sorted(f"{name} needs {', '.join(sorted(n & left.keys()))}" for name, n in left.items())
        for name in free:
            del left[name]


def arrows() -> dict[str, set[str]]:
    known = modules()
    assert len(known) > 100
    return {name: set(imports(path, known)) - {name} for name, path in known.items()}


def crate_modules(crate: str) -> dict[str, Path]:
    """As `modules`, of a crate: `crate.attachment.swap` for attachment/swap/mod.rs."""
    found, source = {}, ROOT / "crates" / crate / "src"
    for path in source.rglob("*.rs"):
        parts = ("crate", *path.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "mod" else parts)] = path
    return {name: path for name, path in found.items() if name not in ("crate.lib", "crate.main")}


def paths(tree: str) -> Iterator[str]:
    """`a::{b, c::{d, e}}` -> a::b, a::c::d, a::c::e."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree.strip()
        return
    depth, start = 0, 0
    inner = rest[: rest.rindex("}")]
    for at, character in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            for path in paths(inner[start:at]):
                yield head.strip() + path
            start = at + 1


def uses(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that one of a crate's names, in `use` or in full. Its tests may name any."""
    text = re.sub(r"//.*", "", path.read_text()).split("#[cfg(test)]\nmod tests")[0]
    trees = re.findall(r"\buse\s+((?:crate|super|self)::[^;]*);", text)
    named = [found for tree in trees for found in paths(tree)]
    for found in named + re.findall(r"\bcrate(?:::\w+)+", text):
        parts = found.split("::")
        if parts[0] == "crate":
            base = ["crate"]
        elif parts[0] == "self":
            base = name.split(".")
        else:
            ups = next(at for at, part in enumerate(parts) if part != "super")
            base = name.split(".")[:-ups]
            parts = parts[ups - 1 :]
        target = [*base, *parts[1:]]
        while ".".join(target) not in known and len(target) > 1:
            target.pop()
        if len(target) > 1:
            yield ".".join(target)


def crate_arrows(crate: str) -> dict[str, set[str]]:
    known = crate_modules(crate)
    assert len(known) > 5
    return {name: set(uses(name, path, known)) - {name} for name, path in known.items()}


def test_no_module_needs_itself_by_way_of_others() -> None:
    found = circles(arrows())
    assert not found, "these modules need each other:\n" + "\n".join(found)


def test_no_folder_needs_itself_by_way_of_others() -> None:
    found = circles(rooms(arrows()))
    assert not found, "these folders need each other:\n" + "\n".join(found)


def test_nothing_needs_the_command_line() -> None:
    assert not [room for room, needs in rooms(arrows()).items() if "cli" in needs]


@pytest.mark.parametrize("crate", CRATES)
def test_no_module_of_a_crate_needs_itself_by_way_of_others(crate: str) -> None:
    found = circles(crate_arrows(crate))
    assert not found, f"these modules of {crate} need each other:\n" + "\n".join(found)


@pytest.mark.parametrize("crate", CRATES)
def test_no_folder_of_a_crate_needs_itself_by_way_of_others(crate: str) -> None:
    found = circles(rooms(crate_arrows(crate)))
    assert not found, f"these folders of {crate} need each other:\n" + "\n".join(found)


def test_what_runs_is_read_without_knowing_where() -> None:
    """reading/ reads what runs from its maps: attachments, and what commands show of them, come above."""
    above = {"attachment", "views", "commands", "offline", "cli"}
    assert not rooms(crate_arrows("wirewised"))["reading"] & above


def test_uses_of_a_crate_are_found(tmp_path: Path) -> None:
    names = ("a", "a.b", "a.c", "d", "e", "f")
    known = {f"crate.{name}": tmp_path / f"{name}.rs" for name in names}
    known["crate.a.b"].write_text(
        "use crate::{d::{X, self}, e};\nuse super::c::Y; // use crate::f;\n"
        "fn z() { crate::a::W() }\n#[cfg(test)]\nmod tests {\n use crate::f; }\n"
    )
    assert set(uses("crate.a.b", known["crate.a.b"], known)) == {"crate.d", "crate.e", "crate.a.c", "crate.a"}


def test_circles_are_found() -> None:
    found = circles({"x": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()})
    assert found == ["b needs c", "c needs b"]
    assert circles({"a": {"b"}, "b": {"d"}, "d": set()}) == []
