# SPDX-License-Identifier: Apache-2.0
"""Flows that the service exports: by nfdump, as Debian has it, and byte for byte by the text of RFC 7011."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import needs
from tests.e2e.collectors import Collector, ip
from tests.e2e.sending import send_all
from tests.e2e.serving import PATIENCE_S, Lab, lab_in, until
from tests.ports import free_port
from wirewise.compiler import compile
from wirewise.demo.network import inside_namespace
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

NFDUMP = Path(__file__).parents[2] / "build/tools/nfdump/usr/bin"
ENTERPRISE = 424242
IDLE, ACTIVE = 1, 2
"""flowEndReason, of RFC 5102."""

pytestmark = needs.marks()

UDP = 17
# Tests beside this one have other addresses: the service exports their flows too.
OWN = os.getpid() % 65536
IPV4 = [f"10.99.{OWN >> 8}.{OWN & 255}", "198.18.0.53"]
IPV6 = [f"2001:db8::{OWN:x}", "2001:db8:1::53"]


def frame(source: tuple[str, int], destination: tuple[str, int], payload: int) -> bytes:
    """Of UDP."""
    family = socket.AF_INET6 if ":" in source[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, it[0]) for it in (source, destination))
    datagram = struct.pack(">HHHH", source[1], destination[1], 8 + payload, 0) + bytes(payload)
    ethernet = bytes((2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1))
    if family == socket.AF_INET6:
        header = struct.pack(">IHBB", 6 << 28, len(datagram), UDP, 64) + addresses
        return ethernet + b"\x86\xdd" + header + datagram
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, UDP, 0) + addresses
    return ethernet + b"\x08\x00" + header + datagram


def send(lab: Lab, frames: list[bytes]) -> None:
    def act() -> None:
        with open_sender(lab.made.sender) as sender:
            send_all(lab.made.sender, sender, frames)

    inside_namespace(lab.made.outside, act)


def talk(ends: list[str], port: int, there: int, back: int) -> list[bytes]:
    """So many packets there and back, of other lengths."""
    client, server = (ends[0], port), (ends[1], 53)
    return [frame(client, server, 20)] * there + [frame(server, client, 100)] * back


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trees that vote: attack from the eleventh packet on, with 3 votes."""
    tree = Tree((0, LEAF, LEAF), (10, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,)))
    model = TreeEnsemble(1, 2, "majority", (tree, tree, tree), 2, (0, 0))
    feature_set = FeatureSet.from_dict(
        {
            "name": "counted",
            "key": "five-tuple-bidirectional",
            "features": ["count"],
            "keeps": ["sum(length)", "max(duration)"],
        }
    )
    made = compile(model, feature_set, name="voting", classes=["benign", "attack"], verify="never")
    folder = tmp_path_factory.mktemp("voting")
    made.bundle.write(folder / "voting.wirewise")
    return folder


@pytest.fixture
def lab(tmp_path: Path, bundle: Path) -> Iterator[Lab]:
    with lab_in(tmp_path, bundle) as lab:
        (lab.folder / "verdicts.yaml").write_text("version: 1\nverdicts: true\n")
        yield lab


def start(lab: Lab, **export: object) -> subprocess.Popen[bytes]:
    entry = lab.entry(bundle="voting.wirewise", policy="verdicts.yaml")
    lab.write(entry, ipfix={"enterprise": ENTERPRISE, **export})
    service = lab.start()
    until("it is kept", lab.kept)
    return service


def health(lab: Lab) -> dict[str, Any]:
    return dict(lab.state()["ipfix"])


def domain(lab: Lab) -> int:
    """Waits for the first pass over these flows; other attachments of this machine have passes too."""
    own = {"interface": lab.made.receiver, "netns": lab.made.inside}

    def found() -> list[int]:
        return [it["domain"] for it in health(lab)["domains"] if own.items() <= it.items()]

    until("there is a pass", lambda: len(found()) == 1)
    return found()[0]


Key = tuple[str, int, str, int, int]


def flows(lab: Lab) -> list[dict[str, Any]]:
    return list(lab.look("flows", "--limit", "0", "--all")["flows"])


def listed(lab: Lab) -> dict[Key, tuple[int, int]]:
    """Packets and bytes of each flow as `wirewised flows` shows it: who began stands first."""
    found = {}
    for flow in flows(lab):
        ends = [(flow["source"], flow["source_port"]), (flow["destination"], flow["destination_port"])]
        first, second = ends[::-1] if flow["swapped"] else ends
        found[(*first, *second, flow["protocol"])] = (flow["packets"], flow["state"]["sum_length"])
    return found


