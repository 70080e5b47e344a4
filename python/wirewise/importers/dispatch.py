# SPDX-License-Identifier: Apache-2.0
"""Finds who reads an estimator or a model file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from wirewise.importers import refused
from wirewise.importers.binary_folder import import_folder
from wirewise.importers.isolated import import_isolated
from wirewise.importers.registry import FORMATS, Format, format_of
from wirewise.importers.request import Imported, Request


def import_file(path: str, request: Request) -> Imported:
    """The integer model of a model file, by its suffix."""
    suffixes = [entry.key for entry in FORMATS.values() if entry.is_file]
    suffix = Path(path).suffix.lower()
    if any(Path(path).glob("*.bnn")):
        return import_folder(path, request)
    if suffix not in suffixes:
        raise request.refuse(
            f"has no known model file suffix ({', '.join(suffixes)}) and is no folder of .bnn files",
            "rename it, or save it anew",
        )
    if not Path(path).is_file():
        raise request.refuse("is not a file", "give the path of a saved model")
    if FORMATS[suffix].native:
        return import_isolated(path, request)
    return read_file(path, request)


def read_file(path: str, request: Request) -> Imported:
    """The same in this process, of a file whose suffix is known."""
    return _read(FORMATS[Path(path).suffix.lower()], path, request)


def import_estimator(estimator: Any, request: Request) -> Imported:
    """The integer model of a fitted estimator, by its class or the nearest base of it that is known."""
    if entry := format_of(estimator):
        return _read(entry, estimator, request)
    if found := refused.reason(estimator):
        raise request.refuse(*found)
    known = ", ".join(dict.fromkeys(entry.what for entry in FORMATS.values() if not entry.is_file))
    rule = f"{type(estimator).__module__}.{type(estimator).__name__} cannot be imported"
    if type(estimator).__name__.endswith("Regressor"):
        raise request.refuse(f"{rule}, it is a regressor", f"train a classifier: {known}")
    raise request.refuse(rule, f"known are {known}")


def _read(entry: Format, source: Any, request: Request) -> Imported:
    module, function = entry.reader.split(":")
    imported: Imported = getattr(import_module(module), function)(source, request)
    return imported
