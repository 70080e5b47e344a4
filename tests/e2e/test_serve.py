# SPDX-License-Identifier: Apache-2.0
"""The service: what it keeps running, what it refuses, and what it answers."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.serving import (
    SERVE,
    UNLIMITED,
    Lab,
    Local,
    asked,
    events_in,
    token,
    until,
)
from tests.patience import PATIENCE_S
from tests.ports import free_port
from wirewise import agent
from wirewise.errors import WirewiseError

pytestmark = needs.marks()


def test_what_is_wished_runs_and_outlives_the_service(lab: Lab) -> None:
    lab.write(lab.entry())
    service = lab.start()
    until("it is kept", lab.kept)
    before = lab.attached()
    assert (before["plane_obtained"], before["mode"], before["bundle"]["name"]) == (
        "xdp-native",
        "observe",
        "first",
    )
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    assert not lab.socket.exists()
    lab.send(3)
    assert lab.attached()["program_id"] == before["program_id"]
    lab.start()
    until("it is kept", lab.kept)
    assert lab.attached()["program_id"] == before["program_id"], "what runs as wished is left alone"
    assert lab.reload() == (200, {"changes": []})
    until("they were counted", lambda: lab.metric("wirewise_packets_total", **{"class": "benign"}) == 3)


def test_a_change_is_a_swap_and_one_that_breaks_a_rule_changes_nothing(lab: Lab) -> None:
    lab.write(lab.entry())
    lab.start()
    until("it is kept", lab.kept)
    lab.send(8)
    lab.write(lab.entry(bundle="second.wirewise", policy="drop.yaml", mode="enforce"))
    code, said = lab.reload()
    assert (code, len(said.get("changes", ()))) == (200, 1), said
    swapped = lab.attached()
    assert (swapped["bundle"]["name"], swapped["mode"]) == ("second", "enforce")
    lab.send(1)
    dropped = {"class": "attack", "outcome": "drop"}
    until("flows go on", lambda: lab.metric("wirewise_packets_total", **dropped) == 1)
    assert lab.metric("wirewise_enforcing") == 1

    for wrong in ({"policy": "wrong.yaml"}, {"bundle": "none.wirewise"}, {"bundle": "other.wirewise"}):
        lab.write(
            lab.entry(**{"bundle": "second.wirewise", "policy": "drop.yaml", "mode": "enforce", **wrong})
        )
        code, said = lab.reload()
        assert code == 409, wrong
        assert lab.made.receiver in said["error"]["message"]
        assert lab.state()["refused"] == said["error"]["message"]
        assert lab.attached()["program_id"] == swapped["program_id"]
        assert lab.metric("wirewise_enforcing") == 1
    assert sum(v for k, v in lab.metrics().items() if k == "wirewise_serve_config_applied") == 0

    lab.write(lab.entry(bundle="other.wirewise", reset_flows=True))
    assert lab.reload()[0] == 200
    now = lab.attached()
    assert (now["bundle"]["name"], now["mode"]) == ("other", "observe")
    lab.write()
    assert lab.reload()[0] == 200
    with pytest.raises(WirewiseError, match="no wirewise program"):
        lab.look("status")


def test_of_several_changes_all_are_made_or_none(lab: Lab) -> None:
    second = {"interface": lab.made.sender, "netns": lab.made.outside, "plane": "xdp-native"}
    lab.write(lab.entry(), {**second, "bundle": "first.wirewise"})
    lab.start()
    until("both are kept", lambda: lab.kept() and lab.kept(interface=lab.made.sender))
    before = lab.attached()
    # What the first is to become is right; the second cannot be enforced, as there is no such flow state.
    lab.write(lab.entry(bundle="second.wirewise"), {**second, "bundle": "other.wirewise", "mode": "enforce"})
    code, said = lab.reload()
    assert code == 409
    assert lab.made.sender in said["error"]["message"]
    assert lab.attached()["program_id"] == before["program_id"]
    assert lab.attached()["bundle"]["name"] == "first"


def test_interfaces_come_and_go(lab: Lab) -> None:
    lab.write(lab.entry(interface="wwd*i"))
    lab.start()
    until("it is kept", lab.kept)
    subprocess.run(["ip", "-n", lab.made.inside, "link", "del", lab.made.receiver], check=True)
    until("nothing is kept", lambda: lab.state()["places"] == [])
    assert not (lab.pins / lab.made.receiver).exists()
    again = ["link", "add", lab.made.sender, "netns", lab.made.outside, "type", "veth", "peer", "name"]
    subprocess.run(["ip", *again, lab.made.receiver, "netns", lab.made.inside], check=True)
    until("it is kept again", lab.kept)
    for namespace, interface in ((lab.made.outside, lab.made.sender), (lab.made.inside, lab.made.receiver)):
        subprocess.run(["ip", "-n", namespace, "link", "set", interface, "arp", "off", "up"], check=True)
    lab.send(2)
    until("packets are judged", lambda: lab.metric("wirewise_packets_total") >= 2)


def test_a_namespace_may_be_deleted(lab: Lab) -> None:
    """A socket of the service would keep it alive, with its interfaces."""
    lab.write(lab.entry())
    lab.start()
    until("it is kept", lab.kept)

    def other_end() -> bool:
        command = ["ip", "-n", lab.made.outside, "link", "show", lab.made.sender]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    assert other_end()
    subprocess.run(["ip", "netns", "delete", lab.made.inside], check=True)
    until("its interface is gone", lambda: not other_end())


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_process_that_carries_packets_is_started_again(lab: Lab, kills: int) -> None:
    lab.write(lab.entry(plane="af-packet"))
    service = lab.start()
    until("it is kept", lab.kept)
    carriers = [lab.attached()["carrier"]["process"]]
    for outages in range(1, kills + 1):
        # Both events wait for the service when it goes on, and it may read that of the interfaces first.
        service.send_signal(signal.SIGSTOP)
        subprocess.run(["ip", "-n", lab.made.inside, "link", "add", "type", "veth"], check=True)
        os.kill(carriers[-1], signal.SIGKILL)
        service.send_signal(signal.SIGCONT)
        until("it is said", lambda: lab.metric("wirewise_serve_outages_total") == outages)  # noqa: B023
        until("another carries", lambda: lab.attached()["carrier"]["answers"])
        carriers.append(lab.attached()["carrier"]["process"])
    assert len(set(carriers)) == kills + 1
    assert lab.metric("wirewise_carrier_answers") == 1
    assert "Seccomp:\t2" in Path(f"/proc/{carriers[-1]}/status").read_text()
    print(f"{lab.metric('wirewise_serve_outage_seconds_total') / kills:.3f} s an outage")
    # It outlives the service, and the next one watches over it.
    service.kill()
    service.wait(PATIENCE_S)
    assert lab.attached()["carrier"]["answers"]
    lab.socket.unlink()
    lab.start()
    until("it is kept", lab.kept)
    assert lab.attached()["carrier"]["process"] == carriers[-1]
    os.kill(carriers[-1], signal.SIGKILL)
    until("it is said", lambda: lab.metric("wirewise_serve_outages_total") == 1)
    until("another carries", lambda: lab.attached()["carrier"]["answers"])


def test_an_operator_swaps_and_tries_a_bundle_beside(lab: Lab) -> None:
    lab.write(lab.entry())
    lab.start()
    until("it is kept", lab.kept)

    def post(path: str) -> int:
        place = f"interface={lab.made.receiver}&netns={lab.made.inside}"
        return asked(Local(lab.socket), "POST", f"/api/v1/{path}&{place}")[0]

    def runs() -> str:
        return str(lab.attached()["bundle"]["name"])

    assert (post("swap?bundle=second.wirewise"), runs()) == (200, "second")
    assert (lab.reload()[0], runs()) == (200, "first")
    assert post("shadow?change=begin&bundle=second.wirewise") == 200
    lab.send(8)
    shadow = lab.look("stats")["shadow"]
    assert (shadow["agree"], shadow["disagree"]) == (5, 3)
    assert (post("shadow?change=promote"), runs()) == (200, "second")
    assert post("shadow?change=begin&bundle=first.wirewise") == 200
    assert post("shadow?change=end") == 200
    assert (lab.look("stats")["shadow"], runs()) == (None, "second")
    for elsewhere in ("../first.wirewise", str(lab.folder / "first.wirewise"), "..", ""):
        assert post(f"swap?bundle={elsewhere}") == 409, elsewhere
    assert post("shadow?change=begin") == post("shadow?change=end&bundle=first.wirewise") == 409
    path = f"/api/v1/doctor?interface={lab.made.receiver}&netns={lab.made.inside}"
    code, body = asked(Local(lab.socket), "GET", path)
    assert (code, "findings" in json.loads(body)) == (200, True)
    assert asked(Local(lab.socket), "GET", "/api/v1/doctor?interface=a&netns=/proc/1/ns/net")[0] == 404


def test_without_a_token_nothing_is_said(lab: Lab) -> None:
    port = free_port()
    (reader, may_read), (operator, may_operate) = token("scraper", "read"), token("team", "operate")
    door: dict[str, object] = {"listen": f"127.0.0.1:{port}", "limits": UNLIMITED}
    lab.write(lab.entry(plane="xdp-generic"), **door, tokens=[may_read, may_operate])
    lab.start()

    def ask(method: str, path: str, secret: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        return asked(connection, method, path, secret)

    paths = [
        "/metrics",
        "/nowhere",
        *(f"/api/v1/{name}" for name in ("state", "status", "stats", "drift", "flows")),
    ]
    for secret in (None, "0" * 64, reader[:-1], may_read["sha256"]):
        for method in ("GET", "POST", "DELETE"):
            for path in [*paths, *(f"/api/v1/{name}" for name in ("reload", "mode", "rollback", "events"))]:
                assert ask(method, path, secret) == (401, ""), (method, path)
    assert {path: ask("GET", path, reader)[0] for path in paths} == {
        path: 404 if path == "/nowhere" else 200 for path in paths
    }
    for path in ("reload", f"mode?interface={lab.made.receiver}&mode=observe", "rollback?interface=a"):
        assert ask("POST", f"/api/v1/{path}", reader)[0] == 403
    assert ask("POST", "/api/v1/reload", operator)[0] == 200
    assert ask("GET", "/api/v1/reload", operator)[0] == 405
    assert ask("GET", "/api/v1/stats?interface=nosuch", reader)[0] == 404
    # One that is taken out is of no use any more.
    lab.write(lab.entry(plane="xdp-generic"), **door, tokens=[may_operate])
    assert lab.reload()[0] == 200
    assert ask("GET", "/metrics", reader)[0] == 401
    # One that fails when half of it is done, as merged packets are not to be enforced on, admits nobody.
    broken = lab.entry(bundle="second.wirewise", policy="drop.yaml", mode="enforce", plane="xdp-generic")
    lab.write(broken, **door, tokens=[may_read])
    code, said = lab.reload()
    assert code == 409 and "merged" in said["error"]["message"]
    assert lab.attached()["bundle"]["name"] == "first"
    assert ask("GET", "/metrics", reader)[0] == 401
    assert ask("GET", "/metrics", operator)[0] == 200
    log = lab.log.read_text()
    assert "token 'team'" in log
    assert reader not in log


def test_many_and_slow_connections_do_no_harm(lab: Lab) -> None:
    port = free_port()
    secret, may_read = token("scraper", "read")
    lab.write(lab.entry(), listen=f"127.0.0.1:{port}", tokens=[may_read])
    service = lab.start()
    until("it is kept", lab.kept)
    opened = Path(f"/proc/{service.pid}/fd")
    before = len(list(opened.iterdir()))
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    try:
        for number, each in enumerate(held):
            with_request = (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ", b"\0" * 4096, os.urandom(64))
            try:
                each.sendall(with_request[number % 3])
            except OSError:
                continue  # closed at once, as there are enough of them
        assert lab.kept(), "the control socket answers meanwhile"
        assert len(list(opened.iterdir())) < before + 100
    finally:
        for each in held:
            each.close()
    until("they are let go", lambda: len(list(opened.iterdir())) <= before + 1)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    assert asked(connection, "GET", "/metrics", secret)[0] == 200


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_leaves_old_or_new(lab: Lab, kills: int) -> None:
    draw = random.Random(5)

    def judged() -> int:
        return sum(int(row["packets"]) for row in lab.look("stats")["status"])

    lab.write(lab.entry())
    service = lab.start()
    until("it is kept", lab.kept)
    for _ in range(kills):
        name, mode = draw.choice(["first", "second"]), draw.choice(["observe", "enforce"])
        lab.write(lab.entry(bundle=f"{name}.wirewise", policy="drop.yaml", mode=mode))
        service.send_signal(signal.SIGHUP)
        time.sleep(draw.random() * 0.4)  # any moment of the change
        service.kill()
        service.wait(PATIENCE_S)
        between = lab.attached()
        assert between["bundle"]["name"] in ("first", "second")
        assert between["plane_obtained"] == "xdp-native"
        before = judged()
        lab.send(3)
        until("packets are judged without the service", lambda: judged() == before + 3)  # noqa: B023
        service = lab.start()
        until("it is kept", lambda: lab.kept() and lab.attached()["bundle"]["name"] == name)  # noqa: B023
        until("its mode", lambda: lab.attached()["mode"] == mode)  # noqa: B023


def test_numbers_are_those_of_the_agent(lab: Lab) -> None:
    lab.write(lab.entry(policy="drop.yaml"))
    lab.start()
    until("it is kept", lab.kept)
    lab.send(25)
    until("all are judged", lambda: lab.metric("wirewise_packets_total") == 25)
    stats = lab.look("stats")
    for row in stats["classes"]:
        for outcome, count in row["outcomes"].items():
            labels = {"class": row["name"], "outcome": outcome}
            assert lab.metric("wirewise_packets_total", **labels) == count["packets"], labels
            assert lab.metric("wirewise_packet_size_bytes_total", **labels) == count["bytes"], labels
    for row in stats["status"]:
        assert lab.metric("wirewise_status_packets_total", status=row["status"]) == row["packets"]
    for origin, count in stats["flows"].items():
        assert lab.metric("wirewise_flow_entries_total", origin=origin) == count
    assert lab.metric("wirewise_inferences_total") == stats["inferred"] > 0
    code, body = asked(Local(lab.socket), "GET", f"/api/v1/stats?interface={lab.made.receiver}")
    assert code == 200
    (own,) = json.loads(body)["attachments"]
    assert own["classes"] == stats["classes"]


def test_an_operator_changes_what_runs_until_the_next_reload(lab: Lab) -> None:
    lab.write(lab.entry(policy="drop.yaml", mode="enforce"))
    lab.start()
    until("it is kept", lab.kept)
    where = f"interface={lab.made.receiver}&netns={lab.made.inside}"
    for path, code in (
        (f"mode?{where}&mode=observe", 200),
        (f"mode?{where}&mode=drop", 400),
        ("mode?interface=lo&mode=observe", 409),
        (f"rollback?{where}", 409),
        (f"rollback?{where}&more=1", 400),
    ):
        assert asked(Local(lab.socket), "POST", f"/api/v1/{path}")[0] == code, path
    assert lab.attached()["mode"] == "observe"
    # What happens to interfaces does not undo it.
    for alias in ("one", "two"):
        command = ["ip", "-n", lab.made.inside, "link", "set", lab.made.receiver, "alias", alias]
        subprocess.run(command, check=True)
    assert lab.kept()
    assert lab.attached()["mode"] == "observe"
    code, said = lab.reload()
    assert (code, len(said["changes"])) == (200, 1)
    assert lab.attached()["mode"] == "enforce"


def test_events_are_written_each_once(lab: Lab) -> None:
    file, moved = lab.folder / "eve.json", lab.folder / "eve.json-moved"
    written = {"events": {"file": "eve.json", "rotate_bytes": 1 << 16, "keep": 2}}
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: count}\nevents: {rate: 100000/s, burst: 100000}\n"
    )
    lab.write(lab.entry(policy="count.yaml"), **written)
    service = lab.start()
    until("it is kept", lab.kept)

    def packets(*files: Path) -> list[int]:
        """Of this lab's interface; others' may be attached. Sorted, as each CPU has a ring of events."""
        events = [event for each in files for event in events_in(each)]
        return sorted(it["wirewise"]["packets"] for it in events if it["in_iface"] == lab.made.receiver)

    lab.send(20)
    until("they are written", lambda: packets(file) == list(range(11, 21)))
    # A swap has the same events; a new service too.
    lab.write(lab.entry(policy="count.yaml", bundle="second.wirewise"), **written)
    assert lab.reload()[0] == 200
    service.terminate()
    service.wait(PATIENCE_S)
    lab.send(1)
    lab.start()
    until("the rest is written", lambda: packets(file) == list(range(11, 22)))
    file.rename(moved)
    lab.services[-1].send_signal(signal.SIGHUP)
    lab.send(1)
    until("a new file is begun", lambda: file.exists() and packets(file) == [22])
    lab.send(400)
    until("all are written", lambda: packets(file)[-1:] == [422])
    old = [lab.folder / f"eve.json.{number}" for number in (2, 1)]
    assert packets(*(it for it in old if it.exists()), file) == list(range(22, 423))
    assert old[1].exists()
    fates = {
        name: value for name, value in lab.metrics().items() if name.startswith("wirewise_serve_events_total")
    }
    counted = f'wirewise_serve_events_total{{output="file",to="{file}",fate='
    assert fates[counted + '"lost"}'] == 0
    assert fates[counted + '"written"}'] >= 402


@contextmanager
def writing(folder: Path, text: str) -> Iterator[Path]:
    file = folder / "config.yaml"
    file.write_text(text)
    yield file


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version: 1\ninterfaces: [{interface: a, bundle: b, moed: enforce}]\n", "did you mean 'mode'"),
        ("version: 1\nlisten: 0.0.0.0:9000\n", "other hosts"),
        ("- a\n", "expected keys with values"),
        ("version: 1\ninterfaces: [{interface: a, bundle: none.wirewise, policy: none.yaml}]\n", "none"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_reason(text: str, why: str, tmp_path: Path) -> None:
    with writing(tmp_path, text) as file:
        done = subprocess.run(
            [SERVE, "--check", "--config", file], capture_output=True, text=True, check=False
        )
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_agent_knows_the_service(tmp_path: Path) -> None:
    with pytest.raises(WirewiseError, match=re.escape(str(tmp_path / "none.yaml"))):
        agent.call("serve", "--config", tmp_path / "none.yaml", "--check")