@dataclass
class Session:
    """What a collector learns from messages, by the RFC's text."""

    templates: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    records: dict[int, list[dict[tuple[int, int], bytes]]] = field(default_factory=dict)

    def read(self, message: bytes) -> None:
        version, length, _, sequence, domain = struct.unpack_from(">HHIII", message)
        assert (version, length) == (10, len(message))
        assert length <= 1400
        records = self.records.setdefault(domain, [])
        assert sequence == len(records), "the number of records before this message"
        at = 16
        while at < length:
            set_id, set_length = struct.unpack_from(">HH", message, at)
            body, at = message[at + 4 : at + set_length], at + set_length
            while body:
                if set_id == 2:
                    body = self.learn(domain, body)
                else:
                    record, body = self.record(self.templates[domain, set_id], body)
                    records.append(record)

    def learn(self, domain: int, body: bytes) -> bytes:
        template, count = struct.unpack_from(">HH", body)
        body, elements = body[4:], []
        for _ in range(count):
            element, length = struct.unpack_from(">HH", body)
            body, enterprise = body[4:], 0
            if element & 0x8000:
                enterprise, body = struct.unpack_from(">I", body)[0], body[4:]
            elements.append((enterprise, element & 0x7FFF, length))
        self.templates[domain, template] = elements
        return body

    def record(
        self, template: list[tuple[int, int, int]], body: bytes
    ) -> tuple[dict[tuple[int, int], bytes], bytes]:
        record = {}
        for enterprise, element, length in template:
            if length == 0xFFFF:
                length, body = body[0], body[1:]
            record[enterprise, element], body = body[:length], body[length:]
        return record, body


def decoded(collector: Collector, domain: int) -> list[dict[tuple[int, int], bytes]]:
    session = Session()
    for message in list(collector.messages):
        session.read(message)
    return session.records.get(domain, [])


def number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")


