# SPDX-License-Identifier: Apache-2.0
"""A server, its visitors, and a flood of SYNs at it. Only the standard library; run it by network.sh.

    traffic.py serve          answer requests on port 80, one a connection
    traffic.py wait           until the server answers
    traffic.py visit [--flood] [--seconds 3]

A visit is a connection, a request and its answer; one that takes longer than a second has failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import socket
import struct
import time
from multiprocessing.sharedctypes import Synchronized

SERVER = ("10.80.0.1", 80)
PATIENCE_S = 1.0
REQUEST = b"GET / HTTP/1.0\r\n\r\n"
ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
BATCH = 32


def serve() -> None:
    with socket.create_server(("", SERVER[1]), backlog=128) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                try:
                    if connection.recv(4096):
                        connection.sendall(ANSWER)
                        connection.recv(1)  # the visitor closes first
                except OSError:
                    continue


def visit() -> bool:
    """Whether the server answered in time."""
    try:
        with socket.create_connection(SERVER, PATIENCE_S) as connection:
            connection.sendall(REQUEST)
            return connection.recv(4096) == ANSWER
    except OSError:
        return False


def checksum(data: bytes) -> int:
    """RFC 1071; of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return ~total & 0xFFFF


def syn(draw: random.Random) -> bytes:
    """A SYN as clients send it, from an address that nobody has."""
    source = socket.inet_aton(f"10.81.{draw.randrange(256)}.{draw.randrange(1, 255)}")
    ends = source + socket.inet_aton(SERVER[0])
    options = bytes.fromhex("020405b40402080a") + draw.randbytes(4) + bytes(4) + b"\x01\x03\x03\x07"
    ports = struct.pack("!HHI", draw.randrange(1024, 65536), SERVER[1], draw.getrandbits(32))
    tcp = ports + struct.pack("!IBBHHH", 0, 0xA0, 0x02, 64240, 0, 0) + options
    right = checksum(ends + struct.pack("!HH", 6, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack("!H", right) + tcp[18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), draw.getrandbits(16), 0x4000, 64, 6, 0) + ends
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + tcp


def flood(seconds: float, rate: int, sent: Synchronized[int]) -> None:
    """Sends SYNs for so long, `rate` a second."""
    draw = random.Random(1)
    frames = [syn(draw) for _ in range(4096)]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        begun, number = time.monotonic(), 0
        while (now := time.monotonic() - begun) < seconds:
            if number > now * rate:
                time.sleep(0.0005)
                continue
            for _ in range(BATCH):
                out.sendto(frames[number % len(frames)], SERVER)
                number += 1
        sent.value = number


def measure(seconds: float, rate: int) -> dict[str, int]:
    """Visits for so long, one after the other, with a flood beside them if the rate is not 0."""
    sent = multiprocessing.Value("i", 0)
    beside = multiprocessing.Process(target=flood, args=(seconds + 0.5, rate, sent), daemon=True)
    if rate:
        beside.start()
        time.sleep(0.5)
    begun, answered, failed = time.monotonic(), 0, 0
    while time.monotonic() - begun < seconds:
        if visit():
            answered += 1
        else:
            failed += 1
    lasted = time.monotonic() - begun
    if rate:
        beside.join()
    return {"visits_per_s": round(answered / lasted), "failed": failed, "flood": sent.value}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["serve", "wait", "visit"])
    parser.add_argument("--flood", action="store_true", help="SYNs from addresses that nobody has, meanwhile")
    parser.add_argument("--rate", type=int, default=20_000, help="of the flood, packets a second")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.what == "serve":
        serve()
    if args.what == "wait":
        deadline = time.monotonic() + 10
        while not visit():
            if time.monotonic() > deadline:
                raise SystemExit("error: the server does not answer")
            time.sleep(0.1)
        return
    said = measure(args.seconds, args.rate if args.flood else 0)
    if args.json:
        print(json.dumps(said))
        return
    beside = f", {said['flood']:,} SYNs of the flood" if args.flood else ""
    print(f"{said['visits_per_s']:,} visits a second, {said['failed']} failed{beside}")


if __name__ == "__main__":
    main()
