# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.abi import Action, Outcome, Status
from wirewise.errors import InputError
from wirewise.fate import DROPPING
from wirewise.feature_sets.packet import Packet
from wirewise.policy import ClassPolicy, Decider, Limit, Policy, Port, Selector, Teller, Trigger

CLASSES = ["benign", "attack", "scan", "other"]
FULL = """
version: 1
classes: {attack: drop, scan: {action: rate-limit, rate: 100/s, burst: 20}, other: count}
trigger: {packets: [1, 2, 4, 8]}
allow: {prefixes: [10.0.0.0/8, "2001:db8::/32"], ports: [22, tcp/179, udp/53]}
enforce_for: 10m
malformed: drop
events: {rate: 30/m, burst: 3}
"""


def test_every_key_is_read() -> None:
    policy = Policy.parse(FULL, CLASSES)
    assert [entry.action for entry in policy.actions] == [
        Action.PASS,
        Action.DROP,
        Action.RATE_LIMIT,
        Action.COUNT,
    ]
    assert policy.actions[0] == ClassPolicy()
    assert policy.actions[2].limit == Limit(10_000_000, 190_000_000)
    assert policy.trigger == Trigger(packets=frozenset({1, 2, 4, 8}))
    assert policy.prefixes == (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
    assert policy.ports == (Port(22, True, True), Port(53, False, True), Port(179, True, False))
    assert policy.enforce_for_ns == 600_000_000_000
    assert policy.drop_malformed
    assert policy.events == Limit(2_000_000_000, 4_000_000_000)


def test_the_documented_policy_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    policy = Policy.parse(text, ["benign", "syn-flood", "port-scan", "slow-http"])
    assert [str(entry.action) for entry in policy.actions] == ["pass", "drop", "rate-limit", "count"]
    assert policy.prefixes and policy.ports and policy.enforce_for_ns


def test_what_is_not_said_passes() -> None:
    assert Policy.parse("version: 1", CLASSES) == Policy.all_pass(CLASSES)


def test_a_class_may_need_some_verdicts_in_a_row() -> None:
    text = "classes: {attack: {action: drop, after: 3}, scan: {action: rate-limit, rate: 1/s, after: 15}}"
    policy = Policy.parse(f"version: 1\n{text}", CLASSES)
    assert [entry.after for entry in policy.actions] == [1, 3, 15, 1]
    assert [policy.counted(1, streak) for streak in (1, 2, 3, 4)] == [0, 0, 1, 1]
    assert [policy.counted(class_id, 1) for class_id in range(4)] == [0, 0, 0, 3]
    assert policy.rule(1) == "attack: drop after 3"
    at_once = "version: 1\nclasses: {benign: {action: pass, after: 1}, attack: {action: drop, after: 1}}"
    assert Policy.parse(at_once, CLASSES).actions[1] == ClassPolicy(Action.DROP, keys="drop", text="drop")


def test_a_class_may_go_elsewhere_and_be_written_on() -> None:
    policy = Policy.parse(
        "version: 1\nclasses: {attack: {dscp: af41, redirect: {interface: eth2}, after: 2}, "
        "scan: {action: bounce, dscp: 0x3f}, other: {mark: 0xffffffff, priority: 3, queue: 65533}}",
        CLASSES,
    )
    assert [policy.rule(class_id) for class_id in (1, 2, 3)] == [
        "attack: dscp AF41, redirect to eth2 after 2",
        "scan: dscp 63, bounce",
        "other: mark 4294967295, priority 3, queue 65533",
    ]
    assert [rule.action for rule in policy.actions] == [Action.PASS] + [Action.ACT] * 3
    assert [rule.takes_away for rule in policy.actions] == [False, True, True, False]
    forwarded = Policy.parse(
        "version: 1\nclasses: {scan: forward, other: {action: forward, dscp: EF}}", CLASSES
    )
    assert [str(rule) for rule in forwarded.actions[2:]] == ["forward", "dscp EF, forward"]
    assert forwarded.takes_away
    between = Policy.parse(
        "version: 1\nclasses: {scan: {forward: {ports: [a, b], static: {'02:00:00:00:00:ff': b}}, mark: 1}}",
        CLASSES,
    )
    assert str(between.actions[2]) == "mark 1, forward between a, b"
    # Who is established is saved from drops alone.
    for enforce, outcome in [(True, Outcome.ACTED), (False, Outcome.WOULD_ACT)]:
        assert Decider(policy, enforce=enforce).decide(1, 0, connected=True) == (Action.ACT, outcome)


def test_a_class_may_be_challenged() -> None:
    policy = Policy.parse(
        "version: 1\nclasses: {attack: challenge, scan: {action: challenge, after: 3}}", CLASSES
    )
    assert [policy.rule(class_id) for class_id in (1, 2)] == ["attack: challenge", "scan: challenge after 3"]
    assert policy.actions[1].takes_away
    for enforce, outcome in [(True, Outcome.NOT_ACTED), (False, Outcome.WOULD_ACT)]:
        assert Decider(policy, enforce=enforce).decide(1, 0) == (Action.ACT, outcome)


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("every", Trigger()),
        ("{interval: 100ms}", Trigger(interval_ns=100_000_000)),
        ("{first-n: 8}", Trigger(first_n=8)),
        ("{packets: [1023, 1]}", Trigger(packets=frozenset({1, 1023}))),
    ],
)
def test_triggers(text: str, trigger: Trigger) -> None:
    assert Policy.parse(f"version: 1\ntrigger: {text}", CLASSES).trigger == trigger