def key(record: dict[tuple[int, int], bytes]) -> Key:
    family, source, destination = (socket.AF_INET, 8, 12) if (0, 8) in record else (socket.AF_INET6, 27, 28)
    client, server = (socket.inet_ntop(family, record[0, it]) for it in (source, destination))
    return (client, number(record[0, 7]), server, number(record[0, 11]), number(record[0, 4]))


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Messages of a stream, by the length in their headers."""
    messages = []
    while len(data) >= 16 and len(data) >= (length := struct.unpack_from(">H", data, 2)[0]):
        messages.append(data[:length])
        data = data[length:]
    return messages, data


@contextmanager
def nfcapd(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    log = (folder.parent / "nfcapd.log").open("wb")
    command = [NFDUMP / "nfcapd", "-b", "127.0.0.1", "-p", str(port), "-w", folder, "-t", "3600"]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until("it listens", lambda: waiting(port) is not None)
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def waiting(port: int) -> int | None:
    """Bytes that nobody has read yet of a UDP socket on this port; None: there is none."""
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1] == f"0100007F:{port:04X}":
            assert words[-1] == "0", "datagrams were dropped"
            return int(words[4].split(":")[1], 16)
    return None


@pytest.mark.skipif(not (NFDUMP / "nfcapd").exists(), reason="tools: no nfdump, see scripts/setup.sh")
def test_nfdump_shows_the_flows_that_flows_shows(lab: Lab) -> None:
    port, folder = free_port(), lab.folder / "collected"
    with nfcapd(port, folder) as collector:
        start(lab, collector=f"udp://127.0.0.1:{port}", idle="2s")
        for flow in range(40):
            send(lab, talk(IPV4, 1000 + flow, 1 + flow % 7, flow % 3))
            send(lab, talk(IPV6, 1000 + flow, 1 + flow % 5, flow % 2))
        send(lab, talk(IPV4, 999, 300, 200))
        # Nobody counts records: other tests have some, and one of these comes twice if this machine pauses.
        until("they are idle", lambda: all(it["age_seconds"] > 2 for it in flows(lab)))
        before = health(lab)["passes"]
        until("a pass has begun and ended since", lambda: health(lab)["passes"] >= before + 2)
        until("all are read", lambda: waiting(port) == 0)
        collector.terminate()
        assert collector.wait(PATIENCE_S) == 0
    wanted = listed(lab)
    assert len(wanted) == 81
    assert wanted[IPV4[0], 999, IPV4[1], 53, UDP] == (500, 300 * 48 + 200 * 128)
    command = [NFDUMP / "nfdump", "-R", folder, "-o", "json", f"src ip {IPV4[0]} or src ip {IPV6[0]}"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    collected: dict[Key, tuple[int, int]] = {}
    for it in shown:
        source, destination = (it.get(f"{end}4_addr") or it.get(f"{end}6_addr") for end in ("src", "dst"))
        tuple_ = (source, it["src_port"], destination, it["dst_port"], it["proto"])
        # Where this machine paused for as long as `idle`, a flow has several; the last has all.
        collected[tuple_] = max(collected.get(tuple_, (0, 0)), (it["in_packets"], it["in_bytes"]))
    assert collected == wanted


def test_flows_wait_for_a_collector_and_bring_class_and_score(lab: Lab) -> None:
    port = free_port()
    service = start(lab, collector=f"tcp://127.0.0.1:{port}", idle="1s")
    began = time.time()
    send(lab, talk(IPV4, 1000, 3, 0))
    send(lab, talk(IPV6, 2000, 8, 4))
    # They become idle while nobody is there.
    until("there is an error", lambda: health(lab)["error"] is not None)
    until("they are idle", lambda: all(it["age_seconds"] > 1 for it in flows(lab)))
    with ip(port, socket.SOCK_STREAM, split) as collector:
        own = domain(lab)
        until("they are read", lambda: len(decoded(collector, own)) >= 2)
        records = {key(it): it for it in decoded(collector, own)}
    interface = inside_namespace(lab.made.inside, lambda: socket.if_nametoindex(lab.made.receiver))
    for ends, client, there, back, verdict in (
        (IPV4, 1000, 3, 0, (0, b"benign")),
        (IPV6, 2000, 8, 4, (1, b"attack")),
    ):
        record = records[ends[0], client, ends[1], 53, UDP]
        assert number(record[0, 86]) == there + back
        assert number(record[0, 85]) == listed(lab)[ends[0], client, ends[1], 53, UDP][1]
        assert (record[ENTERPRISE, 1], record[ENTERPRISE, 2]) == (bytes([verdict[0]]), verdict[1])
        assert number(record[ENTERPRISE, 3]) == 3
        assert number(record[0, 10]) == interface
        assert number(record[0, 136]) == IDLE
        started, ended = number(record[0, 152]) / 1000, number(record[0, 153]) / 1000
        assert began - 1 < started <= ended < time.time()
    # Another connection begins anew, with templates and with numbers.
    with ip(port, socket.SOCK_STREAM, split) as collector:
        send(lab, talk(IPV4, 3000, 2, 2))
        wanted = (IPV4[0], 3000, IPV4[1], 53, UDP)
        until("the new one arrives", lambda: wanted in map(key, decoded(collector, own)))
        assert health(lab)["lost"] == 0
        service.terminate()
        assert service.wait(PATIENCE_S) == 0


def test_a_flow_that_lasts_is_sent_again_and_again(lab: Lab) -> None:
    port = free_port()
    with ip(port, socket.SOCK_DGRAM) as collector:
        start(lab, collector=f"udp://127.0.0.1:{port}", idle="2s", active="1s")
        own = domain(lab)

        def reasons() -> list[int]:
            return [number(it[0, 136]) for it in decoded(collector, own)]

        def goes_on() -> bool:
            send(lab, talk(IPV4, 1000, 1, 0))
            return reasons().count(ACTIVE) >= 2

        def packets() -> list[int]:
            return [number(it[0, 86]) for it in decoded(collector, own)]

        until("it lasts", goes_on)
        # Where this machine paused, it was over before, too.
        until(
            "it is over",
            lambda: reasons()[-1] == IDLE and packets()[-1:] == [it["packets"] for it in flows(lab)],
        )
        assert packets() == sorted(packets())


def test_records_that_nobody_takes_are_counted(lab: Lab) -> None:
    start(lab, collector=f"udp://127.0.0.1:{free_port()}", idle="1s")
    ports = iter(range(1000, 60_000))

    def is_lost() -> bool:
        send(lab, talk(IPV4, next(ports), 1, 0))
        return bool(health(lab)["lost"])

    # The kernel hears of it after the first datagram.
    until("it is refused", is_lost)
    until("it is said", lambda: "refused" in lab.log.read_text())
    metrics = lab.metrics()
    counted = [metrics[f'wirewise_serve_ipfix_records_total{{fate="{it}"}}'] for it in ("written", "lost")]
    assert all(counted)


def test_ipfix_holds_until_the_service_is_started_again(lab: Lab) -> None:
    start(lab, collector="udp://127.0.0.1:9")
    lab.write(lab.entry(bundle="voting.wirewise"), ipfix={"collector": "udp://127.0.0.1:10"})
    code, answer = lab.reload()
    assert code == 409
    assert "`crowdsec` hold until the service is started again" in answer["error"]["message"]
