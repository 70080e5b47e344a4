# SPDX-License-Identifier: Apache-2.0
"""Which importer reads what, files by path, missing libraries, and the table in the documentation."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from tests import needs
from wirewise.errors import InputError, MissingFeatureError
from wirewise.importers import ImportOptions, import_model, import_with, supported, supported_table
from wirewise.importers.registry import FORMATS

ROOT = Path(__file__).parents[3]
X = np.array([[0, 0], [0, 9], [5, 0], [5, 9]])
TREE = DecisionTreeClassifier().fit(X, ["benign", "scan", "attack", "attack"])


def dump_pickle(estimator: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(estimator))


def dump_skops(estimator: Any, path: Path) -> None:
    needs.package("skops.io").dump(estimator, path)


DUMPS = {".pkl": dump_pickle, ".pickle": dump_pickle, ".joblib": joblib.dump, ".skops": dump_skops}


@pytest.mark.parametrize("suffix", DUMPS)
@pytest.mark.parametrize("as_text", [False, True])
def test_saved_estimators(tmp_path: Path, suffix: str, as_text: bool) -> None:
    path = tmp_path / f"forest{suffix.upper() if suffix == '.pkl' else suffix}"
    DUMPS[suffix](TREE, path)
    imported = import_model(str(path) if as_text else path)
    assert imported.model == import_model(TREE).model
    assert imported.classes == ["benign", "scan", "attack"]
    assert any("can run any code" in note for note in imported.notes) == (suffix != ".skops")


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(3),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
    ],
    ids=str,
)
def test_skops_files_of_all_estimators(tmp_path: Path, estimator: Any) -> None:
    path = tmp_path / "model.skops"
    estimator.fit(np.tile(X, (10, 1)), [0, 1, 2, 2] * 10)
    dump_skops(estimator, path)
    assert import_model(path).model == import_model(estimator).model


@pytest.mark.parametrize("suffix", DUMPS)
def test_errors_in_files_name_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    DUMPS[suffix](GaussianNB().fit(X, [0, 1, 1, 1]), path)
    with pytest.raises(InputError, match="GaussianNB cannot be imported") as refused:
        import_model(path)
    assert str(refused.value).startswith(f"{path}: ")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"cannot be loaded|is not a skops file") as refused:
        import_model(path)
    assert str(refused.value).startswith(f"{path}: ")


class Unknown:
    """A type skops cannot trust."""


def test_skops_files_with_unknown_types_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    estimator = DecisionTreeClassifier().fit(X, [0, 1, 1, 1])
    estimator.note = Unknown()
    dump_skops(estimator, path)
    with pytest.raises(InputError, match=r"types that are not trusted.*Unknown"):
        import_model(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "model.h5",
            "has no known model file suffix (.json, .ubj, .txt, .onnx, .bnn, .npz, .pkl, .pickle, .joblib, "
            ".skops)",
        ),
        ("model", "has no known model file suffix"),
        ("absent.onnx", "is not a file; give the path of a saved model"),
        ("folder.pkl", "is not a file"),
    ],
)
def test_paths_that_are_no_model(tmp_path: Path, name: str, says: str) -> None:
    path = tmp_path / name
    if name.startswith("folder"):
        path.mkdir()
    with pytest.raises(InputError) as refused:
        import_model(path)
    assert says in str(refused.value) and str(path) in str(refused.value)


@pytest.mark.parametrize("what", [None, 3, {"a": 1}, [TREE], DecisionTreeClassifier, np.zeros(3)], ids=type)
def test_objects_that_are_no_model(what: Any) -> None:
    with pytest.raises(InputError, match="cannot be imported; known are DecisionTreeClassifier, "):
        import_model(what)


@pytest.mark.parametrize(
    ("suffix", "library", "advice"),
    [
        (".ubj", "xgboost", "pip install xgboost"),
        (".txt", "lightgbm", "pip install lightgbm"),
        (".onnx", "onnx", "pip install onnx"),
        (".skops", "skops.io", "pip install skops"),
    ],
)
def test_a_missing_library_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str, advice: str
) -> None:
    absent = tmp_path / "absent" / f"{library.partition('.')[0]}.py"
    absent.parent.mkdir()
    absent.write_text("raise ImportError('as if it were not installed')")
    monkeypatch.syspath_prepend(absent.parent)
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"x")
    with pytest.raises(MissingFeatureError) as missing:
        import_model(path)
    assert f"needs the Python library {library}," in str(missing.value) and str(missing.value).endswith(
        advice
    )


def test_no_library_is_imported_before_a_model_needs_it() -> None:
    code = (
        "import sys, wirewise.importers, wirewise.models\n"
        "wirewise.importers.supported_table()\n"
        "print([m for m in ('sklearn', 'xgboost', 'lightgbm', 'onnx', 'skops') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "python")},
    )
    assert result.stdout.strip() == "[]"


def test_every_format_has_its_reader() -> None:
    for entry in FORMATS.values():
        module, function = entry.reader.split(":")
        assert callable(getattr(import_module(module), function))
    assert len({entry.key for entry in FORMATS.values()}) == len(FORMATS) == len(supported())


def test_what_an_import_is_asked_is_one_type() -> None:
    """`import_model` takes the fields of `ImportOptions` one by one, and `import_with` takes them as one."""
    _, *asked = inspect.signature(import_model).parameters
    assert asked == [field.name for field in fields(ImportOptions)]
    options = ImportOptions(classes=["a", "b", "c"], votes="sum")
    assert import_with(TREE, options).model == import_model(TREE, classes=["a", "b", "c"], votes="sum").model
    with pytest.raises(InputError, match="the feature set has 5"):
        import_with(TREE, ImportOptions(n_features=5))


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "docs" / "importers.md").read_text()
    assert supported_table() in page, (
        "docs/importers.md: replace its table with wirewise.importers.supported_table()"
    )