CASES = Path(__file__).parents[1] / "policies"
"""Those of the agent too (crates/wirewised/tests/policy.rs): what a file says, and what is wrong with it."""


def cases(kind: str) -> list[Path]:
    found = sorted((CASES / kind).glob("*.yaml"))
    assert len(found) > 10
    return found


def test_what_is_wrong_is_one_clean_line() -> None:
    differ = []
    for path in cases("bad"):
        expected = path.read_text().split("\n")[0].removeprefix("# ")
        with pytest.raises(InputError) as caught:
            Policy.load(path, CLASSES)
        if str(caught.value) != f"{path}: {expected}":
            differ.append((path.name, str(caught.value)))
    assert not differ


def test_what_a_file_says_is_taken_from_the_agent() -> None:
    for path in cases("good"):
        normal = json.loads(path.with_suffix(".json").read_text())
        assert Policy.load(path, CLASSES) == Policy.of(normal), path.name


def test_an_error_in_a_text_does_not_name_the_file_it_was_put_into() -> None:
    with pytest.raises(InputError, match=r"^policy: version 2 is not supported"):
        Policy.parse("version: 2", CLASSES)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    with pytest.raises(InputError, match="does not exist"):
        Policy.load(path, CLASSES)
    path.write_bytes(b"version: 1 \xff")
    with pytest.raises(InputError, match="not UTF-8 text"):
        Policy.load(path, CLASSES)


def packet(source: str, protocol: int, destination_port: int = 0, **fields: int) -> Packet:
    version = ip_address(source).version
    address = ip_address(source).packed
    return Packet(
        ip_version=version, source=address, destination=address, protocol=protocol, length=100,
        network_header_length=20, tos=0, fragment=0, destination_port=destination_port,
        **{"ttl": 64, **fields},
    )  # fmt: skip


def test_allow_list_names_the_entry() -> None:
    policy = Policy.parse(FULL, CLASSES)
    prefix, port = Status.ALLOWED_PREFIX, Status.ALLOWED_PORT
    for asked, expected in [
        (packet("10.1.2.3", 6, 80), (prefix, "prefix 10.0.0.0/8")),
        (packet("2001:db8::1", 17, 80), (prefix, "prefix 2001:db8::/32")),
        (packet("192.0.2.1", 6, 22), (port, "port tcp/22")),
        (packet("192.0.2.1", 17, 22), (port, "port udp/22")),
        (packet("192.0.2.1", 17, 53), (port, "port udp/53")),
        (packet("192.0.2.1", 6, 53), None),
        (packet("192.0.2.1", 132, 22), None),
        (packet("2001:db9::1", 17, 179), None),
        (packet("192.0.2.1", 17, 53, fragment_offset=1), None),
    ]:
        assert policy.allows(asked) == expected, asked
    replies = Policy.parse("version: 1\nallow: {source_ports: [udp/53]}", CLASSES)
    assert replies.allows(packet("192.0.2.1", 17, 99, source_port=53)) == (port, "source port udp/53")
    assert replies.allows(packet("192.0.2.1", 6, 99, source_port=53)) is None


