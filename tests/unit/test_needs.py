# SPDX-License-Identifier: Apache-2.0
"""A test that lacks something is skipped and named, or fails where nothing may be lacking."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REQUIRE, SKIPPED

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.needs import pytest_configure, pytest_make_collect_report, pytest_runtest_makereport"
LACKING = """
import pytest
@pytest.mark.skipif(True, reason="root: to load")
def test_of_root(): pass
def test_of_clang(): pytest.skip("clang: clang-1 is not installed")
def test_that_runs(): pass
@pytest.mark.xfail(reason="this and that")
def test_that_should_fail(): assert False
"""
LACKING_A_PACKAGE = "from tests import needs\nneeds.package('no_such_module')\ndef test_it(): pass\n"


def run(folder: Path, tests: str, require: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and the notes of what was skipped."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_lacking.py").write_text(tests)
    skipped = folder / "skipped"
    skipped.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        env={"PYTHONPATH": str(ROOT), REQUIRE: require, SKIPPED: str(skipped)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, skipped.read_text()


@pytest.mark.parametrize("require", ["", "cpus", "packages, captures"])
def test_what_is_skipped_is_named(tmp_path: Path, require: str) -> None:
    code, said, notes = run(tmp_path, LACKING, require)
    assert code == 0 and "1 passed, 2 skipped, 1 xfailed" in said, said
    assert notes == (
        "test_lacking.py::test_of_root\troot: to load\n"
        "test_lacking.py::test_of_clang\tclang: clang-1 is not installed\n"
    )


def test_what_must_not_be_lacking_fails(tmp_path: Path) -> None:
    code, said, notes = run(tmp_path, LACKING, "root")
    assert code == 1 and "1 passed, 1 skipped, 1 xfailed, 1 error" in said, said
    assert "would be skipped, but WIREWISE_REQUIRE lists root: to load" in said
    assert notes == "test_lacking.py::test_of_clang\tclang: clang-1 is not installed\n"


def test_a_whole_module_is_skipped_or_fails(tmp_path: Path) -> None:
    code, said, notes = run(tmp_path, LACKING_A_PACKAGE, "root")
    assert code == 5 and notes == "test_lacking.py\tpackages: no_such_module is not installed\n", said
    code, said, _ = run(tmp_path, LACKING_A_PACKAGE, "root,packages")
    assert code == 2 and "WIREWISE_REQUIRE lists packages: no_such_module is not installed" in said


def test_a_reason_names_what_is_needed(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, LACKING.replace("root: to load", "I am tired"), "")
    assert code == 1 and "a reason to skip begins with what is needed" in said and "I am tired" in said


def test_only_what_may_be_needed_can_be_required(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, LACKING, "root,clan")
    assert code == 4 and "WIREWISE_REQUIRE: 'clan' is none of root, clang, " in said
