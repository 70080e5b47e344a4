# SPDX-License-Identifier: Apache-2.0
"""How a model was trained, kept in the model's own file by `wirewise train` and `wirewise import`.

The record carries what an estimator cannot: the feature set, the split, the accuracy on flows it had not
seen. A JSON document (.bnn, .json) holds it under the key `training`. A pickle holds it in one line of text
behind the estimator, which every reader of pickles ignores, since a pickle says itself where it ends; so it
can be read without running the pickle, and `tail -n 1 model.pkl` shows it. An estimator that is pickled anew
loses the record rather than carrying one that may no longer be true.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.files import describe_validation_error, open_file, parse_json, read_bytes

KEY = "training"
MAX_BYTES = 1 << 30
_LINE = b"\nwirewise-training "
_PICKLES, _DOCUMENTS = (".pkl", ".pickle"), (".bnn", ".json")
_OURS = ("wirewise-binary", "wirewise-model")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    model_sha256: str | None = None
    feature_set: dict[str, Any]
    training: dict[str, Any]
    accuracy: dict[str, Any]


@dataclass(frozen=True)
class TrainingRecord:
    """The feature set a model reads, how it was trained, and how it did; a bundle's manifest keeps them."""

    feature_set: FeatureSet
    training: dict[str, Any]
    accuracy: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """What a JSON document holds under KEY."""
        record = _Record(
            feature_set=self.feature_set.to_dict(), training=self.training, accuracy=self.accuracy
        )
        return record.model_dump(exclude_none=True)


def behind_pickle(pickled: bytes, record: TrainingRecord) -> bytes:
    """The content of a model file: the pickle, and the record of exactly this pickle behind it."""
    document = record.to_dict() | {"model_sha256": hashlib.sha256(pickled).hexdigest()}
    return pickled + _LINE + json.dumps(document).encode() + b"\n"


def read(model: Path) -> TrainingRecord | None:
    """The record in a model file; None if it holds none, as a folder of .bnn files. Raises InputError if the
    model does not exist, or its record is damaged.
    """
    if not model.exists():
        raise InputError(str(model), "does not exist", "give the path of a saved model")
    suffix = model.suffix.lower()
    if suffix not in _PICKLES + _DOCUMENTS or not model.is_file():
        return None
    content = read_bytes(model, what="model", limit=MAX_BYTES)
    digest = None
    try:
        if suffix in _PICKLES:
            pickled, found, line = content.rpartition(_LINE)
            if not found:
                return None
            digest, document = hashlib.sha256(pickled).hexdigest(), parse_json(line)
        else:
            whole = parse_json(content) if f'"{KEY}"'.encode() in content else None
            if not isinstance(whole, dict) or whole.get("format") not in _OURS or KEY not in whole:
                return None
            document = whole[KEY]
        record = _Record.model_validate(document)
    except ValidationError as error:
        rule = f"its training record: {describe_validation_error(error)}"
        raise InputError(str(model), rule, "train the model again") from error
    except ValueError as error:
        raise InputError(
            str(model), f"its training record is not JSON ({error})", "train the model again"
        ) from error
    if record.model_sha256 != digest:
        raise InputError(
            str(model), "was changed since it was trained: its training record is of another model",
            "train the model again, or save the estimator with pickle, which leaves the record out",
        )  # fmt: skip
    return TrainingRecord(
        FeatureSet.from_dict(record.feature_set, source=str(model)), record.training, record.accuracy
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a table: of the file, or of a folder's parts in the order of their names."""
    total = hashlib.sha256()
    for part in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        with open_file(part, what="table") as file:
            while piece := file.read(1 << 20):
                total.update(piece)
    return total.hexdigest()
