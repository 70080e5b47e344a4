# SPDX-License-Identifier: Apache-2.0
"""Inference alone, one packet a call: the generated C, and the Python libraries (hara2023, Table II).

Models are trained on generated traffic, benign or attack, and tested on flows they have not seen. The C gets
its features from memory, as integers; the Python libraries get one row of floats a call.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import native
from bench.programs import HARA2023, PACKETS, SEED
from wirewise.datasets import Table
from wirewise.datasets.captures import ETHERNET, CapturedPacket
from wirewise.datasets.manifest import BENIGN
from wirewise.datasets.table import build_table_from
from wirewise.errors import MissingFeatureError, WirewiseError
from wirewise.evaluate import Report, grouped_split, matrix, numbers, train
from wirewise.importers import import_model
from wirewise.models import Model
from wirewise.quantize import Options
from wirewise.targets import ebpf
from wirewise.traffic import generate

Rows = NDArray[np.int64]
Predict = Callable[[Any], Any]
"""Of one row (1, n_features) the class, however the library says it."""

CALLS = 300  # of a library, a round
MODELS: dict[str, tuple[str, dict[str, Any], Options | None]] = {
    "tree-5": ("tree", {"depth": 5}, None),
    "mlp-int8-16x16": ("mlp", {"hidden": (16, 16)}, Options("int8")),
    "mlp-q16-32x32": ("mlp", {"hidden": (32, 32)}, Options("q16")),
    "bnn-32-16": ("bnn", {"hidden": (32, 16)}, None),
}
"""Name -> estimator, its settings, how it is quantised."""


@dataclass(frozen=True)
class Other:
    """A library's way to predict. rows : as it wants them. classes : of many rows at once, (n,)."""

    name: str
    rows: Any
    one: Predict
    classes: Callable[[], NDArray[np.int64]]


def measure(folder: Path, clang_path: str, rounds: int, packets: int = PACKETS) -> list[dict[str, Any]]:
    """A row for each model and way to run it. Raises WirewiseError if the C is not the model."""
    table = build_table_from(_traffic, [(packets,)], HARA2023, progress=False)
    table = table.labelled.relabel(lambda label: label if label == BENIGN else "attack")
    results: list[dict[str, Any]] = []
    for name, (estimator, settings, options) in MODELS.items():
        print(f"training {name}, timing its inference", file=sys.stderr)
        try:
            results += _model(name, table, estimator, settings, options, folder, clang_path, rounds)
        except MissingFeatureError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    return results


def _traffic(packets: int) -> tuple[str, list[CapturedPacket], list[str]]:
    made = list(generate(SEED, packets=packets))
    captured = [CapturedPacket(p.time_ns, p.frame, len(p.frame), ETHERNET) for p in made]
    return "made", captured, [packet.label for packet in made]


def _model(
    name: str,
    table: Table,
    estimator: str,
    settings: dict[str, Any],
    options: Options | None,
    folder: Path,
    clang_path: str,
    rounds: int,
) -> list[dict[str, Any]]:
    training = train(table, estimator, **settings)
    learn, test = grouped_split(table.frame)
    rows, truth = matrix(table), numbers(table, training.classes)
    quantising: dict[str, Any] = {
        "rows": rows[learn],
        "labels": table.frame["label"][learn].to_list(),
        "options": options,
    }
    imported = import_model(training.estimator, classes=training.classes, **(quantising if options else {}))
    tested = rows[test]
    spent = {"native": _native(imported.model, tested, folder / name, clang_path, rounds)}
    said = {"native": imported.model.predict(tested)[0].astype(np.int64)}
    for other in _others(training.estimator, tested):
        said[other.name] = other.classes()
        spent[other.name] = _timed(other, rounds)
    base = median(spent["native"])
    results = []
    for plane, ns in spent.items():
        report = Report.of(truth[test], said[plane], training.classes)
        attack = report.classes[1]
        results.append(
            {
                "model": name,
                "plane": plane,
                "accuracy": round(report.accuracy, 4),
                "precision": round(attack.precision, 4),
                "recall": round(attack.recall, 4),
                "f1": round(attack.f1, 4),
                "ns_per_packet": round(median(ns), 2),
                "ratio": round(median(ns) / base, 2),
                "rounds_ns": [round(value, 2) for value in ns],
            }
        )
    return results


# -- C


