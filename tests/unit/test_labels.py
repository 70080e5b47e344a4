# SPDX-License-Identifier: Apache-2.0
"""Label files and the rules in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wirewise.datasets import CaptureFolder, LabelFile
from wirewise.datasets.captures import CapturedPacket
from wirewise.datasets.labels import Rule
from wirewise.errors import InputError
from wirewise.feature_sets.packet import Packet, parse
from wirewise.traffic import generate


def packet(**fields: object) -> Packet:
    known: dict[str, object] = {
        "ip_version": 4, "source": bytes([10, 1, 2, 3]), "destination": bytes([192, 0, 2, 7]), "protocol": 6,
        "length": 60, "network_header_length": 20, "ttl": 64, "tos": 0, "fragment": 0, "source_port": 40000,
        "destination_port": 443, "tcp_flags": 0x12,
    }  # fmt: skip
    return Packet(**(known | fields))  # type: ignore[arg-type]


V6 = packet(ip_version=6, source=bytes.fromhex("20010db8000000010000000000000001"), destination=bytes(16))


def captured(time_ns: int = 0, frame: bytes = b"") -> CapturedPacket:
    return CapturedPacket(time_ns, frame, len(frame), 1)


@pytest.mark.parametrize(
    ("rule", "seen", "holds"),
    [
        ({"all": True}, packet(), True),
        ({"src": "10.1.2.3"}, packet(), True),
        ({"src": "10.0.0.0/8"}, packet(), True),
        ({"src": "10.1.2.4"}, packet(), False),
        ({"src": ["172.16.0.0/12", "10.1.0.0/16"]}, packet(), True),
        ({"src": "2001:db8::/32"}, V6, True),
        ({"src": "2001:db8::/32"}, packet(), False),
        ({"src": "0.0.0.0/0"}, V6, False),
        ({"src_not": ["10.1.2.3"]}, packet(), False),
        ({"src_not": ["10.1.2.4"]}, packet(), True),
        ({"dst": "192.0.2.7", "proto": "tcp"}, packet(), True),
        ({"proto": "udp"}, packet(), False),
        ({"proto": 6}, packet(), True),
        ({"sport": 40000, "dport": [80, 443]}, packet(), True),
        ({"dport": "400-500"}, packet(), True),
        ({"dport": "444-500"}, packet(), False),
        ({"flags": ["S", "SA"]}, packet(), True),
        ({"flags": "AS"}, packet(), True),
        ({"flags": "S"}, packet(), False),
        ({"flags": "SA"}, packet(protocol=17), False),
        ({"frag": True}, packet(), False),
        ({"frag": True}, packet(fragment=1), True),
        ({"icmp_type": 3}, packet(protocol=1, icmp_type=3), True),
        ({"icmp_type": 0}, packet(), False),
        ({"any": [{"proto": "udp"}, {"dport": 443}]}, packet(), True),
        ({"any": [{"proto": "udp"}, {"dport": 80}]}, packet(), False),
        ({"any": [{"dport": 443}], "src": "10.1.2.4"}, packet(), False),
    ],
)
def test_rules(rule: dict[str, object], seen: Packet, holds: bool) -> None:
    assert Rule.model_validate(rule).compile(0).holds(captured(), seen) is holds


def test_rules_on_packets_without_ip() -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(6) + b"\0\1" + bytes.fromhex("02000000000a") + bytes(14)
    for rule, holds in (
        ({"all": True}, True),
        ({"proto": "tcp"}, False),
        ({"arp_op": 1}, True),
        ({"arp_op": 2}, False),
        ({"arp_op": 1, "arp_src_mac": "02:00:00:00:00:0A"}, True),
        ({"arp_src_mac": "02:00:00:00:00:0b"}, False),
    ):
        assert Rule.model_validate(rule).compile(0).holds(captured(frame=arp), None) is holds, rule


def label_file(tmp_path: Path, text: str) -> LabelFile:
    path = tmp_path / "labels.yaml"
    path.write_text(text)
    return LabelFile.read(path)


def test_the_first_rule_that_holds_decides_and_times_count_from_the_first_packet(tmp_path: Path) -> None:
    labels = label_file(
        tmp_path,
        """
        version: 1
        rules:
          - {label: early, until: 2s}
          - {label: late, from: 3s, proto: tcp}
          - {label: other, capture: "b*.pcap"}
        otherwise: benign
        """,
    )
    label = labels.labeller(Path("/x/a.pcap"))
    start = 1_700_000_000 * 10**9
    times = [0, 1_999_999_999, 2_000_000_000, 3_000_000_000]
    assert [label(captured(start + t), packet()) for t in times] == ["early", "early", "benign", "late"]
    label = labels.labeller(Path("/x/b1.pcap"))
    assert [label(captured(start + t), packet(protocol=17)) for t in times] == [
        "early",
        "early",
        "other",
        "other",
    ]


def test_a_rule_of_a_label_file_on_packets_without_ip(tmp_path: Path) -> None:
    """The label and the file pattern are no conditions on IP."""
    path = tmp_path / "labels.yaml"
    path.write_text(
        "version: 1\nrules: [{label: early, until: 2s}, {label: rest, capture: '*', all: true}]\n"
    )
    label = LabelFile.read(path).labeller(Path("x.pcap"))
    assert [label(captured(time), None) for time in (0, 2 * 10**9)] == ["early", "rest"]


def test_dates(tmp_path: Path) -> None:
    labels = label_file(tmp_path, "version: 1\nrules: [{label: x, from: 2026-03-01T12:00:00Z}]\n")
    label = labels.labeller(Path("a"))
    moment = 1_772_366_400 * 10**9
    assert [label(captured(moment + d), packet()) for d in (-1, 0)] == ["", "x"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: is not YAML"),
        ("[1]", "is not a label file"),
        ("rules: []", "version"),
        ("version: 2", "version"),
        ("version: 1\nrules: [{src: 10.0.0.1}]", "rules.0.label"),
        ("version: 1\nrules: [{label: a, scr: 10.0.0.1}]", "rules.0.scr"),
        ("version: 1\nrules: [{label: a, src: 10.0.0.300}]", "is no address or prefix"),
        ("version: 1\nrules: [{label: a, src: 10.0.0.1/8}]", "has host bits set"),
        ("version: 1\nrules: [{label: a, dport: 70000}]", "is no port"),
        ("version: 1\nrules: [{label: a, dport: 9-2}]", "is no port"),
        ("version: 1\nrules: [{label: a, flags: SX}]", "is no set of TCP flags"),
        ("version: 1\nrules: [{label: a, proto: tpc}]", "is no protocol"),
        ("version: 1\nrules: [{label: a, from: soon}]", "is not a duration"),
        ("version: 1\nrules: [{label: a, any: [{dportt: 1}]}]", "rules.0.any.0.dportt"),
    ],
)
def test_bad_label_files_are_refused_on_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"labels\.yaml") as refused:
        label_file(tmp_path, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unreadable_label_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        LabelFile.read(tmp_path / "no.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8"):
        LabelFile.read(tmp_path / "b.yaml")


def test_manifest_rules(tmp_path: Path) -> None:
    entry = {
        "path": "a.pcap", "link_type": "ETHERNET", "packets": 1, "class": "syn_flood", "label": "mixed",
        "attack_rule": {"proto": "tcp", "flags": ["S"]}, "reply_rule": {"flags": ["SA"]}, "rest": "unknown",
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps([entry, entry | {"path": "b.pcap", "rest": "benign"}]))
    folder = CaptureFolder.read(tmp_path)
    seen = [packet(tcp_flags=2), packet(tcp_flags=0x12), packet(protocol=17)]
    for name, rest in (("a.pcap", ""), ("b.pcap", "benign")):
        label = folder.labeller(tmp_path / name)
        assert [label(captured(), p) for p in seen] == ["syn-flood", "", rest]
    with pytest.raises(InputError, match="is not in"):
        folder.labeller(tmp_path / "c.pcap")


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"path": 1}]', '[{"path": "a"}]'])
def test_bad_manifests_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json"):
        CaptureFolder.read(tmp_path)


def test_rules_on_made_packets() -> None:
    rule = Rule.model_validate({"proto": "tcp", "flags": "S"}).compile(0)
    for made in generate(1, duration_s=2, packets=2000, mix={"syn-flood": 1}):
        assert rule.holds(captured(made.time_ns, made.frame), parse(made.frame)[1])
