# SPDX-License-Identifier: Apache-2.0
"""Attacks on the protected network, as the common tools send them.

Part of each attack looks like ordinary traffic on purpose: floods and scans from a real TCP stack, amplified
answers no larger than honest ones, slow clients that have only just connected.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from .frames import ACK, DONT_FRAGMENT, FIN, PSH, ROW, RST, SYN, TCP, URG, Content, Options, Rows
from .hosts import (
    CLIENT_WEIGHTS,
    CLIENTS,
    LINUX,
    PROTECTED_NETWORK,
    Flow,
    Host,
    Recorder,
    inside_host,
    outside_host,
)


def syn_flood(rng: np.random.Generator, kind: int, packets: int, duration_ns: int, *, replies: bool) -> Rows:
    """SYNs from spoofed addresses, in four to seven waves, each of one tool.

    packets : SYNs to send. replies : also give the victim's SYN-ACKs.
    """
    waves = int(rng.integers(4, 8))
    tools = (rng.integers(4) + np.arange(waves)) % 4
    shares = rng.dirichlet(np.full(waves, 8.0))
    parts = [
        _flood_wave(rng, kind, int(tool), int(packets * share) + 1, duration_ns)
        for tool, share in zip(tools, shares, strict=True)
    ]
    rows = np.concatenate(parts)[:packets]
    # A few bots have no raw sockets: their SYNs come from a real stack, and nothing in one tells it from a
    # visitor's.
    real = rng.random(len(rows)) < 0.025
    rows["options"][real] = rng.choice([Options.LINUX, Options.WINDOWS], real.sum())
    rows["window"][real] = 64240
    rows["source_port"][real] = rng.integers(32768, 61000, real.sum())
    if not replies:
        return rows
    answers = rows.copy()
    answers["time_ns"] += 60_000
    answers["outgoing"] = answers["reply"] = True
    answers["source"], answers["destination"] = rows["destination"], rows["source"]
    answers["source_port"], answers["destination_port"] = rows["destination_port"], rows["source_port"]
    answers["ttl"], answers["tcp_flags"], answers["window"] = 63, SYN | ACK, 64240
    answers["ack"], answers["seq"] = rows["seq"] + np.uint32(1), rng.integers(0, 2**32, len(rows), np.uint32)
    answers["options"] = np.where(rows["options"] == Options.NONE, Options.MSS, rows["options"])
    return np.concatenate([rows, answers])


def _flood_wave(rng: np.random.Generator, kind: int, tool: int, packets: int, duration_ns: int) -> Rows:
    rows = np.zeros(packets, ROW)
    length = rng.uniform(0.25, 0.5) * duration_ns
    begin = rng.uniform(0, duration_ns - length)
    rows["time_ns"] = np.sort(begin + length * rng.random(packets) ** rng.uniform(0.7, 1.0)).astype(np.int64)
    rows["kind"], rows["protocol"], rows["tcp_flags"] = kind, TCP, SYN
    rows["version"] = np.where(rng.random(packets) < 0.15 * rng.integers(0, 2), 6, 4)
    rows["source"] = rng.integers(0x0B000000, 0xDF000000, packets, np.uint32)
    rows["destination"] = inside_host(Random(int(rng.integers(2**32)))).number
    rows["destination_port"] = rng.choice(rng.choice([80, 443, 22, 25565], rng.integers(1, 4)), packets)
    rows["ip_id"] = rng.integers(0, 65536, packets, np.uint16)
    rows["seq"] = rng.integers(0, 2**32, packets, np.uint32)
    rows["vlan"] = np.where(rows["source"] % 12 == 0, 20, 0)
    hops = rng.integers(4, 24, packets)
    if tool == 0:  # counts its ports up, a window no system uses
        rows["source_port"] = (rng.integers(1024, 65536) + np.arange(packets)) % 64512 + 1024
        rows["window"], rows["ttl"] = 512, 64 - rng.integers(6, 14)
    elif tool == 1:  # all random, no options
        rows["source_port"] = rng.integers(1024, 65536, packets)
        rows["window"], rows["ttl"] = rng.integers(1, 65536, packets), 255 - hops
    elif tool == 2:  # full options, random window
        rows["source_port"] = rng.integers(1024, 65536, packets)
        rows["window"], rows["ttl"] = rng.integers(1, 65536, packets), 64 - hops
        rows["options"], rows["fragment"] = Options.LINUX, DONT_FRAGMENT
    else:  # the defaults of a packet library of years ago
        rows["source_port"] = rng.integers(1024, 65536, packets)
        rows["window"], rows["ttl"] = rng.choice([5840, 8192, 16384], packets), 128 - hops
        rows["options"] = np.where(rng.random(packets) < 0.5, Options.MSS, Options.NONE)
    return rows


def udp_amplification(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One reflector: answers to questions that somebody else asked in the victim's name."""
    flow = Flow(recorder, rng, kind, outside_host(rng, [LINUX], [1]), inside_host(rng), (53, 0), attack=True)
    service = rng.choices(["dns", "ntp", "cldap", "ssdp", "memcached"], [40, 20, 15, 10, 15])[0]
    flow.ports[False] = {"dns": 53, "ntp": 123, "cldap": 389, "ssdp": 1900, "memcached": 11211}[service]
    flow.ports[True] = rng.choice([80, 443, rng.randrange(1024, 65536)])
    now = start
    dns_size = rng.choice([rng.randint(420, 1232), rng.randint(1600, 4000), rng.randint(2500, 4000)])
    for _ in range(rng.randint(4, 40)):
        if service == "dns":
            flow.udp(now, False, dns_size, Content.DNS)
        elif service == "ntp":
            for number in range(rng.randint(3, 12)):
                flow.udp(now + number * 15e-6, False, 440)
        elif service == "cldap":
            flow.udp(now, False, rng.randint(1300, 3000))
        elif service == "ssdp":
            for number in range(rng.randint(3, 8)):
                flow.udp(now + number * 1e-4, False, rng.randint(240, 420), Content.HEADER_LINE)
        else:
            for number in range(rng.randint(4, 16)):
                flow.udp(now + number * 13e-6, False, 1400)
        now += rng.lognormvariate(-4.0, 1.0)


