# SPDX-License-Identifier: Apache-2.0
"""ONNX networks: what exporters write, what onnxruntime says of it, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from wirewise.errors import InputError
from wirewise.importers import import_model
from wirewise.quantize import Options

RNG = np.random.default_rng(5)
X = np.stack([RNG.integers(0, 1500, 400), RNG.integers(-300, 300, 400), RNG.integers(0, 4000, 400)], axis=1)
Q16 = Options("q16")
W = [RNG.normal(size=(3, 6)) / 500, RNG.normal(size=(6, 5)), RNG.normal(size=(5, 4))]
B = [RNG.normal(size=6), RNG.normal(size=5), RNG.normal(size=4)]
SHAPES = {TensorProto.FLOAT: [None, None], TensorProto.INT64: [None]}


def graph(nodes: list[Any], constants: dict[str, Any], outputs: dict[str, int], feed: int = 1) -> Any:
    """A model whose input is `x` (n, 3); constants become float32 unless they are integers or text."""
    tensors = []
    for name, value in constants.items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        tensors.append(numpy_helper.from_array(array, name))
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", feed, [None, 3])],
        [helper.make_tensor_value_info(name, kind, SHAPES[kind]) for name, kind in outputs.items()],
        tensors,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8, producer_name="test")


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    domain = "ai.onnx.ml" if op in ("Scaler", "ZipMap", "ArrayFeatureExtractor") else ""
    return helper.make_node(op, inputs.split(), [output], name=f"{op}_{output}", domain=domain, **attributes)


def gemms(*, after: str = "", width: int = 4) -> Any:
    """As torch.onnx writes a Sequential: Gemm with transposed weights, Relu between."""
    nodes, constants, tensor = [], {}, "x"
    for index in range(3):
        last = index == 2
        weights, bias = (W[2][:, :width], B[2][:width]) if last else (W[index], B[index])
        constants |= {f"w{index}": weights.T, f"b{index}": bias}
        nodes.append(node("Gemm", f"{tensor} w{index} b{index}", f"g{index}", transB=1))
        tensor = f"g{index}"
        if not last:
            nodes.append(node("Relu", tensor, f"r{index}"))
            tensor = f"r{index}"
    if after:
        nodes.append(node(after, tensor, "end"))
        tensor = "end"
    return graph(nodes, constants, {tensor: TensorProto.FLOAT})


def matmuls(*before: Any, extra: dict[str, Any] | None = None, start: str = "x") -> Any:
    """As Keras exporters write it: MatMul and Add, a Softmax and an ArgMax at the end."""
    nodes = [*before]
    constants: dict[str, Any] = dict(extra or {})
    tensor = start
    for index in range(3):
        constants |= {f"w{index}": W[index], f"b{index}": B[index]}
        nodes += [
            node("MatMul", f"{tensor} w{index}", f"m{index}"),
            node("Add", f"b{index} m{index}" if index else f"m{index} b{index}", f"a{index}"),
        ]
        tensor = f"a{index}"
        if index < 2:
            nodes.append(node("Relu", tensor, f"r{index}"))
            tensor = f"r{index}"
    nodes += [node("Softmax", tensor, "p", axis=-1), node("ArgMax", "p", "label", axis=1, keepdims=0)]
    return graph(nodes, constants, {"label": TensorProto.INT64, "p": TensorProto.FLOAT})


def check(model: Any, x: Any = X) -> Any:
    """The float network, the integers and onnxruntime agree."""
    imported = import_model(model, rows=X, options=Q16)
    said = imported.predict(x)
    assert (imported.network.predict(x) == said).mean() > 0.995  # type: ignore[union-attr]
    assert (imported.model.predict(x)[0] == said).mean() > 0.99
    assert len(set(said.tolist())) > 1, "a test that cannot fail"
    return imported


@pytest.mark.parametrize("after", ["", "Softmax", "LogSoftmax", "Sigmoid", "Identity"])
def test_what_torch_writes(after: str) -> None:
    imported = check(gemms(after=after))
    assert imported.classes == ["0", "1", "2", "3"] and "3-6-5-4" in imported.source


@pytest.mark.parametrize("after", ["", "Sigmoid"])
def test_one_output_is_class_1_above_0(after: str) -> None:
    assert check(gemms(after=after, width=1)).model.n_outputs == 1


def test_weights_may_lie_in_a_file_beside(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(gemms(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").stat().st_size > 0
    whole = import_model(gemms(), rows=X, options=Q16)
    assert import_model(path, rows=X, options=Q16).model == whole.model
    (tmp_path / "m.data").unlink()
    with pytest.raises(InputError, match="keeps its weights in another file, which cannot be read"):
        import_model(path, rows=X, options=Q16)


def test_what_keras_exporters_write() -> None:
    assert check(matmuls()).network.output == "softmax"


@pytest.mark.parametrize(
    "y", [(X[:, 0] > 700).astype(int), X[:, 0] // 400, np.array(["b", "a"])[X[:, 1] // 301]]
)
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MinMaxScaler(clip=True)], ids=str)
@pytest.mark.parametrize("zipmap", [True, False])
def test_what_skl2onnx_writes(scaler: Any, y: Any, zipmap: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make_pipeline(scaler, MLPClassifier((6,), max_iter=60, learning_rate_init=0.01))
        estimator.fit(X, y)
        model = to_onnx(estimator, X[:1].astype(np.float32), options={"zipmap": zipmap})
    path = tmp_path / "nn.onnx"
    path.write_bytes(model.SerializeToString())
    imported = import_model(path, rows=X, options=Q16)
    assert imported.classes == [str(name) for name in estimator.classes_]
    wide = X * 2 - 300
    truth = np.searchsorted(estimator.classes_, estimator.predict(wide))
    assert (imported.predict(wide) == truth).mean() > 0.99
    assert imported.network is not None
    assert (imported.network.predict(wide) == truth).mean() > 0.99


def test_linear_steps_are_folded() -> None:
    before = [
        node("Cast", "x", "c", to=TensorProto.FLOAT),
        node("Sub", "c mean", "s"),
        node("Div", "s std", "d"),
        node("Clip", "d least most", "k"),
        node("Scaler", "k", "z", offset=[0.5, 0.0, 0.1], scale=[2.0, 1.0, 3.0]),
        node("BatchNormalization", "z gamma beta mu var", "n", epsilon=1e-3),
        node("Mul", "many n", "y"),
    ]
    extra = {
        "mean": [700.0, 0, 2000], "std": [400.0, 170, 1000], "least": -1.0, "most": 1.2, "gamma": [1.0, 2, 3],
        "beta": [0.1, 0.2, 0.3], "mu": [0.0, 0.1, 0.2], "var": [1.0, 2, 1], "many": 300.0,
    }  # fmt: skip
    check(matmuls(*before, extra=extra, start="y"), x=X * 2)


def test_linear_steps_between_dense_layers_are_folded() -> None:
    nodes = [
        node("MatMul", "x w0", "m"), node("Mul", "half m", "h"), node("Sub", "b0 h", "s"),
        node("Relu", "s", "r"), node("Mul", "r gain", "g"), node("Add", "g lift", "l"),
        node("Gemm", "l w1", "t", alpha=0.7), node("Gemm", "t w2 b2", "y", beta=0.5),
    ]  # fmt: skip
    constants = {
        "w0": W[0], "half": -4.0, "b0": B[0], "gain": np.abs(B[0]), "lift": B[0] / 9, "w1": W[1], "w2": W[2],
        "b2": B[2],
    }  # fmt: skip
    imported = check(graph(nodes, constants, {"y": TensorProto.FLOAT}))
    assert "3-6-4" in imported.source, "two dense layers without ReLU between them are one"


def test_labels_come_from_the_graph() -> None:
    model = matmuls()
    model.graph.initializer.append(numpy_helper.from_array(np.array([40, 10, 30, 20]), "names"))
    model.graph.node.append(node("ArrayFeatureExtractor", "names label", "named"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("named", TensorProto.INT64, [None, None]))
    assert check(model).classes == ["40", "10", "30", "20"]


@pytest.mark.parametrize("feed", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64])
def test_inputs_of_other_types(feed: int) -> None:
    model = matmuls(node("Cast", "x", "c", to=TensorProto.FLOAT), start="c")
    model.graph.input[0].type.tensor_type.elem_type = feed
    check(model)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: matmuls(node("Tanh", "x", "t"), start="t"), r"its step Tanh \(node 'Tanh_t'\) is not"),
        (lambda: _replaced(gemms(), "Relu", "Elu"), "its activation Elu .* is not supported; train"),
        (lambda: _replaced(gemms(), "Relu", "Sigmoid"), "activation other than ReLU comes before"),
        (lambda: _replaced(gemms(), "Gemm", "Gemm", transA=1), "Gemm .* is not supported"),
        (lambda: gemms(after="Relu"), "after its ReLU comes the output"),
        (lambda: gemms(after="Neg"), "its activation Neg"),
        (lambda: _two_inputs(), "has 2 inputs"),
        (lambda: _halves(), "reads features as float16"),
        (lambda: graph([node("MatMul", "x x", "y")], {}, {"y": 1}), "combines two values of the packet"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        import_model(make(), rows=X, options=Q16)
    assert "\n" not in str(error.value)


def _replaced(model: Any, op: str, by: str, **attributes: Any) -> Any:
    for step in model.graph.node:
        if step.op_type == op:
            step.op_type = by
            step.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return model


def _two_inputs() -> Any:
    model = matmuls(node("Add", "x other", "o"), start="o")
    model.graph.input.append(helper.make_tensor_value_info("other", 1, [None, 3]))
    return model


def _halves() -> Any:
    model = matmuls(node("Cast", "x", "c", to=TensorProto.FLOAT), start="c")
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


@pytest.mark.parametrize("weight", [np.inf, np.nan, -1e35])
def test_broken_weights_are_refused(weight: float) -> None:
    model = gemms()
    broken = W[1].T.astype(np.float32).copy()
    broken[2, 3] = weight
    for tensor in model.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(broken, "w1"))
    with pytest.raises(InputError, match="layer 1, neuron 2: has a weight or bias that is NaN, infinite"):
        import_model(model, rows=X)


def test_the_checker_runs_first() -> None:
    model = gemms()
    model.graph.node[0].input[0] = "missing"
    with pytest.raises(InputError, match="not a valid ONNX model"):
        import_model(model, rows=X)
    assert onnx.__version__
