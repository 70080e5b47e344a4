# SPDX-License-Identifier: Apache-2.0
"""scripts/test.sh runs pytest and cargo side by side, and either decides how the run ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
# Each waits for the other: neither ends if they run one after the other.
MEET = """#!/bin/bash
touch {me}.started
for _ in $(seq 400); do [ -e {other}.started ] && break; sleep 0.05; done
[ -e {other}.started ] || exit 99
echo "{me} says this"
echo "{me} complains" >&2
printf '%s::test\\tclang: none\\n' {me} >>"$WIREWISE_SKIPPED"
exit {code}
"""
# As a test that does not end, with a process of its own. That one starts no program: a shell that waits
# for one when it is interrupted goes on if the program had just ended by itself.
HANG = """#!/bin/bash
bash -c 'echo $$ >{me}.child; true >{me}.started; exec sleep 600'
exit 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the script finds a Python and a cargo that the test writes."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test.sh", tmp_path / "scripts")
    return tmp_path


def programs(checkout: Path, *, python: str, cargo: str) -> dict[str, str]:
    """Writes both; returns the environment."""
    for path, text in ((checkout / ".venv/bin/python", python), (checkout / "cargo", cargo)):
        path.write_text(text)
        path.chmod(0o755)
    return os.environ | {"PATH": f"{checkout}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("pytest_code", "cargo_code", "code"), [(0, 0, 0), (1, 0, 1), (0, 101, 101), (2, 101, 2)]
)
def test_either_failure_fails_the_run(checkout: Path, pytest_code: int, cargo_code: int, code: int) -> None:
    env = programs(
        checkout,
        python=MEET.format(me="pytest", other="cargo", code=pytest_code),
        cargo=MEET.format(me="cargo", other="pytest", code=cargo_code),
    )
    done = subprocess.run(
        ["scripts/test.sh"],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stderr
    assert ("error: pytest failed with exit code" in done.stderr) == (pytest_code != 0)
    assert ("error: cargo test failed with exit code" in done.stderr) == (cargo_code != 0)
    # What cargo printed is in one piece, behind what pytest did.
    lines = done.stdout.splitlines()
    assert lines.index("pytest says this") < lines.index("cargo says this") < lines.index("cargo complains")
    assert lines[-1] == "2 tests or modules were skipped for lack of: clang"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_both_and_what_they_started(checkout: Path, number: signal.Signals) -> None:
    env = programs(checkout, python=HANG.format(me="pytest"), cargo=HANG.format(me="cargo"))
    # As from a terminal: the signal reaches the script's process group, in which the tests are not.
    run = subprocess.Popen(["scripts/test.sh"], cwd=checkout, env=env, start_new_session=True)
    try:
        wait(lambda: (checkout / "pytest.started").exists() and (checkout / "cargo.started").exists())
        children = [int((checkout / f"{name}.child").read_text()) for name in ("pytest", "cargo")]
        os.killpg(run.pid, number)
        assert run.wait(PATIENCE_S) == 130
        wait(lambda: not any(map(alive, children)))
    finally:
        run.kill()


def alive(process: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait(so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < end
        time.sleep(0.02)
