# SPDX-License-Identifier: Apache-2.0
"""Packets into and out of GTP-U tunnels: reference and program make the same of them, both ways are inverse,
and scapy finds them well-formed.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests import needs
from tests.multiplicity import few
from tests.parity.cases import Case
from tests.parity.frames import IPV4, IPV6, TimedFrame, ethernet, ipv4, ipv6, tcp, udp
from tests.parity.harness import PLANES, XDP_CODES, Comparison, Run, assert_agree, needs_kernel
from tests.parity.test_steering import FEATURES, MODEL
from wirewise.abi import Outcome
from wirewise.fate import Fate
from wirewise.policy import Policy
from wirewise.policy.act.gtp import Pass, find, write_inside
from wirewise.policy.act.tunnels import Table, Tunnel

NUMBER = 2000
SLOWLY = 100_000
GTP_FEATURES = replace(FEATURES, decapsulate=("gtp-u",))
IN_KERNEL = tuple(plane for plane in PLANES if plane == "kernel")

TUNNELS = [
    {
        "ue": ["10.45.0.2", "2001:db8:45:2::/64"], "local": "192.0.2.1", "teid": "0x100",
        "peer": "192.0.2.10", "peer-teid": "0xdeadbeef", "qfi": "9",
    },
    {
        "ue": ["10.45.0.3", "2001:db8:45:3::/64"], "local": "2001:db8::1", "teid": "256",
        "peer": "2001:db8::10", "peer-teid": "7", "qfi": "63",
    },
    {"ue": "10.45.0.4", "local": "192.0.2.1", "teid": "4", "peer": "192.0.2.11", "peer-teid": "4"},
    {
        "ue": "2001:db8:45:5::/64", "local": "2001:db8::1", "teid": "5", "peer": "2001:db8::11",
        "peer-teid": "5",
    },
    {"local": "192.0.2.1", "teid": "6"},
]  # fmt: skip


@cache
def known() -> Table:
    """TUNNELS, as the agent reads them."""
    policy = {"version": 1, "classes": {"c": {"decapsulate": "gtp-u"}}, "tunnels": TUNNELS}
    steering = Policy.parse(yaml.safe_dump(policy), ["c"]).actions[0].steering
    assert steering is not None
    return steering.tunnels


def summed(packet: bytes) -> bytes:
    """An IPv4 packet with the checksum of its header."""
    size = 4 * (packet[0] & 15)
    total = sum(struct.unpack(f">{size // 2}H", packet[:10] + bytes(2) + packet[12:size]))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return packet[:10] + (~total & 0xFFFF).to_bytes(2, "big") + packet[12:]


def _payload(random: Random) -> tuple[int, bytes]:
    data = random.randbytes(random.choice((0, 1, 7, 40, 101, random.randrange(1400))))
    kind = random.randrange(4)
    if kind == 0:
        return 6, tcp(random.randrange(1 << 16), 443, 0x18) + data
    if kind == 1:
        port = 2152 if random.random() < 0.05 else random.randrange(1 << 16)
        return 17, udp(random.randrange(1 << 16), port, 8 + len(data)) + data
    # Of ICMP an echo: what hosts cannot do without is let through before it is classified.
    return random.choice((1, 47, 50, 58, 132)), b"\x08" + random.randbytes(11) + data


def _packet(random: Random, version: int, source: bytes, target: bytes) -> bytes:
    protocol, payload = _payload(random)
    tos = random.randrange(256)
    if version == 6:
        extensions = [(60, bytes(7))] if random.random() < 0.1 else []
        return ipv6(source, target, protocol, payload, extensions=extensions, tos=tos)
    options = b"\x01" * 4 if random.random() < 0.1 else b""
    fragment = random.choice((0, 0, 0x4000, 0x2000, 100))
    return summed(ipv4(source, target, protocol, payload, options=options, fragment=fragment, tos=tos))


def _behind(random: Random, tunnel: Tunnel) -> tuple[int, bytes]:
    """An IP version, and an address of who is behind a tunnel."""
    found = [ue for ue in (tunnel.ue4, tunnel.ue6) if ue is not None]
    ue = random.choice(found) if found else IPv4Address("10.45.0.9")
    if isinstance(ue, IPv4Address):
        return 4, ue.packed
    return 6, ue.network_address.packed[:8] + random.randbytes(8)


def downlink(random: Random) -> bytes:
    """A frame to somebody behind a tunnel that has a way there."""
    tunnel = random.choice([tunnel for tunnel in known().by_end.values() if tunnel.peer])
    version, target = _behind(random, tunnel)
    source = bytes([198, 51, 100, 1]) if version == 4 else IPv6Address("2001:db8:9::1").packed
    packet = _packet(random, version, source, target)
    padding = bytes(max(0, 46 - len(packet))) if random.random() < 0.5 else b""
    return ethernet(packet + padding, IPV4 if version == 4 else IPV6)


def uplink(random: Random) -> bytes:
    """A frame in a tunnel, perhaps in none that is known, with all that a header may have."""
    end, tunnel = random.choice(
        [(end, tunnel) for end, tunnel in known().by_end.items() if end[1] is not None]
    )
    version, source = _behind(random, tunnel)
    if random.random() < 0.1:
        source = source[:3] + bytes([source[3] ^ 64]) + source[4:]
    target = bytes([203, 0, 113, 9]) if version == 4 else IPv6Address("2001:db8:7::9").packed
    inner = _packet(random, version, source, target)
    teid = end[1] if random.random() < 0.9 else random.randrange(1 << 32)
    flags, extensions, following = 0x30, b"", 0
    if random.random() < 0.8:
        flags |= random.choice((4, 4, 4, 6, 2, 1, 7))
        if flags & 4:
            kinds = [
                random.choice((0x85, 0x85, 0x85, 0x40, 0x20, 0xC0))
                for _ in range(random.choice((1, 1, 1, 2, 4, 5)))
            ]
            following = kinds[0]
            for kind, after in zip(kinds, [*kinds[1:], 0], strict=True):
                body = random.randbytes(random.choice((2, 2, 2, 6, 14)))
                if kind == 0x85 and random.random() < 0.9:
                    body = bytes([random.choice((0, 16)), *body[1:]])
                extensions += bytes([(len(body) + 2) // 4]) + body + bytes([after])
        extensions = random.randbytes(3) + bytes([following]) + extensions
    length = len(extensions) + len(inner)
    message = bytes([flags, 255 if random.random() < 0.97 else 26]) + struct.pack(">HI", length, teid or 0)
    payload = message + extensions + inner
    head = struct.pack(
        ">HHHH", random.randrange(1 << 16), 2152, 8 + len(payload), random.choice((0, 0xFFFF, 0x1234))
    )
    tos, local = random.randrange(256), tunnel.local
    if local.version == 4:
        fragment = 0x2000 if random.random() < 0.03 else 0x4000
        options = b"\x01" * 8 if random.random() < 0.1 else b""
        outer = summed(
            ipv4(
                b"\xc0\0\2\x0a", local.packed, 17, head + payload, options=options, fragment=fragment, tos=tos
            )
        )
    else:
        outer = ipv6(IPv6Address("2001:db8::10").packed, local.packed, 17, head + payload, tos=tos)
    tags = [(0x8100, 5)] if random.random() < 0.05 else []
    return ethernet(outer, IPV4 if local.version == 4 else IPV6, tags)


def damaged(random: Random, frame: bytes) -> bytes:
    if random.random() < 0.15:
        return frame[: random.randrange(14, len(frame))]
    changed = bytearray(frame)
    for _ in range(random.choice((0, 0, 1, 2))):
        changed[random.randrange(12, min(len(frame), 130))] = random.randrange(256)
    return bytes(changed)


def mixed(seed: str, number: int) -> list[TimedFrame]:
    random = Random(seed)
    frames = [random.choice((uplink, uplink, downlink))(random) for _ in range(number)]
    frames = [damaged(random, frame) if random.random() < 0.4 else frame for frame in frames]
    return [(10**9 + 1000 * n, frame) for n, frame in enumerate(frames)]


def case(rule: Any, *, tunnels: bool = True, features: Any = FEATURES, mode: str = "enforce") -> Case:
    policy: dict[str, Any] = {"version": 1, "classes": {"c0": rule, "c1": rule}}
    return Case(
        "tunnels", features, MODEL, policy | ({"tunnels": TUNNELS} if tunnels else {}), mode, "inline"
    )


@needs_kernel
@pytest.mark.parametrize(
    ("rule", "features"),
    few(
        [
            {"decapsulate": "gtp-u"},
            {"decapsulate": "gtp-u", "action": "forward", "dscp": "AF41"},
            {"encapsulate": "gtp-u", "action": "forward"},
            {"encapsulate": "gtp-u", "action": "forward", "qfi": 33, "inner-dscp": "EF", "dscp": "CS1"},
        ],
        [FEATURES, GTP_FEATURES],
    ),
)
def test_program_and_reference_make_the_same_of_anything(tmp_path: Path, rule: Any, features: Any) -> None:
    runs: list[Run] = []
    frames = mixed(str(rule), NUMBER)
    assert_agree(case(rule, features=features), frames, tmp_path, seen=runs.append, planes=IN_KERNEL)
    outcomes = Counter(runs[0].heads[:, 4].tolist())
    assert outcomes[Outcome.ACTED] > NUMBER / 10 and outcomes[Outcome.NOT_ACTED] > NUMBER / 10
    sent = XDP_CODES[Fate.REDIRECT if "encapsulate" in rule else Fate.PASS]
    steered = runs[0].heads[:, 4] == Outcome.ACTED
    assert set(runs[0].heads[steered, 7].tolist()) == {sent}


@needs_kernel
@pytest.mark.parametrize(
    "rule", [{"qfi": 5}, {"inner-dscp": "AF21"}, {"qfi": 0, "inner-dscp": 63, "dscp": 1}], ids=str
)
def test_what_stays_in_its_tunnel_is_written_on_everywhere(tmp_path: Path, rule: Any) -> None:
    """In the engine too; a program of TC does not do it."""
    runs: list[Run] = []
    planes = tuple(plane for plane in PLANES if plane != "kernel-tc")
    frames = mixed(str(rule), NUMBER)
    assert_agree(case(rule, tunnels=False), frames, tmp_path, seen=runs.append, planes=planes)
    assert Counter(runs[0].heads[:, 4].tolist())[Outcome.ACTED] > NUMBER / 10


@needs_kernel
def test_the_engine_leaves_tunnels_alone(tmp_path: Path) -> None:
    frames = mixed("engine", 200)
    comparison = Comparison(case({"decapsulate": "gtp-u"}), tmp_path)
    for plane in ("engine", "kernel-tc"):
        run = comparison.traced(frames, plane)
        assert Outcome.ACTED not in run.heads[:, 4].tolist()
        assert run.left == [frame for _, frame in frames]


@needs_kernel
def test_who_observes_changes_nothing(tmp_path: Path) -> None:
    frames = mixed("observe", 300)
    run = case({"decapsulate": "gtp-u"}, mode="observe")
    assert_agree(run, frames, tmp_path, planes=IN_KERNEL)


def there_and_back(frames: list[bytes], folder: Path) -> list[bytes]:
    """Into tunnels and out of them, both by the program. Returns the frames between."""
    timed = [(10**9 + 1000 * n, frame) for n, frame in enumerate(frames)]
    table = yaml.safe_load(yaml.safe_dump(TUNNELS))
    # The other end: what goes to `peer` is what it takes out.
    others = [{"local": entry["peer"], "teid": entry["peer-teid"]} for entry in table if "peer" in entry]
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    into = Comparison(case({"encapsulate": "gtp-u", "action": "forward"}), folder / "in", planes=("kernel",))
    out = case({"decapsulate": "gtp-u"})
    out.policy["tunnels"] = others
    sent = into.traced(timed, "kernel")
    wrong = [n for n, head in enumerate(sent.heads) if head[4] != Outcome.ACTED]
    assert not wrong, (len(wrong), sent.heads[wrong[0]], frames[wrong[0]].hex())
    tunnelled = sent.left
    assert tunnelled is not None
    timed = [(10**9 + 1000 * n, frame) for n, frame in enumerate(tunnelled)]
    came = Comparison(out, folder / "out", planes=("kernel",)).traced(timed, "kernel")
    assert came.left is not None
    differ = [n for n, (a, b) in enumerate(zip(frames, came.left, strict=True)) if a != b]
    assert not differ, (len(differ), frames[differ[0]].hex(), came.left[differ[0]].hex())
    return tunnelled


def whole(random: Random) -> bytes:
    """A frame that is no tunnel itself."""
    while True:
        frame = downlink(random)
        try:
            known().encapsulate(frame)
            find(known().encapsulate(frame))
        except Pass:
            continue
        return frame


def dissect(frame: bytes, inner: bytes) -> None:
    """By scapy: lengths, checksums, the tunnel's headers, and what is inside."""
    from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    packet = Ether(frame)
    ip, datagram, gtp = packet.payload, packet[UDP], packet[GTP_U_Header]
    assert isinstance(ip, IP | IPv6) and (datagram.sport, datagram.dport) == (2152, 2152)
    tunnel = next(t for t in known().by_end.values() if t.peer is not None and str(t.peer) == ip.dst)
    assert ip.src == str(tunnel.local)
    # What scapy writes where it is left to work it out.
    again = packet.copy()
    if isinstance(ip, IP):
        del again[IP].len, again[IP].chksum
        assert datagram.chksum == 0
    else:
        del again[IPv6].plen, again[UDP].chksum
    del again[UDP].len, again[GTP_U_Header].length
    assert bytes(again) == frame, (bytes(again).hex(), frame.hex())
    assert (gtp.version, gtp.PT, gtp.gtp_type, gtp.teid, gtp.E) == (
        1, 1, 255, tunnel.peer_teid, tunnel.qfi is not None,
    )  # fmt: skip
    if tunnel.qfi is not None:
        session = packet[GTPPDUSessionContainer]
        assert (session.type, session.QFI, session.ExtHdrLen, session.NextExtHdr) == (0, tunnel.qfi, 1, 0)
    assert frame.endswith(inner[14:])


