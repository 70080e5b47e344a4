# SPDX-License-Identifier: Apache-2.0
"""Events that carry what their packet was judged by."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e import needs
from tests.e2e.serving import Lab, until
from wirewise import agent

pytestmark = needs.marks()

BORDER = 10
"""Flows with more packets are attacks, says the bundle."""


def told(lab: Lab) -> list[dict[str, Any]]:
    """What `events --json` says of each packet."""
    place = ("--interface", lab.made.receiver, "--netns", lab.made.inside)
    command = [agent.find(), "events", "--json", *place]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["wirewise"] for line in said.splitlines()]


def serve(lab: Lab, policy: str, **entry: Any) -> None:
    (lab.folder / "watched.yaml").write_text(f"version: 1\nclasses: {{attack: drop}}\n{policy}")
    lab.write(lab.entry(policy="watched.yaml", **entry))


@pytest.mark.parametrize("plane", ["xdp-native", "tc-ingress", "af-packet"])
def test_each_event_has_the_features_of_its_packet(lab: Lab, plane: str) -> None:
    serve(lab, "events: {features: true, rate: 1000/s, burst: 1000}\n", plane=plane)
    lab.start()
    until("it is kept", lab.kept)
    lab.send(30)
    until("all are told", lambda: len(told(lab)) == 30 - BORDER)
    events = told(lab)
    assert [event["packets"] for event in events] == [*range(BORDER + 1, 31)]
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
