# SPDX-License-Identifier: Apache-2.0
"""Where the service's events go: what collectors get, and what one that does not read costs."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import collectors, needs
from tests.e2e.collectors import Collector, counted, ip, journal, lines, syslog, unix, web
from tests.e2e.serving import PATIENCE_S, SERVE, Lab, events_in, until
from tests.e2e.test_cpus import A
from tests.ports import free_port
from wirewise import agent

pytestmark = needs.marks()

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


@pytest.fixture
def lab(lab: Lab) -> Lab:
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: {action: count, severity: 2}}\n"
        "events: {rate: 100000/s, burst: 100000}\n"
    )
    return lab


def start(lab: Lab, *outputs: dict[str, object]) -> subprocess.Popen[bytes]:
    lab.write(lab.entry(policy="count.yaml"), events=list(outputs))
    service = lab.start()
    until("it is kept", lab.kept)
    return service


def own(lab: Lab, events: list[dict[str, Any]]) -> list[int]:
    """Packets of their flow so far, of this lab's events; others' may be attached.

    Sorted: a sender that moves to another CPU has its events in another ring, which may be read first.
    """
    ours = (it for it in events if it.get("in_iface") == lab.made.receiver)
    return sorted(it["wirewise"]["packets"] for it in ours if it["event_type"] in ("wirewise", "alert"))


def in_json(collector: Collector) -> list[dict[str, Any]]:
    return [json.loads(message) for message in list(collector.messages)]


def in_syslog(collector: Collector) -> list[dict[str, Any]]:
    return [syslog(message)["event"] for message in list(collector.messages)]


def in_file(lab: Lab) -> list[int]:
    return own(lab, events_in(lab.folder / "eve.json"))


def of_output(lab: Lab, kind: str) -> dict[str, Any]:
    (found,) = (it for it in lab.state()["outputs"] if it["output"] == kind)
    return dict(found)


def test_every_output_has_every_event(lab: Lab) -> None:
    at = lab.folder
    udp_port, tcp_port = free_port(), free_port()
    with (
        unix(at / "stream", STREAM, lines) as stream,
        unix(at / "datagram", DATAGRAM) as datagram,
        unix(at / "devlog", DATAGRAM) as log,
        ip(udp_port, DATAGRAM) as udp,
        ip(tcp_port, STREAM, counted) as tcp,
        unix(at / "journal", DATAGRAM) as journald,
    ):
        start(
            lab,
            {"file": "eve.json"},
            {"unix_stream": "stream"},
            {"unix_dgram": "datagram"},
            {"syslog": "devlog", "facility": "authpriv"},
            {"syslog": f"udp://127.0.0.1:{udp_port}"},
            {"syslog": f"tcp://127.0.0.1:{tcp_port}", "facility": "local3"},
            {"journald": "journal"},
        )
        lab.send(30)
        wanted = list(range(11, 31))
        for collector in (stream, datagram):
            until("they are there", lambda: own(lab, in_json(collector)) == wanted)  # noqa: B023
        for collector in (log, udp, tcp):
            until("they are there", lambda: own(lab, in_syslog(collector)) == wanted)  # noqa: B023
        until("the file has them", lambda: in_file(lab) == wanted)

        def entries() -> list[dict[str, str]]:
            fields = [journal(message) for message in list(journald.messages)]
            return [it for it in fields if it["WIREWISE_INTERFACE"] == lab.made.receiver]

        until("the journal has them", lambda: len(entries()) == len(wanted))

    # The severity of the policy, 2, is an error, 3; with the facility's number times 8.
    for collector, facility in ((log, 10), (udp, 3), (tcp, 19)):
        for message in map(syslog, collector.messages):
            if message["event"]["in_iface"] != lab.made.receiver:
                continue
            assert int(message["pri"]) == facility * 8 + 3
            assert (message["app"], message["kind"]) == (b"wirewise", b"alert")
            assert message["time"].decode().replace("+00:00", "+0000") == message["event"]["timestamp"]
            assert message["host"] == socket.gethostname().encode()
    for entry in entries():
        event = json.loads(entry["MESSAGE"])
        assert entry["PRIORITY"] == "3"
        assert entry["SYSLOG_IDENTIFIER"] == "wirewise"
        assert (entry["WIREWISE_CLASS"], entry["WIREWISE_SRC_IP"]) == ("attack", event["src_ip"])
    assert all(it["lost"] == 0 and it["written"] >= 20 and not it["error"] for it in lab.state()["outputs"])
    to = str(lab.folder / "stream")
    sample = f'wirewise_serve_events_total{{output="unix_stream",to="{to}",fate="written"}}'
    assert lab.metrics()[sample] >= 20


def test_who_does_not_read_loses_alone(lab: Lab) -> None:
    with unix(lab.folder / "stuck", STREAM, lines) as stuck, unix(lab.folder / "quick", DATAGRAM) as quick:
        stuck.reads.clear()
        service = start(lab, {"file": "eve.json"}, {"unix_stream": "stuck"}, {"unix_dgram": "quick"})
        lab.send(10)
        sent = 0
        while of_output(lab, "unix_stream")["lost"] == 0:
            assert sent < 50_000, "a socket and a queue have an end"
            lab.send(500)
            sent += 500
            until("the others go on", lambda: len(in_file(lab)) == sent)  # noqa: B023
        until("all are there", lambda: own(lab, in_json(quick)) == in_file(lab))
        assert in_file(lab) == list(range(11, 11 + sent))
        assert [of_output(lab, kind)["lost"] for kind in ("file", "unix_dgram")] == [0, 0]
        log = lab.log.read_text()
        assert log.count("does not keep up") == 1
        # Once it reads again, it has what waited, and what comes later.
        stuck.reads.set()
        until("it caught up", lambda: len(in_json(stuck)) == of_output(lab, "unix_stream")["written"] > 4096)
        lab.send(1)
        last = 11 + sent
        until("later events arrive", lambda: own(lab, in_json(stuck))[-1:] == [last])
        until("all is counted", lambda: of_output(lab, "unix_stream")["error"] is None)
        ours = of_output(lab, "unix_stream")
        assert len(stuck.messages) + ours["lost"] >= sent + 1
        service.terminate()
        assert service.wait(PATIENCE_S) == 0


def test_who_comes_back_gets_what_waited(lab: Lab) -> None:
    port = free_port()
    start(
        lab,
        {"unix_stream": "stream"},
        {"unix_dgram": "datagram"},
        {"syslog": f"tcp://127.0.0.1:{port}"},
    )
    lab.send(10)
    had: list[list[int]] = [[], [], []]
    sent = 10
    # Nobody is there at first; then somebody, who goes again.
    for _ in range(2):
        lab.send(5)
        sent += 5
        until("it is said", lambda: all(it["error"] for it in lab.state()["outputs"]))
        with (
            unix(lab.folder / "stream", STREAM, lines) as stream,
            unix(lab.folder / "datagram", DATAGRAM) as datagram,
            ip(port, STREAM, counted) as tcp,
        ):

            def now() -> list[list[int]]:
                read = (in_json(stream), in_json(datagram), in_syslog(tcp))
                return [one + own(lab, events) for one, events in zip(had, read, strict=True)]  # noqa: B023

            until("what waited arrives", lambda: now() == [list(range(11, sent + 1))] * 3)  # noqa: B023
            lab.send(3)
            sent += 3
            until("so does the rest", lambda: now() == [list(range(11, sent + 1))] * 3)  # noqa: B023
            had = now()
    assert [it["lost"] for it in lab.state()["outputs"]] == [0, 0, 0]


def test_a_webhook_is_told_of_the_outcomes_that_it_asks_for(lab: Lab) -> None:
    port = free_port()
    (lab.folder / "token").write_text("a-secret\n")
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: {ban: {by: source, for: 60s, spoofable: true}}}\n"
        "events: {rate: 100000/s, burst: 100000}\n"
    )
    hook = {"webhook": f"http://127.0.0.1:{port}/bans?key=1", "token_file": "token"}
    start(lab, {"file": "eve.json"}, hook | {"only": ["ban", "would-ban"]})
    lab.send(15)
    until("it is said that nobody is there", lambda: of_output(lab, "webhook")["error"])
    assert "key" not in of_output(lab, "webhook")["to"]
    # It waits for a server that is not there, and for one that cannot take it now.
    with web(port, 503, 429) as requests:
        until("it has the ban", lambda: of_output(lab, "webhook")["written"] > 0)
        first = requests[:3]
        assert [request.status for request in first] == [503, 429, 204]
        assert len({request.body for request in first}) == 1
        for request in first:
            assert request.path == "/bans?key=1"
            assert request.headers["Authorization"] == "Bearer a-secret"
            assert request.headers["Content-Type"] == "application/json"
            # Others' attachments may really ban.
            assert json.loads(request.body)["wirewise"]["outcome"] in ("ban", "would-ban")
    assert of_output(lab, "webhook")["lost"] == 0


def test_what_a_webhook_refuses_is_lost_and_the_next_event_is_sent(lab: Lab) -> None:
    port = free_port()
    with web(port, 413) as requests:
        start(lab, {"webhook": f"http://127.0.0.1:{port}/"})
        lab.send(12)
        until("the next arrives", lambda: of_output(lab, "webhook")["written"] > 0)
        assert [request.status for request in requests][:2] == [413, 204]
    assert of_output(lab, "webhook")["lost"] == 1


def test_without_a_file_a_new_service_tells_what_is_new(lab: Lab) -> None:
    with unix(lab.folder / "datagram", DATAGRAM) as datagram:
        service = start(lab, {"unix_dgram": "datagram"})
        lab.send(12)
        until("they are there", lambda: own(lab, in_json(datagram)) == [11, 12])
        service.terminate()
        assert service.wait(PATIENCE_S) == 0
        lab.start()
        lab.send(1)
        until("the new one is there", lambda: own(lab, in_json(datagram)) == [11, 12, 13])


def test_check_counts_outputs(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("version: 1\nevents: [{file: a}, {journald: /run/systemd/journal/socket}]\n")
    command = [SERVE, "--check", "--json", "--config", config]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert said["outputs"] == 2
    assert collectors.counted(b"3 abc12") == ([b"abc"], b"12")


@pytest.mark.parametrize("output", ["unix_stream", "unix_dgram", "syslog", "journald"])
def test_check_refuses_a_path_that_no_socket_can_have(tmp_path: Path, output: str) -> None:
    config = tmp_path / "config.yaml"
    for length, code in ((107, 0), (108, 2)):
        path = "/" + "s" * (length - 1)
        config.write_text(f"version: 1\nevents: {{{output}: {path}}}\n")
        command = [SERVE, "--check", "--config", config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    assert f"`{output}: {path}`" in done.stderr
    assert "at most 107 characters" in done.stderr


def test_a_ban_is_an_event_of_its_own_type(lab: Lab) -> None:
    """The same in a file and from the agent."""
    (lab.folder / "ban.yaml").write_text(
        "version: 1\nclasses: {attack: {severity: 1, ban: {by: source, for: 60s, spoofable: true}}}\n"
    )
    lab.write(lab.entry(policy="ban.yaml", mode="enforce"), events={"file": "eve.json"})
    lab.start()
    until("it is kept", lab.kept)
    lab.send(15)
    until("it is written", lambda: events_in(lab.folder / "eve.json") != [])
    (told,) = events_in(lab.folder / "eve.json")
    assert (told["event_type"], told["wirewise"]["outcome"]) == ("ban", "ban")
    assert told["alert"]["action"] == "blocked"
    until_time = told["ban"].pop("until")
    assert told["ban"] == {"source": f"{A[0]}/32", "by": "source", "for_ms": 60_000, "class": "attack"}
    assert until_time > told["timestamp"]
    command = [agent.find(), "events", "--json", *lab.place]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert list(said) == list(told)
    assert said["ban"] == {**told["ban"], "until": said["ban"]["until"]}
