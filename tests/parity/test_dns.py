# SPDX-License-Identifier: Apache-2.0
"""Questions of DNS, cut at every place and damaged, in the kernel and in the engine against the reference."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.parity.cases import Case, reading_all_features
from tests.parity.frames import IPV4, IPV6, UDP, dns, ethernet, ipv4, ipv6, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble

A4, B4, A6, B6 = b"\x0a\0\0\1", b"\x0a\0\0\2", bytes(15) + b"\1", bytes(15) + b"\2"
NAMES = (
    b"\0", b"\7example\3org\0", b"\7EXAMPLE\3org\0", b"\1a" * 127 + b"\0", b"\1a" * 128 + b"\0",
    b"\x3f" * 64 * 3 + b"\x3d" * 62 + b"\0", b"\x3f" * 64 * 4 + b"\0", b"\x40" * 65 + b"\0", b"\1a\xc0\x0c",
    *(bytes([size]) + b"x" * size + b"\0" for size in range(1, 10)),
)  # fmt: skip


def whole_frames(random: Random) -> list[bytes]:
    frames = []
    for name in NAMES:
        back = random.random() < 0.5
        message = dns(name, random.choice((1, 16, 28, 65535)), back=back)
        for length in (len(message), random.randrange(len(message))):
            data = udp(*((53, 1000) if back else (1000, 53)), 8 + length) + message
            v4, v6 = ipv4(A4, B4, UDP, data), ipv6(A6, B6, UDP, data)
            frames += [ethernet(v4 + b"padding", IPV4), ethernet(v6 + b"padding", IPV6)]
            frames += [ethernet(ipv4(B4, A4, 4, v4), IPV4), ethernet(ipv6(A6, B6, 41, v6), IPV6)]
    return frames


@needs_kernel
@pytest.mark.parametrize("decapsulate", [(), ("ip-in-ip",)], ids=["outer", "inner"])
def test_messages_cut_at_every_place(decapsulate: tuple[str, ...], tmp_path: Path) -> None:
    random = Random(f"questions {decapsulate}")
    specs = ["dns_name_length", "dns_labels", "dns_type", "max(dns_labels)", "first(dns_type)",
             "mean(dns_name_length, direction=backward)", "deviation_from_mean(dns_name_length)",
             "distinct(dns_name, by=source, window=1ms)", "count(dns_type, by=pair, window=1ms)"]  # fmt: skip
    features = FeatureSet("questions", specs, key="five-tuple-bidirectional", decapsulate=decapsulate)
    cuts = []
    for whole in whole_frames(random):
        changed = bytearray(whole)
        changed[random.randrange(42, len(whole))] = random.choice((0, 1, 63, 64, 192, 255))
        cuts += [whole, bytes(changed)] + [whole[:end] for end in range(40, len(whole) + 1)]
    random.shuffle(cuts)
    frames = [(10**18 + 10_000 * at, cut) for at, cut in enumerate(cuts)]
    rng = np.random.default_rng(4)
    drawn = random_tree_ensemble(rng, n_features=len(specs), n_classes=2, n_trees=2, depth=3)
    model = reading_all_features(random, drawn)
    lengths, labels = set[int](), set[int]()

    def seen(run: Run) -> None:
        lengths.update(run.features[:, 0].tolist())
        labels.update(run.features[:, 1].tolist())

    case = Case("questions", features, model, {"version": 1, "classes": {}})
    assert_agree(case, frames, tmp_path, seen=seen)
    assert lengths >= {0, 1, 13, 255, *range(3, 12)}
    assert labels >= {0, 1, 2, 4, 127}
