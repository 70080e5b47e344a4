# SPDX-License-Identifier: Apache-2.0
"""The agent, the service and the tests are made of the same crates with the same features.

Otherwise cargo compiles those that differ, and all that is made of them, once for each. Our own crates are
compiled with the same checks, whichever they are.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def crates(*selected: str) -> set[tuple[str, str]]:
    """Name and version, and features, of all that a selection of the workspace is made of."""
    command = ["cargo", "tree", "--locked", "--offline", "--prefix=none", "--format={p}\t{f}", *selected]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert not done.returncode, done.stderr
    lines = {line.removesuffix(" (*)").rpartition("\t") for line in done.stdout.splitlines() if line}
    return {(name, features) for name, _, features in lines if "(/" not in name}


@pytest.mark.parametrize("package", ["wirewised", "wirewise-serve"])
def test_a_program_alone_is_made_of_what_the_workspace_is_made_of(package: str) -> None:
    alone = crates("--package", package, "--edges", "normal,build")
    together = crates("--workspace", "--edges", "normal,build,dev")
    assert len(alone) > 50
    otherwise = sorted(alone - together)
    assert not otherwise, "write what the others turn on into crates/wirewised/Cargo.toml"


@pytest.mark.parametrize(
    ("profile", "check"), [("release", "overflow-checks"), ("bench", "debug-assertions")]
)
def test_every_crate_of_ours_checks_itself(profile: str, check: str) -> None:
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    section = text.partition(f"[profile.{profile}.package]\n")[2].partition("\n\n")[0]
    checked = set(re.findall(rf"^([\w-]+) = .*\b{check} = true", section, re.MULTILINE))
    ours = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    assert checked == ours - {"test-needs"}
