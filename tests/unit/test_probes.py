# SPDX-License-Identifier: Apache-2.0
"""Probes of paths and their rounds, by the reference; and what of them is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.tomography.table import DELAYS
from tests.parity.frames import ethernet, ipv4
from wirewise.errors import InputError
from wirewise.feature_sets import Extractor, Feature, FeatureSet, keeping
from wirewise.feature_sets.packet import parse
from wirewise.feature_sets.probes import LATE, LOST, PORT, Probe, Rounds

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "bpf" / "classify" / "probe.h").read_text()


def test_the_payload_by_hand() -> None:
    probe = Probe(round=7, unit_ns=24_000, path=258, sent_ns=5)
    assert probe.to_bytes().hex() == "777750520000000700005dc0010200000000000000000005"
    assert Probe.read(probe.to_bytes() + b"more") == probe
    for payload in (
        probe.to_bytes()[:-1],
        b"",
        b"x" + probe.to_bytes()[1:],
        probe._replace(unit_ns=0).to_bytes(),
    ):
        assert Probe.read(payload) is None


@pytest.mark.parametrize(
    ("sent_ns", "now_ns", "delay"),
    [
        (1000, 1000, 0),
        (1000, 1099, 0),
        (1000, 1100, 1),
        (0, 10**6, LOST),
        (1001, 1000, 0),
        (2**64 - 50, 60, 1),
    ],
)
def test_delays(sent_ns: int, now_ns: int, delay: int) -> None:
    assert Probe(1, 100, 0, sent_ns).delay(now_ns) == delay


def probe(number: int, path: int, delay: int = 0) -> Probe:
    """Seen at 1000."""
    return Probe(number, 1, path, 1000 - delay)


def taken(rounds: Rounds, *probes: Probe) -> list[bool]:
    return [rounds.take(one, 1000) for one in probes]


def test_a_round_is_whole_with_its_last_path() -> None:
    rounds = Rounds.of({0, 2})
    # Path 1 is read by nobody, path 2 comes twice.
    assert taken(rounds, probe(5, 2, 9), probe(5, 1), probe(5, 2, 8), probe(5, 0, 7)) == [False] * 3 + [True]
    assert rounds.whole[0] == 7 and rounds.whole[2] == 9
    assert taken(rounds, probe(5, 0, 3), probe(5, 2, 3)) == [False, False]
    assert rounds.whole[0] == 7


def test_what_is_missing_when_the_next_round_comes_is_lost() -> None:
    rounds = Rounds.of({0, 1})
    assert taken(rounds, probe(1, 0, 7), probe(2, 0, 3)) == [False, True]
    assert list(rounds.whole[:2]) == [7, LOST]
    # Of that round nothing counts any more; of the new one the first is there.
    assert taken(rounds, probe(1, 1, 4), probe(2, 1, 4)) == [False, True]
    assert list(rounds.whole[:2]) == [3, 4]


def test_what_is_far_behind_is_of_a_new_sender() -> None:
    rounds = Rounds.of({0, 1})
    assert taken(rounds, probe(5000, 0), probe(5000, 1)) == [False, True]
    assert taken(rounds, probe(5000 - LATE, 0), probe(5000 - LATE - 1, 0)) == [False, False]
    assert rounds.round == 5000 - LATE - 1
    assert taken(rounds, probe(9000, 0), probe(9000 - LATE, 1), probe(9000, 1)) == [True, False, True]


def test_numbers_of_rounds_begin_again() -> None:
    rounds = Rounds.of({0})
    assert taken(rounds, probe(2**32 - 1, 0), probe(0, 0), probe(2**32 - 1, 0)) == [True, True, False]


def frame(one: Probe, port: int = PORT, protocol: int = 17) -> bytes:
    payload = one.to_bytes()
    transport = b"".join(n.to_bytes(2, "big") for n in (1, port, 8 + len(payload), 0)) + payload
    return ethernet(ipv4(bytes(4), bytes((10, 0, 0, 1)), protocol, transport), 0x0800)


def test_features_of_a_round() -> None:
    features = FeatureSet.load(ROOT / "examples" / "tomography" / "features.yaml")
    assert features.feature_names == DELAYS and features.paths == tuple(range(19)) and features.needs_time()
    extractor = Extractor(features)
    for path in range(19):
        seen = extractor.process(frame(Probe(3, 10, path, 1000 - 10 * path)), 1000)
        assert seen.whole is (path == 18)
    assert seen.features == list(range(19))
    # An ordinary packet changes nothing.
    assert extractor.process(frame(Probe(4, 10, 0, 0), PORT + 1), 1000).features == list(range(19))
    assert parse(frame(Probe(4, 10, 0, 0), protocol=136))[1].probe is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "spec",
    [
        "round(probe_delay)",
        "round(probe_delay, path=64)",
        "round(length, path=1)",
        "round(probe_delay, path=01)",
    ],
)
def test_other_rounds_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match=r"write round\(probe_delay, path=0\)"):
        Feature.parse(spec)


def test_a_feature_of_a_round_is_what_its_spec_says() -> None:
    feature = Feature.parse("round( probe_delay , path=63)")
    assert feature.spec == "round(probe_delay, path=63)" and feature.name == "probe_delay_of_path_63"
    assert Feature.parse(feature.spec) == feature and (feature.minimum, feature.maximum) == (0, 255)


def test_flows_go_on_with_rounds_of_the_same_paths() -> None:
    running = FeatureSet.load(ROOT / "examples" / "tomography" / "features.yaml")
    assert keeping(replace(running, name="new"), range(19), running, range(19)).paths == running.paths
    with pytest.raises(InputError, match="have no state for probe_delay_of_path_40"):
        keeping(
            replace(running, features=(*running.features[1:], Feature.parse("round(probe_delay, path=40)"))),
            range(19), running, range(19),
        )  # fmt: skip


def test_the_numbers_are_those_of_the_header() -> None:
    for name, value in (("WW_PORT_PROBE", PORT), ("WW_PROBE_LOST", LOST), ("WW_PROBES_LATE", LATE)):
        assert f"#define {name} {value}" in HEADER
