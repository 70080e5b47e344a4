# SPDX-License-Identifier: Apache-2.0
"""What access networks put in front of IP: VLAN tags in the flow key, and PPPoE sessions, on every plane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.multiplicity import first
from tests.parity.cases import Case
from tests.parity.frames import IPV4, IPV6, PPPOE, UDP, TimedFrame, ethernet, ipv4, ipv6, pppoe, udp
from tests.parity.harness import assert_agree, needs_kernel
from tests.parity.test_steering import FEATURES, MODEL
from wirewise.feature_sets import KEYS

A, B = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
A6, B6 = b"\x20\x01" + bytes(13) + b"\x01", b"\x20\x01" + bytes(13) + b"\x02"
V4, V6 = ipv4(A, B, UDP, udp(1000, 53)), ipv6(A6, B6, UDP, udp(1000, 53))
TAGS: tuple[list[tuple[int, int]], ...] = (
    [], [(0x8100, 7)], [(0x8100, 8)], [(0x88A8, 4095), (0x8100, 7)], [(0x9100, 7), (0x8100, 4095)],
    [(0x8100, 0)], [(0x8100, 0), (0x8100, 7)],
)  # fmt: skip


def timed(frames: list[bytes]) -> list[TimedFrame]:
    return [(number * 1_000_000, frame) for number, frame in enumerate(frames)]


@needs_kernel
@pytest.mark.parametrize("key", first([key for key in KEYS if "+vlan" in key], 3))
def test_vlans_in_the_key(tmp_path: Path, key: str) -> None:
    """Behind tags, in sessions, and in a tunnel whose own frame is tagged."""
    decapsulate = ("gtp-u", "vxlan") if key.endswith("+teid") or key.startswith("source") else ()
    frames = []
    for network, kind in ((V4, IPV4), (V6, IPV6)):
        inner = ethernet(pppoe(network, kind), PPPOE, [(0x8100, 9)])
        vxlan = ipv4(B, A, UDP, udp(1, 4789, 16 + len(inner)) + b"\x08" + bytes(7) + inner)
        for tags in TAGS:
            session = ethernet(pppoe(network, kind), PPPOE, tags)
            frames += [ethernet(network, kind, tags), session, ethernet(vxlan, IPV4, tags)]
    features = replace(FEATURES, key=key, decapsulate=decapsulate, sharing="")
    assert_agree(Case(key, features, MODEL, {"version": 1}), timed(frames * 2), tmp_path)


@needs_kernel
@pytest.mark.parametrize("decapsulate", [(), ("vxlan",)])
def test_sessions_cut_and_lying(tmp_path: Path, decapsulate: tuple[str, ...]) -> None:
    """At every byte, by the end of the frame and by the end of a tunnel's datagram in a padded frame."""
    sessions = [pppoe(V4, IPV4), pppoe(V6, IPV6), pppoe(V4, IPV4, code=9), pppoe(V4, IPV4, protocol=0xC021)]
    sessions += [pppoe(V4, IPV4, length=length) for length in (0, 1, 2, len(V4) + 1, len(V4) + 3, 65535)]
    sessions += [pppoe(V6, IPV6, length=length) for length in (1, 2, 41, 42, len(V6) + 1, len(V6) + 3)]
    frames = []
    for session in sessions:
        whole = ethernet(session, PPPOE, [(0x8100, 7)])
        frames += [whole[:size] for size in range(14, len(whole) + 1)]
        header = udp(1, 4789, 16 + len(whole)) + b"\x08" + bytes(7)
        frames += [
            ethernet(ipv4(B, A, UDP, header + whole + bytes(9), length=36 + size), IPV4)
            for size in range(14, len(whole) + 1)
        ]
    case = Case("sessions", replace(FEATURES, decapsulate=decapsulate), MODEL, {"version": 1})
    assert_agree(case, timed(frames), tmp_path)
