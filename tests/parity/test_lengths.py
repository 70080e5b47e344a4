# SPDX-License-Identifier: Apache-2.0
"""Lengths that lie: every length field of every layer with every kind of wrong value, in reference, engine
and kernel. What each means is written down here, and not taken from the reference.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from tests.parity.cases import Case, reading_all_features
from tests.parity.frames import (
    DCCP,
    ICMP,
    ICMP6,
    IPV4,
    IPV6,
    SCTP,
    TCP,
    UDP,
    UDP_LITE,
    ethernet,
    ipv4,
    ipv6,
    jumbo,
    tcp,
    udp,
)  # fmt: skip
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.abi import Status
from wirewise.datasets import extract_table, write_capture
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.packet import MAX_LENGTH
from wirewise.models.random import random_tree_ensemble

pytestmark = needs_kernel

A4, B4 = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
A6, B6 = b"\x20\x01" + bytes(13) + b"\x01", b"\x20\x01" + bytes(13) + b"\x02"
DATA = b"\x50" * 12
"""Payload; as a TCP header's 13th byte it is a data offset that is right."""
PADDING = b"\x50" * 30
OK, BAD_IP, BAD_TRANSPORT, BAD_TUNNEL = (
    Status.CLASSIFIED, Status.MALFORMED_IP, Status.MALFORMED_TRANSPORT, Status.MALFORMED_TUNNEL,
)  # fmt: skip

FEATURES = FeatureSet.from_dict(
    {
        "name": "lengths",
        "decapsulate": ["gtp-u", "vxlan", "gre", "ip-in-ip"],
        "features": [
            "length", "payload_length", "source_port", "destination_port", "tcp_flags",
            "transport_header_length", "count",
        ],
    }
)  # fmt: skip
MODEL = reading_all_features(
    Random(3), random_tree_ensemble(np.random.default_rng(3), n_features=7, n_classes=2, n_trees=2, depth=3)
)
LENGTH, PAYLOAD_LENGTH, SOURCE_PORT = 0, 1, 2
DROP = {"version": 1, "malformed": "drop"}


@dataclass(frozen=True)
class Lie:
    """A frame and what it is. payload: the value of `payload_length`, where the status is CLASSIFIED."""

    name: str
    frame: bytes
    status: Status
    payload: int | None = None


def values(header: int, right: int) -> Iterator[int]:
    """What a length field may say of a header of so many bytes and a right length; beyond the frame too."""
    around = (0, header - 1, header, header + 7, right - 1, right, right + 1, right + 1000, 65535)
    yield from sorted({value for value in around if value >= 0})


def v4(protocol: int, payload: bytes, *, length: int | None = None, fragment: int = 0) -> bytes:
    return ethernet(ipv4(A4, B4, protocol, payload, length=length, fragment=fragment) + PADDING, IPV4)


def v6(
    protocol: int,
    payload: bytes,
    *,
    length: int | None = None,
    extensions: tuple[tuple[int, bytes], ...] = (),
) -> bytes:
    return ethernet(ipv6(A6, B6, protocol, payload, length=length, extensions=extensions) + PADDING, IPV6)


TRANSPORTS = {
    TCP: tcp(20, 80, 2), UDP: udp(20, 80, 20), UDP_LITE: udp(20, 80, 0), ICMP: b"\x08" + bytes(7),
    ICMP6: b"\x80" + bytes(7), SCTP: struct.pack(">HHII", 20, 80, 0, 0),
    DCCP: struct.pack(">HHII", 20, 80, 0, 0),
}  # fmt: skip
HOP_BY_HOP = (0, bytes([0, 1, 4, 0, 0, 0, 0]))
FIRST_FRAGMENT = (44, struct.pack(">BHI", 0, 1, 7))
DESTINATION = (60, bytes([1]) + bytes(14))


