# SPDX-License-Identifier: Apache-2.0
"""Collectors of events, on sockets, that read what they get by the standards' own words."""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RFC5424 = re.compile(
    rb"<(?P<pri>0|[1-9]\d{0,2})>1"
    rb" (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d))"
    rb" (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) (?P<kind>[!-~]{1,32})"
    rb" (?P<data>-|(?:\[[^]]*\])+) (?P<message>.*)",
    re.DOTALL,
)
"""SYSLOG-MSG of RFC 5424, section 6; NILVALUE fits each of the header's names."""


LOOK_S = 0.05
"""How often a collector looks whether it is to end."""


class Collector:
    """Takes messages on a socket, until it is closed; while `reads` is clear, it takes none."""

    def __init__(self, listening: socket.socket, split: Callable[[bytes], tuple[list[bytes], bytes]]) -> None:
        self.listening = listening
        self.split = split
        self.messages: list[bytes] = []
        self.reads = threading.Event()
        self.reads.set()
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with self.listening:
            if self.listening.type == socket.SOCK_DGRAM:
                for datagram in self.received(self.listening):
                    self.messages.append(datagram)
                return
            while connection := self.accepted():
                with connection:
                    rest = b""
                    for data in self.received(connection):
                        messages, rest = self.split(rest + data)
                        self.messages += messages

    def accepted(self) -> socket.socket | None:
        while not self.closed.is_set():
            if self.ready(self.listening):
                return self.listening.accept()[0]
        return None

    def received(self, source: socket.socket) -> Iterator[bytes]:
        while not self.closed.is_set():
            if self.reads.wait(LOOK_S) and self.ready(source):
                data = source.recv(1 << 20)
                if not data:
                    return
                yield data

    def ready(self, source: socket.socket) -> bool:
        return bool(select.select([source], [], [], LOOK_S)[0])

    def close(self) -> None:
        self.closed.set()
        self.thread.join()


def lines(data: bytes) -> tuple[list[bytes], bytes]:
    *whole, rest = data.split(b"\n")
    return whole, rest


def counted(data: bytes) -> tuple[list[bytes], bytes]:
    """Octet counting of RFC 6587, section 3.4.1."""
    messages = []
    while head := re.match(rb"([1-9]\d*) ", data):
        end = head.end() + int(head[1])
        if len(data) < end:
            break
        messages.append(data[head.end() : end])
        data = data[end:]
    return messages, data


def whole(data: bytes) -> tuple[list[bytes], bytes]:
    return [data], b""


def syslog(message: bytes) -> dict[str, Any]:
    """The header's parts, and the event."""
    parsed = RFC5424.fullmatch(message)
    assert parsed, message
    return {**parsed.groupdict(), "event": json.loads(parsed["message"])}


def journal(datagram: bytes) -> dict[str, str]:
    """The fields of an entry, as https://systemd.io/JOURNAL_NATIVE_PROTOCOL describes them."""
    fields = {}
    while datagram:
        line, datagram = datagram.split(b"\n", 1)
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", datagram)
            value, datagram = datagram[8 : 8 + length], datagram[8 + length + 1 :]
        assert re.fullmatch(rb"[A-Z][A-Z0-9_]{0,63}", name), name
        fields[name.decode()] = value.decode()
    return fields


@contextmanager
def unix(
    path: Path, kind: socket.SocketKind, split: Callable[[bytes], tuple[list[bytes], bytes]] = whole
) -> Iterator[Collector]:
    listening = socket.socket(socket.AF_UNIX, kind)
    path.unlink(missing_ok=True)
    listening.bind(str(path))
    yield from _open(listening, split)


@contextmanager
def ip(
    port: int, kind: socket.SocketKind, split: Callable[[bytes], tuple[list[bytes], bytes]] = whole
) -> Iterator[Collector]:
    listening = socket.socket(socket.AF_INET, kind)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    yield from _open(listening, split)


def _open(
    listening: socket.socket, split: Callable[[bytes], tuple[list[bytes], bytes]]
) -> Iterator[Collector]:
    if listening.type == socket.SOCK_STREAM:
        listening.listen()
    collector = Collector(listening, split)
    try:
        yield collector
    finally:
        collector.close()


@dataclass
class Request:
    """What a server was sent, and the status that it answered."""

    path: str
    headers: Message
    body: bytes
    status: int


@contextmanager
def web(port: int, *statuses: int) -> Iterator[list[Request]]:
    """An HTTP server that answers with each status once, and with 204 from then on."""
    requests: list[Request] = []
    planned = iter(statuses)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = next(planned, 204)
            requests.append(Request(self.path, self.headers, body, status))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True)
    thread.start()
    try:
        yield requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
