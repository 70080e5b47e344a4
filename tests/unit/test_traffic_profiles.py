# SPDX-License-Identifier: Apache-2.0
"""Traffic of any length: every kind and profile, variations, and the labels beside a capture."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from wirewise.abi import Status
from wirewise.cli import main
from wirewise.datasets import read_capture
from wirewise.datasets.flow_list import FlowList
from wirewise.errors import InputError
from wirewise.feature_sets.packet import parse
from wirewise.traffic import ALL_KINDS, BENIGN, KINDS, KINDS_BY_NAME, MIX, PROFILES, mix_of
from wirewise.traffic.frames import ACK, PAYLOADS, RST, SYN, Rows, build, ends_of, records
from wirewise.traffic.reflection import FAMILIES
from wirewise.traffic.stream import Variation, stream


def rows_of(
    mix: dict[str, float], seed: int = 1, duration_s: float = 4, rate: float = 500, **more: object
) -> Rows:
    return np.concatenate(list(stream(seed, mix=mix, duration_s=duration_s, rate=rate, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_kind_gives_whole_packets_in_time_order(kind: str) -> None:
    rows = rows_of({kind: 1}, both_directions=True)
    assert len(rows) > 500 and (np.diff(rows["time_ns"]) >= 0).all()
    assert rows["time_ns"][0] >= 0 and rows["time_ns"][-1] < 4 * 10**9
    assert set(rows["kind"].tolist()) == {ALL_KINDS.index(kind)}
    few = rows[:400]
    for frame, ends in zip(build(few), ends_of(few), strict=True):
        status, outer = parse(frame)
        assert status is Status.CLASSIFIED and outer is not None
        seen = (outer.source, outer.source_port, outer.destination, outer.destination_port, outer.protocol)
        assert seen == tuple(ends)


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_mixed_as_they_say(name: str) -> None:
    mix = dict(PROFILES[name].mix)
    rate = 5000 if len(mix) > 20 else 1500  # 1 % of fewer packets is less than a burst of a reflector
    rows = rows_of(mix, duration_s=20, rate=rate)
    counted = Counter(ALL_KINDS[kind] for kind in rows["kind"].tolist())
    assert set(counted) == set(mix)
    assert 0.7 < len(rows) / (20 * rate) < 1.4
    for kind, share in mix.items():
        assert 0.4 < counted[kind] / len(rows) / (share / sum(mix.values())) < 2.2, kind


def test_the_families_of_cic_ddos2019_and_the_classes_of_hara2023_are_there() -> None:
    wanted = (
        "syn udp drdos-dns drdos-ldap drdos-ntp drdos-ssdp drdos-snmp drdos-mssql drdos-netbios tftp portmap"
    )
    assert set(wanted.split()) | {"web", "dns", "ntp", "quic", "bulk"} == set(PROFILES["cic-ddos2019"].mix)
    labels = {KINDS_BY_NAME[kind].label for kind in PROFILES["hara2023"].mix}
    assert labels == {BENIGN, "botnet", "brute-force", "dos", "infiltration", "port-scan", "web-attack"}
    assert ALL_KINDS[: len(KINDS)] == KINDS and PROFILES["demo"].mix == MIX
    for name, family in FAMILIES.items():
        rows = rows_of({name: 1}, duration_s=2)
        first = rows[(rows["fragment"] & 0x1FFF) == 0]
        assert set(first["source_port"].tolist()) == {family.port} or not family.port


def test_the_same_seed_gives_the_same_rows_and_slices_do_not_show() -> None:
    mix = dict(mix_of("hara2023"))
    assert (rows_of(mix) == rows_of(mix)).all()
    assert len(rows_of(mix, seed=2)) != len(rows_of(mix)) or (rows_of(mix, seed=2) != rows_of(mix)).any()
    times = rows_of({"web": 1}, duration_s=60, rate=400)["time_ns"]
    per_second = np.bincount(times // 10**9, minlength=60)
    assert per_second.min() > 0 and per_second[:5].mean() > 0.3 * per_second.mean()


def test_memory_does_not_grow_with_the_length() -> None:
    def most(duration_s: float) -> int:
        pieces = stream(1, mix={"drdos-ntp": 1}, duration_s=duration_s, rate=4000)
        held = 0
        for rows in pieces:
            under_way = pieces.gi_frame.f_locals["under_way"]  # type: ignore[attr-defined]
            held = max(held, len(rows) + sum(map(len, under_way)))
        return held

    assert most(24) < 1.5 * most(8) < 150_000


def test_variations_change_attacks_alone() -> None:
    mix = {"web": 0.5, "drdos-ntp": 0.5}
    usual, moved = rows_of(mix), rows_of(mix, variation=Variation(ports="random"))
    benign = ALL_KINDS.index("web")
    assert (usual[usual["kind"] == benign] == moved[moved["kind"] == benign]).all()
    attack = moved[moved["kind"] != benign]
    assert 123 not in attack["source_port"] and attack["source_port"].min() >= 1024
    # A reflector keeps its port.
    by_host: dict[tuple[int, int], set[int]] = {}
    for row in attack:
        by_host.setdefault((row["source"], row["destination_port"]), set()).add(int(row["source_port"]))
    assert all(len(ports) == 1 for ports in by_host.values()) and len(by_host) > 1
    flagged = rows_of({"syn": 1}, variation=Variation(flags=0x10))
    assert set(flagged["tcp_flags"].tolist()) == {0x10}
    slow = rows_of({"drdos-ntp": 1}, duration_s=10, variation=Variation(pace=20))
    quick = rows_of({"drdos-ntp": 1}, duration_s=10, variation=Variation(pace=0.05))

    def longest(rows: Rows) -> int:
        spans: dict[int, list[int]] = {}
        for row in rows:
            spans.setdefault(int(row["source"]), []).append(int(row["time_ns"]))
        return max(max(times) - min(times) for times in spans.values())

    assert longest(slow) > 5 * longest(quick)
    for wrong in ({"ports": "none"}, {"pace": 0}, {"pace": float("nan")}):
        with pytest.raises(InputError):
            Variation(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["many-reflectors", "tcp-reflection"])
def test_a_reflected_flood_is_one_by_its_number(kind: str) -> None:
    rows = rows_of({kind: 1}, duration_s=20, rate=2000)
    by_victim = [rows[rows["destination"] == victim] for victim in np.unique(rows["destination"])]
    most = max(len(np.unique(of["source"])) for of in by_victim)
    packets = np.unique(rows["source"], return_counts=True)[1]
    assert most > 300 and np.median(packets) <= 3
    assert not rows["outgoing"].any()
    if kind == "tcp-reflection":
        assert set(rows["tcp_flags"].tolist()) <= {SYN | ACK, RST | ACK, RST}, "nobody asks for a connection"


def test_programs_repeat_themselves_and_log_in_nowhere() -> None:
    rows = rows_of({"automation": 1}, duration_s=120, rate=100, both_directions=True)
    assert not np.isin(rows["destination_port"], [21, 22, 23, 25, 110, 143, 445, 3306, 3389]).any()
    opened = rows[(rows["protocol"] == 6) & (rows["tcp_flags"] == SYN)]
    ends = ["source", "destination", "destination_port"]
    unevenness = []
    for program in np.unique(opened[ends]):
        gaps = np.diff(opened["time_ns"][opened[ends] == program])
        if len(gaps) >= 10:
            unevenness.append(gaps.std() / gaps.mean())
    assert len(unevenness) >= 10 and np.median(unevenness) < 0.2


def test_payloads_of_services_differ_as_binary_messages_do() -> None:
    of_zeros, of_text = [], []
    for number in range(200):
        assert records(number) % 2 == 0
        head = PAYLOADS[records(number) : records(number) + 512]
        of_zeros.append(head.count(0) / 512)
        of_text.append(sum(0x20 <= byte < 0x7F for byte in head) / 512)
    for shares in (of_zeros, of_text):
        assert min(shares) < 0.05 and max(shares) > 0.7 and np.std(shares) > 0.1
    assert all(records(number) + 4096 <= len(PAYLOADS) for number in range(5000))


DRAWN = ["udp", "icmp-flood", "drdos-ntp", "udp-amplification", "quic", "bulk", "video", "transfer", "shell"]


@pytest.mark.parametrize("kind", [*DRAWN, "web", "brute-force"])
def test_how_payloads_begin_names_no_kind(kind: str) -> None:
    """Else a model learns the generator's bytes, which nobody else sends."""
    rows = rows_of({kind: 1}, duration_s=20, rate=3000)
    rows = rows[rows["payload_length"] >= 16]
    begins = [PAYLOADS[row["payload"] : row["payload"] + 16] for row in rows[rows["fragment"] & 0x1FFF == 0]]
    shares = {
        tuple(sum(byte in part for byte in begin) for part in (range(32, 127), [0])) for begin in begins
    }
    assert len(set(begins)) > 20 and len(shares) > 10