def of_ip() -> Iterator[Lie]:
    """IPv4's total length and IPv6's payload length, in front of each transport header."""
    for protocol, header in TRANSPORTS.items():
        right = len(header) + len(DATA)

        def status(
            payload: int, protocol: int = protocol, header: bytes = header, right: int = right
        ) -> Status:
            # UDP's own length is right, so a datagram that ends before it is cut.
            least = right if protocol == UDP else len(header)
            return OK if payload >= least else BAD_TRANSPORT

        for value in (*values(20, 20 + right), *values(20 + len(header), 20 + right)):
            frame = v4(protocol, header + DATA, length=value)
            payload = (right if protocol == UDP else value - 20) - len(header)
            yield Lie(
                f"IPv4 {value}, protocol {protocol}",
                frame,
                status(value - 20) if value >= 20 else BAD_IP,
                payload,
            )
        for extensions in ((), (HOP_BY_HOP,), (DESTINATION, HOP_BY_HOP), (FIRST_FRAGMENT,)):
            chain = sum(1 + len(rest) for _, rest in extensions)
            for value in (*values(chain, chain + right), *values(chain + len(header), chain + right)):
                frame = v6(protocol, header + DATA, length=value, extensions=extensions)
                if value < chain:
                    expected = BAD_IP
                elif extensions == (FIRST_FRAGMENT,):  # UDP's length is that of all fragments
                    expected = OK if value >= chain + len(header) else BAD_TRANSPORT
                else:
                    expected = status(value - chain)
                payload = value - chain - len(header)
                if protocol == UDP:
                    payload = min(payload, len(DATA))
                kinds = [kind for kind, _ in extensions]
                yield Lie(f"IPv6 {value}, behind {kinds}, protocol {protocol}", frame, expected, payload)


def of_transport() -> Iterator[Lie]:
    """UDP's length, and TCP's data offset."""
    for value in values(8, 20):
        header = udp(20, 80, value)
        expected = OK if 8 <= value <= 20 else BAD_TRANSPORT
        yield Lie(f"UDP {value}, IPv4", v4(UDP, header + DATA), expected, value - 8)
        yield Lie(f"UDP {value}, IPv6", v6(UDP, header + DATA), expected, value - 8)
        first = v4(UDP, header + DATA, fragment=0x2000)
        yield Lie(f"UDP {value}, a fragment", first, OK if value >= 8 else BAD_TRANSPORT, min(value, 20) - 8)
        yield Lie(f"UDP {value}, a later one", v4(UDP, header + DATA, fragment=0x2003), OK, 20)
    for words in range(16):
        header = tcp(20, 80, 2)
        header = header[:12] + bytes([words << 4]) + header[13:]
        expected = OK if 20 <= words * 4 <= 32 else BAD_TRANSPORT
        yield Lie(f"data offset {words}, IPv4", v4(TCP, header + DATA), expected, 32 - words * 4)
        yield Lie(f"data offset {words}, IPv6", v6(TCP, header + DATA), expected, 32 - words * 4)