def _native(model: Model, rows: Rows, path: Path, clang_path: str, rounds: int) -> list[float]:
    """Nanoseconds a row of the generated C, by round."""
    sources = ebpf.emit(model, HARA2023)
    so = native.compiled(
        sources, path, clang_path, next(iter(native.OPTIMISED)), seed=SEED, table_size=4, check=False,
        files=native.INFERENCE,
    )  # fmt: skip
    infer = ctypes.CDLL(str(so)).native_infer
    infer.restype = None
    rows = np.ascontiguousarray(rows)
    classes = np.zeros(len(rows), np.uint32)
    arguments = (
        ctypes.c_void_p(rows.ctypes.data), ctypes.c_size_t(len(rows)),
        ctypes.c_size_t(rows.shape[1]), ctypes.c_void_p(classes.ctypes.data),
    )  # fmt: skip
    infer(*arguments)
    differing = np.flatnonzero(classes != model.predict(rows)[0])
    if differing.size:
        raise WirewiseError(f"{path.name}: the C is not the model: they disagree on row {differing[0]}")
    times = []
    for _ in range(rounds):
        start = perf_counter_ns()
        infer(*arguments)
        times.append((perf_counter_ns() - start) / len(rows))
    return times


# -- Python


def _timed(other: Other, rounds: int) -> list[float]:
    """Nanoseconds of a call with one row, by round."""
    singles = [other.rows[index : index + 1] for index in range(min(CALLS, len(other.rows)))]
    other.one(singles[0])
    times = []
    for _ in range(rounds):
        start = perf_counter_ns()
        for row in singles:
            other.one(row)
        times.append((perf_counter_ns() - start) / len(singles))
    return times


def _others(estimator: Any, rows: Rows) -> Iterator[Other]:
    """The ways to run an estimator that are installed; says which are not."""
    if hasattr(estimator, "network"):  # our own, of a binary network
        yield Other("numpy", rows, estimator.predict, lambda: np.asarray(estimator.predict(rows), np.int64))
        return
    floats = rows.astype(np.float64)
    yield Other("scikit-learn", floats, estimator.predict, lambda: np.asarray(estimator.predict(floats)))
    yield from _if_installed("onnxruntime", _onnxruntime, estimator, rows)
    yield from _if_installed("pytorch", _pytorch, estimator, rows)


def _if_installed(
    name: str, make: Callable[[Any, Rows], Sequence[Other]], estimator: Any, rows: Rows
) -> Sequence[Other]:
    try:
        return make(estimator, rows)
    except ImportError as error:
        print(f"left out: {name}: {error}", file=sys.stderr)
        return []


def _onnxruntime(estimator: Any, rows: Rows) -> Sequence[Other]:
    runtime, convert = import_module("onnxruntime"), import_module("skl2onnx").to_onnx
    floats = rows.astype(np.float32)
    document = convert(estimator, floats[:1], options={"zipmap": False})
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # more cost more for so little
    session = runtime.InferenceSession(document.SerializeToString(), options)
    given, label = session.get_inputs()[0].name, session.get_outputs()[0].name

    def predict(x: Any) -> Any:
        return session.run([label], {given: x})[0]

    return [Other("onnxruntime", floats, predict, lambda: np.asarray(predict(floats), np.int64))]


def _pytorch(estimator: Any, rows: Rows) -> Sequence[Other]:
    """The network with its scaling in the first layer, in float64 as the paper's; nothing of a tree."""
    if not hasattr(estimator, "steps"):
        return []
    torch = import_module("torch")
    torch.set_num_threads(1)
    scaler, mlp = (step for _, step in estimator.steps)
    weights, biases = [part.copy() for part in mlp.coefs_], [part.copy() for part in mlp.intercepts_]
    weights[0] /= scaler.scale_[:, None]
    biases[0] -= scaler.mean_ @ weights[0]
    layers: list[Any] = []
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias)
        layers += [linear, torch.nn.ReLU()] if index < len(weights) - 1 else [linear]
    network = torch.nn.Sequential(*layers).eval()
    tensor = torch.from_numpy(rows.astype(np.float64))

    def predict(x: Any) -> Any:
        with torch.inference_mode():
            return (network(x)[:, 0] > 0).numpy()

    return [Other("pytorch", tensor, predict, lambda: np.asarray(predict(tensor), np.int64))]


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each."""
    print(f"\n{'inference alone':<34} accuracy precision  recall      F1    µs/packet  ratio to native")
    for row in rows:
        scores = " ".join(f"{row[key]:>8.4f}" for key in ("accuracy", "precision", "recall", "f1"))
        title = f"{row['model']}, {row['plane']}"
        print(f"{title:<34} {scores} {row['ns_per_packet'] / 1000:>11.4f} {row['ratio']:>10,.2f}")
