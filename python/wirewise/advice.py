# SPDX-License-Identifier: Apache-2.0
"""For callers in Python: arguments are looked at before they are used, and errors, which name options of the
command line, name arguments instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from wirewise.arguments import check, kinds_of
from wirewise.errors import InputError, WirewiseError, of_system

P = ParamSpec("P")
T = TypeVar("T")

_COMMAND = re.compile(r"(`[^`]*`)")
_OPTION = re.compile(r"--([a-z][a-z-]*)(?: ([A-Z][A-Z_]+\b|\d+\b))?")
_NAMES = re.compile(r"--classes ((?:[^\s,;]+,)+[^\s,;]+)")

_RENAMED = {
    "majority": 'votes="majority"',
    "network": "quantise=Options(network=...)",
    "calibration": "quantise=Options(calibration=...)",
    "fine-tune": "quantise=Options(fine_tune=...)",
    "all-rows": "leave out trained_on",
    "no-verify": 'verify="never"',
}
"""Options whose argument has another name."""


def in_python_terms(function: Callable[P, T]) -> Callable[P, T]:
    """The function; it refuses arguments of another kind than it is annotated with, and its errors name its
    own arguments instead of the options of the same name.
    """
    signature, kinds = inspect.signature(function), kinds_of(function)
    parameters = signature.parameters

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python says better what is missing or unknown
        check(kinds, given)
        try:
            return function(*args, **kwargs)
        except WirewiseError as error:
            error.args = tuple(translate(text, parameters) for text in error.args)
            if isinstance(error, InputError):
                error.subject, error.rule, error.way_out = (
                    translate(text, parameters) for text in (error.subject, error.rule, error.way_out)
                )
            raise
        except OSError as error:
            told_of = of_system(error)
            if told_of is None:
                raise
            raise told_of from error

    return told


def translate(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """A message with `--max-benign-loss` as `max_benign_loss=...`, where that is one of the parameters.

    Commands in backquotes stay as they are, and so do options without a parameter of that name.
    """

    def argument(match: re.Match[str]) -> str:
        option, value = match.groups()
        name = option.replace("-", "_")
        if name in parameters:
            flag = isinstance(parameters[name].default, bool)
            return f"{name}={value if value and value.isdecimal() else 'True' if flag else '...'}"
        return _RENAMED.get(option, match[0])

    def names(match: re.Match[str]) -> str:
        return "classes=[" + ", ".join(f'"{name}"' for name in match[1].split(",")) + "]"

    parts = _COMMAND.split(text)
    return "".join(
        part
        if part.startswith("`")
        else _OPTION.sub(argument, _NAMES.sub(names, part) if "classes" in parameters else part)
        for part in parts
    )