def test_deny_list_names_the_entry() -> None:
    policy = Policy.parse(
        "version: 1\nallow: {established: true}\n"
        'deny: {prefixes: [10.0.0.0/8, "2001:db8::/32"], ports: [tcp/23]}',
        CLASSES,
    )
    prefix, port = Status.DENIED_PREFIX, Status.DENIED_PORT
    for asked, expected in [
        (packet("10.1.2.3", 6, 80), (prefix, "prefix 10.0.0.0/8")),
        (packet("2001:db8::1", 17, 80), (prefix, "prefix 2001:db8::/32")),
        (packet("192.0.2.1", 6, 23), (port, "port tcp/23")),
        (packet("192.0.2.1", 17, 23), None),
        (packet("192.0.2.1", 6, 23, fragment_offset=1), None),
        (packet("192.0.2.1", 6, 80, source_port=23), None),
    ]:
        assert policy.denies(asked) == expected, asked
        assert policy.denies(asked, connected=True) is None
    assert policy.takes_away
    assert Policy.parse("version: 1", CLASSES).denies(packet("10.1.2.3", 6, 80)) is None


def test_essential_packets_are_those_a_host_loses_its_network_without() -> None:
    essential = [
        packet("192.0.2.1", 17, 68, source_port=67),
        packet("192.0.2.1", 17, 67, source_port=68),
        packet("2001:db8::1", 17, 546, source_port=547),
        packet("192.0.2.1", 1, icmp_type=3, icmp_code=4),
        packet("2001:db8::1", 58, icmp_type=2),
        *(packet("fe80::1", 58, icmp_type=type, ttl=255) for type in range(133, 138)),
    ]
    ordinary = [
        packet("192.0.2.1", 17, 68, source_port=53),
        packet("2001:db8::1", 17, 68, source_port=67),
        packet("192.0.2.1", 6, 68, source_port=67),
        packet("192.0.2.1", 1, icmp_type=8),
        packet("192.0.2.1", 58, icmp_type=2),
        packet("2001:db8::1", 58, icmp_type=135, ttl=254),
        packet("2001:db8::1", 58, icmp_type=128, ttl=255),
        packet("192.0.2.1", 17, 68, source_port=67, fragment_offset=1),
        packet("192.0.2.1", 17, 68, source_port=67, tunnelled=True),
    ]
    for text, allowed in [
        (f"classes: {{{CLASSES[1]}: drop}}", True),
        (f"classes: {{{CLASSES[1]}: drop}}\nessential: pass", True),
        (f"classes: {{{CLASSES[1]}: drop}}\nessential: drop", False),
        (f"classes: {{{CLASSES[1]}: count}}", False),
    ]:
        policy = Policy.parse(f"version: 1\n{text}", CLASSES)
        for one in essential:
            expected = (Status.ALLOWED_ESSENTIAL, "essential: pass") if allowed else None
            assert policy.allows(one) == expected, (text, one)
        assert not any(policy.allows(one) for one in ordinary)


@pytest.mark.parametrize("enforce", [False, True])
def test_outcomes_by_mode(enforce: bool) -> None:
    policy = Policy.parse("version: 1\nclasses: {attack: drop, other: count}", CLASSES)
    decider = Decider(policy, enforce=enforce)
    assert decider.decide(0, 0) == (Action.PASS, Outcome.PASS)
    dropped = Outcome.DROP if enforce else Outcome.WOULD_DROP
    assert decider.decide(1, 0) == (Action.DROP, dropped)
    assert decider.decide(3, 0) == (Action.COUNT, Outcome.PASS)
    passing = Policy.parse("version: 1\nclasses: {attack: drop}\nallow: {established: true}", CLASSES)
    for allowed, connected in ((policy, True), (passing, False), (passing, True)):
        decider = Decider(allowed, enforce=enforce)
        outcome = Outcome.ESTABLISHED if allowed is passing and connected else dropped
        assert decider.decide(1, 0, connected=connected) == (Action.DROP, outcome)
    assert Outcome.ESTABLISHED not in DROPPING
    assert Outcome.DROP in DROPPING and Outcome.WOULD_DROP not in DROPPING


