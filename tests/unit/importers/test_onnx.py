# SPDX-License-Identifier: Apache-2.0
"""ONNX: both tree operators against onnxruntime, and graphs of the usual exporters."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from tests import needs
from tests.examples import examples
from wirewise.errors import InputError
from wirewise.importers import import_model

onnx = needs.package("onnx")
needs.package("onnxruntime")
helper, types = onnx.helper, onnx.TensorProto

few = settings(examples(4), suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**31 - 1)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
INPUTS = {types.FLOAT: np.float32, types.DOUBLE: np.float64, types.INT64: np.int64}
N_FEATURES = 4


def random_tests(rng: np.random.Generator, n: int) -> list[tuple[int, float]]:
    """Features and thresholds at the edges of float32 and int64, half of them on a half."""
    edges = [
        0.0,
        -0.5,
        7.5,
        2.0**24,
        2.0**24 + 2,
        -(2.0**24) - 1,
        2.0**40 + 0.5,
        2.0**53,
        -(2.0**62),
        2.0**63,
    ]
    return [(int(rng.integers(N_FEATURES)), float(np.float32(rng.choice(edges)))) for _ in range(n)]


def graph(nodes: list[Any], kind: int, outputs: list[Any], opset: int = 3) -> Any:
    source = helper.make_tensor_value_info("x", kind, [None, N_FEATURES])
    body = helper.make_graph(nodes, "g", [source], outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(body, opset_imports=imports, ir_version=9)


def classifier_node(trees: list[dict[str, Any]], labels: list[Any], **attributes: Any) -> Any:
    """A TreeEnsembleClassifier of trees as `stump` makes them; weights: (node, class, weight)."""
    columns: dict[str, list[Any]] = {}

    def add(name: str, values: list[Any]) -> None:
        columns.setdefault(name, []).extend(values)

    for number, tree in enumerate(trees):
        n = len(tree["modes"])
        add("nodes_treeids", [number] * n)
        add("nodes_nodeids", list(range(n)))
        add("nodes_featureids", tree["features"])
        add("nodes_values", tree["values"])
        add("nodes_modes", tree["modes"])
        add("nodes_truenodeids", tree["true"])
        add("nodes_falsenodeids", tree["false"])
        add("class_treeids", [number] * len(tree["weights"]))
        add("class_nodeids", [node for node, _, _ in tree["weights"]])
        add("class_ids", [label for _, label, _ in tree["weights"]])
        add("class_weights", [weight for _, _, weight in tree["weights"]])
    if "base_values" in attributes and not attributes["base_values"]:
        del attributes["base_values"]
    names = {"classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s": labels}
    return helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        **columns,
        **names,
        **attributes,
    )


def full_tree(rng: np.random.Generator, depth: int, modes: list[str], weights: Any) -> dict[str, Any]:
    """A full tree in heap order; `weights(leaf number)` lists (class, weight) of a leaf."""
    inner, leaves = 2**depth - 1, 2**depth
    tests = random_tests(rng, inner)
    return {
        "features": [feature for feature, _ in tests] + [0] * leaves,
        "values": [value for _, value in tests] + [0.0] * leaves,
        "modes": [str(rng.choice(modes)) for _ in range(inner)] + ["LEAF"] * leaves,
        "true": [2 * node + 1 for node in range(inner)] + [0] * leaves,
        "false": [2 * node + 2 for node in range(inner)] + [0] * leaves,
        "weights": [(inner + leaf, label, w) for leaf in range(leaves) for label, w in weights(leaf)],
    }


def rows_near(adversary: ModuleType, seed: int, tests: list[tuple[int, float]], imported: Any = None) -> Any:
    rng = np.random.default_rng(seed)
    return adversary.rows_mixed(rng, tests, N_FEATURES, 3000)


LABEL = [helper.make_tensor_value_info("label", types.INT64, [None])]


@pytest.mark.parametrize("kind", INPUTS, ids=["float", "double", "int64"])
@pytest.mark.parametrize("modes", [*([mode] for mode in MODES), MODES], ids=str)
@few
@given(SEEDS)
def test_every_leaf_is_a_class(adversary: ModuleType, kind: int, modes: list[str], seed: int) -> None:
    """32 leaves that name 32 classes: the label tells the path."""
    rng = np.random.default_rng(seed)
    tree = full_tree(rng, 5, modes, lambda leaf: [(leaf, 1.0)])
    model = graph([classifier_node([tree], list(range(32)))], kind, LABEL)
    imported = import_model(model)
    tests = list(zip(tree["features"], tree["values"], strict=True))
    x = rows_near(adversary, seed, tests)
    reaching = adversary.rows_reaching_every_test(rng, imported, [tree["values"]])
    x = np.concatenate([x, reaching])
    classes, _ = imported.model.predict(x)
    np.testing.assert_array_equal(classes, imported.predict(x))
    leaves = np.array(imported.node_ids[0])[imported.model.leaves(x)[:, 0]]
    np.testing.assert_array_equal(leaves - 31, classes)


@pytest.mark.parametrize("casts", [[types.FLOAT], [types.DOUBLE], [types.DOUBLE, types.FLOAT]], ids=str)
def test_casts_before_the_trees_count(adversary: ModuleType, casts: list[int]) -> None:
    """int64 to double to float rounds twice, which a single rounding to float32 would get wrong."""
    tree = full_tree(np.random.default_rng(1), 5, MODES, lambda leaf: [(leaf, 1.0)])
    node = classifier_node([tree], list(range(32)))
    steps = [
        helper.make_node("Cast", ["x" if i == 0 else f"c{i - 1}"], [f"c{i}"], to=kind)
        for i, kind in enumerate(casts)
    ]
    node.input[0] = f"c{len(casts) - 1}"
    imported = import_model(graph([*steps, node], types.INT64, LABEL))
    x = rows_near(adversary, 2, list(zip(tree["features"], tree["values"], strict=True)))
    np.testing.assert_array_equal(imported.model.predict(x)[0], imported.predict(x))


def weights_of(rng: np.random.Generator, kind: str, n_classes: int) -> Any:
    """Leaf weights as exporters write them."""
    if kind == "one class a tree":
        mine = int(rng.integers(n_classes))
        return lambda leaf: [(mine, float(rng.normal()))]
    if kind == "positive":
        return lambda leaf: [(c, float(rng.random())) for c in range(n_classes)]
    if kind == "sparse positive":
        return lambda leaf: [(int(rng.integers(n_classes)), float(rng.random()))]
    return lambda leaf: [(c, float(rng.normal())) for c in range(n_classes)]


@pytest.mark.parametrize("kind", ["one class a tree", "positive", "sparse positive", "any"])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@few
@given(SEEDS, st.booleans())
def test_several_classes(adversary: ModuleType, kind: str, transform: str, seed: int, based: bool) -> None:
    rng = np.random.default_rng(seed)
    based = based or kind == "one class a tree"
    trees = [full_tree(rng, 3, MODES, weights_of(rng, kind, 3)) for _ in range(6)]
    base = rng.normal(size=3).tolist() if based else []
    node = classifier_node(trees, ["a", "b", "c"], post_transform=transform, base_values=base)
    output = [helper.make_tensor_value_info("label", types.STRING, [None])]
    imported = import_model(graph([node], types.FLOAT, output))
    assert imported.classes == ["a", "b", "c"]
    tests = [test for tree in trees for test in zip(tree["features"], tree["values"], strict=True)]
    adversary.assert_same_classes(imported, rows_near(adversary, seed, tests))


@pytest.mark.parametrize("labels", [[0, 1], [5, 3]], ids=str)
@pytest.mark.parametrize("class_id", [0, 1])
@pytest.mark.parametrize("sign", ["positive", "any"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@few
@given(SEEDS, st.booleans())
def test_two_classes_with_one_score(
    adversary: ModuleType, labels: list[int], class_id: int, sign: str, transform: str, seed: int, based: bool
) -> None:
    rng = np.random.default_rng(seed)
    draw = rng.random if sign == "positive" else rng.normal
    trees = [full_tree(rng, 3, MODES, lambda leaf: [(class_id, float(draw()) / 4)]) for _ in range(4)]
    base = [float(rng.normal())] if based and class_id == 0 else []
    node = classifier_node(trees, labels, post_transform=transform, base_values=base)
    imported = import_model(graph([node], types.FLOAT, LABEL))
    assert imported.classes == [str(label) for label in labels] and imported.model.n_outputs == 1
    tests = [test for tree in trees for test in zip(tree["features"], tree["values"], strict=True)]
    adversary.assert_same_classes(imported, rows_near(adversary, seed, tests))


def ensemble_node(
    rng: np.random.Generator, kind: int, n_targets: int, n_trees: int, **attributes: Any
) -> Any:
    """A TreeEnsemble (ai.onnx.ml 5) of full trees of depth 3; also returns its tests."""
    floats = np.float64 if kind == types.DOUBLE else np.float32
    depth, inner = 3, 7
    tests = random_tests(rng, inner * n_trees)
    true, false, true_leaf, false_leaf = [], [], [], []
    for tree in range(n_trees):
        for node in range(inner):
            children = [2 * node + 1, 2 * node + 2]
            for child, ids, flags in zip(children, (true, false), (true_leaf, false_leaf), strict=True):
                at_leaf = child >= inner
                flags.append(int(at_leaf))
                ids.append(tree * 2**depth + child - inner if at_leaf else tree * inner + child)
    leaves = n_trees * 2**depth
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=n_targets,
        tree_roots=[tree * inner for tree in range(n_trees)],
        nodes_featureids=[feature for feature, _ in tests],
        nodes_splits=onnx.numpy_helper.from_array(np.array([value for _, value in tests], floats)),
        nodes_modes=onnx.numpy_helper.from_array(rng.integers(0, 4, len(tests)).astype(np.uint8)),
        nodes_truenodeids=true,
        nodes_falsenodeids=false,
        nodes_trueleafs=true_leaf,
        nodes_falseleafs=false_leaf,
        leaf_targetids=rng.integers(0, n_targets, leaves).tolist(),
        leaf_weights=onnx.numpy_helper.from_array(rng.normal(size=leaves).astype(floats)),
        **attributes,
    )
    return node, tests


@pytest.mark.parametrize("kind", [types.FLOAT, types.DOUBLE], ids=["float", "double"])
@pytest.mark.parametrize("shape", ["scores", "argmax", "softmax and argmax", "average"])
@few
@given(SEEDS)
def test_tree_ensemble(adversary: ModuleType, kind: int, shape: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    node, tests = ensemble_node(rng, kind, 3, 5, aggregate_function=0 if shape == "average" else 1)
    scores = [helper.make_tensor_value_info("y", kind, [None, 3])]
    label = [helper.make_tensor_value_info("label", types.INT64, [None])]
    if shape in ("scores", "average"):
        model = graph([node], kind, scores, opset=5)
    elif shape == "argmax":
        model = graph(
            [node, helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0)], kind, label, opset=5
        )
    else:
        soft = helper.make_node("Softmax", ["y"], ["p"], axis=1)
        best = helper.make_node("ArgMax", ["p"], ["label"], axis=-1, keepdims=0)
        model = graph([node, soft, best], kind, label, opset=5)
    imported = import_model(model)
    x = rows_near(adversary, seed, tests)
    adversary.assert_same_classes(imported, x)


def test_tree_ensemble_with_one_logit_and_a_lone_leaf(adversary: ModuleType) -> None:
    rng = np.random.default_rng(4)
    node, tests = ensemble_node(rng, types.FLOAT, 1, 4)
    for attribute in node.attribute:  # a fifth tree that is one leaf: both branches lead to it
        extra = {"tree_roots": 28, "nodes_featureids": 0, "nodes_truenodeids": 0, "nodes_falsenodeids": 0}
        if attribute.name in extra:
            attribute.ints.append(extra[attribute.name])
        elif attribute.name in ("nodes_trueleafs", "nodes_falseleafs"):
            attribute.ints.append(1)
        elif attribute.name in ("nodes_splits", "nodes_modes"):
            values = onnx.numpy_helper.to_array(attribute.t)
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(np.append(values, values.dtype.type(0))))
    chance = [helper.make_tensor_value_info("p", types.FLOAT, [None, 1])]
    model = graph([node, helper.make_node("Sigmoid", ["y"], ["p"])], types.FLOAT, chance, opset=5)
    imported = import_model(model, classes=["benign", "attack"])
    assert [tree.n_nodes for tree in imported.model.trees][-1] == 1
    adversary.assert_same_classes(imported, rows_near(adversary, 5, tests))


EXPORTED = [
    DecisionTreeClassifier(max_depth=6),
    RandomForestClassifier(n_estimators=7, max_depth=5),
    ExtraTreesClassifier(n_estimators=7, max_depth=5),
    GradientBoostingClassifier(n_estimators=4),
]


@pytest.mark.parametrize("estimator", EXPORTED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", ["FloatTensorType", "Int64TensorType"])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("labels", ["int", "str"])
def test_files_of_skl2onnx(
    adversary: ModuleType, tmp_path: Path, estimator: Any, kind: str, n_classes: int, labels: str
) -> None:
    skl2onnx = needs.package("skl2onnx")
    rng = np.random.default_rng(n_classes)
    x = adversary.training_rows(rng, 500)
    y = adversary.training_classes(rng, x, n_classes)
    estimator = estimator.set_params(random_state=1).fit(
        x, y if labels == "int" else np.array(list("wxyz"))[y]
    )
    shape = getattr(skl2onnx.common.data_types, kind)([None, x.shape[1]])
    path = tmp_path / "model.onnx"
    path.write_bytes(skl2onnx.to_onnx(estimator, initial_types=[("x", shape)]).SerializeToString())
    imported = import_model(path)
    assert imported.classes == list(map(str, estimator.classes_))
    own = import_model(estimator)
    trees = getattr(estimator, "estimators_", [estimator])
    tested = [
        (f, t)
        for tree in np.ravel(trees)
        for f, t in zip(tree.tree_.feature, tree.tree_.threshold, strict=True)
        if f >= 0
    ]
    x = np.concatenate([x, adversary.rows_mixed(rng, tested, x.shape[1], 2000)])
    adversary.assert_same_classes(imported, x)
    assert [tree.n_nodes for tree in imported.model.trees] == [tree.n_nodes for tree in own.model.trees]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_files_of_onnxmltools(adversary: ModuleType, name: str, n_classes: int) -> None:
    library, onnxmltools = needs.package(name), needs.package("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    rng = np.random.default_rng(1)
    x = adversary.training_rows(rng, 400).astype(np.float32)
    y = adversary.training_classes(rng, x, n_classes)
    if name == "xgboost":
        estimator = library.XGBClassifier(n_estimators=4, n_jobs=1).fit(x, y)
    else:
        estimator = library.LGBMClassifier(n_estimators=4, verbosity=-1, n_jobs=1).fit(x, y)
    convert = getattr(onnxmltools, f"convert_{name}")
    imported = import_model(convert(estimator, initial_types=[("x", FloatTensorType([None, x.shape[1]]))]))
    tested = [
        (f, t)
        for tree in imported.model.trees
        for f, t in zip(tree.feature, tree.threshold, strict=True)
        if f >= 0
    ]
    adversary.assert_same_classes(imported, adversary.rows_mixed(rng, tested, x.shape[1], 2000))


def stump(**changes: Any) -> dict[str, Any]:
    tree = {
        "features": [0, 0, 0],
        "values": [3.5, 0.0, 0.0],
        "modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "true": [1, 0, 0],
        "false": [2, 0, 0],
        "weights": [(1, 0, 0.2), (2, 0, 0.8)],
    }
    return {**tree, **changes}


def model_of(
    *trees: dict[str, Any], labels: Any = (0, 1), after: Any = (), output: str = "label", **attributes: Any
) -> Any:
    node = classifier_node(list(trees), list(labels), **attributes)
    shape = helper.make_tensor_value_info(output, types.INT64 if output == "label" else types.FLOAT, [None])
    return graph([node, *after], types.FLOAT, [shape])


def scaled() -> Any:
    scale = helper.make_node("Scaler", ["x"], ["z"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0])
    node = classifier_node([stump()], [0, 1])
    node.input[0] = "z"
    return graph([scale, node], types.FLOAT, LABEL)


def linear() -> Any:
    node = helper.make_node("Identity", ["x"], ["label"])
    return graph([node], types.FLOAT, [helper.make_tensor_value_info("label", types.FLOAT, [None])])


def as_int32() -> Any:
    return graph([classifier_node([stump()], [0, 1])], types.INT32, LABEL)


def twice() -> Any:
    second = classifier_node([stump()], [0, 1])
    second.output[:] = ["label2", "scores2"]
    return graph([classifier_node([stump()], [0, 1]), second], types.FLOAT, LABEL)


def regressor() -> Any:
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1)
    return graph([node], types.FLOAT, [helper.make_tensor_value_info("y", types.FLOAT, [None])])


def one_score() -> Any:
    node, _ = ensemble_node(np.random.default_rng(0), types.FLOAT, 1, 2)
    return graph([node], types.FLOAT, [helper.make_tensor_value_info("y", types.FLOAT, [None])], opset=5)


def largest_leaf() -> Any:
    node, _ = ensemble_node(np.random.default_rng(0), types.FLOAT, 3, 2, aggregate_function=3)
    return graph([node], types.FLOAT, [helper.make_tensor_value_info("y", types.FLOAT, [None])], opset=5)


def one_logit() -> Any:
    """onnxruntime leaves the single score as it is, the specification makes it a probability."""
    node, _ = ensemble_node(np.random.default_rng(0), types.FLOAT, 1, 2, post_transform=2)
    return graph([node], types.FLOAT, [helper.make_tensor_value_info("y", types.FLOAT, [None])], opset=5)


def chances_apart() -> Any:
    """Two sigmoids that saturate are equal, and ArgMax takes the first, whichever score is larger."""
    node, _ = ensemble_node(np.random.default_rng(0), types.FLOAT, 3, 2)
    steps = [
        helper.make_node("Sigmoid", ["y"], ["p"]),
        helper.make_node("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
    ]
    return graph([node, *steps], types.FLOAT, LABEL, opset=5)


def last_of_equals() -> Any:
    node, _ = ensemble_node(np.random.default_rng(0), types.FLOAT, 3, 2)
    best = helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0, select_last_index=1)
    return graph([node, best], types.FLOAT, LABEL, opset=5)


def wide() -> Any:
    return model_of(stump(features=[199, 0, 0]))


NEGATED = helper.make_node("Neg", ["label"], ["minus"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (linear, "or dense layers (Gemm, MatMul), its graph holds Identity"),
        (twice, "needs exactly one"),
        (regressor, "its graph holds TreeEnsembleRegressor; import the estimator it was exported from"),
        (
            scaled,
            "node 'z' (Scaler) changes the features before the trees; train and export the trees",
        ),
        (as_int32, "reads features as int32, known are float32, float64 and int64"),
        (
            lambda: model_of(stump(modes=["BRANCH_EQ", "LEAF", "LEAF"])),
            "tests with BRANCH_EQ (categorical splits)",
        ),
        (lambda: model_of(stump(modes=["BRANCH_NEQ", "LEAF", "LEAF"])), "tests with BRANCH_NEQ"),
        (lambda: model_of(stump(), after=[NEGATED], output="minus"), "no output of its graph is the class"),
        (lambda: model_of(stump(), output="scores"), "no output of its graph is the class"),
        (one_score, "no output of its graph is the class"),
        (last_of_equals, "(it goes into ArgMax)"),
        (one_logit, "combines its trees by SUM and LOGISTIC; known are SUM and AVERAGE with NONE or SOFTMAX"),
        (chances_apart, "no output of its graph is the class"),
        (largest_leaf, "combines its trees by MAX and NONE"),
        (
            lambda: model_of(stump(weights=[(1, 0, 0.2), (2, 1, 0.8)])),
            "scores both of its two classes, where onnxruntime and the ONNX specification choose differently",
        ),
        (
            lambda: model_of(stump(weights=[(1, 1, 0.2), (2, 1, 0.8)]), base_values=[0.1, 0.2]),
            "has base values for both",
        ),
        (
            lambda: model_of(stump(weights=[(1, 0, -1.0), (2, 2, 1.0)]), labels=(0, 1, 2)),
            "may leave class 0 without a",
        ),
        (lambda: model_of(stump(), labels=(7,)), "has a single class"),
        (lambda: model_of(stump(true=[9, 0, 0])), "do not form a tree"),
        (lambda: model_of(stump(true=[0, 0, 0])), "do not form a tree"),
        (lambda: model_of(stump(weights=[(7, 0, 0.2), (2, 0, 0.8)])), "do not fit together"),
        (
            lambda: model_of(stump(weights=[(1, 5, 0.2), (2, 5, 0.8)])),
            "its class_ids holds 5, allowed are 0 to 1",
        ),
        (lambda: model_of(stump(weights=[(1, -1, 0.2), (2, 0, 0.8)])), "its class_ids holds -1"),
        (lambda: model_of(stump(features=[-1, 0, 0])), "its nodes_featureids holds -1"),
        (lambda: model_of(stump(true=[1])), "its nodes_truenodeids has 1 entries, nodes_treeids has 3"),
        (
            lambda: model_of(stump(weights=[(1, 0, math.nan), (2, 0, 1.0)])),
            "not a finite",
        ),
    ],
)
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(make())
    assert says in str(refused.value)
    assert str(refused.value).startswith("ModelProto: ")


def test_the_number_of_features_is_declared_asked_or_used() -> None:
    assert import_model(model_of(stump())).model.n_features == N_FEATURES
    with pytest.raises(InputError, match="was trained on 4 features, the feature set has 5"):
        import_model(model_of(stump()), n_features=5)
    open_shape = model_of(stump(features=[2, 0, 0]))
    open_shape.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    assert import_model(open_shape).model.n_features == 3
    assert import_model(open_shape, n_features=9).model.n_features == 9


def test_votes_are_the_models_own() -> None:
    with pytest.raises(InputError, match="says how its trees are combined"):
        import_model(model_of(stump()), votes="majority")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00\xff" * 40])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        import_model(path)
    assert str(path) in str(refused.value) and "export it again" in str(refused.value)
