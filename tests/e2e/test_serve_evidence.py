# SPDX-License-Identifier: Apache-2.0
"""Captures of the packets of alerts: what is in them, what bounds them, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import needs
from tests.e2e.sending import send_all
from tests.e2e.serving import PATIENCE_S, SERVE, Lab, events_in, until
from tests.e2e.test_cpus import A, B, udp
from wirewise.datasets.captures import CapturedPacket, read_capture
from wirewise.demo.network import inside_namespace
from wirewise.demo.sender import open_sender

pytestmark = needs.marks()

BORDER = 10
"""Packets of a flow before its first alert."""
SNAP = 80


@pytest.fixture
def lab(lab: Lab) -> Lab:
    (lab.folder / "count.yaml").write_text(
        "version: 1\nclasses: {attack: {action: count, severity: 2}}\n"
        "events: {rate: 100000/s, burst: 100000}\n"
    )
    (lab.folder / "captures").mkdir()
    return lab


def start(
    lab: Lab, plane: str = "xdp-native", mode: str = "observe", **more: object
) -> subprocess.Popen[bytes]:
    evidence = {"directory": "captures", "before": 8, "after": 5, "for": "10m", "snap": SNAP, **more}
    entry = lab.entry(policy="count.yaml", plane=plane, mode=mode)
    lab.write(entry, events={"file": "eve.json"}, evidence=evidence)
    service = lab.start()
    until("the interface is watched", lambda: bool(health(lab)["watched"]))
    return service


def health(lab: Lab) -> dict[str, Any]:
    return dict(lab.state()["evidence"])


def numbered(number: int, source: int = A[1], *, tagged: bool = False) -> bytes:
    """A packet that its source address tells from others of its flow, longer than what is kept of it."""
    frame = udp((A[0], source), B)
    frame = frame[:6] + bytes((2, 0, 0, 0, 0, number)) + frame[12:] + bytes(100)
    return frame[:12] + bytes((0x81, 0, 0, 9)) + frame[12:] if tagged else frame


def send(lab: Lab, frames: list[bytes]) -> None:
    def act() -> None:
        with open_sender(lab.made.sender) as sender:
            send_all(lab.made.sender, sender, frames, burst=1)

    inside_namespace(lab.made.outside, act)


def sends_one(interface: str, frame: bytes) -> None:
    with open_sender(interface) as sender:
        sender.send(frame)


def linked(lab: Lab) -> list[Path]:
    """The captures that alerts name, in their order."""
    events = events_in(lab.folder / "eve.json")
    assert all(event["event_type"] == "alert" for event in events if "evidence" in event)
    return [Path(event["evidence"]["file"]) for event in events if "evidence" in event]


def files(lab: Lab) -> set[str]:
    return {path.name for path in (lab.folder / "captures").iterdir()}


def numbers(packets: list[CapturedPacket]) -> list[int]:
    return [packet.frame[11] for packet in packets]


@pytest.mark.parametrize("plane", ["xdp-native", "tc-ingress"])
def test_packets_before_and_after_are_there(lab: Lab, plane: str) -> None:
    service = start(lab, plane)
    # Another flow's are not.
    other = [numbered(200, source=9)] * 3
    send(lab, [numbered(number) for number in range(1, BORDER + 2)] + other)
    until("the alert names a capture", lambda: bool(linked(lab)))
    (capture,) = linked(lab)
    assert capture.parent == lab.folder / "captures"
    assert capture.name.startswith("wirewise-2")
    where = f"{lab.made.inside}.{lab.made.receiver}".replace("-", "_")
    assert f"-{where}-000000.pcap" in capture.name
    assert health(lab)["watched"] == [place(lab)]
    assert not capture.exists(), "it has no name until it is complete"

    # What the host sends is the flow's other direction.
    reply = udp(B, A)
    reply = reply[:11] + bytes((20,)) + reply[12:]
    inside_namespace(lab.made.inside, lambda: sends_one(lab.made.receiver, reply))
    tagged = [numbered(number, tagged=True) for number in range(21, 24)]
    send(lab, [*other, *tagged, *[numbered(number) for number in range(24, 40)]])
    until("it is complete", capture.exists)
    packets = list(read_capture(capture))
    before = list(range(BORDER + 2 - 8, BORDER + 2))
    after = [number for number in numbers(packets) if number > BORDER + 1]
    assert numbers(packets) == before + after
    assert after == [20, 21, 22, 23, 24]
    for packet, number in zip(packets, numbers(packets), strict=True):
        whole = reply if number == 20 else numbered(number, tagged=number in range(21, 24))
        assert packet.frame == whole[: len(packet.frame)]
        assert len(packet.frame) in (SNAP, SNAP + 4) or packet.frame == reply
        assert packet.wire_length == len(whole)
    assert capture.stat().st_mode & 0o777 == 0o640
    state = health(lab)
    assert (state["written"], state["frames"], state["failed"]) == (1, 13, 0)
    assert state["covered"] >= 1, "later alerts of the flow have none within `each`"
    assert state["bytes"] == 4096
    assert lab.metrics()['wirewise_serve_evidence_alerts_total{fate="written"}'] == 1
    assert lab.metrics()["wirewise_serve_evidence_size_bytes{}"] == 4096
    service.terminate()
    assert service.wait(PATIENCE_S) == 0


def place(lab: Lab) -> dict[str, str]:
    return {"netns": lab.made.inside, "interface": lab.made.receiver}


def test_an_end_completes_what_is_at_work_and_events_are_told_once(lab: Lab) -> None:
    service = start(lab)
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    until("the alert names a capture", lambda: bool(linked(lab)))
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    (capture,) = linked(lab)
    assert files(lab) == {capture.name}
    assert numbers(list(read_capture(capture))) == list(range(BORDER + 2 - 8, BORDER + 2))

    # A new service finds the event again, and knows it though the file has it with its capture.
    start(lab, each="1s")
    send(lab, [numbered(50)])
    until("the next alert is there", lambda: len(events_in(lab.folder / "eve.json")) >= 2)
    events = events_in(lab.folder / "eve.json")
    assert [event["wirewise"]["packets"] for event in events] == [BORDER + 1, BORDER + 2]
    assert health(lab)["bytes"] == 4096, "what the last one wrote counts"


def test_at_xdp_a_capture_ends_with_the_last_packet_that_passed(lab: Lab) -> None:
    (lab.folder / "count.yaml").write_text("version: 1\nclasses: {attack: {action: drop, severity: 1}}\n")
    service = start(lab, mode="enforce")
    send(lab, [numbered(number) for number in range(1, BORDER + 5)])
    until("the alert names a capture", lambda: bool(linked(lab)))
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    (capture,) = linked(lab)
    assert numbers(list(read_capture(capture))) == list(range(BORDER + 1 - 8, BORDER + 1))


def test_a_killed_service_leaves_no_half_of_a_file(lab: Lab) -> None:
    service = start(lab)
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    until("the alert names a capture", lambda: bool(linked(lab)))
    service.kill()
    service.wait(PATIENCE_S)
    assert files(lab) == set()


def test_a_flood_of_alerts_is_bounded(lab: Lab) -> None:
    start(lab)
    flows = 40
    send(lab, [numbered(1, source=source) for source in range(1, flows + 1) for _ in range(BORDER + 3)])

    def told() -> int:
        state = health(lab)
        return int(state["covered"] + state["skipped"] + len(linked(lab)))

    until("all alerts are told", lambda: told() == flows * 3)
    assert len(linked(lab)) == 16, "the limit of captures at work"
    assert health(lab)["skipped"] >= flows - 16
    assert "evidence: alerts have no capture: 16 are at work" in lab.log.read_text()
    assert lab.log.read_text().count("alerts have no capture") == 1
    assert files(lab) == set()


def test_the_oldest_captures_go(lab: Lab) -> None:
    """The directory is full of small captures, 4 KiB each, and has a file of somebody else."""
    folder = lab.folder / "captures"
    old = [f"wirewise-20200101T000000.000000-eth0-{number:06}.pcap" for number in range(256)]
    for name in [*old, "other.pcap"]:
        (folder / name).write_bytes(bytes(5 if name in old else 1 << 21))
    start(lab, most_bytes=1 << 20, after=0)
    assert health(lab)["bytes"] == 1 << 20
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    until("it is written", lambda: health(lab)["written"] == 1)
    assert (health(lab)["removed"], health(lab)["bytes"]) == (1, 1 << 20)
    assert files(lab) == {*old[1:], "other.pcap", linked(lab)[0].name}


def test_a_directory_that_goes_is_told_and_costs_only_captures(lab: Lab) -> None:
    start(lab, after=0)
    (lab.folder / "captures").rmdir()
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    until("it failed", lambda: health(lab)["failed"] == 1)
    assert "captures" in health(lab)["error"]
    assert "evidence: " in lab.log.read_text()
    (lab.folder / "captures").mkdir()
    send(lab, [numbered(number, source=5) for number in range(1, BORDER + 2)])
    until("the next is written", lambda: health(lab)["written"] == 1)
    assert health(lab)["error"] is None


def test_an_interface_that_goes_down_is_watched_again(lab: Lab) -> None:
    start(lab, after=0)
    link = ["ip", "-n", lab.made.inside, "link", "set", lab.made.receiver]
    subprocess.run([*link, "down"], check=True)
    until("it is not watched", lambda: not health(lab)["watched"])
    subprocess.run([*link, "up"], check=True)
    until("it is watched again", lambda: bool(health(lab)["watched"]))
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    until("it is written", lambda: health(lab)["written"] == 1)
    assert numbers(list(read_capture(linked(lab)[0])))[-1] == BORDER + 1


def refused(lab: Lab, *entries: dict[str, Any], **more: object) -> str:
    lab.write(*entries, **more)
    command = [SERVE, "--config", lab.config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (2, 3), done.stderr
    assert "Traceback" not in done.stderr and "panicked" not in done.stderr
    return done.stderr


def test_what_cannot_be_is_refused_with_the_way_out(lab: Lab) -> None:
    events = {"file": "eve.json"}
    evidence = {"directory": "captures"}
    said = refused(lab, lab.entry(plane="af-xdp"), events=events, evidence=evidence)
    assert "plane af-xdp" in said and "`evidence: false`" in said and "`plane: tc-ingress`" in said
    assert "`evidence` without `events`" in refused(lab, lab.entry(), evidence=evidence)
    said = refused(lab, lab.entry(), events=events, evidence={"directory": "nowhere"})
    assert str(lab.folder / "nowhere") in said and "directory in which the service may write" in said
    (lab.folder / "file").write_text("")
    assert str(lab.folder / "file") in refused(
        lab, lab.entry(), events=events, evidence={"directory": "file"}
    )
    for wrong, why in (
        ({"snap": 10}, "`snap`: 10 is out of range; 64 to 65535"),
        ({"for": "1h"}, "`for`: 1h is out of range; 1s to 10m"),
        ({"each": "soon"}, "`each`: 'soon' is not a duration"),
        ({"before": 10_000, "snap": 65_535, "most_bytes": 1 << 20}, "`most_bytes`: 1048576 is less than"),
        ({"befor": 3}, "unknown key 'befor'; did you mean 'before'"),
    ):
        said = refused(lab, lab.entry(), events=events, evidence={**evidence, **wrong})
        assert why in said, said
    assert files(lab) == set()


def test_an_interface_can_be_left_out(lab: Lab) -> None:
    evidence = {"directory": "captures"}
    events = {"file": "eve.json"}
    entry = lab.entry(policy="count.yaml")
    lab.write({**entry, "evidence": False}, events=events, evidence=evidence)
    lab.start()
    until("it is kept", lab.kept)
    send(lab, [numbered(number) for number in range(1, BORDER + 2)])
    file = lab.folder / "eve.json"
    until("the alert is there", lambda: bool(file.read_text()))
    assert linked(lab) == [] and health(lab)["watched"] == []
    lab.write(entry, events=events, evidence=evidence)
    assert lab.reload()[0] == 200
    until("it is watched", lambda: health(lab)["watched"] == [place(lab)])
