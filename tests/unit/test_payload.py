# SPDX-License-Identifier: Apache-2.0
"""The first bytes of payloads, and accumulators of one direction, on packets made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from tests.parity.frames import TCP, UDP, ethernet, ipv4, ipv6, tcp, udp
from wirewise.datasets.lucid import allowed
from wirewise.errors import InputError
from wirewise.evaluate.leaks import separating
from wirewise.feature_sets import Extractor, Feature, FeatureSet
from wirewise.feature_sets.packet import MAX_PAYLOAD_HEAD, parse

FIELDS = ("payload_head", "payload_printable", "payload_zero", "payload_high")
CLIENT, SERVER = b"\x0a\0\0\1", b"\x0a\0\0\2"
BOTH = "five-tuple-bidirectional"


def frame(payload: bytes, *, back: bool = False, options: bytes = b"", fragment: int = 0) -> bytes:
    ends = (SERVER, CLIENT) if back else (CLIENT, SERVER)
    ports = (80, 1000) if back else (1000, 80)
    transport = tcp(*ports, 0x10, 100, options) + payload
    return ethernet(ipv4(*ends, TCP, transport, fragment=fragment), 0x0800)


def features(specs: Sequence[str], frames: Sequence[bytes], key: str = BOTH) -> list[list[int]]:
    """One row for each frame, each a millisecond after the one before."""
    extractor = Extractor(FeatureSet("hand-made", list(specs), key=key))
    rows = [extractor.process(each, 1_000_000 * at).features for at, each in enumerate(frames)]
    assert all(row is not None for row in rows)
    return [row for row in rows if row is not None]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", [0, 0, 0, 0]),
        (b"GET / HTTP/1.1\r\nHost: a", [16, 14, 0, 0]),
        (b"\x16\x03\x01\x02\0\x01\0", [7, 0, 2, 0]),
        (b"\x1f\x20\x7e\x7f\x80\xff\0", [7, 2, 1, 2]),
        (bytes(40), [16, 0, 16, 0]),
        (b"\xff" * 16, [16, 0, 0, 16]),
        (b" " * 16 + b"\0\xff", [16, 16, 0, 0]),
    ],
)
def test_bytes_are_counted_by_kind(payload: bytes, expected: list[int]) -> None:
    for options in (b"", bytes(40)):
        assert features(FIELDS, [frame(payload, options=options)]) == [expected]


def test_padding_is_no_payload() -> None:
    assert features(FIELDS, [frame(b"ab") + b"cdefgh"]) == [[2, 2, 0, 0]]
    short = udp(1, 2, 8 + 3) + b"abcdef"
    assert features(FIELDS, [ethernet(ipv4(CLIENT, SERVER, UDP, short), 0x0800)]) == [[3, 3, 0, 0]]


def test_what_is_not_in_the_frame_is_not_counted() -> None:
    whole = frame(b"\0" + b"a" * 30)
    for there in range(len(whole) - 54 + 1):
        head = min(there, MAX_PAYLOAD_HEAD)
        assert features(FIELDS, [whole[: 54 + there]]) == [[head, max(0, head - 1), min(head, 1), 0]]


def test_a_later_fragment_is_all_payload() -> None:
    """As payload_length has it: no transport header is read in it."""
    row = features(("payload_length", *FIELDS), [frame(b"abc", fragment=0x2001)])[0]
    assert row[:2] == [23, 16]


def test_the_packet_inside_a_tunnel_is_looked_at() -> None:
    inner = ipv4(CLIENT, SERVER, TCP, tcp(1, 2, 0, 0, b"") + b"abc\0")
    outer = ethernet(ipv6(bytes(16), bytes(16), 4, inner), 0x86DD)
    _, packet = parse(outer, ("ip-in-ip",))
    assert packet is not None and packet.payload == b"abc\0"


def test_a_packet_without_payload_is_no_sample() -> None:
    specs = ["first(payload_printable)", "min(payload_head)", "mean(payload_head)", "count(payload_head)",
             "deviation_from_mean(payload_head)"]  # fmt: skip
    rows = features(specs, [frame(b""), frame(b"ab\0"), frame(b""), frame(b"a")])
    assert rows == [
        [0, 0, 0, 0, 0],
        [2, 3, 3 << 16, 1, 0],
        [2, 3, 3 << 16, 1, 0],
        [2, 1, 2 << 16, 2, 1 << 16],
    ]


def test_a_direction_has_samples_of_its_own() -> None:
    specs = [
        "count(direction=forward)", "count(direction=backward)",
        "first(payload_printable, direction=backward)", "mean(length, direction=backward)",
        "count(direction=backward, window=2ms)",
        "count(direction=forward, window=2ms, previous)",
        "deviation_from_mean(length, direction=forward)",
    ]  # fmt: skip
    frames = [frame(b""), frame(b"", back=True), frame(b"abcd", back=True), frame(b"abcdef"), frame(b"")]
    assert features(specs, frames) == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 40 << 16, 1, 0, 0],
        [1, 2, 4, 42 << 16, 1, 1, 0],
        [2, 2, 4, 42 << 16, 1, 1, 3 << 16],
        [3, 2, 4, 42 << 16, 0, 1, 2 << 16],
    ]


@pytest.mark.parametrize("spec", ["count(direction=forward)", "max(length, direction=backward, window=1s)"])
def test_a_directional_key_has_one_direction(spec: str) -> None:
    with pytest.raises(InputError, match=r"key 'source' has only one; .*key: five-tuple-bidirectional"):
        FeatureSet("m", [spec], key="source")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mean(length, direction=up)", "no direction 'up'"),
        ("mean(iat, direction=forward)", "iat is a time of the flow, not of one direction"),
        ("last(length, direction=forward)", "no window or direction"),
        ("mean(length, direction=forward, direction=forward)", "nor direction=forward|backward"),
    ],
)  # fmt: skip
def test_what_a_direction_cannot_be_said_of(spec: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        Feature.parse(spec)
    assert said in str(error.value)


def test_the_canonical_text_is_read_back() -> None:
    feature = Feature.parse("max( length, window=1s, previous, by=source , direction=backward)")
    assert feature.spec == "max(length, direction=backward, by=source, window=1s, previous)"
    assert Feature.parse(feature.spec) == feature
    assert feature.name == "previous_max_length_1s_by_source_backward"


def test_arrays_without_directions_and_payloads_allow_neither() -> None:
    wanted = ["length", "mean(length, direction=forward)", "count(direction=backward)", "payload_zero"]
    kept, left_out = allowed(FeatureSet("both", wanted, key=BOTH))
    assert kept.feature_names == ["length"]
    assert left_out["count_backward"] == "the arrays do not hold directions"
    assert left_out["payload_zero"] == "the arrays do not hold payload_zero"


def test_bytes_that_tell_the_classes_apart_are_a_leak() -> None:
    random = Random(0)
    texts = [bytes(random.choice(b"GET /index") for _ in range(20)) for _ in range(50)]
    keys = [bytes(random.randrange(256) for _ in range(20)) for _ in range(50)]
    rows = features(["first(payload_printable)", "ttl"], [*map(frame, texts)], "source")
    # Each in a flow of its own, because a flow keeps its first packet's.
    others = [features(["first(payload_printable)", "ttl"], [frame(key)], "source")[0] for key in keys]
    found = separating(np.array(rows + others), np.repeat([0, 1], 50), ["first_payload_printable", "ttl"])
    assert [name for name, _ in found] == ["first_payload_printable"]
