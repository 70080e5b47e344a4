# SPDX-License-Identifier: Apache-2.0
"""Imported models as files: what `wirewise import` writes and every verb that takes a model reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from wirewise.errors import InputError
from wirewise.files import describe_validation_error, parse_json, read_bytes, write_atomically
from wirewise.formats.manifest import Reference
from wirewise.formats.training_file import KEY, TrainingRecord
from wirewise.importers import Imported, ImportOptions, import_with
from wirewise.models import Model
from wirewise.models import load as load_model

FORMAT = "wirewise-model"
VERSION = 1
MAX_BYTES = 1 << 30
_KEYS = {"format", "version", "classes", "source", "notes", "feature_names", "model"}
_REFERENCE = "reference"


class _Facts(BaseModel):
    """What the file says beside the model."""

    model_config = ConfigDict(strict=True)

    classes: list[str]
    source: str
    notes: list[str]
    feature_names: list[str] | None
    reference: Reference | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file. imported : None if it was imported before: the estimator is no longer at
    hand. reference : how flows looked that it learned from, if the file says it.
    """

    model: Model
    classes: list[str]
    source: str
    notes: list[str]
    feature_names: list[str] | None
    imported: Imported | None
    reference: Reference | None = None


def write(
    imported: Imported,
    path: str | Path,
    record: TrainingRecord | None = None,
    reference: Reference | None = None,
) -> None:
    """Writes `content` in one step. Raises InputError where that cannot be."""
    write_atomically(path, content(imported, record, reference))


def content(
    imported: Imported, record: TrainingRecord | None = None, reference: Reference | None = None
) -> bytes:
    """An imported model as JSON, version 1. record : how it was trained, if that is known. reference :
    what bundles of it compare live flows with.
    """
    document = {
        "format": FORMAT,
        "version": VERSION,
        "classes": imported.classes,
        "source": imported.source,
        "notes": imported.notes,
        "feature_names": imported.feature_names,
        "model": imported.model.to_dict(),
        **({KEY: record.to_dict()} if record else {}),
        **({_REFERENCE: reference.model_dump()} if reference else {}),
    }
    return json.dumps(document).encode()


def read(path: str | Path, asked: ImportOptions | None = None) -> LoadedModel:
    """A model that `write` wrote, or else one that `import_model` can import. Raises InputError."""
    asked = asked or ImportOptions()
    document = _ours(Path(path))
    if document is None:
        imported = import_with(path, asked)
        return LoadedModel(
            imported.model,
            imported.classes,
            imported.source,
            imported.notes,
            imported.feature_names,
            imported,
        )
    if asked.options is not None:
        raise InputError(
            str(path), "holds integers already, so there is nothing to quantise", "leave out its options"
        )
    if asked.benign is not None:
        raise InputError(str(path), "was imported before, with class 0 as it is", "import the estimator anew")
    if document.get("version") != VERSION:
        raise InputError(
            str(path), f"version {document.get('version')!r} is unknown, known is {VERSION}",
            "import the estimator again",
        )  # fmt: skip
    if set(document) - {KEY, _REFERENCE} != _KEYS:
        wrong = sorted((set(document) - {KEY, _REFERENCE}) ^ _KEYS)[0]
        raise InputError(str(path), f"key {wrong!r} is missing or unknown", "import the estimator again")
    try:
        model = load_model(document["model"])
    except InputError as error:
        way_out = error.way_out or "import the estimator again"
        raise InputError(f"{path}: {error.subject}", error.rule, way_out) from error
    try:
        facts = _Facts.model_validate({key: document.get(key) for key in _Facts.model_fields})
    except ValidationError as error:
        raise InputError(str(path), describe_validation_error(error), "import the estimator again") from error
    names = [str(name) for name in (asked.classes or facts.classes)]
    return LoadedModel(model, names, facts.source, facts.notes, facts.feature_names, None, facts.reference)


def _ours(path: Path) -> dict[str, Any] | None:
    """The document, if the file is one of ours: XGBoost's models are JSON too."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    try:
        data = read_bytes(path, what="model", limit=MAX_BYTES)
        if FORMAT.encode() not in data:
            return None
        document = parse_json(data)
    except ValueError as error:
        raise InputError(str(path), f"is not JSON ({error})", "give a model file") from error
    return document if isinstance(document, dict) and document.get("format") == FORMAT else None
