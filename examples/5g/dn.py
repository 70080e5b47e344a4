# SPDX-License-Identifier: Apache-2.0
"""The data network: receives, and says how long URLLC packets took from their senders to here.

sudo ./network.sh on dn python3 dn.py

The kernel notes when a packet arrives, so it does not matter when this program gets to read it.
"""

from __future__ import annotations

import selectors
import socket
import struct

import process
from ue import RECEIVERS, STAMP
from wirewise.traffic import mobile

_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_TIME = struct.Struct("@qq")


class DataNetwork:
    def __init__(self) -> None:
        self.arms = selectors.DefaultSelector()
        self.delays: list[int] = []
        self.numbers: list[int] = []
        for version, address in RECEIVERS.items():
            for port in mobile.URLLC_PORTS:
                arm = _open(version, address, port)
                arm.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                arm.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
                self.arms.register(arm, selectors.EVENT_READ)
        # Nobody reads video: the kernel drops what has no room, and says nothing to the sender.
        self.screens = [_open(version, address, mobile.EMBB_PORT) for version, address in RECEIVERS.items()]

    def receive(self) -> None:
        while True:
            for key, _ in self.arms.select():
                arm: socket.socket = key.fileobj  # type: ignore[assignment]
                data, ancillary, _, _ = arm.recvmsg(2048, 64)
                if len(data) < STAMP.size or not ancillary:
                    continue
                sent, number = STAMP.unpack_from(data)
                seconds, nanoseconds = _TIME.unpack(ancillary[0][2])
                self.delays.append(seconds * 1_000_000_000 + nanoseconds - sent)
                self.numbers.append(number)

    def report(self) -> dict[str, list[int]]:
        """Of each URLLC packet, in the order in which they came: ns on the way, and its number."""
        return {"delays_ns": self.delays, "numbers": self.numbers}


def _open(version: int, address: str, port: int) -> socket.socket:
    way = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    way.bind((address, port))
    return way


if __name__ == "__main__":
    network = DataNetwork()
    process.run(network.receive, network.report)
