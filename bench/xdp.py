# SPDX-License-Identifier: Apache-2.0
"""What hoiland-jorgensen measures of XDP (Figures 3 to 5), of wirewise: packets dropped and forwarded, and
what is left of a service under a flood.

    python -m bench.xdp --output build/bench/xdp.json

Trains a tree on traffic made here, has `wirewised bench xdp` measure it, and draws the result.
docs/planes/xdp.md says how it is measured, and what that means.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wirewise as ww
from bench import files, machine
from bench.programs import NO_TIME
from bench.xdp_plots import plot
from wirewise import agent
from wirewise.datasets import write_capture
from wirewise.traffic import generate

RATES = "250000,500000,1000000,2000000,4000000,max"
FEATURES = NO_TIME
DEPTH = 4
_ORDINARY = {"web": 0.4, "dns": 0.1, "quic": 0.2, "bulk": 0.3}
_DOCS = Path(__file__).parents[1] / "docs" / "planes"
_ETHERNET = bytes.fromhex("020000000002 020000000001 0800")
_SERVER = bytes([10, 77, 0, 2])
_SYN, _ACK, _PUSH = 2, 16, 24


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)
    return files.report_on(options, measure, files.drawn(options, show, plot, _DOCS), keep_as="-xdp")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and compiles the tree, then measures."""
    facts, _ = machine.begin()
    folder: Path = options.output.parent / "xdp"
    folder.mkdir(parents=True, exist_ok=True)
    bundle = trained(folder)
    print("measuring", file=sys.stderr)
    parts = [word for part in options.part or () for word in ("--part", part)]
    said = agent.call(
        "bench", "xdp", "--bundle", bundle, *parts, "--rate", options.rate, "--seconds", options.seconds,
        timeout=None, within=machine.FIRST,
    )  # fmt: skip
    return {"machine": facts} | said


def trained(folder: Path) -> Path:
    """The bundle of a tree that tells the floods of `wirewised bench xdp` from ordinary traffic."""
    packets = generate(seed=5, duration_s=10, packets=6_000, mix=_ORDINARY)
    write_capture(folder / "ordinary.pcap", ((packet.time_ns, packet.frame) for packet in packets))
    write_capture(folder / "requests.pcap", requests())
    write_capture(folder / "flood_udp.pcap", udp_flood())
    write_capture(folder / "flood_syn.pcap", syn_flood())
    captures = folder / "captures"
    captures.mkdir(exist_ok=True)
    for file in folder.glob("*.pcap"):
        file.replace(captures / file.name)
    rules = [{"label": "flood", "capture": "flood_*.pcap", "all": True}]
    table = ww.features(captures, FEATURES, {"version": 1, "rules": rules, "otherwise": "benign"})
    # By flows: each kind of flood is in one capture only.
    training = ww.train(table, "tree", feature_set=FEATURES, depth=DEPTH, folds=0, group="flow", refit=True)
    path = folder / "tree.wirewise"
    ww.compile(training, verify="never").bundle.write(path)
    return path


def requests(connections: int = 60, requests: int = 40) -> Iterator[tuple[int, bytes]]:
    """What a client of short requests sends: connections one after the other, as Linux opens them."""
    time = 0
    for number in range(connections):
        client = bytes([10, 77, 0, 1 + number % 5])
        port = 32_768 + number
        for flags, options, payload in [(_SYN, 20, 0), (_ACK, 12, 0), *[(_PUSH, 12, 16)] * requests]:
            time += 40_000
            yield time, _tcp(client, port, flags, options, payload)


def udp_flood(packets: int = 3_000, flows: int = 64) -> Iterator[tuple[int, bytes]]:
    """As `wirewised bench` sends it: 64 bytes a frame."""
    for number in range(packets):
        udp = struct.pack(">HHHH", 4096 + number % flows, 53, 30, 0) + bytes(22)
        yield number * 1_000, _ETHERNET + _ipv4(bytes([10, 77, 0, 1]), 17, udp)


def syn_flood(packets: int = 3_000) -> Iterator[tuple[int, bytes]]:
    """Likewise: no options, each from another address."""
    for number in range(packets):
        source = bytes([10, 88, number >> 8, number & 255])
        yield number * 1_000, _tcp(source, 12_345, _SYN, 0, 0, window=0xFFFF).ljust(64, b"\0")


def _tcp(source: bytes, port: int, flags: int, options: int, payload: int, window: int = 502) -> bytes:
    head = struct.pack(">HHIIBBHHH", port, 80, 1, 1, (5 + options // 4) << 4, flags, window, 0, 0)
    return _ETHERNET + _ipv4(source, 6, head + bytes([1]) * options + bytes(payload))


def _ipv4(source: bytes, protocol: int, payload: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0x4000, 64, protocol, 0)
    return head + source + _SERVER + payload


def show(report: dict[str, Any]) -> None:
    """Tables of the three parts."""
    machine.show(report["machine"])
    for part in ("drop", "forward"):
        if report[part]:
            print(f"\n{part:<36} {'packets/s':>11} {'of':>11}")
        for row in report[part]:
            print(f"{row['way']:<36} {row['per_second']:>11,.0f} {row['offered_per_second']:>11,.0f}")
    if report["flood"]:
        print(f"\n{'flood':<5} {'guard':<17} {'offered/s':>10} {'answered/s':>10} share  99 % us  failed")
    for row in report["flood"]:
        slow = "-" if row["p99_ns"] is None else f"{row['p99_ns'] / 1e3:,.0f}"
        print(
            f"{row['flood']:<5} {row['guard']:<17} {row['offered_per_second']:>10,.0f}"
            f" {row['transactions_per_second']:>10,.0f} {row['share']:>5.0%} {slow:>8}"
            f" {row['failed_connections']:>7}"
        )
    for left_out in report["left_out"]:
        print(f"left out: {left_out}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.xdp", description=description)
    add = parser.add_argument
    add("--output", type=Path, default=Path("build/bench/xdp.json"), metavar="FILE", help="[%(default)s]")
    add("--part", action="append", choices=("drop", "forward", "flood"), help="only this one; repeatable")
    add("--rate", default=RATES, metavar="N,...", help="packets/s of the flood [%(default)s]")
    add("--seconds", default="2s", metavar="TIME", help="for each measurement [%(default)s]")
    add("--keep", action="store_true", help="keep the result in bench/results, and the plots in docs/planes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
