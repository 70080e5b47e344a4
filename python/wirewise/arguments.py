# SPDX-License-Identifier: Apache-2.0
"""Whether what a caller in Python gives is of the kind that a parameter is annotated with."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Number, Real
from os import PathLike
from typing import Any, Literal, get_args, get_origin

from wirewise.errors import InputError

_SHOWN = 60


@dataclass(frozen=True)
class Kind:
    """What fits an annotation. one, many : how such values are called; both "" where anything fits. parts :
    what each part of a list must fit.
    """

    one: str
    many: str
    fits: Callable[[Any], bool]
    parts: Kind | None = None


Kinds = Mapping[str, Kind]
"""By the name of the parameter."""

_ANYTHING = Kind("", "", lambda value: True)
_PLAIN = {
    "None": Kind("None", "None", lambda value: value is None),
    "str": Kind("text", "texts", lambda value: isinstance(value, str)),
    # Also numpy's.
    "int": Kind("a whole number", "whole numbers", lambda value: isinstance(value, Integral)),
    "float": Kind("a number", "numbers", lambda value: isinstance(value, Real)),
    "bool": Kind("True or False", "True or False", lambda value: type(value).__name__ in ("bool", "bool_")),
    "PathLike": Kind("a path", "paths", lambda value: isinstance(value, PathLike)),
    "Mapping": Kind("a dict", "dicts", lambda value: isinstance(value, Mapping)),
}


def kinds_of(function: Callable[..., Any]) -> Kinds:
    """What fits each parameter of a function, in a module whose annotations are text."""
    parameters = inspect.signature(function).parameters.values()
    kinds = _kinds({one.name: one.annotation for one in parameters}, function.__globals__)
    several = [one.name for one in parameters if one.kind is one.VAR_POSITIONAL]
    return kinds | {name: _list_of(kinds[name]) for name in several}


def check(kinds: Kinds, given: Mapping[str, object]) -> None:
    """Raises InputError for the first value that does not fit, by the name of its parameter."""
    for name, value in given.items():
        _check(kinds[name], name, value)


def check_fields(instance: object, *, beside: Sequence[str] = ()) -> None:
    """The same for the fields of a dataclass's instance, but for those `beside`."""
    made_of: type = type(instance)
    kinds = _kinds_of_fields(made_of)
    check(kinds, {name: getattr(instance, name) for name in kinds if name not in beside})


def _check(kind: Kind, name: str, value: object) -> None:
    if isinstance(value, str) and "\0" in value:
        raise InputError(name, "has a NUL, which no name and no path can have", "leave it out")
    if kind.fits(value):
        return
    if kind.parts and isinstance(value, list | tuple):
        for at, part in enumerate(value):
            _check(kind.parts, f"{name}[{at}]", part)
        raise InputError(name, f"has {len(value)} parts", f"give {kind.one}")
    scalar = isinstance(value, str | Number) and len(repr(value)) <= _SHOWN
    subject = f"{name}={value!r}" if scalar else name
    raise InputError(subject, f"cannot be of type {type(value).__name__}", f"give {kind.one}")


@cache
def _kinds_of_fields(of: Any) -> Kinds:
    return _kinds({one.name: one.type for one in fields(of)}, vars(sys.modules[of.__module__]))


def _kinds(annotations: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Kind]:
    """What fits each annotation. names : what their module has."""
    return {name: _read(text, names) for name, text in annotations.items()}


def _read(annotation: Any, names: Mapping[str, Any]) -> Kind:
    """Of `self` and `cls`, which have none, anything."""
    return _kind(ast.parse(annotation, mode="eval").body, names) if isinstance(annotation, str) else _ANYTHING


def _kind(node: ast.expr, names: Mapping[str, Any]) -> Kind:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            return _either([_kind(left, names), _kind(right, names)])
        case ast.Constant(None):
            return _PLAIN["None"]
        case ast.Name(name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Name(name):
            return _named(names.get(name), names)
        case ast.Subscript(ast.Name("PathLike" | "Mapping" as name)):
            return _PLAIN[name]
        case ast.Subscript(ast.Name("Sequence"), element):
            return _list_of(_kind(element, names))
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([element, ast.Constant(value)])) if value is ...:
            return _list_of(_kind(element, names), arrays=False)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(elements)):
            return _list_of(_kind(elements[0], names), len(elements), arrays=False)
    return _ANYTHING


def _named(meant: object, names: Mapping[str, Any]) -> Kind:
    """What fits an alias or a class."""
    if isinstance(meant, str):
        return _read(meant, names)
    if get_origin(meant) is Literal:
        return _either([_PLAIN[type(value).__name__] for value in get_args(meant)])
    if isinstance(meant, type) and meant is not Any:  # which is a class from Python 3.11 on
        article = "an" if meant.__name__[0] in "AEIOU" else "a"
        return Kind(
            f"{article} {meant.__name__}", f"{meant.__name__}s", lambda value: isinstance(value, meant)
        )
    return _ANYTHING


def _either(kinds: list[Kind]) -> Kind:
    if _ANYTHING in kinds:
        return _ANYTHING

    def said(of: Callable[[Kind], str]) -> str:
        return " or ".join(dict.fromkeys(of(kind) for kind in kinds))

    return Kind(
        # A path may be text.
        said(lambda kind: kind.one).replace("text or a path", "a path"),
        said(lambda kind: kind.many).replace("texts or paths", "paths"),
        lambda value: any(kind.fits(value) for kind in kinds),
        next((kind.parts for kind in kinds if kind.parts), None),
    )


def _list_of(part: Kind, length: int | None = None, *, arrays: bool = True) -> Kind:
    """A list of parts. length : how many, None for any number. arrays : whether all fits that can be gone
    through, such as a set or a data frame's column; of what gives its parts once, like `Path.glob`, they are
    not looked at.
    """

    def fits(value: Any) -> bool:
        if not isinstance(value, list | tuple):
            if (
                not arrays
                or isinstance(value, str | bytes | Mapping | type)
                or not isinstance(value, Iterable)
            ):
                return False
            if isinstance(value, Iterator):
                return True
            value = list(value)
        return len(value) == (length or len(value)) and all(map(part.fits, value))

    number = "" if length is None else f"{length} "
    of = f" of {number}{part.many}" if part.many else ""
    return Kind(f"a list{of}", f"lists{of}", fits, part)
