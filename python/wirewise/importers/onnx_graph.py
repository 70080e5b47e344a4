# SPDX-License-Identifier: Apache-2.0
"""Look-ups in ONNX graphs: constants, consumers, attributes, and what kind of graph it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.importers.lowering import library
from wirewise.importers.onnx_constants import element_type, fold
from wirewise.importers.request import Request
from wirewise.quantize.float_network import Floats

DENSE = ("Gemm", "MatMul")
_QUANTISED = ("QuantizeLinear", "MatMulInteger", "MatMulIntegerToFloat", "ConvInteger", "QGemm", "QAttention")


class Graph:
    """Look-ups in a graph: constants, consumers, the one input and its numpy type."""

    def __init__(self, model: Any, request: Request) -> None:
        graph = model.graph
        self.request = request
        self.constants, self.nodes = fold(model, request)
        self.outputs = [value.name for value in graph.output]
        inputs = [value for value in graph.input if value.name not in self.constants]
        if len(inputs) != 1:
            names = ", ".join(value.name for value in inputs)
            raise request.refuse(
                f"its graph has {len(inputs)} inputs ({names})",
                "export it with one, all features, and with its constants (Keras leaves out those of a "
                "Normalization layer; use BatchNormalization or Rescaling)",
            )
        self.input = inputs[0]
        self.feed = element_type(self.input.type.tensor_type.elem_type, request)
        if self.feed not in (np.float32, np.float64, np.int64):
            raise request.refuse(
                f"reads features as {self.feed.__name__}, known are float32, float64 and int64",
                "export it with one of those",
            )

    def consumers(self, tensor: str) -> list[Any]:
        return [node for node in self.nodes if tensor in node.input]

    def constant(self, node: Any, name: str) -> Floats:
        if name not in self.constants:
            maker = next((other for other in self.nodes if name in other.output), None)
            if maker is not None and not self._is_of_packet(name):
                raise self.request.refuse(
                    f"node {title(node)} reads what node {title(maker)} ({maker.op_type}) computes, which is "
                    "not known as a constant",
                    "export it with its constants folded",
                )
            raise self.request.refuse(
                f"node {title(node)} combines two values of the packet, known are only dense layers in a row",
                "export a plain sequence of layers",
            )
        return np.asarray(self.constants[name], np.float64)

    def _is_of_packet(self, name: str) -> bool:
        """Whether a tensor depends on the input."""
        depends = {self.input.name}
        for node in self.nodes:
            if depends & set(node.input):
                depends.update(node.output)
        return name in depends


def is_dense(node: Any) -> bool:
    """Whether a node is a dense layer, be it a quantised one."""
    return node.op_type in (*DENSE, *_QUANTISED) or node.op_type.startswith(("QLinear", "Dynamic"))


def keeps_rows(node: Any, constants: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a Flatten or a Reshape leaves rows of features as they are."""
    known = attributes(node)
    if node.op_type == "Flatten":
        return known.get("axis", 1) in (1, -1)
    shape = constants.get(node.input[1], np.zeros(0)).ravel().tolist()
    return len(shape) == 2 and shape[0] in (0, -1) and not known.get("allowzero", 0)


def check_quantised(graph: Graph, request: Request) -> None:
    """Weights in 8 bits are constants; activations in 8 bits are not those of a network in floating point."""
    kinds = [node.op_type for node in graph.nodes]
    advice = "import the network in floating point that it was made from: wirewise quantises it itself"
    if dynamic := [kind for kind in kinds if kind.startswith("Dynamic")]:
        raise request.refuse(
            f"is quantised already, by the range of all rows given at once ({dynamic[0]}): the class of "
            "a packet depends on the others",
            advice,
        )
    if integer := [kind for kind in kinds if kind in _QUANTISED or kind.startswith("QLinear")]:
        raise request.refuse(
            f"is quantised already, with activations in integers ({', '.join(dict.fromkeys(integer))}), "
            "which cannot be read exactly",
            advice,
        )


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    onnx = library("onnx")
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def title(node: Any) -> str:
    """What to call a node in a message."""
    return repr(node.name or node.output[0])
