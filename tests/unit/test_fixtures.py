# SPDX-License-Identifier: Apache-2.0
"""The agent's tests compile headers that say they are as wirewise generates them. They are, but for switches
with which a test asks for something else.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wirewise.feature_sets import FeatureSet
from wirewise.models import Tree, TreeEnsemble
from wirewise.targets.ebpf import emit

FOLDER = Path(__file__).parents[2] / "crates" / "wirewised" / "tests" / "fixtures" / "datapath"
STUMP = Tree((0, -1, -1), (100, 0, 0), (1, -1, -1), (2, -1, -1), ((), (0,), (1,)))
MODEL = TreeEnsemble(2, 2, "majority", (STUMP,), 2, (0, 0))


def feature_set(sharing: str) -> FeatureSet:
    document = {
        "name": "fixture",
        "features": ["length", "sum(length)"],
        "table_size": 1024,
        "idle_timeout": "1h",
    }
    return FeatureSet.from_dict({**document, "flow_table": {"sharing": sharing}})


def tokens(text: str, switches: set[str]) -> list[str]:
    """What is left of a header when its conditions are decided: words and signs, without comments."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    values = dict.fromkeys(switches, "1")
    kept: list[str] = []
    stack = [True]
    for line in text.splitlines():
        words = line.split()
        if line.startswith(("#ifdef", "#ifndef", "#if ")):
            holds = {
                "#ifdef": words[1] in values,
                "#ifndef": words[1] not in values,
                "#if": values.get(words[1]) not in (None, "0"),
            }[words[0]]
            stack.append(holds and stack[-1])
        elif line.startswith("#else"):
            stack[-1] = not stack[-1] and stack[-2]
        elif line.startswith("#endif"):
            stack.pop()
        elif stack[-1]:
            if words[:1] == ["#define"] and len(words) == 3 and words[2] not in ("\\",):
                values[words[1]] = values.get(words[2], words[2])
                line = f"#define {words[1]} {values[words[1]]}"
            kept.append(line)
    assert len(stack) == 1
    return re.findall(r"\w+|[^\w\s]", "\n".join(kept))


def settled(found: list[str], *own: str) -> list[str]:
    """Without the definitions of the fixture's own switches, and these in their places."""
    text = " ".join(found)
    for name in own:
        match = re.search(rf"# define {name} (\w+) ", text)
        assert match is not None
        text = re.sub(rf"\b{name}\b", match[1], text.replace(match[0], "", 1))
    return text.split()


@pytest.mark.parametrize("sharing", ["per-cpu", "shared"])
def test_the_feature_set_is_as_generated(sharing: str) -> None:
    # The model reads one feature; the program of the fixture computes both, as one without a model does.
    generated = emit(None, feature_set(sharing)).files["ww_feature_set.h"]
    fixture = (FOLDER / "ww_feature_set.h").read_text()
    assert tokens(fixture, {"SHARED"} if sharing == "shared" else set()) == tokens(generated, set())


def test_the_model_is_as_generated() -> None:
    generated = emit(MODEL, feature_set("per-cpu")).files["ww_model.h"]
    fixture = (FOLDER / "ww_model.h").read_text()
    assert settled(tokens(fixture, set()), "WW_BORDER") == tokens(generated, set())


def test_a_difference_is_found() -> None:
    generated = emit(None, feature_set("per-cpu")).files["ww_feature_set.h"]
    fixture = (FOLDER / "ww_feature_set.h").read_text()
    assert tokens(fixture, {"WIDE"}) != tokens(generated, set())
    assert tokens(fixture.replace("WW_SUM_MAX", "WW_SQUARE_MAX"), set()) != tokens(generated, set())
