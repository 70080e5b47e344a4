# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs of dense layers, as skl2onnx, torch.onnx, tf2onnx and keras2onnx write them.

The graph is read as one chain from its input: steps that scale each feature, dense layers (Gemm; MatMul and
Add), ReLU between them. What is linear is folded into the dense layer beside it. After the last dense layer
only the class counts: see `_Tail`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wirewise.importers import onnx_runtime
from wirewise.importers.lowering import class_names, library
from wirewise.importers.networks import import_network
from wirewise.importers.onnx_constants import element_type
from wirewise.importers.onnx_graph import DENSE, Graph, attributes, check_quantised, keeps_rows, title
from wirewise.importers.request import Imported, Predict, Request, Rows
from wirewise.quantize import FloatNetwork
from wirewise.quantize.float_network import Floats

_SAME = ("Cast", "Identity", "Dropout", "Flatten", "Reshape")
_LINEAR = ("Add", "Sub", "Mul", "Div", "Scaler", "BatchNormalization")
_CHAIN = (*DENSE, *_SAME, *_LINEAR, "Clip", "Relu")
_TAIL = ("Softmax", "LogSoftmax", "Sigmoid", "ArgMax", "ZipMap")


def import_graph(model: Any, request: Request) -> Imported:
    """An onnx.ModelProto without trees."""
    graph = Graph(model, request)
    check_quantised(graph, request)
    chain = _Chain(graph)
    tensor = chain.read(graph.input.name)
    tail = _Tail(graph, tensor, chain.width)
    network = chain.network(tail.output)
    labels = tail.labels or list(range(network.n_classes))
    if len(labels) != network.n_classes:
        raise request.refuse(
            f"names {len(labels)} classes, its last layer has {chain.width} neurons", "export it again"
        )
    return import_network(
        network,
        request,
        classes=class_names(request, labels),
        source=f"ONNX network by {model.producer_name or 'unknown'} {model.producer_version}".strip(),
        predict=_predict(model, graph.feed, tail, labels, request),
    )


