# SPDX-License-Identifier: Apache-2.0
"""The model and the traffic of this example: README.md says when to run what.

python3 forwarder.py train    # a small tree, from traffic that is made for it, in forwarder.wirewise
python3 forwarder.py send     # traffic of another day to the router, from the client's network namespace
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import wirewise as ww
from wirewise.datasets import write_capture
from wirewise.demo.sender import open_sender, send
from wirewise.traffic import generate

MIX = {"web": 0.3, "dns": 0.1, "quic": 0.2, "syn-flood": 0.2, "udp-amplification": 0.2}
RULES = [{"label": "attack", "capture": "attack*.pcap", "all": True}]
BUNDLE = "forwarder.wirewise"

# Ethernet addresses that namespaces.sh gives: the router's r0, the client's c0.
ENDS = bytes.fromhex("020000000002 020000000001")
VLAN = b"\x81\x00"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("train", "send"))
    make_bundle() if parser.parse_args().what == "train" else send_traffic()


def make_bundle() -> None:
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    with tempfile.TemporaryDirectory(prefix="wirewise-") as scratch:
        for day in (1, 2):
            packets = list(generate(seed=day, duration_s=4, packets=20_000, mix=MIX))
            for name, benign in (("benign", True), ("attack", False)):
                frames = ((p.time_ns, p.frame) for p in packets if (p.label == "benign") is benign)
                write_capture(Path(scratch) / f"{name}{day}.pcap", frames)
        labels = {"version": 1, "rules": RULES, "otherwise": "benign"}
        table = ww.features(Path(scratch), "hara2026", labels)
        training = ww.train(table, "tree", feature_set="hara2026", depth=6, folds=0)
        compiled = ww.compile(training, name="forwarder", verify="never")
    compiled.write(BUNDLE)
    print(f"{BUNDLE}: {compiled.bundle.manifest.program.instructions:,} instructions")


def send_traffic() -> None:
    packets = list(generate(seed=3, duration_s=2, packets=8_000, mix=MIX))
    with open_sender("c0") as sender:
        sent = send(sender, [(packet.time_ns, to_router(packet.frame)) for packet in packets])
    kinds = Counter("benign" if packet.label == "benign" else "attack" for packet in packets)
    print(f"sent {sent.packets:,} packets: {kinds['benign']:,} benign, {kinds['attack']:,} attack")


def to_router(frame: bytes) -> bytes:
    """The frame between these two, without a VLAN tag: there are no VLANs here."""
    return ENDS + (frame[16:] if frame[12:14] == VLAN else frame[12:])


if __name__ == "__main__":
    main()