def of_tunnels() -> Iterator[Lie]:
    """Lengths around and inside a tunnel: what is inside ends where the packet around it does."""
    tunnels: dict[str, Callable[[bytes], tuple[int, bytes]]] = {
        "gtp-u": lambda inner: (UDP, struct.pack(">BBHI", 0x30, 255, len(inner), 42) + inner),
        "vxlan": lambda inner: (UDP, b"\x08" + bytes(7) + ethernet(inner, IPV4)),
        "gre": lambda inner: (47, b"\0\0\x08\0" + inner),
        "ethernet in gre": lambda inner: (47, b"\0\0\x65\x58" + ethernet(inner, IPV4)),
        "ip-in-ip": lambda inner: (4, inner),
    }
    ports = {"gtp-u": 2152, "vxlan": 4789}
    for name, tunnel in tunnels.items():

        def around(
            inner: bytes,
            missing: int = 0,
            name: str = name,
            tunnel: Callable[..., tuple[int, bytes]] = tunnel,
        ) -> bytes:
            """missing: bytes at the end of the packet that are behind the end that its outer headers give."""
            protocol, payload = tunnel(inner)
            if name in ports:
                payload = udp(ports[name], ports[name], 8 + len(payload) - missing) + payload
            return v4(protocol, payload, length=20 + len(payload) - missing)

        right = 32 + 20
        for value in (*values(20, right), *values(40, right)):
            inner = ipv4(B4, A4, TCP, tcp(20, 80, 2) + DATA, length=value)
            expected = OK if 40 <= value <= right else BAD_TUNNEL
            yield Lie(f"IPv4 {value} in {name}", around(inner), expected, value - 40)
        inner = ipv4(B4, A4, TCP, tcp(20, 80, 2) + DATA)
        size = len(tunnel(inner)[1])
        for missing in range(1, size + 1):
            # A datagram that ends where the tunnel's header does carries nothing.
            yield Lie(f"{name} without its last {missing} bytes", around(inner, missing), BAD_TUNNEL)
        shorter = ipv4(B4, A4, TCP, tcp(20, 80, 2) + DATA, length=45)
        yield Lie(f"{name} without padding inside", around(shorter, 7), OK, 5)


def of_large_packets() -> Iterator[tuple[Lie, int]]:
    """Longer than a 16-bit length can say. With each its length."""
    large = bytes(70_000)
    frame = ethernet(ipv4(A4, B4, TCP, tcp(20, 80, 2) + large, length=0), IPV4)
    yield Lie("IPv4 0, a long frame", frame, OK, 70_000), 70_040
    frame = ethernet(ipv4(A4, B4, UDP, udp(20, 80, 0) + large, length=0), IPV4)
    yield Lie("IPv4 0 and UDP 0, a long frame", frame, OK, 70_000), 70_028
    frame = ethernet(ipv4(A4, B4, TCP, (tcp(20, 80, 2) + large)[: 65535 - 20], length=0), IPV4)
    yield Lie("IPv4 0, a frame whose length the field can say", frame, BAD_IP), 0
    frame = ethernet(ipv6(A6, B6, TCP, tcp(20, 80, 2) + large, length=0), IPV6)
    yield Lie("IPv6 0, a long frame", frame, OK, 70_000), 70_060
    frame = ethernet(ipv6(A6, B6, TCP, (tcp(20, 80, 2) + large)[:65535], length=0), IPV6)
    yield Lie("IPv6 0, a frame whose length the field can say", frame, BAD_TRANSPORT), 0
    for transport, header in ((TCP, tcp(20, 80, 2)), (UDP, udp(20, 80, 0))):
        for before in (b"", b"\0" * 4, b"\x05\x02\0\0" + b"\x01\x00" + b"\x01\x00"):
            for payload in (65_536, 100_000, 524_280, MAX_LENGTH, (1 << 32) - 1):
                option = jumbo(payload, before=before)
                size = 1 + len(option[1])
                frame = v6(transport, header + DATA, length=0, extensions=(option,))
                length = min(payload + 40, MAX_LENGTH)
                name = f"jumbogram {payload}, protocol {transport}, options {before.hex()}"
                # A datagram whose length UDP's field can say has to say it (RFC 2675, section 4).
                fits = transport == UDP and payload - size <= 65535
                expected = BAD_TRANSPORT if fits else OK
                yield Lie(name, frame, expected, length - 40 - size - len(header)), length
        for payload in (0, 8, 65_535):
            frame = v6(transport, header + DATA, length=0, extensions=(jumbo(payload),))
            yield Lie(f"jumbogram {payload}, protocol {transport}", frame, BAD_IP), 0
    option = jumbo(70_000)
    wrong = (option[0], option[1].replace(b"\xc2\x04", b"\xc2\x05"))
    yield (
        Lie(
            "a jumbo option of 5 bytes", v6(TCP, tcp(20, 80, 2) + DATA, length=0, extensions=(wrong,)), BAD_IP
        ),
        0,
    )
    frame = v6(UDP, udp(20, 80, 0) + DATA, extensions=(jumbo(70_000),))
    yield Lie("UDP 0, a payload length besides the option", frame, BAD_TRANSPORT), 0
    inner = ipv6(A6, B6, TCP, tcp(20, 80, 2) + DATA, length=0, extensions=(jumbo(70_000),))
    yield Lie("a jumbogram in a tunnel", v4(41, inner), BAD_TUNNEL), 0