class _Chain:
    """Reads the chain: `factor`, `shift` wait for the next dense layer, after the last ReLU or the input."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.layers: list[tuple[Floats, Floats]] = []
        self.open = False  # whether the last dense layer has no ReLU yet
        self.factor: Floats = np.ones(1)
        self.shift: Floats = np.zeros(1)
        self.normalisation: tuple[Floats, Floats] = (self.factor, self.shift)
        self.clip: tuple[Floats, Floats] | None = None

    @property
    def width(self) -> int:
        return len(self.layers[-1][1])

    def read(self, tensor: str) -> str:
        """Reads from a tensor on; the tensor behind the last dense layer."""
        while True:
            following = self.graph.consumers(tensor)
            if tensor in self.graph.outputs or len(following) != 1 or following[0].op_type in _TAIL:
                break
            (node,) = following
            if node.op_type not in _CHAIN:
                raise self._unsupported(node)
            self._step(node, tensor)
            tensor = node.output[0]
        if not self.layers or not self.open:
            found = ", ".join(sorted({node.op_type for node in following})) or "the output"
            raise self.graph.request.refuse(
                f"after {'its ReLU' if self.layers else 'its input'} comes {found}, not one dense layer",
                "export a plain sequence of dense layers with ReLU, the last without",
            )
        return tensor

    def network(self, output: Any) -> FloatNetwork:
        n_features = self.layers[0][0].shape[0]
        factor, shift = (np.broadcast_to(part, (n_features,)) for part in self.normalisation)
        zero = factor == 0
        factor = np.where(zero, 1.0, factor)
        weights = [np.where(zero[:, None], 0.0, self.layers[0][0]), *(w for w, _ in self.layers[1:])]
        biases = [bias for _, bias in self.layers]
        biases[0] = biases[0] + np.where(zero, shift, 0) @ self.layers[0][0]
        low = high = None
        if self.clip is not None:
            low, high = (np.broadcast_to(edge, (n_features,)) for edge in self.clip)
        return FloatNetwork(-shift / factor, factor, tuple(weights), tuple(biases), output, low, high)

    def _unsupported(self, node: Any) -> Exception:
        what = "activation" if self.layers else "step"
        return self.graph.request.refuse(
            f"its {what} {node.op_type} (node {title(node)}) is not supported",
            "train and export it with ReLU between dense layers",
        )

    def _step(self, node: Any, tensor: str) -> None:
        if node.op_type in _SAME:
            self._check_same(node)
        elif node.op_type in DENSE:
            self._dense(node, tensor)
        elif node.op_type == "Relu":
            if not self.open:
                raise self._unsupported(node)
            self.open = False
        elif node.op_type == "Clip":
            self._clip(node)
        else:
            self._linear(*self._affine(node, tensor))

    def _check_same(self, node: Any) -> None:
        """Refuses what does not leave the numbers of a packet as they are."""
        known = attributes(node)
        if node.op_type in ("Flatten", "Reshape") and not keeps_rows(node, self.graph.constants):
            raise self._setting(node, "another shape than (packets, features)", "export it for such rows")
        if node.op_type == "Cast" and known["to"] not in self._exact_types():
            kind = element_type(known["to"], self.graph.request)
            raise self._setting(node, f"to={kind.__name__}", "compute in float or double")
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            training = self.graph.constants.get(node.input[2])
            if training is None or training.any():
                raise self._setting(node, "training_mode", "export it for inference")

    def _exact_types(self) -> tuple[int, ...]:
        """Types that hold the numbers of a packet here: features are whole until they are scaled."""
        kinds = library("onnx").TensorProto
        scaled = (self.factor != 1).any() or self.shift.any() or self.clip is not None
        return (kinds.FLOAT, kinds.DOUBLE, *(() if self.layers or scaled else (kinds.INT64,)))

    def _setting(self, node: Any, what: str, way_out: str) -> Exception:
        return self.graph.request.refuse(f"its {node.op_type} (node {title(node)}) has {what}", way_out)

    def _dense(self, node: Any, tensor: str) -> None:
        known = attributes(node)
        if node.input[0] != tensor or known.get("transA", 0):
            raise self._unsupported(node)
        weights = self.graph.constant(node, node.input[1])
        bias = np.zeros(1)
        if node.op_type == "Gemm":
            weights = (weights.T if known.get("transB", 0) else weights) * known.get("alpha", 1.0)
            if len(node.input) > 2:
                bias = self.graph.constant(node, node.input[2]) * known.get("beta", 1.0)
        if weights.ndim != 2:
            raise self._unsupported(node)
        bias = np.broadcast_to(np.ravel(bias), (weights.shape[1],))
        if self.open:  # two dense layers without ReLU between them are one
            before, start = self.layers.pop()
            with np.errstate(all="ignore"):
                weights, bias = before @ weights, start @ weights + bias
        elif not self.layers:
            self.normalisation = self.factor, self.shift
        else:
            fan_in = (weights.shape[0],)
            with np.errstate(all="ignore"):  # broken weights are refused later, by name
                bias = bias + np.broadcast_to(self.shift, fan_in) @ weights
                weights = np.broadcast_to(self.factor, fan_in)[:, None] * weights
        self.layers.append((weights, bias))
        self.factor, self.shift, self.open = np.ones(1), np.zeros(1), True

    def _clip(self, node: Any) -> None:
        if self.layers or self.clip is not None:
            raise self._unsupported(node)
        known = attributes(node)
        edges = [known.get("min", -np.inf), known.get("max", np.inf)]
        for place, name in enumerate(node.input[1:3]):
            if name:
                edges[place] = float(self.graph.constant(node, name))
        if not self.factor.all():
            raise self._unsupported(node)
        ends = [(edge - self.shift) / self.factor for edge in edges]  # in the features' own unit
        self.clip = np.minimum(*ends), np.maximum(*ends)

    def _affine(self, node: Any, tensor: str) -> tuple[Floats, Floats]:
        """Factor and shift of a linear step, one per value or one for all."""
        known = attributes(node)
        if node.op_type == "Scaler":
            scale = np.array(known.get("scale", [1.0]), np.float64)
            return scale, -np.array(known.get("offset", [0.0]), np.float64) * scale
        if node.op_type == "BatchNormalization":
            if known.get("training_mode", 0):
                raise self._setting(node, "training_mode=1", "export it for inference")
            gamma, beta, mean, variance = (self.graph.constant(node, name) for name in node.input[1:5])
            scale = gamma / np.sqrt(variance + known.get("epsilon", 1e-5))
            return scale, beta - mean * scale
        first = node.input[0] == tensor
        value = self.graph.constant(node, node.input[1] if first else node.input[0])
        if value.ndim > 2 or (value.ndim == 2 and len(value) != 1):
            raise self._setting(node, f"a constant of shape {value.shape}", "give one number per neuron")
        value = np.ravel(value)
        if node.op_type == "Add":
            return np.ones(1), value
        if node.op_type == "Mul":
            return value, np.zeros(1)
        if node.op_type == "Sub":
            return (np.ones(1), -value) if first else (-np.ones(1), value)
        if not first:
            raise self._unsupported(node)
        return 1 / value, np.zeros(1)

    def _linear(self, factor: Floats, shift: Floats) -> None:
        if self.open:
            weights, bias = self.layers[-1]
            self.layers[-1] = weights * factor, bias * factor + shift
        else:
            self.factor, self.shift = self.factor * factor, self.shift * factor + shift


class _Tail:
    """What comes after the scores: which graph output names the class, and how.

    name : that output. kind : "label" (the class itself), "scores" (several, the largest wins), "probability"
    (of class 1) or "score" (class 1 above 0). labels : the classes, where the graph names them.
    """

    def __init__(self, graph: Graph, scores: str, width: int) -> None:
        self.graph = graph
        self.labels: list[Any] = []
        self.output = "none"
        kinds = {scores: "score" if width == 1 else "scores"}
        for node in graph.nodes:  # ONNX lists them in the order of their work
            kinds.update(self._of(node, [kinds.get(name, "") for name in node.input]))
        order = ("label", "scores", "pair", "probability", "score")
        named = [(order.index(kinds[name]), name) for name in graph.outputs if kinds.get(name) in order]
        if not named:
            raise graph.request.refuse(
                "no output of its graph is the class, or the score of each class", "export a classifier"
            )
        _, self.name = min(named)
        self.kind = "scores" if kinds[self.name] == "pair" else kinds[self.name]

    def _of(self, node: Any, kinds: list[str]) -> Iterator[tuple[str, str]]:
        """(tensor, kind) of what a node makes of tensors of these kinds."""
        known, op = attributes(node), node.op_type
        kind = next(filter(None, kinds), "")
        over_row = known.get("axis", -1) in (1, -1)
        onnx = library("onnx")
        if not kind:
            return
        if op in DENSE and self.output == "none":
            raise self.graph.request.refuse(
                f"its dense layer {title(node)} is not the only node that reads the values before it",
                "export a plain sequence of layers",
            )
        if op in DENSE:
            raise self.graph.request.refuse(
                f"an activation other than ReLU comes before its dense layer {title(node)}",
                "train it with ReLU",
            )
        if op == "ZipMap":
            self.labels = list(known.get("classlabels_int64s") or known.get("classlabels_strings") or [])
            self.labels = [part.decode() if isinstance(part, bytes) else part for part in self.labels]
        elif op == "Identity" or (op == "Cast" and known.get("to") != onnx.TensorProto.BOOL):
            rounds = op == "Cast" and known["to"] not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
            if kind == "label" or not rounds:
                yield node.output[0], kind
        elif kind == "label":
            if op == "ArrayFeatureExtractor" and node.input[0] in self.graph.constants:
                self.labels = self.graph.constants[node.input[0]].ravel().tolist()
                self.labels = [part.decode() if isinstance(part, bytes) else part for part in self.labels]
                yield node.output[0], kind
            elif op in ("Reshape", "Squeeze", "Flatten"):
                yield node.output[0], kind
        elif op in ("Softmax", "LogSoftmax") and kind == "scores" and over_row:
            self.output = "softmax"
            yield node.output[0], kind
        elif op == "Sigmoid" and kind in ("score", "scores"):
            self.output = "sigmoid"
            yield node.output[0], "probability" if kind == "score" else kind
        elif op == "Sub" and kinds[1] == "probability" and self._is_one(node.input[0]):
            yield node.output[0], "complement"
        elif op == "Concat" and kinds == ["complement", "probability"] and over_row:
            yield node.output[0], "pair"
        elif op == "ArgMax" and kind in ("scores", "pair") and _first_of_row(known):
            yield node.output[0], "label"

    def _is_one(self, name: str) -> bool:
        value = self.graph.constants.get(name)
        return value is not None and bool((value == 1).all())


def _predict(model: Any, feed: type[Any], tail: _Tail, labels: list[Any], request: Request) -> Predict:
    def predict(x: Rows) -> Any:
        result = onnx_runtime.run(model, tail.name, x, feed, request, "export it again")
        if tail.kind == "label":
            number = {label: index for index, label in enumerate(labels)}
            return np.array([number[label] for label in np.ravel(result).tolist()], np.int32)
        if tail.kind == "scores":
            return result.argmax(axis=1).astype(np.int32)
        return (np.ravel(result) > (0.5 if tail.kind == "probability" else 0)).astype(np.int32)

    return predict


def _first_of_row(arg_max: dict[str, Any]) -> bool:
    return arg_max.get("axis", 0) in (1, -1) and not arg_max.get("select_last_index", 0)
