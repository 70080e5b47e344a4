# SPDX-License-Identifier: Apache-2.0
"""What can be imported: the one list that dispatch, help and docs/importers.md are made from.

`FORMATS.add(Format(...))` adds an importer from outside of this package.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wirewise.registry import Registry

FLOAT32 = "float32(x) ≤ t"
NO_TEST = "no tests: it is a network"
QUANTISED = "products of int8 or Q16 numbers"
SUM_OR_MAJORITY = "sum of class fractions; majority on request"


@dataclass(frozen=True)
class Format:
    """An estimator class (`module.Class`, the top-level module) or a file suffix, and who reads it.

    reader : `module:function`, imported when it is first needed. The function gets the estimator, or the path
    of the file, and a `Request`, and gives an `Imported`. native : native code of another library reads the
    file, so a process of its own does.
    """

    key: str
    library: str
    reader: str
    test: str  # how the original compares
    scores: str
    limits: str
    native: bool = False

    @property
    def is_file(self) -> bool:
        return self.key.startswith(".")

    @property
    def what(self) -> str:
        return self.key if self.is_file else self.key.rpartition(".")[2]

    @property
    def module(self) -> str:
        """Of the reader."""
        return self.reader.partition(":")[0]


def _sklearn(name: str, reader: str, test: str, scores: str, limits: str) -> Format:
    return Format(f"sklearn.{name}", "scikit-learn", f"sklearn:{reader}", test, scores, limits)


_SCALERS = "StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler before it"
_ONE_OUTPUT = "one output"
_BOOSTED = "sum of margins"
_XGB = "`binary:logistic`, `multi:softprob`, `multi:softmax`; gbtree or dart; no categorical splits"
_LGBM = "`binary`, `multiclass`; no categorical splits, linear trees or `zero_as_missing`"
_ONNX = (
    "TreeEnsembleClassifier, TreeEnsemble; only type casts before it; no EQ, NEQ or MEMBER tests; "
    "or a network: one chain of Gemm, MatMul, Add, Relu"
)
_TORCH = "Linear, ReLU, BatchNorm1d, Dropout; Softmax or Sigmoid at the end"

_AGREEING = "agreeing bits"
_BINARY = "binary weights and activations"

# Readers are modules of this package.
_BUILT_IN = (
    _sklearn(
        "DecisionTreeClassifier", "import_tree", FLOAT32, "the leaf's class; sum on request", _ONE_OUTPUT
    ),
    _sklearn("RandomForestClassifier", "import_forest", FLOAT32, SUM_OR_MAJORITY, _ONE_OUTPUT),
    _sklearn("ExtraTreesClassifier", "import_forest", FLOAT32, SUM_OR_MAJORITY, _ONE_OUTPUT),
    _sklearn(
        "GradientBoostingClassifier", "import_gradient_boosting", FLOAT32, _BOOSTED, "`init` None or `'zero'`"
    ),
    _sklearn(
        "HistGradientBoostingClassifier",
        "import_hist_gradient_boosting",
        "float64(x) ≤ t",
        _BOOSTED,
        "no categorical features",
    ),
    Format(
        "sklearn.Pipeline",
        "scikit-learn",
        "sklearn_pipeline:import_pipeline",
        "as its last step",
        "as its last step",
        "scalers as of MLPClassifier, before scikit-learn's trees, networks and linear classifiers",
    ),
    *(
        Format(
            f"sklearn.{name}",
            "scikit-learn",
            "sklearn_search:import_search",
            "as its `best_estimator_`",
            "as its `best_estimator_`",
            limits,
        )
        for name, limits in (
            ("GridSearchCV", "refit"),
            ("RandomizedSearchCV", "refit"),
            ("BaseSearchCV", "refit; the halving searches, and those of other packages"),
        )
    ),
    Format(
        "sklearn.MLPClassifier",
        "scikit-learn",
        "sklearn_networks:import_alone",
        NO_TEST,
        QUANTISED,
        f"`relu`; {_SCALERS}",
    ),
    *(
        Format(
            f"sklearn.{name}",
            "scikit-learn",
            "sklearn_networks:import_alone",
            NO_TEST,
            QUANTISED,
            f"a network without hidden layers; {_SCALERS}",
        )
        for name in ("LogisticRegression", "LinearSVC", "SGDClassifier")
    ),
    Format("xgboost.XGBClassifier", "XGBoost", "xgboost:import_classifier", "float32(x) < t", _BOOSTED, _XGB),
    Format("xgboost.Booster", "XGBoost", "xgboost:import_booster", "float32(x) < t", _BOOSTED, _XGB),
    Format(".json", "XGBoost", "xgboost:import_file", "float32(x) < t", _BOOSTED, _XGB, native=True),
    Format(".ubj", "XGBoost", "xgboost:import_file", "float32(x) < t", _BOOSTED, _XGB, native=True),
    Format(
        "lightgbm.LGBMClassifier", "LightGBM", "lightgbm:import_classifier", "float64(x) ≤ t", _BOOSTED, _LGBM
    ),
    Format("lightgbm.Booster", "LightGBM", "lightgbm:import_booster", "float64(x) ≤ t", _BOOSTED, _LGBM),
    Format(".txt", "LightGBM", "lightgbm:import_file", "float64(x) ≤ t", _BOOSTED, _LGBM, native=True),
    Format(
        "onnx.ModelProto",
        "ONNX",
        "onnx:import_model",
        "float32(x) or float64(x); ≤, <, ≥, >",
        "as the operator",
        _ONNX,
    ),
    Format(
        ".onnx",
        "ONNX",
        "onnx:import_file",
        "float32(x) or float64(x); ≤, <, ≥, >",
        "as the operator",
        _ONNX,
        native=True,
    ),
    Format("torch.Sequential", "PyTorch", "torch:import_sequential", NO_TEST, QUANTISED, _TORCH),
    Format(
        "wirewise.Phases",
        "wirewise",
        "phases:import_phases",
        "as of its parts",
        "as of its parts",
        "what `wirewise train` makes with `--late-from`",
    ),
    Format(
        "wirewise.Together",
        "wirewise",
        "apart:import_together",
        "as of its parts",
        "as of its parts",
        "what `wirewise train` makes with `--apart`",
    ),
    Format("wirewise.BinaryClassifier", "wirewise", "binary:import_classifier", NO_TEST, _AGREEING, _BINARY),
    Format(
        ".bnn",
        "plain JSON",
        "binary:import_file",
        NO_TEST,
        _AGREEING,
        f"{_BINARY}; thresholds are whole numbers",
    ),
    Format(
        ".npz",
        "Larq, Keras",
        "binary_arrays:import_file",
        NO_TEST,
        _AGREEING,
        f"{_BINARY}; arrays of dense layers and batch normalisations",
    ),
    *(
        Format(
            suffix, library, "saved:import_file", "as the estimator", "as the estimator", limits, native=True
        )
        for suffix, library, limits in (
            (".pkl", "pickle", "any estimator above; loading a pickle runs code in it"),
            (".pickle", "pickle", "any estimator above; loading a pickle runs code in it"),
            (".joblib", "joblib", "any estimator above; loading a pickle runs code in it"),
            (".skops", "skops", "any scikit-learn estimator above; no distributions of scipy in a search"),
        )
    ),
)

FORMATS = Registry(
    "importer",
    lambda entry: entry.key,
    (replace(entry, reader=f"{__package__}.{entry.reader}") for entry in _BUILT_IN),
)


def format_of(estimator: Any) -> Format | None:
    """That of an estimator's class, or of the nearest base of it that is known."""
    keys = (f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(estimator).__mro__)
    return next((FORMATS[key] for key in keys if key in FORMATS), None)


def supported() -> list[tuple[str, str, str, str, str]]:
    """Rows (library, estimator or file, test, scores, limits) of all that can be imported."""
    return [(entry.library, entry.what, entry.test, entry.scores, entry.limits) for entry in FORMATS.values()]


def supported_table() -> str:
    """`supported()` as a Markdown table."""
    head = ("Library", "Estimator or file", "How it tests", "What the integer model adds up", "Limits")
    rows = [head, ("---",) * len(head), *supported()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