@given(
    interval=st.integers(1, 10**9),
    burst=st.integers(1, 50),
    gaps=st.lists(st.integers(0, 10**10), max_size=200),
)
def test_rate_limit_bounds(interval: int, burst: int, gaps: list[int]) -> None:
    """At most burst + span / interval packets conform in any span; a rested class may send `burst`."""
    limit = Limit.of(interval, burst)
    policy = Policy(("a", "b"), (ClassPolicy(Action.RATE_LIMIT, limit), ClassPolicy()))
    decider = Decider(policy, enforce=True)
    now, passed = 10**12, []
    for gap in gaps:
        now += gap
        if decider.decide(0, now)[1] is Outcome.PASS:
            passed.append(now)
    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - start) // interval
    now += interval * (burst + 1) + 1
    assert [decider.decide(0, now)[1] for _ in range(burst + 1)] == [Outcome.PASS] * burst + [Outcome.LIMITED]


def test_a_flow_tells_once_and_then_at_every_update() -> None:
    teller = Teller(Policy.parse("version: 1\nevents: {each: flow, update: 10ns}", CLASSES))
    times = [0, 1, 9, 10, 11, 30]
    assert [teller.tells("a", 1, Outcome.DROP, time) for time in times] == [1, 0, 0, 3, 0, 2]
    assert teller.tells("a", 1, Outcome.PASS, 11) == teller.tells("b", 1, Outcome.DROP, 11) == 1
    every = Teller(Policy.parse("version: 1", CLASSES))
    assert [every.tells("a", 1, Outcome.DROP, 0) for _ in range(3)] == [1, 1, 1]


def test_a_class_may_have_a_severity() -> None:
    policy = Policy.parse("version: 1\nclasses: {attack: {action: drop, severity: 2}}", CLASSES)
    assert [entry.severity for entry in policy.actions] == [None, 2, None, None]


@pytest.mark.parametrize(
    ("selector", "packet", "is_selected"),
    [
        (Selector(port=53), {"protocol": 17, "destination_port": 53}, True),
        (Selector(port=53), {"protocol": 6, "source_port": 53}, True),
        (Selector(source_port=53), {"protocol": 17, "destination_port": 53}, False),
        (Selector(port=53), {"protocol": 17, "destination_port": 53, "fragment_offset": 1}, False),
        (Selector(port=0), {"protocol": 1}, False),
        (Selector(protocol=1), {"protocol": 1}, True),
        (Selector(tcp_flags=(18, 2)), {"protocol": 6, "tcp_flags": 2}, True),
        (Selector(tcp_flags=(18, 2)), {"protocol": 6, "tcp_flags": 18}, False),
        (Selector(tcp_flags=(16, 0)), {"protocol": 17}, False),
        (Selector(destination_port=80, tcp_flags=(2, 2)), {"protocol": 6, "tcp_flags": 2}, False),
    ],
)
def test_what_a_selector_selects(selector: Selector, packet: dict[str, int], is_selected: bool) -> None:
    fields = {"ip_version": 4, "source": bytes(4), "destination": bytes(4), "length": 40} | packet
    it = Packet(**fields, network_header_length=20, ttl=64, tos=0, fragment=0)  # type: ignore[arg-type]
    assert selector.selects(it) == is_selected


def test_every_so_many_packets_of_a_flow_or_what_is_selected() -> None:
    trigger = Policy.parse("version: 1\ntrigger: {any: [{protocol: icmp}], every: 3}", CLASSES).trigger
    assert trigger == Trigger(any=(Selector(protocol=1),), every=3)
    udp = Packet(4, bytes(4), bytes(4), 17, 40, 20, 64, 0, 0)
    icmp = Packet(4, bytes(4), bytes(4), 1, 40, 20, 64, 0, 0)
    assert [number for number in range(1, 10) if trigger.fires(number, 0, 0, udp)] == [3, 6, 9]
    assert trigger.fires(1, 0, 0, icmp)