def both_ways(number: int, dissected: int, folder: Path, seed: str) -> None:
    needs.package("scapy")
    random = Random(seed)
    frames = [whole(random) for _ in range(number)]
    tunnelled = there_and_back(frames, folder)
    for frame, inner in zip(tunnelled[:dissected], frames[:dissected], strict=True):
        dissect(frame, inner)


@needs_kernel
def test_in_and_out_are_inverse(tmp_path: Path) -> None:
    both_ways(NUMBER, 300, tmp_path, "inverse")


@needs_kernel
@pytest.mark.slow
def test_in_and_out_are_inverse_for_many(tmp_path: Path) -> None:
    both_ways(SLOWLY, SLOWLY, tmp_path, "many")


def test_in_and_out_are_inverse_in_the_reference() -> None:
    random = Random("reference")
    others = Table.of(
        [Tunnel(t.peer, t.peer_teid) for t in dict.fromkeys(known().by_end.values()) if t.peer is not None]
    )
    for _ in range(NUMBER):
        frame = whole(random)
        assert others.decapsulate(known().encapsulate(frame)) == frame


def test_what_is_written_inside_keeps_its_checksum() -> None:
    """By scapy, which works it out again."""
    needs.package("scapy")
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    random, number = Random("written"), 0
    while number < 200:
        frame = known().encapsulate(whole(random))
        if frame[14] >> 4 != 6:
            continue
        try:
            written = write_inside(frame, qfi=random.randrange(64), inner_dscp=random.randrange(64))
        except Pass:
            continue
        number += 1
        packet = Ether(written)
        assert isinstance(packet.payload, IPv6)
        del packet[UDP].chksum
        assert bytes(packet) == written
