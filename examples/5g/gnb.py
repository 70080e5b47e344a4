# SPDX-License-Identifier: Apache-2.0
"""The base station: what devices send goes to the UPF, each device's packets in a tunnel of its own.

sudo ./network.sh on gnb python3 gnb.py
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

import gtpu
import process

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_IP_MTU_DISCOVER, _IP_PMTUDISC_DONT = 10, 0


class BaseStation:
    def __init__(self) -> None:
        self.device = os.open("/dev/net/tun", os.O_RDWR)
        request = struct.pack("16sH22x", b"tunnels", _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(self.device, _TUNSETIFF, request)
        self.tunnels: dict[int, socket.socket] = {}
        self.sent = self.other = 0

    def carry(self) -> None:
        while True:
            packet = os.read(self.device, 65536)
            tunnel = gtpu.tunnel_of(packet)
            if tunnel is None:
                self.other += 1
                continue
            way = self.tunnels.get(tunnel) or self._open(tunnel)
            self.sent += 1
            way.send(gtpu.encapsulate(packet, tunnel, self.sent))

    def _open(self, tunnel: int) -> socket.socket:
        way = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # What is too long for N3 goes in fragments.
        way.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)
        way.bind((gtpu.GNB, gtpu.FIRST_SOURCE_PORT + tunnel))
        way.connect((gtpu.UPF, gtpu.PORT))
        self.tunnels[tunnel] = way
        return way

    def report(self) -> dict[str, int]:
        return {"sent": self.sent, "tunnels": len(self.tunnels), "not_of_devices": self.other}


if __name__ == "__main__":
    station = BaseStation()
    process.run(station.carry, station.report)
