# SPDX-License-Identifier: Apache-2.0
"""`wirewise record` over a veth pair: its rows are those of a capture of the packets, and nothing stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import polars as pl
import pytest

from tests.e2e import needs
from tests.e2e.sending import send_all
from tests.e2e.serving import until
from tests.multiplicity import first
from tests.parity.frames import Fuzzer
from tests.patience import PATIENCE_S
from wirewise.datasets import extract_table, write_capture
from wirewise.datasets.table import Table
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.traffic import generate, mix_of

pytestmark = needs.marks()

# Packets that a plane keeps while the agent takes none. A raw socket has 32 blocks, and each is full a
# millisecond after its first packet.
ROOM = {"af-packet": 32, "af-xdp": 2048}
HEADERS = 192  # bytes of a packet that a row's flow is read from
TAGS = (b"\x81\0", b"\x88\xa8")
IN_TUNNELS = {
    "name": "in-tunnels",
    "key": "five-tuple+teid",
    "decapsulate": ["gtp-u"],
    "features": ["teid", "qfi", "pdu_direction", "count", "iat", "distinct(flow, by=destination, window=1s)"],
}


@pytest.fixture(scope="module")
def made() -> Iterator[Wire]:
    with wire() as made:
        yield made


@contextmanager
def recording(made: Wire, *options: str | Path, plane: str = "xdp-native") -> Iterator[subprocess.Popen[str]]:
    """`wirewise record` at the receiving end, from when its program is attached."""
    outgoing = plane == "tc-egress"
    there = within(made.outside if outgoing else made.inside)
    interface = made.sender if outgoing else made.receiver
    command = [sys.executable, "-m", "wirewise", "record", "-i", interface, "--plane", plane]
    command += map(str, options)
    process = subprocess.Popen([*there, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first == f"recording {interface} ({plane}); Ctrl-C ends it\n", first
        yield process
    finally:
        process.kill()
        process.wait()


def attached(made: Wire) -> bool:
    """A program of XDP is at the receiving end."""
    command = [*within(made.inside), "ip", "link", "show", "dev", made.receiver]
    return "xdp" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def send(made: Wire, frames: Sequence[bytes]) -> None:
    def put() -> None:
        with open_sender(made.sender) as sender:
            send_all(made.sender, sender, frames)

    inside_namespace(made.outside, put)


def frames_of(seed: str) -> list[bytes]:
    """Traffic of the profile, and packets of all kinds, whole and damaged."""
    made = [packet.frame for packet in generate(3, packets=2000, mix=mix_of("galvao2026"))]
    fuzzed = [frame for _, frame in Fuzzer(Random(seed)).packets(3000)]
    # The kernel drops what breaks off inside a VLAN tag, before TC.
    frames = made + [f for f in fuzzed if 14 <= len(f) <= 1514 and (len(f) >= 20 or f[12:14] not in TAGS)]
    Random(seed).shuffle(frames)
    return frames


@pytest.mark.parametrize(
    "plane", first(["xdp-native", "tc-ingress", "af-xdp", "af-packet", "xdp-generic", "tc-egress"], 3)
)
def test_rows_are_those_of_a_capture(made: Wire, plane: str, tmp_path: Path) -> None:
    feature_set = FeatureSet.from_dict(IN_TUNNELS) if plane == "xdp-native" else PRESETS["intrusion"]
    (tmp_path / "set.yaml").write_text(json.dumps(feature_set.to_dict()))
    frames, parts = frames_of(plane), tmp_path / "live"
    room = ROOM.get(plane, len(frames))
    options = ("-f", tmp_path / "set.yaml", "-o", parts, "--rows", str(len(frames)), "--label", "urllc")
    # One worker, so that rows come in the order of the packets.
    more = ("--workers", "1") if plane == "af-packet" else ()
    with recording(made, *options, *more, "--part-rows", str(room), "--json", plane=plane) as process:
        for begin in range(0, len(frames), room):
            process.send_signal(signal.SIGSTOP)  # as if it got no CPU so long
            send(made, frames[begin : begin + room])
            process.send_signal(signal.SIGCONT)
            sent = min(begin + room, len(frames))
            until(f"{sent} packets are recorded", lambda: len(list(parts.iterdir())) * room >= sent)  # noqa: B023
        said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    summary = json.loads(said)
    assert (summary["rows"], summary["lost"], summary["ended_by"]) == (len(frames), 0, "rows")
    assert summary["missed"] == 0
    live = pl.concat(Table.read(part).frame for part in sorted(parts.iterdir()))
    capture = tmp_path / "same.pcap"
    write_capture(capture, zip(live["time_ns"].to_list(), frames, strict=True))
    extract_table([capture], feature_set, tmp_path / "same.parquet", progress=False)
    same = Table.read(tmp_path / "same.parquet").frame
    assert live["label"].unique().to_list() == ["urllc"]
    for name in same.columns:
        if name not in ("capture", "label"):
            rows = enumerate(zip(same[name].to_list(), live[name].to_list(), strict=True))
            differs = [(n, *pair) for n, pair in rows if pair[0] != pair[1]]
            if name in ("flow", "sender"):  # IPv6 extension headers that go on beyond
                differs = [row for row in differs if row[2] or len(frames[row[0]]) <= HEADERS]
            assert not differs, (name, len(differs), differs[:3], frames[differs[0][0]].hex())
    assert live["status"].n_unique() > 3


@pytest.mark.parametrize(
    ("plane", "ending"),
    [
        *(("xdp-native", ending) for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None)),
        *(("af-xdp", ending) for ending in (signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_nothing_stays(made: Wire, plane: str, ending: signal.Signals | None, tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    frames = [packet.frame for packet in generate(1, packets=500, mix=mix_of("galvao2026"))]
    options = ("-f", "hara2026", "-o", table, "--duration", "2s", "--at", "1,2")
    with recording(made, *options, plane=plane) as process:
        send(made, frames)
        assert attached(made)
        if ending:
            process.send_signal(ending)
        process.communicate(timeout=PATIENCE_S)
    assert not attached(made)
    if ending is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL and not table.exists()
    else:
        assert process.returncode == 0
        rows = Table.read(table).frame
        assert 0 < len(rows) == len(rows.filter(pl.len().over("flow", "sender") <= 2))


def test_parts_and_what_is_lost(made: Wire, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    frames = [packet.frame for packet in generate(1, packets=500, mix=mix_of("galvao2026"))] * 40
    options = ("-f", "hara2026", "-o", parts, "--part-rows", "4000", "--buffer", "1", "--duration", "4s")
    with recording(made, *options, "--json") as process:
        process.send_signal(signal.SIGSTOP)  # so that the ring runs full
        send(made, frames)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    summary = json.loads(said)
    assert summary["packets"] == len(frames) == summary["rows"] + summary["lost"]
    assert summary["lost"] > 0
    files = sorted(parts.iterdir())
    assert [str(file) for file in files] == summary["output"] and len(pl.read_parquet(files)) == summary[
        "rows"
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--workers", "2"), "--workers is not for --plane xdp-native, but for"),
        (("--plane", "af-packet", "--to", "gone0"), "gone0"),
        (("--label", ""), "--label"),
        (("--label", "a", "--labels", "b.yaml"), "cannot be used with"),
        (("--buffer", "0"), "buffer"),
        (("--interval", "soon"), "is not a duration"),
    ],
)
def test_what_cannot_be_recorded(made: Wire, options: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*within(made.inside), sys.executable, "-m", "wirewise", "record", "-i", made.receiver,
         "-f", "galvao2026", "-o", str(tmp_path / "t.parquet"), *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and expected in done.stderr and not list(tmp_path.iterdir())
