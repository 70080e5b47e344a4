# SPDX-License-Identifier: Apache-2.0
"""The common form of GTP-U, which ww_find_common_tunnel (bpf/classify/tunnel.h) reads, and all that is close.

Frames are cut and changed at each byte, have one header more, fewer or another, and lengths that miss by one.
The reference has no such path.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.parity.cases import Case, reading_all_features
from tests.parity.frames import IPV4, IPV6, PPPOE, TCP, UDP, ethernet, ipv4, ipv6, pppoe, tcp, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.abi import Status
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble

pytestmark = needs_kernel

GTP_U = 2152
PDU_SESSION = 0x85
A4, B4 = b"\x0a\0\0\1", b"\x0a\0\0\2"
A6, B6 = b"\x20\x01" + bytes(13) + b"\x01", b"\x20\x01" + bytes(13) + b"\x02"
CONTAINER = bytes([1, 0x10, 9])
"""A PDU session container of one word, without the type of what follows: uplink, QoS flow 9."""
DATA = b"\x45" * 24


def message(
    inner: bytes,
    *containers: tuple[int, bytes],
    flags: int | None = None,
    kind: int = 255,
    following: int = 0,
    teid: int = 0xDEADBEEF,
) -> bytes:
    """A GTP-U message. containers: type and bytes of each extension header; following: the type that the last
    one announces.
    """
    kinds = [*(number for number, _ in containers), following]
    extensions = b"".join(
        body + bytes([after]) for (_, body), after in zip(containers, kinds[1:], strict=True)
    )
    flags = (0x34 if containers else 0x30) if flags is None else flags
    options = b"\0\1\0" + bytes([kinds[0]]) if flags & 7 else b""
    rest = options + extensions + inner
    return struct.pack(">BBHI", flags, kind, len(rest) & 0xFFFF, teid) + rest


def outside(
    payload: bytes, *, udp_length: int = 0, port: int = GTP_U, protocol: int = UDP, **ip: object
) -> bytes:
    """An IPv4 packet around a GTP-U message. udp_length: added to the UDP header's length; ip: as ipv4."""
    head = udp(GTP_U, port, 8 + len(payload) + udp_length)
    return ipv4(B4, A4, protocol, head + payload, **ip)  # type: ignore[arg-type]


def inners() -> list[bytes]:
    """IP packets inside."""
    return [
        ipv4(A4, B4, TCP, tcp(1000, 443, 0x18) + DATA),
        ipv4(A4, B4, UDP, udp(1000, 53, 8 + len(DATA)) + DATA),
        ipv4(A4, B4, UDP, udp(1000, 53)),
        ipv4(A4, B4, 59, b""),
    ]


PDU = (PDU_SESSION, CONTAINER)
LONG_PDU = (PDU_SESSION, bytes([2, 0, 63, 1, 2, 3, 4]))
OTHER = (0x40, bytes([1, 8, 104]))


