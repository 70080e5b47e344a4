# SPDX-License-Identifier: Apache-2.0
"""Tables of pools: even, by weight, and with few flows that move."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.parity.frames import ethernet, ipv4, ipv6, udp
from wirewise.policy.act.backend import PLACES, Backend, Pool, flow_words, hash_words, table

Hosts = tuple[tuple[IPv4Address | IPv6Address, int], ...]


def hosts(weights: dict[int, int]) -> Hosts:
    return tuple((ip_address(0x0A00_0000 + host), weight) for host, weight in weights.items())


def test_few_flows_move_when_one_of_a_hundred_leaves() -> None:
    all_of_them = hosts(dict.fromkeys(range(1, 101), 1))
    before = table(all_of_them)
    assert all(0.0095 < count / PLACES < 0.0105 for count in Counter(before).values())
    for gone in (0, 36, 99):
        left = all_of_them[:gone] + all_of_them[gone + 1 :]
        after = table(left)
        others = [(all_of_them[b][0], left[a][0]) for b, a in zip(before, after, strict=True) if b != gone]
        assert sum(b != a for b, a in others) / len(others) < 0.02


@examples(10)
@given(st.dictionaries(st.integers(1, 2000), st.integers(1, 100), min_size=1, max_size=40))
def test_places_are_shared_by_weight(weights: dict[int, int]) -> None:
    shares = Counter(table(hosts(weights)))
    for number, weight in enumerate(weights.values()):
        due = weight / sum(weights.values()) * PLACES
        assert abs(shares[number] - due) < 0.02 * due + 2


def test_nobody_has_an_empty_pools_places() -> None:
    assert set(table(hosts({1: 0, 2: 0}))) == {-1}
    assert set(table(hosts({1: 0, 2: 3}))) == {1}


def test_the_table_is_that_of_the_agent() -> None:
    """The same numbers stand in crates/wirewised/src/object/pools/maglev.rs."""
    both: Hosts = (*hosts({11: 2, 12: 1}), (ip_address("2001:db8::11"), 1))
    assert [table(both)[place] for place in (0, 1, 2)] == [1, 1, 0]
    assert hash_words([number + 1 for number in table(both)], 0) == 2_501_649_962
    assert hash_words((1, 2, 3), 4) == 673_065_866


SOURCE, TARGET = b"\x0a\0\0\1", b"\x0a\0\0\2"
PAYLOAD = udp(1, 2, 20) + bytes(12)


def test_what_has_no_ports_to_go_by_goes_nowhere() -> None:
    pool = Pool("web", (Backend(IPv4Address("10.0.0.11")),))
    whole = ethernet(ipv4(SOURCE, TARGET, 17, PAYLOAD), 0x0800)
    assert pool.apply(whole) == whole
    assert flow_words(whole) == flow_words(ethernet(whole[14:], 0x0800, [(0x8100, 7)]))
    for fragment in (0x2000, 1, 0x1FFF):
        assert pool.choose(ethernet(ipv4(SOURCE, TARGET, 17, PAYLOAD, fragment=fragment), 0x0800)) is None
    assert pool.choose(ethernet(ipv6(SOURCE * 4, TARGET * 4, 44, PAYLOAD), 0x86DD)) is None
    assert pool.choose(ethernet(bytes(46), 0x0806)) is None
    drained = Pool("web", (Backend(IPv4Address("10.0.0.11"), drains=True),))
    assert drained.choose(whole) is None


def test_flows_are_spread_evenly() -> None:
    pool = Pool("web", tuple(Backend(IPv4Address(0x0A00_000B + n)) for n in range(4)))
    frames = (
        ethernet(ipv4(SOURCE, TARGET, 17, udp(port, 53, 20) + bytes(12)), 0x0800) for port in range(8000)
    )
    counts = Counter(backend.address for frame in frames if (backend := pool.choose(frame)))
    assert len(counts) == 4 and all(1850 < count < 2150 for count in counts.values()), counts
