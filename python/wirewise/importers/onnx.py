# SPDX-License-Identifier: Apache-2.0
"""ONNX files: a graph around one TreeEnsembleClassifier or one TreeEnsemble (ai.onnx.ml 5), or a network.

Only the answer counts: the path from the graph's input to the trees may convert types, the path from their
label (or their scores) to a graph output may not change which class it names. Probabilities are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.importers import onnx_networks, onnx_runtime
from wirewise.importers.lowering import build, check_features, class_names, library
from wirewise.importers.onnx_constants import element_type, fold
from wirewise.importers.onnx_graph import DENSE, is_dense, keeps_rows
from wirewise.importers.onnx_runtime import first_line
from wirewise.importers.onnx_trees import OnnxTrees, read_classifier, read_ensemble
from wirewise.importers.request import Imported, Predict, Request, Rows

READERS = {"TreeEnsembleClassifier": read_classifier, "TreeEnsemble": read_ensemble}


@dataclass(frozen=True)
class _Answer:
    """The graph output that names the class; `scores` if it holds scores instead of classes."""

    name: str
    scores: bool


def import_file(path: str, request: Request) -> Imported:
    """An .onnx file."""
    onnx = library("onnx")
    data = Path(path).read_bytes()
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own error class depends on its version
        raise request.refuse(f"is not an ONNX model ({first_line(error)})", "export it again") from None
    try:  # torch.onnx leaves the weights in a file of their own
        onnx.load_external_data_for_model(model, str(Path(path).parent))
    except (OSError, onnx.checker.ValidationError) as error:
        raise request.refuse(
            f"keeps its weights in another file, which cannot be read ({first_line(error)})", "put it beside"
        ) from None
    return import_model(model, request)


def import_model(model: Any, request: Request) -> Imported:
    """An onnx.ModelProto."""
    onnx = library("onnx")
    if request.votes == "majority":
        raise request.refuse("an ONNX model says how its trees are combined", "leave out votes=majority")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as error:
        raise request.refuse(f"is not a valid ONNX model ({first_line(error)})", "export it again") from None
    graph = model.graph
    trees_at = [node for node in graph.node if node.op_type.startswith("TreeEnsemble")]
    if not trees_at and any(is_dense(node) for node in graph.node):
        return onnx_networks.import_graph(model, request)
    if len(trees_at) != 1 or trees_at[0].op_type not in READERS:
        found = ", ".join(sorted({node.op_type for node in trees_at or graph.node})) or "nothing"
        raise request.refuse(
            f"needs exactly one {' or '.join(READERS)}"
            + ("" if trees_at else f", or dense layers ({', '.join(DENSE)})")
            + f", its graph holds {found}",
            "import the estimator it was exported from instead",
        )
    node = trees_at[0]
    source, types = _input(model, node, request)
    try:
        trees: OnnxTrees = READERS[node.op_type](node, types, request)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise request.refuse(
            f"the attributes of {node.op_type} do not fit together ({error})", "export it again"
        ) from None
    answer = _answer(graph, node, trees, request)
    names = class_names(request, trees.labels)
    width = _width(source)
    built = build(
        request,
        trees.trees,
        n_features=check_features(request, width or request.n_features or trees.n_features),
        n_classes=len(names),
        base=trees.base,
    )
    return Imported(
        model=built.model,
        classes=names,
        source=f"ONNX {node.op_type} by {model.producer_name or 'unknown'} {model.producer_version}".strip(),
        notes=[built.note, *trees.notes],
        node_ids=built.node_ids,
        predict=_predict(model, types[0], answer, trees, request),
    )


def _input(model: Any, node: Any, request: Request) -> tuple[Any, list[type[Any]]]:
    """The graph input that the trees read, and the types its values pass through on the way."""
    graph = model.graph
    producer = {name: made_by for made_by in graph.node for name in made_by.output}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    name, casts = node.input[0], []
    while name not in inputs:
        step = producer.get(name)
        same = step is not None and (
            step.op_type in ("Cast", "Identity")
            or (step.op_type in ("Flatten", "Reshape") and keeps_rows(step, fold(model, request)[0]))
        )
        if step is None or not same:
            what = "a constant" if step is None else f"node {step.name or name!r} ({step.op_type})"
            raise request.refuse(
                f"{what} changes the features before the trees",
                "train and export the trees on the integer features",
            )
        if step.op_type == "Cast":
            casts.append(element_type(_integers(step)["to"], request))
        name = step.input[0]
    source = inputs[name]
    types = [element_type(source.type.tensor_type.elem_type, request), *reversed(casts)]
    if unfit := [kind.__name__ for kind in types if kind not in (np.float32, np.float64, np.int64)]:
        raise request.refuse(
            f"reads features as {unfit[0]}, known are float32, float64 and int64",
            "export it with one of those",
        )
    return source, types


def _width(source: Any) -> int | None:
    """Number of features that the graph input declares, if it does."""
    shape = source.type.tensor_type.shape.dim
    return shape[1].dim_value or None if len(shape) == 2 else None


def _reached(graph: Any, name: str, allowed: Callable[[Any], bool]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tensors made from `name` by allowed steps alone, each with the operators on its way."""
    waiting: list[tuple[str, tuple[str, ...]]] = [(name, ())]
    while waiting:
        tensor, way = waiting.pop(0)
        yield tensor, way
        for step in graph.node:
            if step.input and step.input[0] == tensor and allowed(step):
                waiting += [(output, (*way, step.op_type)) for output in step.output]


