# SPDX-License-Identifier: Apache-2.0
"""A folder of binary networks, a .bnn file each, as one bank; a network is called as its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.importers.binary import import_file
from wirewise.importers.request import Imported, Request, Rows
from wirewise.models.binary_bank import MAX_NETWORKS, BinaryBank
from wirewise.models.binary_mlp import BinaryMlp


def import_folder(path: str, request: Request) -> Imported:
    """In the order of the names. Raises InputError, naming the file, where one does not fit the others."""
    files = sorted(Path(path).glob("*.bnn"))
    if not 2 <= len(files) <= MAX_NETWORKS:
        raise request.refuse(
            f"has {len(files)} .bnn files, a bank has 2 to {MAX_NETWORKS} networks",
            "give the folder that has those of the bank and no others",
        )
    given = {**vars(request), "classes": None}
    each = [import_file(str(file), Request(**{**given, "subject": str(file)})) for file in files]
    first = each[0]
    for file, one in zip(files, each, strict=True):
        for what, ours, theirs in (
            ("classes", one.classes, first.classes),
            ("features", one.feature_names, first.feature_names),
        ):
            if ours != theirs:
                raise InputError(
                    str(file), f"its {what} are not those of {files[0].name}", "train all on the same table"
                )
    networks = tuple(one.model for one in each if isinstance(one.model, BinaryMlp))
    try:
        model = BinaryBank(tuple(file.stem for file in files), networks)
    except InputError as error:
        raise InputError(f"{request.subject}: {error}") from error
    if request.classes is not None and len(request.classes) != model.n_classes:
        raise request.refuse(f"has 2 classes, {len(request.classes)} are named", "name both")

    def predict(x: Rows) -> NDArray[np.int32]:
        return np.asarray(np.stack([one.predict(x) for one in each]).max(axis=0), np.int32)

    return Imported(
        model=model,
        classes=list(request.classes or first.classes),
        source=f"{len(files)} files, {model.describe()}",
        notes=[],
        node_ids=(),
        predict=predict,
        feature_names=first.feature_names,
    )