def near_misses() -> Iterator[bytes]:
    """Frames that differ in one thing from the common tunnel, or in nothing."""
    for inner in inners():
        for tunnel in (message(inner), message(inner, PDU)):
            yield ethernet(outside(tunnel), IPV4)
            yield ethernet(outside(tunnel) + bytes(6), IPV4)
            for tags in ([(0x8100, 5)], [(0x88A8, 5), (0x8100, 6)]):
                yield ethernet(outside(tunnel), IPV4, tags)
            yield ethernet(pppoe(outside(tunnel), IPV4), PPPOE)
            yield ethernet(outside(tunnel), IPV6)
            yield ethernet(outside(tunnel, options=bytes([1] * 4)), IPV4)
            for fragment in (0x4000, 0x8000, 0x2000, 1, 0x1FFF):
                yield ethernet(outside(tunnel, fragment=fragment), IPV4)
            for port in (GTP_U - 1, GTP_U + 1, 2152 ^ 0x8000, 4789):
                yield ethernet(outside(tunnel, port=port), IPV4)
            for protocol in (TCP, 136, 47):
                yield ethernet(outside(tunnel, protocol=protocol), IPV4)
            length = len(outside(tunnel))
            for total in (0, 19, 20, 27, 28, 35, 36, length - 1, length + 1, 0xFFFF):
                yield ethernet(outside(tunnel, length=total), IPV4)
            for more in (-len(tunnel) - 8, -len(tunnel) - 1, -len(tunnel), -1, 1, 2):
                yield ethernet(outside(tunnel, udp_length=more), IPV4)
                yield ethernet(outside(tunnel, udp_length=more) + bytes(4), IPV4)
            yield ethernet(ipv6(B6, A6, UDP, udp(GTP_U, GTP_U, 8 + len(tunnel)) + tunnel), IPV6)
        for flags in (*range(0x30, 0x40), 0x10, 0x20, 0x50, 0x74):
            yield ethernet(outside(message(inner, flags=flags)), IPV4)
            yield ethernet(outside(message(inner, PDU, flags=flags)), IPV4)
        for kind in (0, 1, 26, 254):
            yield ethernet(outside(message(inner, kind=kind)), IPV4)
        for extensions in ((LONG_PDU,), (OTHER,), (PDU, PDU), (OTHER, PDU), (PDU, OTHER), (PDU, LONG_PDU)):
            yield ethernet(outside(message(inner, *extensions)), IPV4)
        for following in (PDU_SESSION, 0x40, 0xC0):
            yield ethernet(outside(message(inner, PDU, following=following)), IPV4)
        for octet in range(0, 256, 15):
            for body in (bytes([1, octet, 9]), bytes([1, 0, octet]), bytes([octet, 0, 9])):
                yield ethernet(outside(message(inner, (PDU_SESSION, body))), IPV4)
    for extensions in ((), (PDU,)):
        for inner in (
            ipv6(A6, B6, TCP, tcp(1000, 443, 2) + DATA),
            ipv4(A4, B4, TCP, tcp(1000, 443, 2), options=bytes([1] * 8)),
            ipv4(A4, B4, UDP, udp(1000, 53, 8 + len(DATA)) + DATA, fragment=0x2000),
            ipv4(A4, B4, UDP, DATA, fragment=3),
            b"\x45",
            b"\x50" * 40,
            b"",
        ):
            yield ethernet(outside(message(inner, *extensions)), IPV4)
            yield ethernet(outside(message(inner, *extensions)) + bytes(60), IPV4)
        whole = len(ipv4(A4, B4, TCP, tcp(1000, 443, 0x18) + DATA))
        for length in (0, 1, 19, 20, 39, 40, whole - 1, whole + 1, 0xFFFF):
            inner = ipv4(A4, B4, TCP, tcp(1000, 443, 0x18) + DATA, length=length)
            yield ethernet(outside(message(inner, *extensions)), IPV4)
            yield ethernet(outside(message(inner, *extensions)) + bytes(8), IPV4)


def cut_and_changed() -> Iterator[bytes]:
    """Common tunnels, cut at each byte, and with each byte of their headers changed to several others."""
    random = Random(8)
    for inner in inners():
        for extensions in ((), (PDU,)):
            frame = ethernet(outside(message(inner, *extensions)), IPV4)
            for size in range(14, len(frame)):
                yield frame[:size]
            headers = len(frame) - len(inner) + 24
            for place in range(12, min(headers, len(frame))):
                for value in {frame[place] ^ 1 << bit for bit in range(8)} | {0, 255, random.randrange(256)}:
                    yield frame[:place] + bytes([value]) + frame[place + 1 :]


def feature_set(key: str, features: Sequence[str], decapsulate: Sequence[str] = ("gtp-u",)) -> FeatureSet:
    plain = ("length", "payload_length", "source_port", "destination_port", "tcp_flags", "count", "vlan_id")
    return FeatureSet.from_dict(
        {"name": "common", "key": key, "decapsulate": list(decapsulate), "features": [*plain, *features]}
    )


SETS = {
    "teid": feature_set("five-tuple+teid", ["teid"]),
    "session": feature_set("five-tuple", ["teid", "qfi", "pdu_type", "pdu_direction"]),
    "vlan": feature_set("five-tuple-bidirectional+vlan", ["teid"], ("gtp-u", "vxlan", "gre", "ip-in-ip")),
}


@pytest.mark.parametrize("name", SETS)
def test_what_comes_near_a_common_tunnel_is_what_the_reference_makes_of_it(tmp_path: Path, name: str) -> None:
    features = SETS[name]
    ensemble = random_tree_ensemble(
        np.random.default_rng(4), n_features=len(features.features), n_classes=2, n_trees=3, depth=3
    )
    model = reading_all_features(Random(4), ensemble)
    frames = [*near_misses(), *cut_and_changed()]
    timed = [(10**9 + 1000 * number, frame) for number, frame in enumerate(frames)]
    runs: list[Run] = []
    case = Case("common tunnel", features, model, {"version": 1, "malformed": "drop"})
    assert_agree(case, timed, tmp_path, seen=runs.append)
    statuses = Counter(runs[0].heads[:, 0].tolist())
    enough = len(frames) // 100
    for status in (Status.CLASSIFIED, Status.MALFORMED_TUNNEL, Status.MALFORMED_IP):
        assert statuses[status] > enough, (status, statuses)
    assert len(frames) > 4000