def _keeps_label(step: Any) -> bool:
    to_bool = step.op_type == "Cast" and _integers(step).get("to") == library("onnx").TensorProto.BOOL
    return step.op_type in ("Cast", "Identity", "Reshape", "Squeeze", "Flatten") and not to_bool


def _keeps_order(step: Any) -> bool:
    """Whether the largest score of a row stays the largest, and only nearly equal ones become equal."""
    to_float = _integers(step).get("to") in (
        library("onnx").TensorProto.FLOAT,
        library("onnx").TensorProto.DOUBLE,
    )
    over_row = _integers(step).get("axis", -1) in (1, -1)
    kept = {"Identity": True, "Cast": to_float, "Softmax": over_row, "Sigmoid": True}
    return kept.get(step.op_type, False)


def _answer(graph: Any, node: Any, trees: OnnxTrees, request: Request) -> _Answer:
    outputs = {value.name for value in graph.output}
    scores: list[str] = []
    if node.op_type == "TreeEnsembleClassifier":
        labels = [tensor for tensor, _ in _reached(graph, node.output[0], _keeps_label)]
    else:
        # A single score is a class only as a probability; several saturate, hence tie, as probabilities.
        ways = _reached(graph, node.output[0], _keeps_order)
        scores = [tensor for tensor, way in ways if ("Sigmoid" in way) == (len(trees.base) == 1)]
        labels = [
            label
            for step in graph.node
            if step.op_type == "ArgMax"
            and step.input[0] in scores
            and len(trees.base) > 1
            and _first_of_row(step)
            for label, _ in _reached(graph, step.output[0], _keeps_label)
        ]
    for tensor in labels:
        if tensor in outputs:
            return _Answer(tensor, scores=False)
    for tensor in scores:
        if tensor in outputs:
            return _Answer(tensor, scores=True)
    consumers = sorted({step.op_type for step in graph.node if set(step.input) & {*labels, *scores}})
    raise request.refuse(
        f"no output of its graph is the class that node {node.name or node.op_type!r} chooses"
        + (f" (it goes into {', '.join(consumers)})" if consumers else ""),
        "export a classifier whose label is an output",
    )


def _first_of_row(arg_max: Any) -> bool:
    attributes = _integers(arg_max)
    return attributes.get("axis", 0) in (1, -1) and not attributes.get("select_last_index", 0)


def _integers(step: Any) -> dict[str, int]:
    return {a.name: a.i for a in step.attribute}


def _predict(model: Any, fed_as: type[Any], answer: _Answer, trees: OnnxTrees, request: Request) -> Predict:
    def predict(x: Rows) -> Any:
        way_out = "export it again, with zipmap off if it reads float64"
        result = onnx_runtime.run(model, answer.name, x, fed_as, request, way_out)
        if not answer.scores:
            index = {label: position for position, label in enumerate(trees.labels)}
            return np.array([index[label] for label in np.ravel(result).tolist()], np.int32)
        classes = result[:, 0] > 0.5 if len(trees.base) == 1 else result.argmax(axis=1)
        return classes.astype(np.int32)

    return predict
