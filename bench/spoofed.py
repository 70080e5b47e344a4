# SPDX-License-Identifier: Apache-2.0
"""New flows that find an entry while a flood sends as many packets in each spoofed flow as protect its entry.

`python -m bench.spoofed RESULT` replays made packets at their own times, so the figures do not depend on the
machine, and what else it does. The first grace time, in which the table fills, does not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import polars as pl

from bench.programs import SEED
from wirewise import agent
from wirewise.compiler import compile
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble

FRAME = 60  # bytes
RATE = 60_000  # spoofed packets/s: 28.8 Mbit/s
SECONDS = 30
HONEST = 200  # flows/s, each of 8 packets in 0.7 s
PACKETS = 8
TABLES = (65_536, 131_072, 262_144, 524_288, 1_048_576)


def records(flows: np.ndarray, times_us: np.ndarray, network: int) -> np.ndarray:
    """IPv4 and UDP as records of a capture, shape (packets, 76). network : first byte of the sources."""
    count = len(flows)
    sizes = np.full(count, FRAME)
    rows = np.zeros((count, 16 + FRAME), np.uint8)
    head = np.stack([1_700_000_000 + times_us // 1_000_000, times_us % 1_000_000, sizes, sizes], 1)
    rows[:, :16] = head.astype("<u4").view(np.uint8).reshape(count, 16)
    frame = rows[:, 16:]
    frame[:, 0:14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]
    frame[:, 14:24] = [0x45, 0, 0, FRAME - 14, 0, 0, 0, 0, 64, 17]
    frame[:, 26:30] = flows.astype(">u4").view(np.uint8).reshape(-1, 4)
    frame[:, 26] = network
    frame[:, 30:40] = [192, 0, 2, 1, 0x9C, 0x40, 0, 53, 0, FRAME - 34]
    return rows


def write_capture(path: Path, packets_of_flow: int) -> None:
    spoofed = np.arange(SECONDS * RATE)
    times = spoofed * 1_000_000 // RATE
    honest = np.repeat(np.arange(SECONDS * HONEST), PACKETS)
    later = np.tile(np.arange(PACKETS) * 100_000, SECONDS * HONEST)
    honest_times = honest * 1_000_000 // HONEST + later
    rows = np.concatenate([records(spoofed // packets_of_flow, times, 11), records(honest, honest_times, 10)])
    order = np.argsort(np.concatenate([times, honest_times]), kind="stable")
    with path.open("wb") as file:
        file.write(np.array([0xA1B2C3D4, 0x00040002, 0, 0, 65535, 1], "<u4").tobytes())
        file.write(rows[order].tobytes())


def main(result: Path) -> None:
    feature_set = FeatureSet.load("hara2023")
    model = random_tree_ensemble(
        np.random.default_rng(SEED), n_features=len(feature_set.features), n_classes=2, n_trees=1, depth=4
    )
    proven, grace = feature_set.proven_packets, feature_set.grace_ns / 1e9
    rows = []
    with tempfile.TemporaryDirectory() as name:
        bundle, capture, verdicts = (Path(name) / it for it in ("b.wirewise", "c.pcap", "v.parquet"))
        compile(model, feature_set, name="spoofed", classes=["a", "b"], verify="never").bundle.write(bundle)
        write_capture(capture, proven)
        for entries in TABLES:
            agent.call(
                "replay", capture, "--bundle", bundle, "--verdicts", verdicts, "--table-size", str(entries)
            )
            seen = pl.read_parquet(verdicts, glob=False).filter(pl.col("flow").str.contains(" 10."))
            flows = seen.group_by("flow").agg(
                pl.col("time_ns").min() - seen["time_ns"].min(), pl.len(), ~pl.col("refused").any()
            )
            counted = flows.filter((pl.col("time_ns") >= grace * 1e9) & (pl.col("len") == PACKETS))
            share = float(counted["refused"].mean())  # type: ignore[arg-type]
            rows.append({"entries": entries, "flows": len(counted), "kept": round(share, 3)})
            print(rows[-1])
    conditions = {
        "spoofed_packets_per_second": RATE, "frame_bytes": FRAME, "packets_of_spoofed_flow": proven,
        "grace_seconds": grace, "honest_flows_per_second": HONEST, "seconds": SECONDS,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }  # fmt: skip
    result.write_text(json.dumps({"conditions": conditions, "tables": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
