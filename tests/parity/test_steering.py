# SPDX-License-Identifier: Apache-2.0
"""Classes that go elsewhere or are written on: outcomes and bytes on every plane, checksums by dpkt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.multiplicity import few
from tests.parity.cases import Case
from tests.parity.frames import TimedFrame, ethernet, ipv4, ipv6, udp
from tests.parity.harness import XDP_CODES, Run, assert_agree, needs_kernel
from wirewise.abi import Action, Outcome
from wirewise.fate import Fate
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.policy.act.dscp import with_dscp

FEATURES = FeatureSet.from_dict(
    {"name": "steering", "key": "five-tuple", "features": ["length"], "decapsulate": ["ip-in-ip"]}
)
MODEL = TreeEnsemble(
    1,
    2,
    "majority",
    (Tree((0, LEAF, LEAF), (100, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,))),),
    2,
    (0, 0),
)
SOURCE4, TARGET4 = b"\x0a\0\0\1", b"\x0a\0\0\2"
SOURCE6, TARGET6 = b"\x20\x01" + bytes(13) + b"\1", b"\x20\x01" + bytes(13) + b"\2"
PAYLOAD = udp(1, 2, 208) + bytes(200)


def with_checksum(packet: bytes) -> bytes:
    """An IPv4 packet without options, with the checksum that dpkt makes of its header."""
    return packet[:10] + dpkt.in_cksum(packet[:10] + b"\0\0" + packet[12:20]).to_bytes(2, "big") + packet[12:]


def packets() -> list[bytes]:
    v4 = with_checksum(ipv4(SOURCE4, TARGET4, 17, PAYLOAD, tos=0x03))
    v6 = ipv6(SOURCE6, TARGET6, 17, PAYLOAD, tos=0x51)
    later = with_checksum(ipv4(SOURCE4, TARGET4, 17, PAYLOAD, fragment=100))
    inside = with_checksum(ipv4(SOURCE4, TARGET4, 4, v4))
    short = with_checksum(ipv4(SOURCE4, TARGET4, 17, udp(1, 2, 20) + bytes(12)))
    return [
        ethernet(v4, 0x0800),
        ethernet(v6, 0x86DD),
        ethernet(later, 0x0800),
        ethernet(v4, 0x0800, [(0x8100, 7)]),
        ethernet(v4, 0x0800, [(0x88A8, 9), (0x8100, 7)]),
        ethernet(inside, 0x0800),
        ethernet(v4[:10] + b"\xde\xad" + v4[12:], 0x0800),  # its checksum is wrong, and stays so
        ethernet(short, 0x0800),
    ]


def case(rule: Any, mode: str, shape: str) -> Case:
    return Case("steering", FEATURES, MODEL, {"version": 1, "classes": {"c1": rule}}, mode, shape)


def run(rule: Any, folder: Path, mode: str = "enforce", shape: str = "inline") -> Run:
    frames: list[TimedFrame] = [(10**9 + 1000 * n, frame) for n, frame in enumerate(packets())]
    runs: list[Run] = []
    assert_agree(case(rule, mode, shape), frames, folder, seen=runs.append)
    return runs[0]


@needs_kernel
@pytest.mark.parametrize(
    ("rule_and_fate", "shape"),
    few(
        [
            ({"dscp": "AF41"}, Fate.PASS),
            ("bounce", Fate.BOUNCE),
            ({"action": "bounce", "dscp": 63}, Fate.BOUNCE),
            ({"redirect": {"interface": "eth9"}}, Fate.REDIRECT),
            (
                {"redirect": {"interface": "eth9"}, "dscp": "LE", "mark": 7, "priority": 3, "queue": 1},
                Fate.REDIRECT,
            ),
            ({"mark": "0xff"}, Fate.PASS),
        ],
        ["inline", "tail-calls"],
    ),
)
def test_packets_go_where_the_policy_says_and_are_written_on(
    tmp_path: Path, rule_and_fate: tuple[Any, Fate], shape: str
) -> None:
    rule, fate = rule_and_fate
    ours = run(rule, tmp_path, shape=shape)
    assert ours.heads[:, 3].tolist() == [Action.ACT] * 7 + [Action.PASS]
    assert ours.heads[:, 4].tolist() == [Outcome.ACTED] * 7 + [Outcome.PASS]
    assert ours.heads[:, 7].tolist() == [XDP_CODES[fate]] * 7 + [XDP_CODES[Fate.PASS]]
    assert ours.left is not None and len(ours.left) == 8
    for frame, left in zip(packets()[:7], ours.left, strict=False):
        ends = (left[:6], left[6:12]) if fate is not Fate.BOUNCE else (left[6:12], left[:6])
        assert (frame[:6], frame[6:12]) == ends


def macs(count: int) -> list[str]:
    return [f"02:00:00:00:09:{host:02x}" for host in range(1, count + 1)]


def pool(**settings: Any) -> dict[str, Any]:
    backends = [
        {"address": address, "mac": mac, "weight": weight}
        for weight, mac, address in zip(
            (1, 2, 1, 5, 1), macs(5), ("10.8.0.1", "10.8.0.2", "fd08::3", "10.8.0.4", "fd08::5"), strict=True
        )
    ]
    return {"backends": backends} | settings


@needs_kernel
@pytest.mark.parametrize(
    ("settings", "shape"), few([{}, {"seed": "0xfeedbeef"}, {"method": "gue"}], ["inline", "tail-calls"])
)
def test_flows_go_to_the_backends_of_a_pool(tmp_path: Path, settings: dict[str, Any], shape: str) -> None:
    """Every plane takes the same backend as the reference: the frame that is left has its address."""
    flows = [
        ethernet(with_checksum(ipv4(SOURCE4, TARGET4, protocol, udp(port, 443, 208) + bytes(200))), 0x0800)
        for port in range(1000, 1060)
        for protocol in (17, 47)
    ] + [ethernet(ipv6(SOURCE6, TARGET6, 17, udp(port, 53, 208) + bytes(200)), 0x86DD) for port in range(60)]
    extended = ethernet(ipv6(SOURCE6, TARGET6, 17, PAYLOAD, extensions=[(60, bytes(7))]), 0x86DD)
    frames = [(10**9 + 1000 * n, frame) for n, frame in enumerate([*flows, *packets(), extended])]
    policy = {
        "version": 1,
        "classes": {"c1": {"backend": "web", "dscp": 10}},
        "pools": {"web": pool(**settings)},
    }
    runs: list[Run] = []
    assert_agree(Case("pools", FEATURES, MODEL, policy, "enforce", shape), frames, tmp_path, seen=runs.append)
    [ours] = runs
    outcomes = ours.heads[:, 4].tolist()
    assert outcomes[: len(flows)] == [Outcome.ACTED] * len(flows)
    # A fragment, and a packet with extension headers.
    assert [n for n, outcome in enumerate(outcomes[len(flows) :]) if outcome == Outcome.NOT_ACTED] == [2, 8]
    assert ours.left is not None
    to = {frame[:6].hex(":") for frame in ours.left[: len(flows)]}
    assert to == (set(macs(5)) if "method" not in settings else {flows[0][:6].hex(":")})


@needs_kernel
def test_nobody_is_sent_to_who_drains(tmp_path: Path) -> None:
    drained = [{"address": "10.8.0.1", "mac": macs(1)[0], "drain": "true"}]
    policy = {"version": 1, "classes": {"c1": {"backend": "web"}}, "pools": {"web": {"backends": drained}}}
    frames: list[TimedFrame] = [(10**9 + 1000 * n, frame) for n, frame in enumerate(packets())]
    runs: list[Run] = []
    assert_agree(
        Case("drains", FEATURES, MODEL, policy, "enforce", "inline"), frames, tmp_path, seen=runs.append
    )
    assert runs[0].heads[:, 4].tolist() == [Outcome.NOT_ACTED] * 7 + [Outcome.PASS]
    assert runs[0].left == packets()


@needs_kernel
@pytest.mark.parametrize(
    "rule", ["forward", {"action": "forward", "dscp": "AF41"}, {"forward": {"ports": ["a", "b"]}}]
)
def test_captured_packets_have_no_routes(tmp_path: Path, rule: Any) -> None:
    ours = run(rule, tmp_path)
    assert ours.heads[:, 4].tolist() == [Outcome.NOT_ACTED] * 7 + [Outcome.PASS]
    assert set(ours.heads[:, 7].tolist()) == {XDP_CODES[Fate.PASS]}


@pytest.mark.parametrize("shape", ["inline", "tail-calls"])
def test_a_challenge_asks_no_captured_packet(tmp_path: Path, shape: str) -> None:
    ours = run("challenge", tmp_path, shape=shape)
    assert ours.heads[:, 4].tolist() == [Outcome.NOT_ACTED] * 7 + [Outcome.PASS]
    assert ours.left == packets()


@needs_kernel
def test_who_observes_changes_nothing(tmp_path: Path) -> None:
    ours = run({"action": "bounce", "dscp": 63}, tmp_path, mode="observe")
    assert ours.heads[:, 4].tolist() == [Outcome.WOULD_ACT] * 7 + [Outcome.PASS]
    assert ours.left == packets()


def test_a_written_header_is_whole() -> None:
    v4, v6, later, tagged, twice, tunnelled, wrong, _ = packets()
    for frame, at in [(v4, 14), (later, 14), (tagged, 18), (twice, 22), (tunnelled, 14)]:
        left = with_dscp(frame, 46)
        assert dpkt.in_cksum(frame[at : at + 20]) == dpkt.in_cksum(left[at : at + 20]) == 0
        assert dpkt.ip.IP(left[at:]).tos == 46 << 2 | dpkt.ip.IP(frame[at:]).tos & 3
        assert left[:at] + left[at + 12 :] == frame[:at] + frame[at + 12 :]
    left6 = dpkt.ip6.IP6(with_dscp(v6, 46)[14:])
    assert (left6.v, left6.fc, left6.flow) == (6, 46 << 2 | 1, 0x12345)
    assert with_dscp(tunnelled, 46)[34:] == tunnelled[34:]
    assert dpkt.in_cksum(with_dscp(wrong, 46)[14:34]) == dpkt.in_cksum(wrong[14:34]) != 0


@given(st.binary(min_size=20, max_size=20), st.integers(0, 63))
def test_any_good_checksum_stays_good(header: bytes, dscp: int) -> None:
    frame = ethernet(with_checksum(b"\x45" + header[1:]), 0x0800)
    left = with_dscp(frame, dscp)
    assert dpkt.in_cksum(left[14:34]) == 0
    assert left[15] == dscp << 2 | frame[15] & 3
