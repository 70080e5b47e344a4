# SPDX-License-Identifier: Apache-2.0
"""Prints what pyproject.toml requires, a line each, so that pip can install it before wirewise is built.

python requirements.py [EXTRA]
"""

import re
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def of_extra(name: str) -> list[str]:
    """With those of the extras that it names: `wirewise[xgboost,onnx]`."""
    found = []
    for requirement in project["optional-dependencies"][name]:
        own = re.fullmatch(rf"{project['name']}\[(.*)\]", requirement)
        found += [r for extra in own[1].split(",") for r in of_extra(extra)] if own else [requirement]
    return found


print(*project["dependencies"], *(r for extra in sys.argv[1:] for r in of_extra(extra)), sep="\n")
