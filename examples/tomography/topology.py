# SPDX-License-Identifier: Apache-2.0
"""The fat tree of siracusano-n3ic, Figure 33, as numbers: its queues, and which comes after which.

Two pods, each with two top-of-rack switches (ToR) of eight hosts and two aggregation switches; two cores,
each joined to all four aggregation switches. A queue is one output port of a switch. A packet to another pod
chooses three times between two ways, upwards at its ToR (bit 0 of its `route`) and aggregation switch (bit
1), downwards at the core (bit 2): eight paths; one to the other rack of its pod chooses once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HOSTS, RACKS, PODS, CORES = 32, 4, 2, 2
HOSTS_A_RACK = HOSTS // RACKS
AGGREGATES = 4
ROUTES = 8  # values of three bits

Port = tuple[str, str]
"""Of a switch, towards what: ("tor0", "host0")."""


def pod(number: int) -> int:
    """Of a ToR or an aggregation switch: two of each to a pod."""
    return number // 2


def _ports() -> list[Port]:
    ports = [(f"tor{host // HOSTS_A_RACK}", f"host{host}") for host in range(HOSTS)]
    for tor in range(RACKS):
        for aggregate in (2 * pod(tor), 2 * pod(tor) + 1):
            ports += [(f"tor{tor}", f"agg{aggregate}"), (f"agg{aggregate}", f"tor{tor}")]
    for aggregate in range(AGGREGATES):
        for core in range(CORES):
            ports += [(f"agg{aggregate}", f"core{core}"), (f"core{core}", f"agg{aggregate}")]
    return ports


def path(source: int, destination: int, route: int) -> list[Port]:
    """The ports that a packet leaves switches by, in order. source, destination : hosts. route : 3 bits."""
    start, end = source // HOSTS_A_RACK, destination // HOSTS_A_RACK
    stops = [f"tor{start}"]
    if start != end:
        stops.append(f"agg{2 * pod(start) + (route & 1)}")
        if pod(start) != pod(end):
            stops += [f"core{route >> 1 & 1}", f"agg{2 * pod(end) + (route >> 2 & 1)}"]
        stops.append(f"tor{end}")
    return list(zip(stops, [*stops[1:], f"host{destination}"], strict=True))


def probe_route(host: int) -> int:
    """Each host keeps one: the eight of a far rack have all eight, those of the near rack both of theirs."""
    return host % ROUTES


def _probed() -> tuple[list[int], list[Port]]:
    """Of all hosts but the first, one for each path to it; and the ports on these paths, nearest first."""
    hosts: dict[tuple[Port, ...], int] = {}
    for host in range(1, HOSTS):
        hosts.setdefault(tuple(path(host, 0, probe_route(host))), host)
    hops = {port: len(ports) - at for ports in hosts for at, port in enumerate(ports)}
    return list(hosts.values()), sorted(hops, key=lambda port: (hops[port], port))


PROBES, WATCHED = _probed()
"""The 19 hosts whose probes are kept, and the 17 ports that they pass."""

QUEUES: list[Port] = [*WATCHED, *(port for port in _ports() if port not in WATCHED)]
"""All ports; a queue's number is its place here."""

DELIVERED = -1


def _tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    number = {port: index for index, port in enumerate(QUEUES)}
    first = np.zeros((HOSTS, HOSTS, ROUTES), np.int64)
    after = np.full((len(QUEUES), HOSTS, ROUTES), DELIVERED)
    for source in range(HOSTS):
        for destination in range(HOSTS):
            for route in range(ROUTES):
                queues = [number[port] for port in path(source, destination, route)]
                first[source, destination, route] = queues[0]
                after[queues[:-1], destination, route] = queues[1:]
    return first, after


FIRST, NEXT = _tables()
"""Queue numbers: where a packet of a host is put, (host, destination, route); where one goes from a queue,
(queue, destination, route), or DELIVERED.
"""
