# SPDX-License-Identifier: Apache-2.0
"""The devices of one slice: robots' arms (urllc), or senders of adaptive video (embb).

sudo ./network.sh on ue python3 ue.py urllc --devices 4

What they send is that of wirewise/traffic/mobile.py, uplink only. One session follows the other on each
device. An URLLC packet begins with the time at which it was sent (ns since 1970) and the number of its kind.
"""

from __future__ import annotations

import argparse
import heapq
import socket
import struct
import time
from collections.abc import Iterator
from random import Random

import process
from wirewise.traffic import mobile

SLICES = {"urllc": 1, "embb": 2}
RECEIVERS = {4: "10.201.0.2", 6: "2001:db8:201::2"}
STAMP = struct.Struct("!QI")
_APART_S, _PAUSE_S = 1.0, 0.2
"""Between the first sessions of two devices, and between two sessions of one, at most."""
_MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
_DONT, _PROBE = 0, 3
_Events = Iterator[tuple[float, int]]
# Videos by device: datagrams as the source has them; so long that the device sends them in fragments; and
# such as fill its MTU, so that they become too long for N3 in their tunnel.
_FORMS = ("whole", "whole", "fragments", "whole", "long")


class Session:
    def __init__(self, rng: Random, slice_: str, device: int) -> None:
        version = rng.choice((4, 4, 6))
        self.form = "whole"
        if slice_ == "urllc":
            port, self.events = rng.choice(mobile.URLLC_PORTS), mobile.control_loop(rng)
        else:
            port, self.events = mobile.EMBB_PORT, mobile.adaptive_video(rng)
            self.form = _FORMS[device % len(_FORMS)]
        number = SLICES[slice_]
        address = f"10.60.{number}.{device}" if version == 4 else f"2001:db8:60:{number}::{device:x}"
        self.way = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
        self.way.setsockopt(*_MTU_DISCOVER[version], _PROBE if self.form == "long" else _DONT)
        self.way.bind((address, 0))
        self.way.connect((RECEIVERS[version], port))

    def sent(self) -> _Events:
        """Seconds from its beginning, and bytes."""
        for seconds, answer, size in self.events:
            if not answer:
                yield seconds, {"whole": size, "fragments": 2 * size, "long": size + 100}[self.form]


class Devices:
    def __init__(self, slice_: str, devices: int, seed: int) -> None:
        self.rng = Random(f"{slice_} {seed}")
        self.slice, self.count = slice_, devices
        self.packets = self.sessions = self.bytes = self.failed = 0
        self.late: list[int] = []

    def send(self) -> None:
        # Each device's next packet: when it is due, device, bytes, when its session began.
        heap: list[tuple[float, int, int, float, Session, _Events]] = []
        clock = time.monotonic

        def begin(device: int, when: float) -> None:
            session = Session(self.rng, self.slice, device)
            events = session.sent()
            seconds, size = next(events)
            self.sessions += 1
            heapq.heappush(heap, (when + seconds, device, size, when, session, events))

        start = clock()
        for device in range(1, self.count + 1):
            begin(device, start + self.rng.uniform(0, _APART_S))
        filler = bytes(4096)
        while True:
            due, device, size, begun, session, events = heapq.heappop(heap)
            wait = due - clock()
            if wait > 0:
                time.sleep(wait)
            self.packets += 1
            self.bytes += size
            stamp = STAMP.pack(time.time_ns(), self.packets)
            try:
                session.way.send(stamp + filler[: size - STAMP.size])
            except OSError:
                self.failed += 1
            if self.packets % 64 == 0:
                self.late.append(int((clock() - due) * 1e6))
            following = next(events, None)
            if following is None:
                session.way.close()
                begin(device, clock() + self.rng.uniform(0, _PAUSE_S))
            else:
                heapq.heappush(heap, (begun + following[0], device, following[1], begun, session, events))

    def report(self) -> dict[str, object]:
        late = sorted(self.late)
        return {
            "packets": self.packets, "bytes": self.bytes, "sessions": self.sessions, "failed": self.failed,
            "late_us_99": late[len(late) * 99 // 100] if late else None,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("slice", choices=SLICES)
    parser.add_argument("--devices", type=int, default=4, choices=range(1, 17), metavar="1..16")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    devices = Devices(asked.slice, asked.devices, asked.seed)
    process.run(devices.send, devices.report)


if __name__ == "__main__":
    main()
