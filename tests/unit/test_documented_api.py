# SPDX-License-Identifier: Apache-2.0
"""docs/api.md is what the docstrings say, and the package's door is what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import wirewise
from scripts.api import PAGE, page

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "docs/api.md is not what the docstrings say: run `make docs`"


def test_every_public_name_is_documented() -> None:
    text = page()
    for name in wirewise.__all__:
        if name != "__version__":
            assert f"### {name}\n" in text
            assert getattr(wirewise, name).__doc__


def test_no_public_name_is_a_module_too() -> None:
    """`import wirewise.x` puts the module where the function was."""
    package = Path(wirewise.__file__).parent
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not modules & set(wirewise.__all__)


def in_a_process_of_its_own(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_nothing_large() -> None:
    code = (
        "import sys, wirewise; assert callable(wirewise.__getattr__);"
        "large = {'numpy', 'polars', 'sklearn', 'pandas', 'matplotlib', 'pydantic'} & set(sys.modules);"
        "assert not large, large"
    )
    in_a_process_of_its_own(code)


def test_the_command_line_imports_nothing_large_before_a_command_needs_it() -> None:
    code = (
        "import sys; from wirewise.cli import app; app(['--help'], standalone_mode=False);"
        "large = {'numpy', 'polars', 'sklearn', 'matplotlib', 'pydantic', 'dpkt'} & set(sys.modules);"
        "assert not large, large"
    )
    in_a_process_of_its_own(code)


def test_the_functions_import_neither_pandas_nor_matplotlib() -> None:
    code = (
        "import sys, wirewise; [getattr(wirewise, name) for name in wirewise.__all__];"
        "found = {'pandas', 'matplotlib', 'xgboost', 'lightgbm', 'onnx', 'torch'} & set(sys.modules);"
        "assert not found, found"
    )
    in_a_process_of_its_own(code)
