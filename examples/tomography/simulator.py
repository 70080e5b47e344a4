# SPDX-License-Identifier: Apache-2.0
"""A packet-level simulator of the fat tree, for many independent runs at once.

Time goes in slots, in which a link carries one packet; all links are equally fast and all packets equally
long. In each slot every queue sends its first packet to the next switch, every host sends one, and what
arrives at a queue that is full is lost. All is integers, and one NumPy operation does the same for all
queues of all runs, so a seed gives the same result on every machine, and it does not matter how many cores
there are.

Load: incast. A host asks several others at once, and each answers with the same number of packets, over a
path of its own. An answer has a window of packets under way, as TCP Reno has it: one more for each
packet that arrives (slow start) or each window (afterwards), and half after a loss. Acknowledgements and
the news of a loss take no time, and what is lost is sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from examples.tomography.topology import (
    DELIVERED,
    FIRST,
    HOSTS,
    NEXT,
    PROBES,
    QUEUES,
    ROUTES,
    WATCHED,
    probe_route,
)
from wirewise.errors import InputError

Ints = NDArray[np.int64]

SLOT_NS = 12_000  # 1,500 bytes at 1 Gb/s
SLOTS_A_ROUND = 833  # 10 ms between two probes of a host
CAPACITY = 100  # packets of a queue, the default of ns-3's drop-tail queue
CONNECTIONS = 4  # answers that a host sends at once, in turn; others wait
FIRST_WINDOW, LEAST_WINDOW, MOST_WINDOW = 10, 2, 64
WARM_UP = 100  # rounds before the first that counts: the network begins empty
MOST_RUNS = (1 << 16) // len(QUEUES) - 1  # queues of all runs are sorted by numbers of 16 bits
MOST_ROUNDS = 1_000_000  # of all runs together: a gigabyte of memory
LOST = -1

PROBERS = {SLOTS_A_ROUND * host // HOSTS: host for host in range(1, HOSTS)}
"""The slots of a round in which a host sends its probe: spread evenly, so that they do not meet."""
COLUMN = np.array([PROBES.index(host) if host in PROBES else -1 for host in range(CONNECTIONS * HOSTS)])
"""Of each host's probe among those that are kept, else -1."""

_FINE = 1024  # a window of one packet
_TO_BITS, _SLOT_AT = 8, 16
_TO, _FROM, _PROBE = (1 << _TO_BITS) - 1, 127, 1 << 15


@dataclass(frozen=True)
class Load:
    """What is asked for. requests : a second, in the whole network. hosts : of which a request goes to at
    least and at most so many. sizes : packets of an answer, one of these, all equally likely.
    """

    requests: int = 40
    hosts: tuple[int, int] = (4, 16)
    sizes: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass
