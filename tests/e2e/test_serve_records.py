# SPDX-License-Identifier: Apache-2.0
"""What outputs get beside events, and numbers that are made now and then."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl

from tests.e2e import needs
from tests.e2e.collectors import unix
from tests.e2e.serving import PATIENCE_S, Lab, Local, asked, events_in, until
from tests.e2e.test_serve_agreement import without_times
from tests.e2e.test_serve_ipfix import IPV4, send, talk
from tests.e2e.test_serve_outputs import DATAGRAM, in_file
from wirewise.compiler import compile
from wirewise.datasets import Table
from wirewise.feature_sets import FeatureSet
from wirewise.models import random_tree_ensemble

pytestmark = needs.marks()


def records(lab: Lab, kind: str) -> list[dict[str, Any]]:
    """Those that name this lab's interface, or none."""
    return [
        it
        for it in events_in(lab.folder / "eve.json")
        if it["event_type"] == kind and it.get("in_iface", lab.made.receiver) == lab.made.receiver
    ]


def counted(lab: Lab) -> None:
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: count}\nevents: {rate: 100000/s, burst: 100000}\n"
    )


def test_numbers_and_who_asked_for_changes_are_recorded(lab: Lab) -> None:
    counted(lab)
    with unix(lab.folder / "datagram", DATAGRAM) as datagram:
        outputs = [{"file": "eve.json", "records": ["stats", "audit"]}, {"unix_dgram": "datagram"}]
        lab.write(lab.entry(policy="count.yaml"), events=outputs, records={"stats": "1s"})
        service = lab.start()
        until("it is kept", lab.kept)
        lab.send(13)
        until("the numbers rest", lambda: records(lab, "stats")[-1:] and rests(lab))
        path = f"/api/v1/mode?interface={lab.made.receiver}&netns={lab.made.inside}&mode=observe"
        assert asked(Local(lab.socket), "POST", path)[0] == 200
        until("it is recorded", lambda: len(records(lab, "audit")) == 1)
        lab.write(lab.entry(bundle="nosuch", policy="count.yaml"), events=outputs, records={"stats": "1s"})
        assert lab.reload()[0] == 409
        until("they are recorded", lambda: len(records(lab, "audit")) == 3)
        mode, request, reload = (it["audit"] for it in records(lab, "audit"))
        assert (mode["path"], mode["query"], mode["result"]) == (*path.split("?"), "admitted")
        assert mode["peer"] == "user 0"
        assert request["path"] == "/api/v1/reload"
        assert (reload["result"], reload["changes"]) == ("refused", [])
        assert "nosuch" in reload["error"]
        until("others have events only", lambda: len(datagram.messages) >= 3)
        assert {json.loads(it)["event_type"] for it in datagram.messages} <= {"wirewise", "alert"}
    # The next service must not take records for events: it reports each event once.
    count = len(records(lab, "stats"))
    until("records come last", lambda: len(records(lab, "stats")) > count)
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    lab.send(1)
    lab.write(lab.entry(policy="count.yaml"), events=outputs, records={"stats": "1s"})
    lab.start()
    until("the new one is there", lambda: in_file(lab) == [11, 12, 13, 14])


def rests(lab: Lab) -> bool:
    """Whether the latest record has what the command says now."""
    return without_times(records(lab, "stats")[-1]["stats"]) == without_times(lab.look("stats"))


def test_drift_is_recorded_and_measured(lab: Lab) -> None:
    features = FeatureSet("lengths", ["count", "max(length)"])
    rows = {
        "capture": ["a"] * 200,
        "flow": [f"6 10.0.0.1|{number} 10.0.0.2|999" for number in range(200)],
        "sender": [1] * 200,
        "count": [1] * 200,
        "max_length": range(1000, 1200),
    }
    learned = Table(pl.DataFrame(rows), features)
    model = random_tree_ensemble(np.random.default_rng(1), n_features=2, n_classes=2, tested=[0, 1])
    made = compile(
        model, features, name="learned", classes=["benign", "attack"], learned=learned, verify="never"
    )
    made.bundle.write(lab.folder / "learned.wirewise")
    lab.write(lab.entry(bundle="learned.wirewise"))
    service = lab.start()
    until("it is kept", lab.kept)
    send(lab, [packet for port in range(1000, 1150) for packet in talk(IPV4, port, 1, 0)])
    until("they are there", lambda: lab.metric("wirewise_packets_total") == 150)
    assert service.poll() is None
    service.terminate()
    service.wait(PATIENCE_S)
    # The first thing that a service does.
    lab.write(
        lab.entry(bundle="learned.wirewise"),
        events={"file": "eve.json", "records": ["drift"]},
        program_times=True,
    )
    lab.start()
    until("it is told", lambda: records(lab, "drift"))
    (drift,) = (it["drift"] for it in records(lab, "drift"))
    assert (drift["verdict"], drift["before"], drift["flows"]) == ("out-of-depth", None, 150)
    assert drift["features"][0]["name"] == "max_length"
    assert lab.metric("wirewise_drift_level") == 2
    assert lab.metric("wirewise_drift_psi") == drift["features"][0]["psi"]
    lab.send(10)
    until("runs are measured", lambda: lab.metric("wirewise_program_runs_total") >= 10)
    assert lab.metric("wirewise_program_time_seconds_total") > 0


def test_flows_that_are_over_are_recorded(lab: Lab) -> None:
    output = {"file": "eve.json", "records": ["flow"]}
    lab.write(lab.entry(), events=output, records={"idle": "1s"})
    lab.start()
    until("it is kept", lab.kept)
    send(lab, talk(IPV4, 1000, 3, 2))

    def found() -> list[dict[str, Any]]:
        return [it for it in records(lab, "flow") if it["src_ip"] == IPV4[0]]

    until("it is over", lambda: bool(found()))
    flow = found()[-1]
    assert [flow[it] for it in ("src_ip", "src_port", "dest_ip", "dest_port", "proto")] == [
        IPV4[0], 1000, IPV4[1], 53, "UDP",
    ]  # fmt: skip
    # The key is that of one direction.
    assert (flow["flow"]["pkts"], flow["flow"]["reason"]) == (3, "timeout")
    assert flow["wirewise"]["class"] == "benign"
    assert flow["flow_id"] > 0
