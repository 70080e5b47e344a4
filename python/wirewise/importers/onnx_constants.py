# SPDX-License-Identifier: Apache-2.0
"""The constants of an ONNX graph: initialisers, and what nodes compute from them alone."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from wirewise.importers.lowering import library
from wirewise.importers.onnx_runtime import first_line
from wirewise.importers.request import Request

MOST_NUMBERS = 1 << 24
"""Elements of one constant: more than any importable network has."""
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow")
_FOLDED = (
    "Constant",
    "Cast",
    "Concat",
    "DequantizeLinear",
    "Flatten",
    "Gather",
    "Identity",
    "Neg",
    "Reciprocal",
    "Reshape",
    "Shape",
    "Slice",
    "Sqrt",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
    *_ELEMENTWISE,
)


def fold(model: Any, request: Request) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Constants by name, and the nodes that are left, in their order.

    Raises InputError for a node that cannot be computed, naming it.
    """
    onnx = library("onnx")
    constants = {tensor.name: _array(tensor, request) for tensor in model.graph.initializer}
    left = []
    for node in model.graph.node:
        names = [name for name in node.input if name]
        known = all(name in constants for name in names)
        if not known or node.op_type not in _FOLDED or not (names or node.op_type == "Constant"):
            left.append(node)
            continue
        if node.op_type in _ELEMENTWISE:
            _check_size(node, [constants[name] for name in names], request)
        try:
            evaluator = library("onnx.reference").ReferenceEvaluator(_alone(onnx, model, node))
            results = evaluator.run(None, {name: constants[name] for name in names})
        except Exception as error:  # the reference raises what numpy raises, and its own
            raise request.refuse(
                f"its node {node.name or node.output[0]!r} ({node.op_type}) cannot be computed "
                f"({first_line(error)})",
                "export it again",
            ) from None
        constants.update(zip(node.output, map(np.asarray, results), strict=True))
    return constants, left


def element_type(number: int, request: Request) -> type[Any]:
    """NumPy's, of one of ONNX's. Raises InputError for a number that is none of these."""
    try:
        return cast("type[Any]", library("onnx").helper.tensor_dtype_to_np_dtype(number).type)
    except (ValueError, TypeError, KeyError):
        raise request.refuse(
            f"has values of type {number}, which is none of ONNX's", "export it again"
        ) from None


def _array(tensor: Any, request: Request) -> NDArray[Any]:
    try:
        return np.asarray(library("onnx").numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError) as error:
        raise request.refuse(
            f"its constant {tensor.name!r} is damaged ({first_line(error)})", "export it again"
        ) from None


def _alone(onnx: Any, model: Any, node: Any) -> Any:
    """A model of this node alone, under the operator sets of the whole model."""
    values = onnx.helper.make_empty_tensor_value_info
    names = dict.fromkeys(name for name in node.input if name)
    graph = onnx.helper.make_graph([node], "one", [*map(values, names)], [*map(values, node.output)])
    opsets = {one.domain: one.version for one in model.opset_import}
    if node.op_type == "DequantizeLinear":  # the reference lacks older versions, which mean the same
        opsets[""] = max(opsets.get("", 0), 19)
    imports = [onnx.helper.make_opsetid(*one) for one in opsets.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=model.ir_version)


def _check_size(node: Any, values: list[NDArray[Any]], request: Request) -> None:
    try:
        numbers = math.prod(np.broadcast_shapes(*(value.shape for value in values)))
    except ValueError:
        return  # the reference refuses it
    if numbers > MOST_NUMBERS:
        raise request.refuse(
            f"its node {node.name or node.output[0]!r} ({node.op_type}) makes {numbers:,} constants",
            "export a smaller network",
        )
