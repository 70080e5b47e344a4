# SPDX-License-Identifier: Apache-2.0
"""The first bytes of payloads: the words of the C against bytes one by one, and frames cut at every place in
the kernel and in the engine against the reference.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.parity.cases import Case, reading_all_features
from tests.parity.frames import ICMP, IPV4, IPV6, TCP, UDP, ethernet, ipv4, ipv6, tcp, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble
from wirewise.targets.ebpf.clang import find_clang

BPF = Path(__file__).parents[2] / "bpf"
FIELDS = ("payload_head", "payload_printable", "payload_zero", "payload_high")
A4, B4, A6, B6 = b"\x0a\0\0\1", b"\x0a\0\0\2", bytes(15) + b"\1", bytes(15) + b"\2"
PROGRAM = """
#define __always_inline inline __attribute__((always_inline))
#include "frame/bytes.h"

#include <stdio.h>

struct {
	__u64 low, high, bytes;
} row;

int main(void)
{
	while (fread(&row, sizeof(row), 1, stdin) == 1) {
		__u32 counts = ww_count_bytes(row.low, row.high, row.bytes);

		fwrite(&counts, 4, 1, stdout);
	}
	return 0;
}
"""


def test_words_are_counted_as_bytes_are(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(PROGRAM)
    flags = ["-O1", "-Wall", "-Werror", "-Wno-unused-function", "-fsanitize=undefined", "-fsanitize-trap=all"]
    program = tmp_path / "program"
    command = [find_clang(), *flags, f"-I{BPF}", tmp_path / "program.c", "-o", program]
    subprocess.run(command, check=True)
    rng = np.random.default_rng(16)
    edges = np.array([0, 1, 0x1F, 0x20, 0x21, 0x7D, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
    drawn = np.concatenate([rng.integers(0, 256, (20_000, 16)), rng.choice(edges, (20_000, 16))])
    # Each byte between neighbours that would carry into it, or be carried into.
    alone = np.array([[beside] * at + [byte] + [beside] * (15 - at)
                      for beside in (0, 0x7F, 0xFF) for byte in range(256) for at in range(16)])  # fmt: skip
    rows = np.concatenate([drawn, alone]).astype(np.uint8)
    sizes = rng.integers(0, 17, len(rows))
    sizes[len(drawn) :] = 16
    given = np.concatenate([rows.view("<u8"), sizes[:, None].astype("<u8")], axis=1)
    done = subprocess.run([program], input=given.tobytes(), capture_output=True, check=True)
    here = np.arange(16) < sizes[:, None]
    kinds = (rows >= 0, (rows >= 0x20) & (rows <= 0x7E), rows == 0, rows > 0x7F)
    expected = np.stack([(kind & here).sum(axis=1) for kind in kinds], axis=1)
    assert (np.frombuffer(done.stdout, np.uint8).reshape(-1, 4) == expected).all()


def whole_frames(random: Random) -> list[bytes]:
    def payload() -> bytes:
        kinds = (0, 1, 0x1F, 0x20, 0x41, 0x7E, 0x7F, 0x80, 0xFF)
        return bytes(random.choice(kinds) for _ in range(random.choice((0, 1, 7, 8, 9, 15, 16, 17, 40))))

    def transports() -> list[tuple[int, bytes]]:
        data = payload()
        return [
            (TCP, tcp(20, 80, 2, 5, bytes(4 * random.randrange(11))) + data),
            (UDP, udp(20, 80, 8 + random.randrange(len(data) + 1)) + data),
            (ICMP, b"\x08" + bytes(7) + data),
            (50, data),  # ESP has no transport header that is read
        ]

    frames = []
    for protocol, data in transports():
        v4, v6 = ipv4(A4, B4, protocol, data), ipv6(A6, B6, protocol, data)
        frames += [ethernet(v4 + b"padding", IPV4), ethernet(v6 + b"padding", IPV6)]
        frames += [ethernet(ipv4(A4, B4, protocol, data, fragment=0x2001), IPV4)]
        frames += [ethernet(ipv4(B4, A4, 4, v4), IPV4), ethernet(ipv6(A6, B6, 41, v6), IPV6)]
    return frames


@needs_kernel
@pytest.mark.parametrize("decapsulate", [(), ("ip-in-ip",)], ids=["outer", "inner"])
def test_frames_cut_at_every_place(decapsulate: tuple[str, ...], tmp_path: Path) -> None:
    random = Random(f"cuts {decapsulate}")
    specs = [*FIELDS, "first(payload_printable)", "mean(payload_zero)", "deviation_from_mean(payload_high)",
             "first(payload_high, direction=backward)", "count(direction=backward)",
             "max(payload_head, direction=forward, window=1ms)", "sum(payload_head, by=source, window=1ms)",
             "mean(payload_printable, direction=backward, by=source, window=1ms)"]  # fmt: skip
    features = FeatureSet("cuts", specs, key="five-tuple-bidirectional", decapsulate=decapsulate)
    cuts = [whole[:end] for whole in whole_frames(random) for end in range(14, len(whole) + 1)]
    random.shuffle(cuts)
    frames = [(10**18 + 10_000 * at, cut) for at, cut in enumerate(cuts)]
    rng = np.random.default_rng(4)
    drawn = random_tree_ensemble(rng, n_features=len(specs), n_classes=2, n_trees=2, depth=3)
    model = reading_all_features(random, drawn)
    heads = set[int]()

    def seen(run: Run) -> None:
        heads.update(run.features[:, 0].tolist())

    case = Case("cuts", features, model, {"version": 1, "classes": {}})
    assert_agree(case, frames, tmp_path, seen=seen)
    assert heads == set(range(17))
