# SPDX-License-Identifier: Apache-2.0
"""skops files: everything that docs/importers.md promises, other versions' files, and types that run code."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import scipy.stats
import sklearn
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tests import needs
from wirewise.errors import InputError
from wirewise.importers.dispatch import read_file
from wirewise.importers.request import ImportOptions, Request
from wirewise.quantize import Options

skops = needs.package("skops")
needs.package("skops.io")

X = np.random.default_rng(1).integers(0, 1500, (300, 3))
Y = (X[:, 0] // 500 + (X[:, 1] > 700)) % 3
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
DEPTHS = {"max_depth": [2, 4]}


def mlp(**options: Any) -> Any:
    return MLPClassifier((4,), max_iter=20, random_state=0, **options)


ESTIMATORS = {
    "tree": TREE,
    "forest": RandomForestClassifier(3, max_depth=3, class_weight="balanced"),
    "extra trees": ExtraTreesClassifier(3, max_depth=3, random_state=np.random.RandomState(1)),
    "boosting": GradientBoostingClassifier(n_estimators=2),
    "histograms": HistGradientBoostingClassifier(max_iter=2, early_stopping=True),
    "adam": mlp(),
    "adam, stopped early": mlp(early_stopping=True),
    "sgd": mlp(solver="sgd"),
    "lbfgs": mlp(solver="lbfgs"),
    "standard": make_pipeline(StandardScaler(), mlp()),
    "minmax": make_pipeline(MinMaxScaler(), mlp()),
    "maxabs": make_pipeline(MaxAbsScaler(clip=True), mlp()),
    "robust": make_pipeline(RobustScaler(), mlp()),
    "pipeline of a tree": make_pipeline("passthrough", TREE),
    "grid": GridSearchCV(TREE, DEPTHS),
    "grid by name": GridSearchCV(TREE, DEPTHS, scoring=["accuracy", "f1_macro"], refit="f1_macro"),
    "grid by function": GridSearchCV(TREE, DEPTHS, scoring=make_scorer(fbeta_score, beta=2, average="macro")),
    "grid of splits": GridSearchCV(TREE, DEPTHS, cv=StratifiedShuffleSplit(3)),
    "grid of repetitions": GridSearchCV(TREE, DEPTHS, cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2)),
    "random": RandomizedSearchCV(TREE, DEPTHS, n_iter=2),
    "halving": HalvingGridSearchCV(TREE, DEPTHS),
    "grid of a network": GridSearchCV(
        make_pipeline(StandardScaler(), mlp()), {"mlpclassifier__alpha": [0.1]}
    ),
    "grid in a pipeline": make_pipeline(StandardScaler(), GridSearchCV(mlp(), {"alpha": [0.1, 0.2]})),
}


def request(path: Path, options: Options | None = None) -> Request:
    return Request.of(str(path), ImportOptions(rows=X, options=options))


def saved(estimator: Any, path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = sklearn.clone(estimator).fit(X, Y)
    skops.io.dump(fitted, path)
    return fitted


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_the_documentation_promises(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.skops"
    fitted = saved(ESTIMATORS[name], path)
    imported = read_file(str(path), request(path, Options("q16") if "MLP" in str(fitted) else None))
    expected = np.searchsorted(fitted.classes_, fitted.predict(X))
    np.testing.assert_array_equal(imported.predict(X), expected)
    assert (imported.model.predict(X)[0] == expected).mean() > 0.98


def rewritten(path: Path, change: Any) -> None:
    """The file with another schema."""
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["schema.json"] = change(members["schema.json"].decode()).encode()
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_files_of_another_version_say_so(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    saved(TREE, path)

    def older(schema: str) -> str:
        schema = schema.replace(sklearn.__version__, "1.2.2").replace(skops.__version__, "0.6.0")
        return schema.replace("sklearn.tree._classes", "sklearn.tree._removed")

    rewritten(path, older)
    with pytest.raises(
        InputError,
        match=rf"was saved with scikit-learn 1\.2\.2 and skops 0\.6\.0, which scikit-learn "
        rf"{re.escape(sklearn.__version__)} and skops {re.escape(skops.__version__)} cannot load \(it holds "
        r"sklearn\.tree\._removed",
    ):
        read_file(str(path), request(path))


def test_other_versions_that_can_be_loaded_are(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    fitted = saved(TREE, path)
    rewritten(path, lambda schema: schema.replace(skops.__version__, "0.10.0"))
    np.testing.assert_array_equal(read_file(str(path), request(path)).predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "is not a skops file"),
        ("[]", "is not a skops file (schema.json is no object)"),
        ("{", "is not a skops file"),
        ("[" * 100_000, "is not a skops file"),
        (json.dumps({"protocol": 10**6}), "is a skops file that cannot be loaded"),
    ],
)
def test_what_is_no_skops_file_or_damaged(tmp_path: Path, schema: str | None, says: str) -> None:
    path = tmp_path / "model.skops"
    saved(TREE, path)
    if schema is None:
        path.write_bytes(b"PK\x03\x04 and no more")
    else:
        rewritten(path, lambda _: schema)
    with pytest.raises(InputError) as refused:
        read_file(str(path), request(path))
    assert says in str(refused.value) and str(refused.value).startswith(f"{path}: ")


def test_distributions_of_scipy_run_code_so_they_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    space = {"min_impurity_decrease": scipy.stats.uniform(0, 0.1)}
    saved(RandomizedSearchCV(TREE, space, n_iter=2), path)
    with pytest.raises(InputError, match=r"may run code.*scipy\.stats.*of a search: its best_estimator_"):
        read_file(str(path), request(path))


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "sklearn.metrics._scorer._cached_call",
        "sklearn.metrics._scorer.partial",
        "sklearn.model_selection._split.import_module",
        "sklearn.utils._testing.ignore_warnings",
    ],
)
def test_functions_that_could_run_something_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.skops"
    saved(GridSearchCV(TREE, DEPTHS, scoring=make_scorer(fbeta_score, beta=2, average="macro")), path)
    module, _, function = name.rpartition(".")

    def exchanged(schema: str) -> str:
        document = json.loads(schema)
        waiting = [document]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                if node.get("__loader__") == "FunctionNode":
                    node["__module__"], node["__class__"] = module, function
                    node["content"] = {"module_path": module, "function": function}
                waiting += node.values()
            elif isinstance(node, list):
                waiting += node
        return json.dumps(document)

    rewritten(path, exchanged)
    with pytest.raises(InputError, match=r"may run code|cannot be loaded"):
        read_file(str(path), request(path))
