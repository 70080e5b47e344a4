# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.abi import Action, Outcome, Status
from wirewise.errors import InputError
from wirewise.fate import DROPPING
from wirewise.feature_sets.packet import Packet
from wirewise.policy import ClassPolicy, Decider, Limit, Policy, Port, Trigger

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
    assert policy.actions[0] == ClassPolicy(named=False)
    assert policy.actions[2].limit == Limit(10_000_000, 190_000_000)
    assert policy.trigger == Trigger(packets=frozenset({1, 2, 4, 8}))
    assert policy.prefixes == (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
    assert policy.ports == (Port(22, True, True), Port(179, True, False), Port(53, False, True))
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
    assert Policy.parse(at_once, CLASSES).actions[1] == ClassPolicy(Action.DROP, named=True)


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


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["not a mapping", "version: 1"]),
        ("- 1", ["not a mapping"]),
        ("classes: {}", ["version None"]),
        ("version: 2", ["version '2'"]),
        ("version: 1\nclases: {}", ["unknown key 'clases'", "classes, trigger, allow"]),
        ("version: 1\nclasses: {atack: drop}", ["unknown class 'atack'", "benign, attack, scan, other"]),
        ("version: 1\nclasses: {attack: block}", ["attack", "unknown action 'block'", "rate-limit"]),
        ("version: 1\nclasses: {attack: drop, attack: pass}", ["'attack' stands twice"]),
        ("version: 1\nclasses: {attack: {action: drop, rate: 1/s}}", ["rate and burst belong"]),
        ("version: 1\nclasses: {attack: {action: rate-limit}}", ["needs a rate"]),
        ("version: 1\nclasses: {attack: {action: rate-limit, rate: 0}}", ["use the action drop"]),
        ("version: 1\nclasses: {attack: {action: rate-limit, rate: 5/h}}", ["not a rate", "100/s"]),
        ("version: 1\nclasses: {attack: {action: rate-limit, rate: 5/s, burst: 0}}", ["burst '0'"]),
        ("version: 1\nclasses: {attack: {action: drop, after: 0}}", ["after '0' is out of range; 1 to 15"]),
        (
            "version: 1\nclasses: {attack: {action: drop, after: 16}}",
            ["attack", "after '16' is out of range"],
        ),
        ("version: 1\nclasses: {attack: {action: drop, after: often}}", ["after 'often'"]),
        (
            "version: 1\nclasses: {benign: {action: pass, after: 2}}",
            ["classes: benign: after: this is the class that flows count as", "to the other classes"],
        ),
        (
            "version: 1\nclasses: {attack: {action: drop, redirect: {interface: eth2}}}",
            ["'redirect to eth2' does not go together with 'drop'", "leave one out"],
        ),
        (
            "version: 1\nclasses: {attack: {dscp: 1, rate: 5/s}}",
            ["'dscp LE' does not go together with 'rate'"],
        ),
        (
            "version: 1\nclasses: {attack: {action: bounce, redirect: {interface: eth2}}}",
            ["elsewhere and back to its sender"],
        ),
        (
            "version: 1\nclasses: {attack: {action: forward, redirect: {interface: eth2}}}",
            ["either where the routes say or to one interface: give the action forward or redirect"],
        ),
        (
            "version: 1\nclasses: {attack: {forward: {ports: [a, b]}, redirect: {interface: eth2}}}",
            ["either between ports, or elsewhere: give forward without redirect, bounce or `action"],
        ),
        ("version: 1\nclasses: {attack: {forward: {ports: [a]}}}", ["forward needs two ports or more"]),
        ("version: 1\nclasses: {attack: {forward: {}}}", ["forward needs two ports or more"]),
        ("version: 1\nclasses: {attack: {forward: {ports: [a, b, a]}}}", ["forward: port 'a' stands twice"]),
        (
            "version: 1\nclasses: {attack: {forward: {ports: [a, b], static: {'02:00:00:00:00:07': c}}}}",
            ["forward: static: 'c' is none of the ports a, b"],
        ),
        (
            "version: 1\nclasses: {attack: {forward: {ports: [a, b], static: {'01:00:00:00:00:07': a}}}}",
            ["forward: static: '01:00:00:00:00:07' is no Ethernet address of a station"],
        ),
        (
            "version: 1\nclasses: {attack: {forward: {ports: [a, b], static: {'2:0:0:0:0:7': a}}}}",
            ["no Ethernet address"],
        ),
        (
            "version: 1\nclasses: {attack: {action: drop, forward: {ports: [a, b]}}}",
            ["'forward between a, b' does not go together with 'drop'"],
        ),
        (
            "version: 1\nclasses: {attack: {action: forward, burst: 5}}",
            ["'forward' does not go together with 'burst'"],
        ),
        ("version: 1\nclasses: {attack: {redirect: eth2}}", ["{redirect: {interface: eth2}}"]),
        ("version: 1\nclasses: {attack: {redirect: {}}}", ["redirect needs an interface"]),
        ("version: 1\nclasses: {attack: {redirect: {interface: a/b}}}", ["redirect needs an interface"]),
        (
            "version: 1\nclasses: {attack: {redirect: {interface: a, cpu: 1}}}",
            ["one of interface, cpu and socket"],
        ),
        ("version: 1\nclasses: {attack: {redirect: {cpu: []}}}", ["0 CPUs; 1 to 16"]),
        ("version: 1\nclasses: {attack: {redirect: {socket: 256}}}", ["queue 256 is out of range; 0 to 255"]),
        ("version: 1\nclasses: {attack: {mirror: {}}}", ["mirror needs an interface"]),
        ("version: 1\nclasses: {attack: {mirror: {interface: a, rate: 2/3}}}", ["'2/3' is no part of all"]),
        ("version: 1\nclasses: {attack: {mirror: {interface: a, snap: 13}}}", ["snap 13 is less than 14"]),
        ("version: 1\nclasses: {attack: {dscp: 64}}", ["dscp 64 is out of range; 0 to 63"]),
        ("version: 1\nclasses: {attack: {dscp: AF44}}", ["'AF44' is no DSCP", "AF41"]),
        ("version: 1\nclasses: {attack: {mark: 4294967296}}", ["'4294967296' is no whole number from 0"]),
        ("version: 1\nclasses: {attack: {priority: -1}}", ["'-1' is no whole number"]),
        ("version: 1\nclasses: {attack: {queue: 65534}}", ["queue 65534 is out of range; 0 to 65533"]),
        ("version: 1\nclasses: {attack: {after: 3}}", ["write one of pass", "{dscp: AF41"]),
        ("version: 1\ntrigger: sometimes", ["every, {packets"]),
        ("version: 1\ntrigger: {packets: []}", ["every, {packets"]),
        ("version: 1\ntrigger: {packets: [1024]}", ["'1024' is out of range", "1023"]),
        ("version: 1\ntrigger: {interval: 5}", ["not a duration", "500ms"]),
        ("version: 1\nallow: {prefixes: [10.0.0.1/8]}", ["did you mean 10.0.0.0/8"]),
        ("version: 1\nallow: {prefixes: [10.0.0.0/33]}", ["not a prefix"]),
        ("version: 1\nallow: {ports: [sctp/22]}", ["not a port", "tcp/179"]),
        ("version: 1\nallow: {ports: [65536]}", ["0 to 65535"]),
        ("version: 1\nenforce_for: -1s", ["enforce_for", "not a duration"]),
        ("version: 1\nmalformed: drops", ["unknown choice 'drops'", "pass, drop"]),
        ("version: 1\nevents: {rate: 2000000000/s}", ["above the largest rate"]),
        ("{", ["not YAML"]),
        ("version: 1\nclasses: &a {attack: *a}", ["alias"]),
    ],
)
def test_bad_policies_are_refused_in_one_line(text: str, fragments: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        Policy.parse(text, CLASSES, source="p.yaml")
    message = str(caught.value)
    assert message.startswith("p.yaml: ") and "\n" not in message
    for fragment in fragments:
        assert fragment in message


@given(st.text(max_size=200))
def test_no_text_is_a_traceback(text: str) -> None:
    with suppress(InputError):
        Policy.parse("version: 1\n" + text, CLASSES)


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
    policy = Policy(("a", "b"), (ClassPolicy(Action.RATE_LIMIT, limit, True), ClassPolicy()))
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