def port_scan(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One scanner against one host; most ports answer with a reset, some not at all."""
    scanner = outside_host(rng, CLIENTS, CLIENT_WEIGHTS)
    target = inside_host(rng)
    tool = rng.choices(["syn", "stateless", "connect", "flags", "udp"], [43, 30, 5, 6, 16])[0]
    rate = rng.lognormvariate(5.0, 1.2)
    source_port = rng.randrange(32768, 61000)
    flags = rng.choice([FIN, 0, FIN | PSH | URG])
    hops = rng.randint(5, 25)
    now = start
    for port in rng.sample(range(1, 65536) if rng.random() < 0.3 else range(1, 2000), rng.randint(20, 160)):
        now += rng.expovariate(rate)
        if tool in ("connect", "udp"):
            source_port = rng.randrange(32768, 61000)
        ports = (source_port, port)
        if tool == "udp":
            flow = Flow(recorder, rng, kind, scanner, target, ports, attack=True)
            flow.udp(now, False, rng.choice([0, 0, 0, 30, 48]))
            continue
        stack = {
            "syn": replace(LINUX, ttl=64, syn_window=1024, syn_options=Options.MSS, stamps=False),
            "stateless": replace(
                LINUX, ttl=255, syn_window=rng.choice([1024, 65535]), syn_options=Options.NONE
            ),
            "flags": replace(LINUX, ttl=64, window=(1024, 1024), stamps=False),
            "connect": scanner.stack,
        }[tool]
        sender = Host(scanner.number, stack, hops, scanner.vlan)
        flow = Flow(recorder, rng, kind, sender, target, ports, attack=True)
        if tool == "flags":
            flow.tcp(now, False, flags)
            continue
        flow.tcp(now, False, SYN)
        if port in (
            22,
            80,
            443,
        ):  # open: a SYN scanner's own kernel resets, a connecting one shakes hands first
            flow.tcp(now + 1e-4, True, SYN | ACK)
            if tool == "connect":
                flow.tcp(now + 0.03, False, ACK)
            flow.tcp(now + 0.031, False, RST)
        elif rng.random() < 0.6:
            flow.tcp(now + 1e-4, True, RST | ACK)
        elif tool == "syn":
            flow.tcp(now + rng.uniform(0.9, 1.1), False, SYN)


def host_scan(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One scanner that asks host after host for the same: an echo, or a port. Most hosts are not there."""
    scanner = outside_host(rng, CLIENTS, CLIENT_WEIGHTS)
    tool = rng.choices(["echo", "syn", "stateless", "connect", "udp"], [25, 30, 20, 15, 10])[0]
    rate, port = rng.lognormvariate(4.0, 1.3), rng.choice([22, 23, 80, 443, 445, 3389, 5900, 8080])
    stack = {
        "syn": replace(LINUX, ttl=64, syn_window=1024, syn_options=Options.MSS, stamps=False),
        "stateless": replace(LINUX, ttl=255, syn_window=rng.choice([1024, 65535]), syn_options=Options.NONE),
    }.get(tool, scanner.stack)
    sender = Host(scanner.number, stack, scanner.hops, scanner.vlan)
    source_port, now = rng.randrange(32768, 61000), start
    numbers = list(range(1, 255))
    if rng.random() < 0.5:
        rng.shuffle(numbers)
    for number in numbers[: rng.randint(20, 254)]:
        now += rng.expovariate(rate)
        target = Host(PROTECTED_NETWORK + number, LINUX, 1, 0)
        there = 10 <= number < 60
        if tool == "connect":
            source_port = rng.randrange(32768, 61000)
        ports = (0, 0) if tool == "echo" else (source_port, port)
        flow = Flow(recorder, rng, kind, sender, target, ports, attack=True)
        if tool == "echo":
            flow.icmp(now, False, rng.choice([0, 8, 56]))
            if there:
                flow.icmp(now + 1e-4, True, 56, "answer")
        elif tool == "udp":
            flow.udp(now, False, rng.choice([0, 30, 48]))
        else:
            flow.tcp(now, False, SYN)
            if there and rng.random() < 0.5:
                flow.tcp(now + 1e-4, True, RST | ACK)
            elif tool == "connect":
                flow.tcp(now + 1.0, False, SYN)


def icmp_flood(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One sender of echo requests or errors, as fast as it can, from its own address or from forged ones."""
    victim, forged = inside_host(rng), rng.random() < 0.4
    what = rng.choice(["echo", "echo", "answer", "unreachable"])
    size, pace, now = rng.choice([0, 8, 56, 1000, 1400]), rng.lognormvariate(-8.0, 1.0), start
    sender = outside_host(rng, CLIENTS, CLIENT_WEIGHTS)
    flow = Flow(recorder, rng, kind, sender, victim, (0, 0), attack=True)
    for _ in range(rng.randint(50, 800)):
        if forged:
            sender = outside_host(rng, CLIENTS, CLIENT_WEIGHTS)
            flow = Flow(recorder, rng, kind, sender, victim, (0, 0), attack=True)
        flow.icmp(now, False, size, what)
        now += pace * rng.uniform(0.5, 1.5)


def slow_http(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A connection that asks as slowly as the server tolerates: headers, a body, or reading, drop by drop."""
    host = replace(outside_host(rng, [LINUX], [1]), stack=LINUX)
    ports = (rng.randrange(32768, 61000), rng.choice([80, 80, 443]))
    flow = Flow(recorder, rng, kind, host, inside_host(rng), ports, attack=True)
    round_trip = rng.uniform(0.02, 0.12)
    now = flow.open(start, False, round_trip) + 1e-3
    variant = rng.choices(["headers", "body", "read"], [50, 30, 20])[0]
    flow.tcp(now, False, PSH | ACK, rng.randint(180, 330), Content.REQUEST)
    flow.tcp(now + 1e-4, True, ACK)
    pause = rng.uniform(0.6, 3.0)
    for _ in range(rng.randint(4, 25)):
        now += pause * rng.uniform(0.95, 1.05)
        if variant == "read":  # answers the server's window probes with a closed window
            flow.tcp(now - 1e-3, True, ACK)
            flow.tcp(now, False, ACK, window=rng.randint(0, 2))
        else:
            length = rng.randint(8, 24) if variant == "headers" else rng.randint(1, 6)
            flow.tcp(now, False, PSH | ACK, length, Content.HEADER_LINE)
            flow.tcp(now + 1e-4, True, ACK)
