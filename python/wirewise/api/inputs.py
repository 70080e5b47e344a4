# SPDX-License-Identifier: Apache-2.0
"""What a caller may give for a bundle, a policy, labels, a feature set or a table, and what becomes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from wirewise import ending, ready
from wirewise.compiler import Compiled
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.files import write_atomically
from wirewise.formats.bundle import Bundle
from wirewise.frames import Frame, to_polars

AnyPath: TypeAlias = "str | PathLike[str]"
AnyBundle: TypeAlias = "str | PathLike[str] | Bundle | Compiled"
Document: TypeAlias = "str | PathLike[str] | Mapping[str, Any]"
"""A YAML file, or what would stand in it."""
AnyFeatureSet: TypeAlias = "FeatureSet | str | PathLike[str] | Mapping[str, Any]"
AnyTable: TypeAlias = "Table | str | PathLike[str] | Frame"


@contextmanager
def bundle_file(bundle: AnyBundle) -> Iterator[Path]:
    """The path of a bundle, for as long as the block runs if it is one in memory; of @flood, a ready one."""
    if isinstance(bundle, str | PathLike):
        yield ready.bundle(bundle)
        return
    if not isinstance(bundle, Bundle | Compiled):
        raise InputError(
            f"bundle of type {type(bundle).__name__}",
            "is none",
            "give the path of one, or what compile gives",
        )
    with ending.temporary_folder() as folder:
        inner = bundle if isinstance(bundle, Bundle) else bundle.bundle
        path = folder / "model.wirewise"
        inner.write(path)
        yield path


@contextmanager
def document_file(document: Document | None, name: str) -> Iterator[Path | None]:
    """The path of a policy or label file, for as long as the block runs if it is in memory; None of None."""
    if document is None or isinstance(document, str | PathLike):
        yield None if document is None else Path(document)
        return
    with ending.temporary_folder() as folder:
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
        yield path


KEPT = Path("/run/wirewise")
"""Where documents are kept that something attached was given: no longer than that, until the next boot."""


def lasting_document(document: object, name: str) -> Path:
    """The path of a policy, which outlives this process; one in memory is kept under the digest of its text.

    Raises InputError where it is none, or cannot be kept.
    """
    if isinstance(document, str | PathLike):
        return Path(document)
    if not isinstance(document, Mapping):
        rule = f"is of type {type(document).__name__}"
        raise InputError(name, rule, "give a path or a dict")
    try:
        text = json.dumps(document, sort_keys=True).encode()
    except (TypeError, ValueError) as error:
        rule = f"holds what no file could ({error})"
        raise InputError(name, rule, "give text, numbers, lists and dicts") from None
    path = KEPT / f"{name}-{hashlib.sha256(text).hexdigest()[:16]}.yaml"  # JSON is YAML
    try:
        KEPT.mkdir(mode=0o755, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        rule = f"cannot be kept in {KEPT} ({error.strerror})"
        raise InputError(name, rule, f"write the {name} to a file, and give its path") from None
    return path


def feature_set_of(given: AnyFeatureSet) -> FeatureSet:
    """A feature set from a preset's name, a file, its JSON form, or itself. Raises InputError."""
    if isinstance(given, FeatureSet):
        return given
    if isinstance(given, Mapping):
        return FeatureSet.from_dict(dict(given))
    if not isinstance(given, str | PathLike):
        raise InputError(
            f"feature set of type {type(given).__name__}", "is none",
            f"give one of {', '.join(PRESETS)}, the path of a file, a FeatureSet or a dict",
        )  # fmt: skip
    return FeatureSet.load(str(given))


def table_of(given: AnyTable, feature_set: AnyFeatureSet | None = None) -> Table:
    """A table from a file that `wirewise features` wrote, a data frame with its feature set, or itself.

    Raises InputError for a frame without a feature set, or a table that another one computed.
    """
    if not isinstance(given, Table | str | PathLike):
        frame = to_polars(given)
        if feature_set is None:
            raise InputError(
                "the table", "is a data frame, which does not say its feature set",
                f"give feature_set=..., one of {', '.join(PRESETS)} or the one that made it",
            )  # fmt: skip
        return Table.of(frame, feature_set_of(feature_set))
    table = given if isinstance(given, Table) else Table.read(Path(given))
    if feature_set is None:
        return table
    named = feature_set_of(feature_set)
    if named.features != table.feature_set.features:
        raise InputError(
            "the table", f"was made with feature set {table.feature_set.name!r}, not {named.name!r}",
            "leave out the feature set, or make the table with it",
        )  # fmt: skip
    return table
