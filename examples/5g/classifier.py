# SPDX-License-Identifier: Apache-2.0
"""The comparison: the same forest in user space, from an event for each packet, as the paper has it.

sudo ./network.sh on upf python3 classifier.py forest.pkl
sudo ./network.sh on upf python3 classifier.py --compiled forest.so

A packet socket at N3 hands over the headers of each packet and the time at which it came. A flow's window of
500 ms is judged when it is over: mean and variance of the inter-arrival times are computed and the forest is
called, by scikit-learn or, as in the paper's own code, compiled and called by ctypes.
"""

from __future__ import annotations

import argparse
import ctypes
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gtpu
import process

WINDOW_NS = 500_000_000
_SNAP = 192  # bytes of a packet: its headers, and those in the tunnel
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_ETH_P_IP = 0x0800
_TIME = struct.Struct("@qq")
_ONE = 1 << 16  # means have 16 fractional bits, as in the table that the forest was trained on
_UDP_OR_TCP = (6, 17)

Predict = Callable[[list[float]], int]


class Flow:
    """The inter-arrival times (us) of the window that is open, and what the one before it had."""

    __slots__ = ("begun_ns", "iats", "last_ns", "previous", "slice")

    def __init__(self, time_ns: int, slice_: int) -> None:
        self.begun_ns = self.last_ns = time_ns
        self.iats: list[int] = []
        self.previous = (0, 0)
        self.slice = slice_


class Classifier:
    def __init__(self, predict: Predict, classes: list[str]) -> None:
        self.predict = predict
        self.right = [classes.index("urllc"), classes.index("embb")]  # by slice
        self.flows: dict[bytes, Flow] = {}
        self.events = self.judged = self.correct = self.others = 0
        self.spent_ns: list[int] = []
        self.n3 = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self.n3.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        self.n3.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.n3.bind(("n3", _ETH_P_IP))

    def classify(self) -> None:
        buffer = bytearray(_SNAP)
        receive, polled_ns = self.n3.recvmsg_into, 0
        self.n3.settimeout(0.1)
        while True:
            try:
                size, ancillary, _, _ = receive([buffer], 64)
            except TimeoutError:
                self._poll(time.time_ns())
                continue
            if not ancillary:
                continue
            seconds, nanoseconds = _TIME.unpack(ancillary[0][2])
            time_ns = seconds * 1_000_000_000 + nanoseconds
            self._event(bytes(buffer[:size]), time_ns)
            if time_ns - polled_ns > 100_000_000:
                polled_ns = time_ns
                self._poll(time_ns)

    def _event(self, packet: bytes, time_ns: int) -> None:
        found = key_of(packet)
        if found is None:
            self.others += 1
            return
        self.events += 1
        key, slice_ = found
        flow = self.flows.get(key)
        if flow is None:
            self.flows[key] = Flow(time_ns, slice_)
            return
        if time_ns - flow.begun_ns >= WINDOW_NS:
            self._judge(flow, time_ns)
        flow.iats.append((time_ns - flow.last_ns) // 1000)
        flow.last_ns = time_ns

    def _poll(self, now_ns: int) -> None:
        """Windows that no packet has ended."""
        for key, flow in list(self.flows.items()):
            if now_ns - flow.begun_ns >= WINDOW_NS:
                if flow.iats:
                    self._judge(flow, now_ns)
                elif now_ns - flow.last_ns > 60 * 1_000_000_000:
                    del self.flows[key]

    def _judge(self, flow: Flow, now_ns: int) -> None:
        """What the paper times: the features of a window, and the forest's verdict on them."""
        windows = (now_ns - flow.begun_ns) // WINDOW_NS
        flow.begun_ns += windows * WINDOW_NS
        count = len(flow.iats)
        if count:
            start = time.perf_counter_ns()
            total = sum(flow.iats)
            mean = total / count
            variance = sum((iat - mean) ** 2 for iat in flow.iats) / count
            current = (total * _ONE // count, int(variance))
            class_ = self.predict([*current, *flow.previous])
            self.spent_ns.append(time.perf_counter_ns() - start)
            self.judged += 1
            self.correct += class_ == self.right[flow.slice]
            flow.previous = current
        if windows > 1 or not count:
            flow.previous = (0, 0)
        flow.iats = []

    def report(self) -> dict[str, object]:
        """`spent_ns` : of each window, features and verdict. `events` : packets of devices."""
        dropped = struct.unpack("II", self.n3.getsockopt(263, 6, 8))[1]
        return {
            "events": self.events, "other_packets": self.others, "lost": dropped, "windows": self.judged,
            "right": self.correct, "spent_ns": self.spent_ns,
        }  # fmt: skip


def key_of(packet: bytes) -> tuple[bytes, int] | None:
    """A flow's five-tuple inside its tunnel, and its slice; None if it is in no device's tunnel."""
    at = (packet[0] & 15) * 4
    if packet[9] != socket.IPPROTO_UDP or (packet[6] & 0x3F) | packet[7]:
        return None
    source, destination = struct.unpack_from("!HH", packet, at)
    if destination != gtpu.PORT or (slice_ := gtpu.slice_of(source)) not in (0, 1):
        return None
    try:
        at += 8 + gtpu.begin_of_packet(packet[at + 8 :])
    except ValueError:
        return None
    if packet[at] >> 4 == 4:
        protocol, ends, ports = packet[at + 9], packet[at + 12 : at + 20], at + (packet[at] & 15) * 4
        later = (packet[at + 6] & 0x1F) | packet[at + 7]
    else:
        protocol, ends, ports, later = packet[at + 6], packet[at + 8 : at + 40], at + 40, 0
        if protocol == 44:  # a fragment
            protocol, later, ports = packet[ports], packet[ports + 2] | packet[ports + 3] & 0xF8, ports + 8
    known = b"" if later or protocol not in _UDP_OR_TCP else packet[ports : ports + 4]
    return ends + known + bytes([protocol]), slice_


def of_scikit_learn(path: Path) -> Predict:
    import joblib

    estimator = joblib.load(path)

    def predict(features: list[float]) -> int:
        return int(estimator.predict(np.array([features], np.float32))[0])

    return predict


def of_compiled(path: Path) -> Predict:
    """Of the forest as a shared object: `native_infer` (bench/native/inference.c)."""
    infer = ctypes.CDLL(str(path)).native_infer
    infer.restype = None
    given, said = (ctypes.c_int64 * 4)(), ctypes.c_uint32()
    arguments = (ctypes.byref(given), ctypes.c_size_t(1), ctypes.c_size_t(4), ctypes.byref(said))

    def predict(features: list[float]) -> int:
        given[:] = features  # type: ignore[assignment]
        infer(*arguments)
        return said.value

    return predict


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("forest", type=Path, help="what run.py train has written: forest.pkl or forest.so")
    parser.add_argument("--compiled", action="store_true", help="it is compiled, not scikit-learn's")
    parser.add_argument("--classes", default="embb,urllc", help="in the order of their numbers")
    asked = parser.parse_args()
    predict = (of_compiled if asked.compiled else of_scikit_learn)(asked.forest)
    classifier = Classifier(predict, asked.classes.split(","))
    process.run(classifier.classify, classifier.report, first=False)


if __name__ == "__main__":
    main()