def test_gtp_u_is_looked_into() -> None:
    rows = rows_of({"urllc": 0.5, "embb": 0.5}, both_directions=True)[:300]
    for frame, row in zip(build(rows), rows, strict=True):
        _, outer = parse(frame)
        assert outer is not None and 2152 in (outer.source_port, outer.destination_port)
        inner = frame[14 + 20 + 8 + 16 :]
        assert inner[0] == 0x45 and int.from_bytes(inner[2:4], "big") == len(inner) <= 1400
        assert int.from_bytes(frame[46:50], "big") == row["tunnel"] and frame[42:44] == b"\x34\xff"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["wirewise", "traffic", *map(str, arguments)])
    main()


def test_a_capture_and_the_labels_of_its_packets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made.pcap"
    options = ("--duration", "4s", "--rate", 500, "--json", "--start", "2020-01-01T00:00:00Z")
    call(monkeypatch, "cic-ddos2019", "-o", made, *options)
    said = json.loads(capsys.readouterr().out)
    packets = list(read_capture(made))
    assert said["packets"] == len(packets) == sum(said["kinds"].values())
    assert 0 <= packets[0].time_ns - 1_577_836_800 * 10**9 < 10**8
    listed = FlowList.read(tmp_path / "made.flows")
    assert listed.flows == said["flows"] and set(listed.labels) <= {BENIGN, *PROFILES["cic-ddos2019"].mix}
    first = made.read_bytes()
    call(monkeypatch, "cic-ddos2019", "-o", made, "--labels", tmp_path / "made.csv", *options)
    assert made.read_bytes() == first
    lines = (tmp_path / "made.csv").read_text().splitlines()
    assert len(lines) == 1 + listed.flows and lines[0].startswith(
        "src,sport,dst,dport,proto,from,until,label"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hara2032", "-o", "x.pcap"], "did you mean 'hara2023'"),
        (["hara2023"], "add -o FILE.pcap"),
        (["hara2023", "-o", "none/x.pcap"], "does not exist"),
        (["hara2023", "-o", "x.pcap", "--rate", "1e9", "--duration", "1h"], "--large"),
        (["hara2023", "-o", "x.pcap", "--rate", "1e9", "--duration", "1h", "--large"], "are free"),
        (["hara2023", "-o", "x.pcap", "--rate", "nan"], "--large"),
        (["hara2023", "-o", "x.pcap", "--rate", "-1"], "must be positive"),
        (["hara2023", "-o", "x.pcap", "--flags", "SX"], "FSRPAUEC"),
        (["hara2023", "-o", "x.pcap", "--mix", "web"], "web=0.8"),
        (["hara2023", "-o", "x.pcap", "--mix", "webb=1"], "unknown kind"),
        (["benign", "-o", "x.pcap", "--benign", "10%"], "leaves no attack"),
        (["hara2023", "-o", "x.pcap", "-l", "x.txt"], "neither .flows nor .csv"),
        (["hara2023", "-o", "x.pcap", "--start", "now"], "is no time"),
        (["hara2023", "-o", "x.flows"], "both"),
    ],
)
def test_bad_usage_leaves_no_files(
    arguments: list[str], says: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *arguments)
    assert ended.value.code == 2 and says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_list_shows_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call(monkeypatch, "--list", "--json")
    said = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in said["profiles"]] == list(PROFILES) and len(said["kinds"]) == len(ALL_KINDS)
