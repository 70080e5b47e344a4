# SPDX-License-Identifier: Apache-2.0
"""Events that carry what their packet was judged by, and why the model judged so."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.e2e import needs
from tests.e2e.serving import Lab, Local, asked, until
from wirewise import agent

pytestmark = needs.marks()

BORDER = 10
"""Flows with more packets are attacks, says the bundle."""


def told(lab: Lab) -> list[dict[str, Any]]:
    """Verdicts from `events --json`, one per packet."""
    command = [agent.find(), "events", "--json", *lab.place]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["wirewise"] for line in said.splitlines()]


def serve(lab: Lab, policy: str, **entry: Any) -> None:
    (lab.folder / "watched.yaml").write_text(f"version: 1\nclasses: {{attack: drop}}\n{policy}")
    lab.write(lab.entry(policy="watched.yaml", **entry))


def explain(lab: Lab, features: dict[str, int]) -> tuple[int, Any]:
    query = urlencode({"interface": lab.made.receiver, "features": json.dumps(features)})
    code, said = asked(Local(lab.socket), "GET", f"/api/v1/explain?{query}")
    return code, json.loads(said)


@pytest.mark.parametrize("plane", ["xdp-native", "tc-ingress", "af-packet"])
def test_each_event_has_the_features_of_its_packet(lab: Lab, plane: str) -> None:
    serve(lab, "events: {features: true, rate: 1000/s, burst: 1000}\n", plane=plane)
    lab.start()
    until("it is kept", lab.kept)

    # A plane in user space may not see the first packets.
    def is_told() -> bool:
        lab.send(30)
        return len(told(lab)) >= 30 - BORDER

    until("packets are told", is_told)
    events = told(lab)
    assert [event["packets"] for event in events] == [*range(BORDER + 1, BORDER + 1 + len(events))]
    assert all(event["features"] == {"count": event["packets"]} for event in events)


def test_without_the_model_there_are_no_features_and_a_policy_may_ask_later(lab: Lab) -> None:
    rate = "rate: 1000/s, burst: 1000"
    serve(lab, f"events: {{{rate}}}\n")
    lab.start()
    until("it is kept", lab.kept)
    lab.send(20)
    assert lab.reload() == (200, {"changes": []})
    serve(lab, f"trigger: {{packets: [25]}}\nevents: {{features: true, {rate}}}\n")
    assert lab.reload()[0] == 200
    lab.send(10)
    until("all are told", lambda: len(told(lab)) == 20)
    features = {event["packets"]: event.get("features") for event in told(lab)}
    # Flows went on, and the model ran on one packet of those that it was asked about.
    assert features == {number: {"count": 25} if number == 25 else None for number in range(11, 31)}


def test_the_way_through_the_trees_is_that_of_the_features(lab: Lab) -> None:
    serve(lab, "")
    lab.start()
    until("it is kept", lab.kept)
    code, said = explain(lab, {"count": 11})
    assert code == 200
    assert said["features"] == [{"name": "count", "raw": 11, "value": 11.0, "unit": "packets"}]
    (tree,) = said["trees"]
    assert tree["says"] == "votes for attack"
    assert tree["tests"] == [{"feature": "count", "value": 11.0, "threshold": 10.0, "below": False}]
    assert explain(lab, {"count": 10})[1]["trees"][0]["says"] == "votes for benign"
    for features, why in (({}, "reads count"), ({"count": 1, "other": 2}, 'no feature "other"')):
        code, said = explain(lab, features)
        assert (code, why in said["error"]["message"]) == (404, True), said
    # What the file holds is not what runs.
    (lab.folder / "first.wirewise").write_bytes((lab.folder / "second.wirewise").read_bytes())
    code, said = explain(lab, {"count": 11})
    assert (code, "another bundle" in said["error"]["message"]) == (404, True), said
