# SPDX-License-Identifier: Apache-2.0
"""Classes that need some verdicts in a row (`after`): flows that change their class, on every plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.multiplicity import few
from tests.parity.cases import Case
from tests.parity.frames import TimedFrame, ethernet, ipv4, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.feature_set import SHARINGS
from wirewise.models import Bound, Bounded
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

SECOND = 10**9
FEATURES = FeatureSet.from_dict({"name": "streaks", "key": "five-tuple", "features": ["length"]})
POLICY = {
    "version": 1,
    "classes": {
        "c1": {"action": "drop", "after": 3},
        "c2": {"action": "drop", "after": 15},
        "c3": {"action": "drop", "after": 2},
    },
}
# IP lengths of the classes. The last is longer than anything known, so `Bounded` says it, not the tree.
LENGTHS = (60, 150, 250, 350)


def case(shape: str, sharing: str, trigger: Any = "every") -> Case:
    tree = Tree(
        (0, LEAF, 0, LEAF, LEAF), (100, 0, 200, 0, 0), (1, LEAF, 3, LEAF, LEAF), (2, LEAF, 4, LEAF, LEAF),
        ((), (0,), (), (1,), (2,)),
    )  # fmt: skip
    model = Bounded(TreeEnsemble(1, 3, "majority", (tree,), 3, (0, 0, 0)), (Bound(0, 0, 300),))
    features = replace(FEATURES, sharing=sharing)
    return Case("streaks", features, model, POLICY | {"trigger": trigger}, "enforce", shape)


def flow(said: str, *, start_ns: int = SECOND) -> list[TimedFrame]:
    """Packets of one flow, 1 us apart; of each the model says the class whose number stands there."""
    frames = []
    for number, class_id in enumerate(map(int, said)):
        payload = udp(1, 2, LENGTHS[class_id] - 20) + bytes(LENGTHS[class_id] - 28)
        packet = ipv4(b"\x0a\0\0\1", b"\x0a\0\0\2", 17, payload)
        frames.append((start_ns + 1000 * number, ethernet(packet, 0x0800)))
    return frames


def counted(run: Run) -> str:
    return "".join(str(class_id) for class_id in run.heads[:, 2])


SEQUENCES: list[tuple[str, Any, str]] = [
    ("1111011111", "every", "0011000111"),
    ("1122111211122", "every", "0000001000100"),
    ("2" * 20 + "12", "every", "0" * 14 + "2" * 6 + "00"),
    ("33133301111", "every", "03003300011"),
    # Inferred are packets 1, 2, 5 and 8: what they say holds in between, and counts once.
    ("1000100100", {"packets": [1, 2, 5, 8]}, "0000000000"),
    ("1100100100", {"packets": [1, 2, 5, 8]}, "0000111111"),
]
"""The model's class for each packet, the policy's trigger, and the class that counts for each packet."""


@needs_kernel
@pytest.mark.parametrize(("sequence", "shape", "sharing"), few(SEQUENCES, ["inline", "tail-calls"], SHARINGS))
def test_a_class_counts_from_its_nth_verdict_in_a_row(
    tmp_path: Path, sequence: tuple[str, Any, str], shape: str, sharing: str
) -> None:
    said, trigger, expected = sequence
    runs: list[Run] = []
    assert_agree(case(shape, sharing, trigger), flow(said), tmp_path, seen=runs.append)
    assert counted(runs[0]) == expected
    assert [action == 1 for action in runs[0].heads[:, 3]] == [class_id != "0" for class_id in expected]


@needs_kernel
@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_new_flow_in_the_same_place_begins_again(tmp_path: Path, sharing: str) -> None:
    """The same addresses after the idle timeout are another flow, which has no verdicts yet."""
    idle = SECOND + 2 * FEATURES.idle_timeout_ns
    runs: list[Run] = []
    frames: Sequence[TimedFrame] = [*flow("1111"), *flow("1111", start_ns=idle)]
    assert_agree(case("inline", sharing), frames, tmp_path, seen=runs.append)
    assert counted(runs[0]) == "00110011"