class Counts:
    """Packets: those of answers and probes that hosts sent, and what became of them."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    waiting: int = 0
    """In queues at the end."""


@dataclass(frozen=True)
class Rounds:
    """What was seen: one row a round, those of a run one after the other.

    run : (n,). delay : slots from a host's port to the first host, of the probe of each of
    `topology.PROBES`, or LOST; (n, 19). queue : packets in each of `topology.WATCHED`, summed over the
    slots of the round; (n, 17).
    """

    run: Ints
    delay: Ints
    queue: Ints
    counts: Counts = field(compare=False)

    @property
    def packets(self) -> NDArray[np.float64]:
        """The mean number of packets in each queue, (n, 17)."""
        return self.queue / SLOTS_A_ROUND


Progress = Callable[[float], None]


def simulate(
    rounds: int,
    runs: int,
    *,
    seed: int = 0,
    load: Load | None = None,
    capacity: int = CAPACITY,
    warm_up: int = WARM_UP,
    progress: Progress = lambda share: None,
) -> Rounds:
    """`runs` networks with loads of their own, for `rounds` rounds of probes each.

    capacity : of each queue, in packets. warm_up : rounds before, which do not count. progress : is told the
    share that is done. Raises InputError for no rounds, or fewer or more runs than there may be.
    """
    if not 1 <= runs <= MOST_RUNS:
        raise InputError(f"{runs} runs", f"must be 1 to {MOST_RUNS:,}")
    if not 1 <= rounds <= MOST_ROUNDS // runs:
        raise InputError(f"{rounds} rounds", f"must be 1 to {MOST_ROUNDS // runs:,} of {runs} runs")
    if seed < 0:
        raise InputError(f"seed {seed}", "must be 0 or more")
    state = _Network(rounds + warm_up, runs, np.random.default_rng(seed), load or Load(), capacity)
    for slot in range(state.slots):
        state.step(slot)
        if slot % SLOTS_A_ROUND == 0:
            progress(slot / state.slots)
    for slot in range(state.slots, state.slots + len(QUEUES) * capacity):
        if not state.probes_under_way:
            break
        state.step(slot)  # the last probes arrive
    seen = slice(warm_up, None)
    run, delay, queue = (
        np.repeat(np.arange(runs), rounds),
        state.delay[seen].transpose(2, 0, 1).reshape(rounds * runs, len(PROBES)),
        state.queue[seen].transpose(2, 0, 1).reshape(rounds * runs, len(WATCHED)),
    )
    state.counts.waiting = int(state.length.sum())
    return Rounds(run, delay, queue, state.counts)


class _Network:
    """The state of all runs. Numbers of things in them: queue * runs + run, host * runs + run, and
    (connection * HOSTS + host) * runs + run.

    A packet is a number: where it goes (destination and route, 8 bits), its connection and host (7 bits); a
    probe has _PROBE set, and the slot it left in above that.
    """

    def __init__(self, rounds: int, runs: int, rng: np.random.Generator, load: Load, capacity: int) -> None:
        self.runs, self.capacity, self.slots = runs, capacity, rounds * SLOTS_A_ROUND
        self.counts = Counts()
        queues, hosts = len(QUEUES) * runs, HOSTS * runs
        self.ring = np.zeros(queues * capacity, np.int64)
        self.head, self.length = np.zeros(queues, np.int64), np.zeros(queues, np.int64)
        self.run_of = np.tile(np.arange(runs), len(QUEUES))
        self.next = np.where(NEXT == DELIVERED, DELIVERED, NEXT * runs).ravel()
        self.next_of = np.repeat(np.arange(len(QUEUES)) * HOSTS * ROUTES, runs)
        # Of connections: packets not sent yet; under way; to hear of before the window may change again.
        self.left, self.under_way, self.hold = (np.zeros(CONNECTIONS * hosts, np.int64) for _ in range(3))
        self.window, self.threshold = (np.zeros(CONNECTIONS * hosts, np.int64) for _ in range(2))
        self.packet, self.enters = (np.zeros(CONNECTIONS * hosts, np.int64) for _ in range(2))
        self.waiting: list[deque[tuple[int, int, int]]] = [deque() for _ in range(hosts)]
        self.free = [list(range(CONNECTIONS)) for _ in range(hosts)]
        self.turn = np.zeros(hosts, np.int64)
        self.delay = np.full((rounds, len(PROBES), runs), LOST)
        self.queue = np.zeros((rounds, len(WATCHED), runs), np.int64)
        self.probes_under_way = 0
        self.requests = deque(_requests(rng, load, self.slots, runs))

    def step(self, slot: int) -> None:
        while self.requests and self.requests[0].slot == slot:
            self._ask(self.requests.popleft())
        sent = self._from_queues(slot)
        entered = self._from_hosts(slot)
        # Packets that arrive in one slot go in by their order here, which is nobody's for long.
        parts = [sent, entered] if slot & 1 else [entered, sent]
        queues, packets = (np.concatenate(both) for both in zip(*parts, strict=True))
        if slot & 2:
            queues, packets = queues[::-1], packets[::-1]
        if len(queues):
            self._into_queues(queues, packets)
        if slot < self.slots:
            watched = self.length[: len(WATCHED) * self.runs]
            self.queue[slot // SLOTS_A_ROUND] += watched.reshape(-1, self.runs)

    # -- answers

    def _ask(self, request: _Request) -> None:
        for host, route in request.answers:
            at = host * self.runs + request.run
            self.waiting[at].append((request.host, route, request.size))
            if self.free[at]:
                self._answer(at)

    def _answer(self, at: int) -> None:
        """Begins the first answer that waits at a host."""
        destination, route, size = self.waiting[at].popleft()
        place = self.free[at].pop()
        host, run = divmod(at, self.runs)
        connection = place * HOSTS * self.runs + at
        self.left[connection], self.under_way[connection], self.hold[connection] = size, 0, 0
        self.window[connection], self.threshold[connection] = FIRST_WINDOW * _FINE, MOST_WINDOW * _FINE
        self.packet[connection] = destination * ROUTES + route | (place * HOSTS + host) << _TO_BITS
        self.enters[connection] = FIRST[host, destination, route] * self.runs + run

    # -- a slot

    def _from_queues(self, slot: int) -> _Sent:
        """Every queue's first packet; what is not there yet, with the queue that it goes to."""
        queues = np.flatnonzero(self.length)
        head = self.head[queues]
        packets = self.ring[queues * self.capacity + head]
        head += 1
        head[head == self.capacity] = 0
        self.head[queues] = head
        self.length[queues] -= 1
        runs = self.run_of[queues]
        to = self.next[self.next_of[queues] + (packets & _TO)]
        there = to == DELIVERED
        if there.any():
            self._arrived(packets[there], runs[there], slot)
            on = ~there
            packets, runs, to = packets[on], runs[on], to[on]
        return to + runs, packets

    def _from_hosts(self, slot: int) -> _Sent:
        """A packet of each host: a probe if it is time for it, else of the next connection that may send."""
        hosts = HOSTS * self.runs
        ready = np.flatnonzero((self.left > 0) & (self.under_way * _FINE < self.window))
        place, at = np.divmod(ready, hosts)
        later = (place - self.turn[at]) % CONNECTIONS
        chosen = np.full(hosts, -1)
        for turns in range(CONNECTIONS - 1, -1, -1):  # the last one written stays
            of_these = later == turns
            chosen[at[of_these]] = ready[of_these]
        prober = PROBERS.get(slot % SLOTS_A_ROUND) if slot < self.slots else None
        if prober is not None:
            chosen[prober * self.runs : (prober + 1) * self.runs] = -1
        senders = np.flatnonzero(chosen >= 0)
        connections = chosen[senders]
        self.turn[senders] = connections // hosts + 1
        self.left[connections] -= 1
        self.under_way[connections] += 1
        queues, packets = self.enters[connections], self.packet[connections]
        if prober is not None:
            route = probe_route(prober)
            probe = route | prober << _TO_BITS | _PROBE | slot << _SLOT_AT
            queues = np.concatenate((queues, FIRST[prober, 0, route] * self.runs + np.arange(self.runs)))
            packets = np.concatenate((packets, np.full(self.runs, probe)))
            self.probes_under_way += self.runs
        self.counts.sent += len(packets)
        return queues, packets

    def _into_queues(self, queues: Ints, packets: Ints) -> None:
        order = np.argsort(queues.astype(np.uint16), kind="stable")  # a radix sort
        queues, packets = queues[order], packets[order]
        place = np.arange(len(queues))
        new = np.empty(len(queues), np.bool_)
        new[0] = True
        np.not_equal(queues[1:], queues[:-1], out=new[1:])
        ahead = place - np.maximum.accumulate(np.where(new, place, 0))  # of those for the same queue
        behind = self.length[queues] + ahead
        fits = behind < self.capacity
        if not fits.all():
            self._lost(packets[~fits], self.run_of[queues[~fits]])
            queues, packets, behind = queues[fits], packets[fits], behind[fits]
        at = self.head[queues] + behind
        at[at >= self.capacity] -= self.capacity
        self.ring[queues * self.capacity + at] = packets
        self.length[queues] = behind + 1  # of several for one queue the last is written last

    # -- what becomes of packets

    def _arrived(self, packets: Ints, runs: Ints, slot: int) -> None:
        self.counts.delivered += len(packets)
        packets, runs = self._without_probes(packets, runs, slot)
        one = (
            packets >> _TO_BITS & _FROM
        ) * self.runs + runs  # a host receives one packet a slot: no doubles
        self.under_way[one] -= 1
        window, held = self.window[one], self.hold[one]
        more = np.where(window < self.threshold[one], _FINE, _FINE * _FINE // window)
        self.window[one] = np.where(held > 0, window, np.minimum(window + more, MOST_WINDOW * _FINE))
        self.hold[one] = np.maximum(held - 1, 0)
        hosts = HOSTS * self.runs
        for connection in one[(self.left[one] == 0) & (self.under_way[one] == 0)].tolist():
            place, at = divmod(connection, hosts)
            self.free[at].append(place)
            if self.waiting[at]:
                self._answer(at)

    def _lost(self, packets: Ints, runs: Ints) -> None:
        self.counts.lost += len(packets)
        packets, runs = self._without_probes(packets, runs, None)
        every = (packets >> _TO_BITS & _FROM) * self.runs + runs
        np.subtract.at(self.under_way, every, 1)
        np.add.at(self.left, every, 1)
        one = np.unique(every)
        halved = np.maximum(self.window[one] // 2, LEAST_WINDOW * _FINE)
        free = self.hold[one] == 0
        one, halved = one[free], halved[free]
        self.window[one] = self.threshold[one] = halved
        self.hold[one] = self.under_way[one]

    def _without_probes(self, packets: Ints, runs: Ints, slot: int | None) -> _Sent:
        """The others; of probes, writes down their delay at a slot. None: they are lost, as is written."""
        probes = packets & _PROBE != 0
        if not probes.any():
            return packets, runs
        self.probes_under_way -= int(probes.sum())
        if slot is not None:
            sent, column = packets[probes] >> _SLOT_AT, COLUMN[packets[probes] >> _TO_BITS & _FROM]
            kept = column >= 0
            sent, column, of = sent[kept], column[kept], runs[probes][kept]
            self.delay[sent // SLOTS_A_ROUND, column, of] = slot - sent
        return packets[~probes], runs[~probes]


_Sent = tuple[Ints, Ints]
"""Queues and packets, (n,) each."""


@dataclass(frozen=True)
class _Request:
    """answers : hosts and the routes of their answers."""

    slot: int
    run: int
    host: int
    size: int
    answers: list[tuple[int, int]]


def _requests(rng: np.random.Generator, load: Load, slots: int, runs: int) -> list[_Request]:
    """At times that are all equally likely, of hosts that are too; in the order of time."""
    count = load.requests * slots * runs * SLOT_NS // 1_000_000_000
    least, most = load.hosts
    requests = []
    for slot in np.sort(rng.integers(slots, size=count)).tolist():
        run, host, size = (
            int(rng.integers(runs)),
            int(rng.integers(HOSTS)),
            int(rng.integers(len(load.sizes))),
        )
        others = rng.permutation(HOSTS - 1)[: rng.integers(least, most + 1)]
        answers = [(int(other + (other >= host)), int(rng.integers(ROUTES))) for other in others]
        requests.append(_Request(slot, run, host, load.sizes[size], answers))
    return requests
