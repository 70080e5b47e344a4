# SPDX-License-Identifier: Apache-2.0
"""A model that reads fewer features takes over under load: with `--keep-state-of` flows go on, both ways."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import needs
from tests.e2e.sending import send_all
from tests.e2e.test_cpus import A, B, udp
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.errors import WirewiseError
from wirewise.feature_sets import FeatureSet
from wirewise.formats.bundle import Bundle
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

pytestmark = needs.marks()

FEATURES = FeatureSet.from_dict(
    {
        "name": "four",
        "features": ["sum(length)", "max(length)", "count", "mean(iat)"],
        # The packets come over whichever CPU sends them.
        "flow_table": {"sharing": "shared"},
    }
)
FLOWS, LENGTH = 16, 48  # bytes of each IP packet


def reading(*features: int) -> TreeEnsemble:
    """A model that tests these features, and says benign."""
    trees = [
        Tree((index, LEAF, LEAF), (0, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (0,)))
        for index in features
    ]
    return TreeEnsemble(len(FEATURES.features), 2, "majority", tuple(trees), 2, (0, 0))


@dataclass(frozen=True)
class Lab:
    made: Wire
    folder: Path

    def look(self, command: str, *options: str | Path) -> dict[str, Any]:
        return agent.call(
            command, "--interface", self.made.receiver, *options, within=within(self.made.inside)
        )

    def compile(self, name: str, features: list[int], keep: str | None = None) -> Path:
        path = self.folder / f"{name}.wirewise"
        running = Bundle.read(self.folder / f"{keep}.wirewise") if keep else None
        made = compile(
            reading(*features), FEATURES, name=name, classes=["benign", "attack"], keep_state_of=running,
            verify="never",
        )  # fmt: skip
        made.bundle.write(path)
        return path

    @contextmanager
    def load(self) -> Iterator[list[int]]:
        """Sends packets of all flows in turn meanwhile; the list gets how many of each flow there were."""
        sent, end = list[int](), threading.Event()
        frames = [udp((A[0], A[1] + flow), B) for flow in range(FLOWS)]

        def rounds() -> Iterator[bytes]:
            for number in count(1):
                yield from frames
                if end.is_set():
                    sent.append(number)
                    return

        def act() -> None:
            with open_sender(self.made.sender) as sender:
                send_all(self.made.sender, sender, rounds())

        thread = threading.Thread(target=lambda: inside_namespace(self.made.outside, act))
        thread.start()
        try:
            yield sent
        finally:
            end.set()
            thread.join()

    def flows(self) -> list[dict[str, Any]]:
        flows = self.look("flows", "--state", "--limit", "0")["flows"]
        return [flow for flow in flows if (flow["source"], flow["destination_port"]) == (A[0], B[1])]


def test_flows_go_on_under_a_model_that_reads_fewer_features_and_come_back(tmp_path: Path) -> None:
    with wire() as made:
        lab = Lab(made, tmp_path)
        wide, padded = lab.compile("wide", [0, 1, 3]), lab.compile("padded", [1], keep="wide")
        narrow = lab.compile("narrow", [1])
        lab.look("run", "--bundle", wide)
        with pytest.raises(WirewiseError, match=f"--keep-state-of {wide}") as refused:
            lab.look("swap", "--bundle", narrow)
        assert "without" in str(refused.value)
        with lab.load() as sent:
            for _ in range(5):
                lab.look("swap", "--bundle", padded)
                lab.look("rollback")
            lab.look("swap", "--bundle", padded)
        flows = lab.flows()
        assert len(flows) == FLOWS and sent[0] > 5
        for flow in flows:
            assert flow["packets"] == sent[0], "no packet of a flow was missed or counted anew"
            # What only the wide model reads is accounted by the other too.
            assert flow["state"]["sum_length"] == sent[0] * LENGTH
