# SPDX-License-Identifier: Apache-2.0
"""At rest, commands, metrics, events, IPFIX and the API that the page shows tell the same."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
from typing import Any

from tests.e2e import needs
from tests.e2e.collectors import Collector, ip
from tests.e2e.sending import send_all
from tests.e2e.serving import Lab, Local, asked, events_in, until
from tests.e2e.test_cpus import A, B, udp
from tests.e2e.test_serve_ipfix import ENTERPRISE, decoded, domain, key, number
from tests.ports import free_port
from wirewise import agent
from wirewise.demo.network import inside_namespace
from wirewise.demo.sender import open_sender

pytestmark = needs.marks()

FLOWS, PACKETS, BORDER = 7, 23, 10
"""Packets of each flow, of which those after the first ones are an attack."""


def of_api(lab: Lab, path: str) -> dict[str, Any]:
    code, body = asked(Local(lab.socket), "GET", f"/api/v1/{path}?interface={lab.made.receiver}")
    assert code == 200, body
    (own,) = json.loads(body)["attachments"]
    return dict(own)


def streamed(lab: Lab, count: int) -> list[dict[str, Any]]:
    """The first events of this lab's interface from the API's stream, which has no end."""
    connection = Local(lab.socket)
    connection.request("GET", "/api/v1/events")
    lines = (
        line.decode().removeprefix("data: ") for line in connection.getresponse() if line.startswith(b"data")
    )
    own = (event for event in map(json.loads, lines) if event["in_iface"] == lab.made.receiver)
    said = list(itertools.islice(own, count))
    connection.close()
    return said


def without_times(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in ("time", "age_seconds")}


def test_all_tell_the_same(lab: Lab) -> None:
    port = free_port()
    with ip(port, socket.SOCK_DGRAM) as collector:
        compare(lab, collector, port)


def compare(lab: Lab, collector: Collector, port: int) -> None:
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: {action: count, severity: 2}}\n"
        "events: {rate: 100000/s, burst: 100000}\n"
    )
    lab.write(
        lab.entry(policy="count.yaml"),
        events={"file": "eve.json"},
        ipfix={"collector": f"udp://127.0.0.1:{port}", "idle": "1s", "enterprise": ENTERPRISE},
    )
    lab.start()
    until("it is kept", lab.kept)

    def send() -> None:
        frames = [udp((A[0], 2000 + flow), B) for _ in range(PACKETS) for flow in range(FLOWS)]
        with open_sender(lab.made.sender) as sender:
            send_all(lab.made.sender, sender, frames, burst=1)

    inside_namespace(lab.made.outside, send)
    all_packets, attacks = FLOWS * PACKETS, FLOWS * (PACKETS - BORDER)
    until("all are judged", lambda: lab.metric("wirewise_packets_total") == all_packets)

    def written() -> list[dict[str, Any]]:
        events = events_in(lab.folder / "eve.json")
        return [event for event in events if event["in_iface"] == lab.made.receiver]

    until("all events are written", lambda: len(written()) == attacks)

    stats = lab.look("stats")
    assert without_times(of_api(lab, "stats")) == without_times(stats)
    packets = {row["name"]: sum(it["packets"] for it in row["outcomes"].values()) for row in stats["classes"]}
    assert packets == {"attack": attacks, "benign": all_packets - attacks}
    for name, count in packets.items():
        assert lab.metric("wirewise_packets_total", **{"class": name}) == count
    sent = lab.metric("wirewise_events_total", fate="sent")
    assert (sent, stats["events"]["sent"], stats["events"]["limited"]) == (attacks, attacks, 0)

    events = written()
    told = subprocess.run(
        [agent.find(), "events", "--json", *lab.place], check=True, capture_output=True
    ).stdout
    assert list(map(json.loads, told.splitlines())) == events
    assert streamed(lab, attacks) == events
    assert (
        lab.metrics()[
            f'wirewise_serve_events_total{{output="file",to="{lab.folder / "eve.json"}",fate="written"}}'
        ]
        >= attacks
    )

    flows = [without_times(flow) for flow in lab.look("flows")["flows"]]
    assert [without_times(flow) for flow in of_api(lab, "flows")["flows"]] == flows
    assert [(flow["packets"], flow["class"]) for flow in flows] == [(PACKETS, "attack")] * FLOWS
    talkers = of_api(lab, "talkers")
    for kind, address in (("sources", A[0]), ("targets", B[0])):
        assert talkers[kind] == {
            "first": [{"address": address, "packets": all_packets, "flows": FLOWS}],
            "exact": True,
        }
    # By flow, the last event has the packets that the table has.
    last = {event["flow_id"]: event["wirewise"]["packets"] for event in events}
    assert sorted(last.values()) == [PACKETS] * FLOWS

    def exported() -> dict[tuple[object, ...], tuple[int, str]]:
        """By flow, packets and class of the record with the most: a pause as long as `idle` makes several."""
        records = sorted(decoded(collector, domain(lab)), key=lambda record: number(record[0, 86]))
        return {
            key(record): (number(record[0, 86]), record[ENTERPRISE, 2].decode())
            for record in records
            if (ENTERPRISE, 2) in record
        }

    shown = {
        tuple(flow[it] for it in ("source", "source_port", "destination", "destination_port", "protocol")): (
            flow["packets"],
            flow["class"],
        )
        for flow in flows
    }
    until("IPFIX has as much", lambda: sum(packets for packets, _ in exported().values()) >= all_packets)
    assert exported() == shown
