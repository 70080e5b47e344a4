# SPDX-License-Identifier: Apache-2.0
"""How a model was trained, kept beside its file: `model.pkl.training.json`, written by `wirewise train`.

It carries what an estimator cannot: the feature set, the split, the accuracy on flows it had not seen. The
digest of the model file ties the two together.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from wirewise.errors import InputError
from wirewise.features import FeatureSet
from wirewise.files import describe_validation_error, read_text, write_atomically


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    model_sha256: str
    feature_set: dict[str, Any]
    training: dict[str, Any]
    accuracy: dict[str, Any]


@dataclass(frozen=True)
class TrainingRecord:
    """The feature set a model reads, how it was trained, and how it did; a bundle's manifest keeps them."""

    feature_set: FeatureSet
    training: dict[str, Any]
    accuracy: dict[str, Any]


def path_of(model: Path) -> Path:
    """Where the record of a model file lies."""
    return model.with_name(model.name + ".training.json")


def write(model: Path, record: TrainingRecord) -> None:
    """Writes the record of a model file that is already there."""
    file = _File(
        model_sha256=file_digest(model),
        feature_set=record.feature_set.to_dict(),
        training=record.training,
        accuracy=record.accuracy,
    )
    write_atomically(path_of(model), (json.dumps(file.model_dump(), indent=1) + "\n").encode())


def read(model: Path) -> TrainingRecord | None:
    """The record of a model file; None if there is none, or of another model. InputError if damaged."""
    path = path_of(model)
    if not path.is_file() or not model.is_file():
        return None
    try:
        file = _File.model_validate_json(read_text(path, what="training record"))
    except ValidationError as error:
        raise InputError(
            str(path), describe_validation_error(error), "remove it, or train the model again"
        ) from error
    if file.model_sha256 != file_digest(model):
        return None
    return TrainingRecord(
        FeatureSet.from_dict(file.feature_set, source=str(path)), file.training, file.accuracy
    )


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
