# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.late`: a second model for flows that last, beside a first one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench import late
from tests.unit.test_out_of_fold import drawn


def test_each_second_model_and_share_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FIRST", 2), ("STEP", 1), ("SECOND", (("forest", 3, 4),)), ("SHOWN", (0.01, 0.5))):
        monkeypatch.setattr(late, name, value)
    lines = list(late.measured(drawn(np.random.default_rng(3)), 0))
    assert [(line["wish"], line["share"]) for line in lines] == [
        (wish, share) for wish in late.SHOWN for share in late.SHARES
    ]
    assert all(set(line["by_family"]) == {"flood", "scan"} for line in lines)
    assert all(0 <= line[of] <= 1 for line in lines for of in ("lost", "families", "captures", "sources"))
    alone = [line["families"] for line in lines if line["share"] == 0]
    assert alone == sorted(alone) and alone[-1] > alone[0], "the more may be lost, the more is found"


def test_a_flow_is_found_by_either_model_and_each_has_its_share_of_the_loss() -> None:
    flows = pl.DataFrame(
        {
            "capture": ["a"] * 4 + ["b"] * 4 + ["c", "c"],
            "unit": ["a"] * 4 + ["b"] * 4 + ["c", "c"],
            "label": ["benign"] * 8 + ["flood", "tunnel"],
            "attack": [False] * 8 + [True] * 2,
            "1": [1, 2, 3, 4, 1, 2, 3, 9, 5, 0],
            "late": [0, 0, 0, 7, 0, 0, 0, 0, 0, 8],
        }
    )
    alone, both = late._found(flows, 0.25, 0.0), late._found(flows, 0.25, 0.5)
    assert alone["by_family"] == {"flood": 1.0, "tunnel": 0.0}
    assert both["by_family"] == {"flood": 1.0, "tunnel": 1.0}


def test_a_folder_without_captures_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert late.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
