# SPDX-License-Identifier: Apache-2.0
"""The simulated fat tree is the paper's, and does what queues do; its table is read as written."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples.tomography import __main__ as tomography
from examples.tomography.networks import KINDS, SIZES, congested, judge, weight_bytes
from examples.tomography.simulator import (
    CAPACITY,
    LOST,
    SLOTS_A_ROUND,
    Load,
    Rounds,
    _Network,
    simulate,
)
from examples.tomography.table import LARGEST, UNIT_SLOTS, Dataset
from examples.tomography.topology import (
    DELIVERED,
    FIRST,
    HOSTS,
    NEXT,
    PROBES,
    QUEUES,
    WATCHED,
    path,
    probe_route,
)
from wirewise.errors import InputError

RUNS, ROUNDS, WARM_UP = 6, 12, 8
BUSY = Load(requests=120)
NOTHING = Load(requests=0)


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    return simulate(ROUNDS, RUNS, seed=3, load=BUSY, warm_up=WARM_UP)


def hops() -> np.ndarray:
    return np.array([len(path(host, 0, probe_route(host))) for host in PROBES])


def test_the_tree_is_the_papers() -> None:
    switches = {switch for switch, _ in QUEUES}
    assert sorted(len([s for s in switches if s.startswith(kind)]) for kind in ("tor", "agg", "core")) == [
        2,
        4,
        4,
    ]
    assert len(set(QUEUES)) == 64 and len(WATCHED) == 17 and len(PROBES) == 19
    paths = {tuple(path(host, 0, route)) for host in range(1, HOSTS) for route in range(8)}
    assert len(paths) == 19 == len({tuple(path(host, 0, probe_route(host))) for host in PROBES})
    assert {port for each in paths for port in each} == set(WATCHED)


def test_the_tables_follow_the_paths() -> None:
    for source, destination, route in [(0, 1, 5), (3, 9, 0), (31, 0, 6), (17, 30, 3), (12, 5, 1)]:
        queue, seen = int(FIRST[source, destination, route]), []
        while queue != DELIVERED:
            seen.append(QUEUES[queue])
            queue = int(NEXT[queue, destination, route])
        assert seen == path(source, destination, route)


def test_packets_are_delivered_lost_or_in_a_queue(rounds: Rounds) -> None:
    counts = rounds.counts
    assert counts.sent == counts.delivered + counts.lost + counts.waiting
    assert counts.lost > 0 and counts.delivered > 10 * counts.lost


def test_queues_are_finite_and_full_now_and_then(rounds: Rounds) -> None:
    assert rounds.packets.min() >= 0
    assert CAPACITY / 2 < rounds.packets.max() <= CAPACITY


def test_a_probe_waits_for_what_is_ahead_of_it(rounds: Rounds) -> None:
    """Each queue takes a slot, and at most CAPACITY packets are ahead in each."""
    there = rounds.delay != LOST
    assert (rounds.delay >= hops())[there].all()
    assert (rounds.delay <= hops() * CAPACITY)[there].all()
    assert 0.9 < there.mean() < 1


def test_delays_grow_with_the_queues_on_their_paths(rounds: Rounds) -> None:
    on_path = np.array([[port in path(host, 0, probe_route(host)) for port in WATCHED] for host in PROBES])
    ahead = rounds.packets @ on_path.T  # (n, probes): what the queues of a path held on average
    for probe in range(len(PROBES)):
        there = rounds.delay[:, probe] != LOST
        found = np.corrcoef(ahead[there, probe], rounds.delay[there, probe])[0, 1]
        assert found > 0.8, f"the probe of host {PROBES[probe]}: {found:.2f}"


def test_without_load_nothing_waits() -> None:
    quiet = simulate(2, 3, load=NOTHING, warm_up=WARM_UP)
    assert (quiet.delay == hops()).all() and quiet.counts.lost == 0 == quiet.counts.waiting
    probes = 3 * (2 + WARM_UP) * (HOSTS - 1)
    assert quiet.counts.sent == quiet.counts.delivered == probes
    # All 31 pass the first host's port, each for one slot; it is seen once a slot.
    assert (quiet.queue[:, 0] == HOSTS - 1).all()


def test_small_queues_lose_more(rounds: Rounds) -> None:
    small = simulate(ROUNDS, RUNS, seed=3, load=BUSY, warm_up=WARM_UP, capacity=10)
    assert small.packets.max() <= 10 and small.counts.lost > rounds.counts.lost
    there = small.delay != LOST
    assert (small.delay <= 10 * hops())[there].all()


def test_a_seed_is_a_data_set(rounds: Rounds) -> None:
    """On every machine: there is nothing but integers in it."""
    again = simulate(ROUNDS, RUNS, seed=3, load=BUSY, warm_up=WARM_UP)
    assert (again.delay == rounds.delay).all() and (again.queue == rounds.queue).all()
    assert not (simulate(ROUNDS, RUNS, seed=4, load=BUSY, warm_up=WARM_UP).queue == rounds.queue).all()
    short = hashlib.sha256(rounds.delay.astype("<i8").tobytes() + rounds.queue.astype("<i8").tobytes())
    assert short.hexdigest()[:16] == "432a6392b690b123"


def test_runs_are_not_copies(rounds: Rounds) -> None:
    by_run = rounds.queue.reshape(RUNS, ROUNDS, -1)
    assert len({run.tobytes() for run in by_run}) == RUNS


def test_the_table_is_read_as_it_was_written(rounds: Rounds, tmp_path: Path) -> None:
    data = Dataset.of(rounds)
    lost = rounds.delay == LOST
    assert (data.delays[lost] == LARGEST).all() and data.delays.max() <= LARGEST
    assert (data.delays[~lost] == np.minimum(rounds.delay[~lost] // UNIT_SLOTS, LARGEST)).all()
    data.write(tmp_path / "t.parquet")
    read = Dataset.read(tmp_path / "t.parquet")
    assert (read.delays == data.delays).all() and (read.packets == data.packets).all()
    assert (read.run == data.run).all()
    assert (read.packets * SLOTS_A_ROUND).round(6).max() <= CAPACITY * SLOTS_A_ROUND


def test_what_is_tested_is_of_other_runs(rounds: Rounds) -> None:
    data = Dataset.of(rounds)
    learn, test = data.split()
    assert not set(data.run[learn]) & set(data.run[test]) and len(learn) + len(test) == RUNS * ROUNDS
    with pytest.raises(InputError, match="one run"):
        replace(data, run=np.zeros_like(data.run)).split()


def test_the_networks_are_of_the_papers_sizes() -> None:
    assert [round(weight_bytes("float", size) / 1000, 1) for size in SIZES] == [21.6, 47.2, 110.8]
    assert [round(weight_bytes("binary", size)) for size in SIZES] == [676, 1480, 3472]


def test_a_binary_network_says_what_a_queue_holds(rounds: Rounds) -> None:
    """Made so that every delay tells it: what is learned is what was there, for each kind."""
    rng = np.random.default_rng(0)
    held = rng.integers(0, 240, 6_000)
    delays = held[:, None] + rng.integers(0, 16, (6_000, len(PROBES)))
    packets = np.repeat(held[:, None] / 2.0, len(WATCHED), axis=1)
    data = Dataset(np.arange(6_000) // 600, delays, packets)
    assert (congested(data, 0, 60) == (held > 120)).all()
    for kind in KINDS:
        first = next(judge(data, kind, (8,), 60))
        assert first.queue == 0 and first.accuracy > 0.9 > 0.6 > first.commoner
        assert (first.model is None) == (kind == "float")


def test_a_queue_that_is_never_congested_is_named(rounds: Rounds) -> None:
    with pytest.raises(InputError, match=r"queue tor0_host0: is never above 1000 packets .* --threshold"):
        next(judge(Dataset.of(rounds), "binary", (8,), 1000))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "-o", "{}/t.parquet", "--runs", "0"), "0 runs: must be 1 to"),
        (("simulate", "-o", "{}/t.parquet", "--rounds", "-1"), "-1 rounds: must be 1 to"),
        (("simulate", "-o", "{}/t.parquet", "--seed", "-1"), "seed -1: must be 0 or more"),
        (("simulate", "-o", "{}/no/t.parquet"), "cannot be written"),
        (("train", "{}/none.parquet"), "is not a file"),
        (("train", "{}/bad.parquet"), "cannot be read as Parquet"),
        (("train", "{}/other.parquet"), "has other columns"),
        (
            ("simulate", "-o", "{}/t.parquet", "--rounds", "900000"),
            "900000 rounds: must be 1 to 16,666 of 60",
        ),
        (("train", "{}/bad.parquet", "--size", "0-8"), "must be 1 to 7 layers of 1 to 256 neurons"),
        (("train", "{}/bad.parquet", "--size", "a-b"), "--size a-b: is no list of widths"),
        (("train", "{}/bad.parquet", "--figure", "{}/f.txt"), "is no kind of picture"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.parquet").write_text("no parquet")
    pl.DataFrame({"run": [1]}).write_parquet(tmp_path / "other.parquet")
    before = sorted(tmp_path.iterdir())
    assert tomography.main([part.format(tmp_path) for part in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and said in error
    assert sorted(tmp_path.iterdir()) == before


def test_a_queue_is_first_in_first_out_and_full_is_full() -> None:
    network = _Network(1, 1, np.random.default_rng(0), NOTHING, capacity=5)
    queue = QUEUES.index(("tor2", "agg2"))  # two switches before the last, so that nothing arrives here
    probes = [1 << 15 | number << 16 for number in range(10)]

    def put(numbers: range) -> None:
        network._into_queues(np.full(len(numbers), queue), np.array([probes[number] for number in numbers]))

    def take(count: int) -> list[int]:
        taken = [network._from_queues(0) for _ in range(count)]
        assert all(QUEUES[int(to[0])] == ("agg2", "core0") for to, _ in taken)
        return [probes.index(int(packet)) for _, packets in taken for packet in packets]

    put(range(7))
    assert network.length[queue] == 5 and network.counts.lost == 2
    assert take(3) == [0, 1, 2]
    put(range(7, 10))
    assert network.length[queue] == 5 and network.counts.lost == 2
    assert take(5) == [3, 4, 7, 8, 9] and not network.length.any()
