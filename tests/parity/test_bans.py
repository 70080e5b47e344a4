# SPDX-License-Identifier: Apache-2.0
"""Bans: who is dropped for what it sent before, and who has proved its address, on every plane."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.parity.cases import Case
from tests.parity.frames import TCP, UDP, TimedFrame, ethernet, ipv4, ipv6, tcp, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.abi import Outcome, Status
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

FEATURES = FeatureSet.from_dict(
    {"name": "bans", "key": "five-tuple", "features": ["length"], "decapsulate": ["ip-in-ip"]}
)
MODEL = TreeEnsemble(
    1,
    2,
    "majority",
    (Tree((0, LEAF, LEAF), (100, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,))),),
    2,
    (0, 0),
)
SECOND = 10**9
MS = 10**6
SYN, RST, ACK = 2, 4, 16
CLIENT, SERVER, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.77"
LETTERS = {
    Outcome.PASS: "p", Outcome.DROP: "d", Outcome.LIMITED: "l", Outcome.BAN: "B", Outcome.WOULD_BAN: "w",
    Outcome.WOULD_DROP: "o",
}  # fmt: skip


def frame(source: str, destination: str, protocol: int, transport: bytes, attack: bool) -> bytes:
    ends = ip_address(source).packed, ip_address(destination).packed
    payload = transport + bytes(120 if attack else 0)
    if len(ends[0]) == 4:
        return ethernet(ipv4(*ends, protocol, payload), 0x0800)
    return ethernet(ipv6(*ends, protocol, payload), 0x86DD)


def datagram(source: str, destination: str = SERVER, *, attack: bool = True) -> bytes:
    return frame(source, destination, UDP, udp(9, 53, 128 if attack else 8), attack)


def segment(
    flags: int,
    numbers: tuple[int, int],
    *,
    ends: tuple[str, str] = (CLIENT, SERVER),
    ports: tuple[int, int] = (4000, 80),
    attack: bool = True,
) -> bytes:
    return frame(*ends, TCP, tcp(*ports, flags, numbers=numbers), attack)


def handshake(client: str = CLIENT, server: str = SERVER, first: tuple[int, int] = (10, 70)) -> list[bytes]:
    """All three, and none of them an attack. first: the numbers of both."""
    mine, its = first
    there, back = (client, server), (server, client)
    return [
        segment(SYN, (mine, 0), ends=there, attack=False),
        segment(SYN | ACK, (its, (mine + 1) % 2**32), ends=back, ports=(80, 4000), attack=False),
        segment(ACK, ((mine + 1) % 2**32, (its + 1) % 2**32), ends=there, attack=False),
    ]


def outcomes(
    folder: Path,
    ban: dict[str, Any],
    frames: Sequence[bytes | TimedFrame],
    *,
    mode: str = "enforce",
    **more: Any,
) -> str:
    """A letter a packet; `!`: banned. Frames are 1 us apart unless they have a time."""
    rule = {"ban": {"for": "100ms"} | ban} | more.pop("rule", {})
    case = Case("bans", FEATURES, MODEL, {"version": 1, "classes": {"c1": rule}} | more, mode)
    timed = [
        it if isinstance(it, tuple) else (SECOND + 1000 * number, it) for number, it in enumerate(frames)
    ]
    runs: list[Run] = []
    assert_agree(case, timed, folder, seen=runs.append)
    return "".join(
        "!" if status == Status.BANNED else LETTERS[Outcome(outcome)]
        for status, outcome in runs[0].heads[:, [0, 4]]
    )


SOURCE = {"by": "source"}
ANY = {"by": "source", "spoofable": "true"}


@needs_kernel
def test_a_banned_sender_is_dropped_until_the_ban_expires(tmp_path: Path) -> None:
    benign, other = datagram(CLIENT, attack=False), datagram(OTHER, attack=False)
    times = [0, 1, 2, 99, 100, 101, 102, 103]
    frames = [datagram(CLIENT), benign, other, benign, benign, datagram(CLIENT), datagram(CLIENT), other]
    timed = [(SECOND + at * MS, it) for at, it in zip(times, frames, strict=True)]
    assert outcomes(tmp_path, ANY, timed) == "B!p!pB!p"


@needs_kernel
def test_in_observe_mode_a_ban_is_counted_once_and_drops_nobody(tmp_path: Path) -> None:
    frames = [datagram(CLIENT), datagram(CLIENT), datagram(CLIENT, attack=False), datagram(OTHER)]
    assert outcomes(tmp_path, ANY, frames, mode="observe") == "wopw"


@needs_kernel
def test_verdicts_in_a_row_and_rates_come_before_a_ban(tmp_path: Path) -> None:
    frames = [datagram(CLIENT)] * 5
    assert outcomes(tmp_path, ANY, frames, rule={"after": 3}) == "ppB!!"
    limited = {"action": "rate-limit", "rate": "1/s", "burst": 2}
    assert outcomes(tmp_path, ANY, frames, rule=limited) == "ppB!!"


@needs_kernel
def test_who_is_allowed_is_never_banned(tmp_path: Path) -> None:
    frames = [datagram(CLIENT), datagram(OTHER), datagram(CLIENT)]
    allow = {"allow": {"prefixes": ["10.0.0.1/32"]}}
    assert outcomes(tmp_path, ANY, frames, **allow) == "pBp"


@needs_kernel
@pytest.mark.parametrize(
    ("ban", "expected"),
    [
        ({"by": "source"}, "B!BB"),
        ({"by": "pair"}, "BBBB"),
        ({"by": "source-prefix"}, "B!!B"),
        ({"by": "source-prefix", "ipv4": 31, "ipv6": 127}, "B!BB"),
        ({"by": "source-prefix", "ipv4": 1, "ipv6": 1}, "B!!!"),
        ({"by": "source-prefix", "ipv4": 8, "ipv6": 17}, "B!!!"),
    ],
)
@pytest.mark.parametrize("version", [4, 6])
def test_a_ban_is_of_a_source_its_prefix_or_a_pair(
    tmp_path: Path, ban: dict[str, Any], expected: str, version: int
) -> None:
    sources = {
        4: ("10.0.0.2", "10.0.0.2", "10.0.0.4", "10.0.1.2"),
        6: ("2001:db8::2", "2001:db8::2", "2001:db8::4", "2001:db8:0:1::2"),
    }[version]
    receivers = {4: ("10.9.0.1", "10.9.0.2"), 6: ("2001:db8:9::1", "2001:db8:9::2")}[version]
    frames = [datagram(source, receivers[number > 0]) for number, source in enumerate(sources)]
    assert outcomes(tmp_path, ban | {"spoofable": "true"}, frames) == expected


@needs_kernel
@pytest.mark.parametrize("addresses", [(CLIENT, SERVER), ("2001:db8::1", "2001:db8::2")])
@pytest.mark.parametrize("first", [(10, 70), (2**32 - 1, 5), (0, 2**32 - 1)])
def test_who_completes_a_handshake_can_be_banned(
    tmp_path: Path, addresses: tuple[str, str], first: tuple[int, int]
) -> None:
    mine, its = ((number + 1) % 2**32 for number in first)
    attack = segment(ACK | 8, (mine, its), ends=addresses)
    benign = datagram(*addresses, attack=False)
    assert outcomes(tmp_path, SOURCE, [*handshake(*addresses, first), attack, benign]) == "pppB!"


@needs_kernel
@pytest.mark.parametrize(
    ("numbers", "is_banned"),
    [
        ((11, 71), True),
        ((11 + 65535, 71 + 65535), True),
        ((11 + 65536, 71), False),
        ((11, 71 + 65536), False),
        ((10, 71), False),
        ((11, 70), False),
        ((2**31, 2**31), False),
    ],
)
def test_numbers_far_from_the_handshake_prove_nothing(
    tmp_path: Path, numbers: tuple[int, int], is_banned: bool
) -> None:
    frames = [*handshake(), segment(ACK, numbers)]
    assert outcomes(tmp_path, SOURCE, frames) == ("pppB" if is_banned else "pppd")


@needs_kernel
@pytest.mark.parametrize(
    "flood",
    [
        [segment(SYN, (number, 0)) for number in range(40)],
        [segment(ACK, (number, number + 1)) for number in range(40)],
        [segment(ACK, (0, 0))],
        [segment(SYN | ACK, (number, number + 1)) for number in range(40)],
        [datagram(CLIENT)] * 40,
        # The answer to a forged SYN goes to the address's owner; the attacker has to guess its number.
        [*handshake()[:2], *(segment(ACK, (11, 71 + guess)) for guess in (-1, 1, 2, 65536))],
        [*handshake()[:2], segment(ACK, (12, 71)), segment(ACK | RST, (11, 71))],
        [*handshake()[:2], segment(ACK | SYN, (11, 71))],
        # In a connection that is proven, others have to know its numbers too, and its ports.
        [*handshake(), segment(ACK, (1, 1)), segment(SYN, (11, 71)), segment(RST | ACK, (11, 71))],
        [*handshake(), segment(ACK, (11, 71), ports=(4001, 80)), datagram(CLIENT)],
        [*handshake(OTHER), segment(ACK, (11, 71))],
    ],
)  # fmt: skip
def test_who_is_forged_is_not_banned(tmp_path: Path, flood: list[bytes]) -> None:
    found = outcomes(tmp_path, SOURCE, [*flood, datagram(CLIENT, attack=False)])
    assert set(found) <= {"p", "d"} and found[-1] == "p"


@needs_kernel
def test_thousands_of_bans_hold_side_by_side(tmp_path: Path) -> None:
    frames = [datagram(f"10.{n >> 8}.{n & 255}.1") for n in range(3000)] * 2
    assert outcomes(tmp_path, ANY | {"for": "10s"}, frames).count("!") > 2900
