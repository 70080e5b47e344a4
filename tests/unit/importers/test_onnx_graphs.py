# SPDX-License-Identifier: Apache-2.0
"""ONNX networks whose constants are computed, that are quantised, or whose attributes change what they do."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import needs
from wirewise.errors import InputError
from wirewise.importers import import_model
from wirewise.quantize import Options

RNG = np.random.default_rng(7)
X = RNG.integers(0, 1500, (400, 3))
W1, W2 = (RNG.normal(size=(3, 8)) / 1000).astype(np.float32), RNG.normal(size=(8, 2)).astype(np.float32)
B1 = RNG.normal(size=8).astype(np.float32)
B2 = -np.median(np.maximum(X @ W1 + B1, 0) @ W2, axis=0).astype(np.float32)  # both classes occur
LAYERS = {"w1": W1, "b1": B1, "w2": W2, "b2": B2}


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def network(*extra: Any, dense: str = "x", hidden: str = "r", **constants: Any) -> Any:
    """Two dense layers, with nodes before them; constants replace the layers' own by name."""
    made = {one.output[0] for one in extra}
    tensors = {name: value for name, value in (LAYERS | constants).items() if name not in made}
    before = [one for one in extra if hidden == "r"]
    nodes = [
        *before,
        node("MatMul", f"{dense} w1", "m"),
        node("Add", "m b1", "a"),
        node("Relu", "a", "r"),
        *(one for one in extra if one not in before),
        node("Gemm", f"{hidden} w2 b2", "y"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantised(kind: str) -> Any:
    """The network as onnxruntime's own tools quantise it."""
    tools = needs.package("onnxruntime.quantization")

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]
        rows = iter([{"x": X.astype(np.float32)}])

        def get_next(self) -> Any:
            return next(self.rows, None)

    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder, "plain.onnx"), Path(folder, "made.onnx")
        onnx.save(network(), plain)
        if kind == "dynamic":
            tools.quantize_dynamic(plain, made)
        else:
            tools.quantize_static(plain, made, Reader(), quant_format=getattr(tools.QuantFormat, kind))
        return onnx.load(made)


@pytest.mark.parametrize(
    "model",
    [
        network(),
        network(node("Transpose", "w", "w1", perm=[1, 0]), w=np.ascontiguousarray(W1.T)),
        network(node("Transpose", "w", "w1"), w=np.ascontiguousarray(W1.T)),
        network(node("Identity", "w", "w1"), w=W1),
        network(node("Cast", "w", "w1", to=TensorProto.FLOAT), w=W1.astype(np.float64)),
        network(node("Reshape", "w s", "w1"), w=W1.ravel(), s=np.array([3, 8])),
        network(node("Constant", "", "w1", value=numpy_helper.from_array(W1))),
        network(node("Constant", "", "b1", value_floats=B1.tolist())),
        network(node("Squeeze", "w", "b1"), w=B1[None]),
        network(node("Concat", "u v", "w1", axis=1), u=W1[:, :3], v=W1[:, 3:]),
        network(node("Mul", "w s", "w1"), w=W1 * 4, s=np.float32(0.25)),
        network(
            node("Transpose", "w", "t"), node("Identity", "t", "i"), node("Cast", "i", "w1", to=1),
            w=W1.T.copy(),
        ),
        network(
            node("DequantizeLinear", "q s z", "w1"),
            q=np.clip(np.rint(W1 / 3e-5), -128, 127).astype(np.int8), s=np.float32(3e-5), z=np.int8(0),
        ),
        network(node("Flatten", "x", "f", axis=1), dense="f"),
        network(node("Reshape", "x s", "f"), dense="f", s=np.array([-1, 3])),
        network(node("Cast", "x", "f", to=TensorProto.INT64), node("Cast", "f", "c", to=1), dense="c"),
        network(node("Dropout", "r", "d"), hidden="d"),
    ],
)  # fmt: skip
def test_constants_are_computed(model: Any) -> None:
    onnx.checker.check_model(model)
    imported = import_model(model, rows=X, options=Options("q16"))
    assert imported.network is not None
    said = imported.predict(X)
    assert 0.1 < said.mean() < 0.9
    assert (imported.network.predict(X) == said).mean() > 0.995
    assert (imported.model.predict(X)[0] == said).mean() > 0.98


def with_surplus() -> Any:
    model = network()
    tensor = next(one for one in model.graph.initializer if one.name == "b2")
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0, 2.0, 3.0])
    return model


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (with_surplus, "its constant 'b2' is damaged"),
        (lambda: quantised("dynamic"), "by the range of all rows given at once (DynamicQuantizeLinear)"),
        (lambda: quantised("QDQ"), "is quantised already, with activations in integers (QuantizeLinear)"),
        (lambda: quantised("QOperator"), "with activations in integers (QuantizeLinear, QLinear"),
        (
            lambda: network(node("RandomNormal", "", "w1", shape=[3, 8])),
            "reads what node 'w1' (RandomNormal) computes, which is not known as a constant",
        ),
        (lambda: network(node("Transpose", "x", "w1")), "after its input comes MatMul, Transpose, not one"),
        (
            lambda: network(node("Reshape", "w s", "w1"), w=W1.ravel(), s=np.array([5, 8])),
            "its node 'w1' (Reshape) cannot be computed",
        ),
        (
            lambda: network(
                node("Add", "u v", "w1"), u=np.zeros((9000, 1), np.float32), v=np.zeros((1, 9000), np.float32)
            ),
            "its node 'w1' (Add) makes 81,000,000 constants",
        ),
        (lambda: network(node("Flatten", "x", "f", axis=0), dense="f"), "has another shape than (packets"),
        (
            lambda: network(node("Reshape", "x s", "f"), dense="f", s=np.array([1, -1])),
            "has another shape than (packets, features)",
        ),
        (
            lambda: network(
                node("Cast", "x", "f", to=TensorProto.INT8), node("Cast", "f", "c", to=1), dense="c"
            ),
            "its Cast (node 'f') has to=int8; compute in float or double",
        ),
        (
            lambda: network(
                node("Cast", "r", "i", to=TensorProto.INT64), node("Cast", "i", "c", to=1), hidden="c"
            ),
            "its Cast (node 'i') has to=int64",
        ),
        (lambda: network(b1=np.zeros((8, 1), np.float32)), "has a constant of shape (8, 1)"),
        (
            lambda: network(
                node("Dropout", "r half on", "d"), hidden="d", half=np.float32(0.5), on=np.array(True)
            ),
            "its Dropout (node 'd') has training_mode; export it for inference",
        ),
        (
            lambda: network(node("Sigmoid", "x", "f"), dense="f"),
            "after its input comes Sigmoid, not one dense layer",
        ),
    ],
)  # fmt: skip
def test_the_reason_is_the_true_one(make: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(make(), rows=X)
    assert says in str(refused.value)
