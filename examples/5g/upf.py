# SPDX-License-Identifier: Apache-2.0
"""The user plane function: takes packets out of their tunnels and sends them to the data network.

sudo ./network.sh on upf python3 upf.py

A packet whose tunnel came with the code point EF leaves with priority 6, so that N6 sends it before all
others. What code point the packets of each slice had is counted: it is the classifier's verdict on them.
"""

from __future__ import annotations

import socket
from collections import Counter

import gtpu
import process

_EF = 46 << 2
_FIRST = 6
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_RECVTOS = 13
_ROOM = 1 << 26


class UserPlane:
    def __init__(self) -> None:
        self.n3 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.n3.bind((gtpu.UPF, gtpu.PORT))
        self.n3.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
        self.n3.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        # IP version and whether it goes first -> where it leaves.
        self.n6 = {
            (version, first): _raw(family, _FIRST if first else 0)
            for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6))
            for first in (False, True)
        }
        self.broken = self.unsent = 0
        self.seen: Counter[tuple[int, int]] = Counter()

    def carry(self) -> None:
        receive, seen = self.n3.recvmsg, self.seen
        while True:
            message, ancillary, _, (_, port) = receive(65536, 64)
            code = ancillary[0][2][0] if ancillary else 0
            seen[port, code] += 1
            try:
                packet = message[gtpu.begin_of_packet(message) :]
            except ValueError:
                self.broken += 1
                continue
            version = packet[0] >> 4
            way = self.n6.get((version, code == _EF))
            if way is None or len(packet) < (20 if version == 4 else 40):
                self.broken += 1
                continue
            receiver = packet[16:20] if version == 4 else packet[24:40]
            family = socket.AF_INET if version == 4 else socket.AF_INET6
            try:
                way.sendto(packet, (socket.inet_ntop(family, receiver), 0))
            except OSError:
                self.unsent += 1

    def report(self) -> dict[str, object]:
        """`code_points` : by slice, packets by DSCP."""
        slices: list[dict[int, int]] = [{}, {}]
        for (port, code), packets in self.seen.items():
            if (slice_ := gtpu.slice_of(port)) in (0, 1):
                slices[slice_][code >> 2] = slices[slice_].get(code >> 2, 0) + packets
        return {"code_points": slices, "broken": self.broken, "unsent": self.unsent}


def _raw(family: socket.AddressFamily, priority: int) -> socket.socket:
    """Sends whole IP packets, as they are."""
    way = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    way.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
    # Otherwise what waits for N6 fills the socket, and this program would wait with it.
    way.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _ROOM)
    return way


if __name__ == "__main__":
    plane = UserPlane()
    process.run(plane.carry, plane.report)
