# SPDX-License-Identifier: Apache-2.0
"""What DNS messages ask for, on packets made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.parity.frames import TCP, UDP, dns, ethernet, ipv4, tcp, udp
from wirewise.errors import InputError
from wirewise.feature_sets import Extractor, Feature, FeatureSet
from wirewise.feature_sets.dns import Question

CLIENT, SERVER = b"\x0a\0\0\1", b"\x0a\0\0\2"
FIELDS = ("dns_name_length", "dns_labels", "dns_type")
EXAMPLE = b"\7example\3org\0"


def frame(message: bytes, *, ports: tuple[int, int] = (1000, 53), fragment: int = 0) -> bytes:
    transport = udp(*ports, 8 + len(message)) + message
    return ethernet(ipv4(CLIENT, SERVER, UDP, transport, fragment=fragment), 0x0800)


def features(specs: Sequence[str], frames: Sequence[bytes]) -> list[list[int]]:
    extractor = Extractor(FeatureSet("hand-made", list(specs), key="source"))
    rows = [extractor.process(each, 1_000_000 * at).features for at, each in enumerate(frames)]
    return [row for row in rows if row is not None]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (EXAMPLE, 16, [13, 2, 16]),
        (b"\0", 2, [1, 0, 2]),
        (b"\1a" * 127 + b"\0", 1, [255, 127, 1]),
        ((b"\x3f" + bytes(63)) * 3 + b"\x3d" + bytes(61) + b"\0", 65535, [255, 4, 65535]),
        (b"\1a" * 128 + b"\0", 1, [0, 0, 0]),
        ((b"\x3f" + bytes(63)) * 4 + b"\0", 1, [0, 0, 0]),
        (b"\x40" + bytes(64) + b"\0", 1, [0, 0, 0]),
        (b"\1a\xc0\x0c", 1, [0, 0, 0]),  # compressed
    ],
)
def test_the_name_is_walked_by_its_labels(name: bytes, kind: int, expected: list[int]) -> None:
    assert features(FIELDS, [frame(dns(name, kind))]) == [expected]


def test_answers_repeat_the_question() -> None:
    answer = dns(EXAMPLE, 1, back=True) + b"\xc0\x0c" + bytes(14)
    assert features(FIELDS, [frame(answer, ports=(53, 1000))]) == [[13, 2, 1]]


@pytest.mark.parametrize(
    "other",
    [
        frame(dns(EXAMPLE), ports=(1000, 5353)),
        frame(dns(EXAMPLE, questions=0)),
        frame(dns(EXAMPLE), fragment=0x0001),
        ethernet(ipv4(CLIENT, SERVER, TCP, tcp(1000, 53, 0x10) + dns(EXAMPLE)), 0x0800),
    ],
    ids=["port", "without", "fragment", "tcp"],
)
def test_what_asks_for_nothing_is_no_sample(other: bytes) -> None:
    specs = [*FIELDS, "first(dns_type)", "mean(dns_name_length)", "count(dns_labels)"]
    rows = features(specs, [other, frame(dns(EXAMPLE, 28)), other])
    assert rows == [[0] * 6, [13, 2, 28, 28, 13 << 16, 1], [0, 0, 0, 28, 13 << 16, 1]]


def test_a_message_ends_where_its_packet_does() -> None:
    message = dns(EXAMPLE)
    assert Question.read(message) == (EXAMPLE, 2, 1)
    for there in range(len(message)):
        assert Question.read(message[:there]) is None
        # Behind the datagram is padding, whatever it looks like.
        short = udp(1000, 53, 8 + there) + message
        assert features(FIELDS, [ethernet(ipv4(CLIENT, SERVER, UDP, short), 0x0800)]) == [[0, 0, 0]]


def test_names_are_counted_in_any_case() -> None:
    names = [b"\3abc\0", b"\3ABC\0", b"\3abd\0", b"\4abcd\0", b"\3abc\0"]
    rows = features(["distinct(dns_name)"], [frame(dns(name)) for name in names])
    assert [count for (count,) in rows] == [1, 1, 2, 3, 3]


def test_a_name_is_only_counted() -> None:
    with pytest.raises(InputError, match="dns_name"):
        Feature.parse("mean(dns_name)")