def check(lies: list[Lie], folder: Path, lengths: list[int] | None = None) -> None:
    frames = [(10**15 + number, lie.frame) for number, lie in enumerate(lies)]

    def seen(run: Run) -> None:
        statuses = [Status(int(code)) for code in run.heads[:, 0]]
        wrong = [
            (lie.name, is_.name, lie.status.name)
            for lie, is_ in zip(lies, statuses, strict=True)
            if is_ != lie.status
        ]
        assert not wrong, f"{len(wrong)} of {len(lies)}, the first: {wrong[:5]}"
        for number, (lie, row) in enumerate(zip(lies, run.features.tolist(), strict=True)):
            if lie.status is OK:
                assert row[PAYLOAD_LENGTH] == lie.payload, lie.name
                assert lengths is None or row[LENGTH] == lengths[number], lie.name
        dropped = run.heads[:, 7] == 1
        assert dropped.tolist() == [lie.status is not OK for lie in lies]
        assert sum(flow["packets"] for flow in run.flows.values()) == sum(lie.status is OK for lie in lies)

    assert_agree(Case("lengths", FEATURES, MODEL, DROP, "enforce", "inline"), frames, folder, seen=seen)


@pytest.mark.parametrize("lies", [of_ip, of_transport, of_tunnels])
def test_each_length_of_each_layer(lies: Callable[[], Iterator[Lie]], tmp_path: Path) -> None:
    made = list(lies())
    assert {lie.status for lie in made} >= {OK} and len(made) > 60
    check(made, tmp_path)


def test_lengths_beyond_16_bits(tmp_path: Path) -> None:
    lies, lengths = zip(*of_large_packets(), strict=True)
    check(list(lies), tmp_path, list(lengths))


def test_an_allowed_port_lets_no_padding_by(tmp_path: Path) -> None:
    """A port that is only in the padding is none."""
    lies = [
        lie for lie in (*of_ip(), *of_transport()) if lie.name.endswith(("IPv4", "protocol 6", "protocol 17"))
    ]
    frames = [(10**15 + number, lie.frame) for number, lie in enumerate(lies)]

    def seen(run: Run) -> None:
        allowed = [lie.status if lie.status is not OK else Status.ALLOWED_PORT for lie in lies]
        assert run.heads[:, 0].tolist() == allowed
        assert set(run.heads[:, 7].tolist()) == {1, 2}

    policy = DROP | {"allow": {"ports": [80]}}
    assert_agree(Case("allowed", FEATURES, MODEL, policy, "enforce", "inline"), frames, tmp_path, seen=seen)


def test_tables_name_the_flow_of_what_is_classified(tmp_path: Path) -> None:
    """The column `flow` comes from the agent's own reading of the outermost header."""
    large = [lie for lie, _ in of_large_packets()]
    lies = [lie for lie in (*of_ip(), *of_transport(), *large) if lie.status is not BAD_TUNNEL]
    capture, table = tmp_path / "lies.pcap", tmp_path / "lies.parquet"
    write_capture(capture, [(10**15 + number, lie.frame) for number, lie in enumerate(lies)])
    extract_table([capture], FEATURES, table, progress=False)
    named = pl.read_parquet(table, columns=["flow"])["flow"].to_list()
    wrong = [lie.name for lie, flow in zip(lies, named, strict=True) if bool(flow) != (lie.status is OK)]
    assert not wrong, f"{len(wrong)} of {len(lies)}, the first: {wrong[:5]}"
