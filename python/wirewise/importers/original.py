# SPDX-License-Identifier: Apache-2.0
"""Classifiers as they are, for their probabilities: whatever scikit-learn or ONNX model gives some.

None of it becomes integers, so calibrated, stacked and any other estimators will do. The file is read, and
asked, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.importers import isolated, saved
from wirewise.importers.benign import find_benign
from wirewise.importers.lowering import class_names, library
from wirewise.importers.onnx_runtime import first_line
from wirewise.importers.request import Original, Request, Rows

PICKLES = (".pkl", ".pickle", ".joblib")
SUFFIXES = (*PICKLES, ".skops", ".onnx")
_SURE = 1e-3
"""How far from 1 the probabilities of a row may add up, in float32 of any number of classes."""
_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def open_original(
    path: str | Path, *, classes: Sequence[str] | None = None, benign: str | None = None
) -> Original:
    """The classifier in a file. Loading a pickle or joblib file runs code in it.

    classes: names in the model's order, in place of its own. benign: the name of the benign class; None: what
    `ImportOptions` says. Raises InputError for a file that is none, or gives no probabilities, and
    MissingFeatureError without the library that it needs.
    """
    request = Request(subject=str(path), classes=classes, benign=benign)
    if Path(path).suffix.lower() not in SUFFIXES:
        raise request.refuse(
            f"has no suffix of a scikit-learn or ONNX model ({', '.join(SUFFIXES)})",
            "save it as one of these",
        )
    if not Path(path).is_file():
        raise request.refuse("is not a file", "give the path of a saved model")
    return isolated.ask_isolated(str(path), request)


def read(path: str, request: Request) -> Original:
    """The same in this process."""
    if path.lower().endswith(".onnx"):
        return _onnx(path, request)
    estimator, notes = saved.loaded(path, request)
    kind = type(estimator).__name__
    if not hasattr(estimator, "predict_proba"):
        raise request.refuse(
            f"holds a {kind}, which gives no probabilities",
            "save a classifier that does, or wrap it in scikit-learn's CalibratedClassifierCV",
        )
    own = getattr(estimator, "classes_", None)
    if own is None or np.ndim(own) != 1:
        rule = "is not trained" if own is None else "predicts several outputs"
        raise request.refuse(f"holds a {kind} that {rule}", "train one classifier, and save that")
    names = class_names(request, np.asarray(own).tolist())
    trained_on = getattr(estimator, "feature_names_in_", None)
    return Original(
        names,
        find_benign(names, request),
        f"{type(estimator).__module__.partition('.')[0]} {kind}",
        notes,
        getattr(estimator, "n_features_in_", None),
        None if trained_on is None else list(map(str, trained_on)),
        # float64: what LightGBM does not round, and all others convert themselves.
        lambda rows: _checked(estimator.predict_proba(rows.astype(np.float64)), len(names), request),
    )


def _onnx(path: str, request: Request) -> Original:
    onnx, runtime = library("onnx"), library("onnxruntime")
    data = Path(path).read_bytes()
    try:
        model = onnx.load_model_from_string(data)
        onnx.load_external_data_for_model(model, str(Path(path).parent))
        onnx.checker.check_model(model)
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only, as in onnx_runtime
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # neither library has a base class of its errors
        raise request.refuse(f"cannot be loaded as ONNX ({first_line(error)})", "export it again") from None
    (source, *others), outputs = session.get_inputs(), session.get_outputs()
    if others or source.type not in _TYPES:
        raise request.refuse(
            f"has inputs {', '.join(f'{one.name} {one.type}' for one in (source, *others))}",
            f"export it with one input of features, {', '.join(_TYPES)}",
        )
    maps = [one.name for one in outputs if one.type.startswith("seq(map(")]
    tensors = [one.name for one in outputs if one.type in ("tensor(float)", "tensor(double)")]
    chosen = maps or [name for name in tensors if "prob" in name.lower()] or tensors
    if len(chosen) != 1:
        raise request.refuse(
            f"does not say which output is its probabilities (there are: "
            f"{', '.join(f'{one.name} {one.type}' for one in outputs)})",
            "export it with one output of probabilities",
        )
    labels = _labels(model)
    if labels is None and request.classes is None:
        raise request.refuse("does not name its classes", "name them in its order: --classes benign,attack")
    names = class_names(request, labels if labels is not None else list(request.classes or ()))
    width = source.shape[1] if len(source.shape) == 2 and isinstance(source.shape[1], int) else None

    def probabilities(rows: Rows) -> NDArray[np.float64]:
        try:
            (found,) = session.run(chosen, {source.name: rows.astype(_TYPES[source.type])})
        except Exception as error:
            raise request.refuse(
                f"onnxruntime cannot run it ({first_line(error)})", "export it again"
            ) from None
        if maps:
            found = [[row[label] for label in labels or row] for row in found]
        return _checked(found, len(names), request)

    by = f"ONNX by {model.producer_name or 'unknown'} {model.producer_version}".strip()
    return Original(names, find_benign(names, request), by, [], width, None, probabilities)


def _labels(model: Any) -> list[object] | None:
    """The classes that an operator of ONNX's own for classifiers names; None if none does."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "classlabels_strings" and attribute.strings:
                return [text.decode(errors="replace") for text in attribute.strings]
            if attribute.name in ("classlabels_int64s", "classlabels_ints") and attribute.ints:
                return list(attribute.ints)
    return None


def _checked(found: Any, classes: int, request: Request) -> NDArray[np.float64]:
    """Probabilities of each class, (n, classes), from these or of class 1 alone. Raises InputError for what
    are none.
    """
    given = np.asarray(found, np.float64)
    if classes == 2 and (given.ndim == 1 or given.shape[1:] == (1,)):
        given = np.column_stack([1 - given.ravel(), given.ravel()])
    if given.ndim != 2 or given.shape[1] != classes:
        raise request.refuse(
            f"gives {' x '.join(map(str, given.shape[1:])) or 1} numbers for a row, for {classes} classes",
            "export or save it with the probability of each class",
        )
    if not (
        np.all((given >= -_SURE) & (given <= 1 + _SURE)) and np.allclose(given.sum(axis=1), 1, atol=_SURE)
    ):
        raise request.refuse(
            "gives numbers that are not probabilities", "end it with Softmax or Sigmoid, or calibrate it"
        )
    return given.clip(0, 1)
