# SPDX-License-Identifier: Apache-2.0
"""Intrusion detection in seven classes: Tables II and III of hara2023, made again from other data.

    python examples/intrusion_detection.py                    # traffic that wirewise makes
    python examples/intrusion_detection.py --captures FOLDER  # a folder with a manifest (docs/labels.md)

A tree of depth 5 and a network with two hidden layers of 16 read the paper's twelve features. Both are
judged in floating point and as the integers that the kernel runs, on captures that they have not seen; the
paper split the packets of CIC-IDS2017 at random. So the numbers say what each design is worth on such data,
and not which paper is right. Classes that the data lacks are left out.

T. Hara, "On Practicality of Kernel Packet Processing Empowered by Lightweight Neural Network and Decision
Tree" (2023), section V-A.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

import wirewise as ww
from wirewise.console import console, listing
from wirewise.datasets import write_capture
from wirewise.evaluate import Report, matrix, numbers
from wirewise.traffic import KINDS, LABELS, generate

NORMAL = "benign"  # the paper's "Normal"; a class of that name is the default
SEVEN: dict[str, str] = {
    **dict.fromkeys(
        ("syn-flood", "udp-flood", "icmp-flood", "icmpv6-flood", "http-flood", "slow-http"), "DoS"
    ),
    **dict.fromkeys(("udp-amplification", "tcp-reflection", "dhcp-flood", "dos"), "DoS"),
    **dict.fromkeys(("port-scan", "host-scan", "portscan"), "Portscan"),
    **dict.fromkeys(("iot-botnet", "botnet"), "Botnet"),
    **dict.fromkeys(("covert-tunnel", "infiltration"), "Infiltration"),
    "brute-force": "Brute force",
    "web-attack": "Web attack",
    NORMAL: NORMAL,
}
"""The paper's classes, by the labels of generated traffic and of captures."""

TABLE_II = {  # accuracy, precision, recall, F1 score
    "DT (sklearn)": (0.976, 0.957, 0.946, 0.952),
    "NN (Pytorch)": (0.981, 0.962, 0.962, 0.962),
    "DT (C)": (0.977, 0.944, 0.964, 0.954),
    "NN (C)": (0.975, 0.928, 0.979, 0.952),
}
TABLE_III = {  # F1 score: DT (sklearn), NN (Pytorch), DT (C), NN (C)
    "Botnet": (0.130, 0.904, 0.124, 0.898),
    "Brute force": (0.0, 0.873, 0.0, 0.796),
    "DoS": (0.980, 0.983, 0.858, 0.888),
    "Infiltration": (0.709, 0.734, 0.764, 0.618),
    NORMAL: (0.984, 0.987, 0.968, 0.963),
    "Portscan": (0.911, 0.910, 0.930, 0.912),
    "Web attack": (0.0, 0.0, 0.0, 0.0),
}
COLUMNS = ("DT float", "NN float", "DT integers", "NN integers")
DAYS = 6
MOST_ROWS = 2_000  # of a capture


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--captures", type=Path, help="folder with a manifest.json")
    captures = parser.parse_args().captures
    with tempfile.TemporaryDirectory(prefix="wirewise-") as scratch:
        folder, labels = (captures, captures) if captures else made(Path(scratch))
        table = ww.features(folder, "hara2023", labels)
    assert isinstance(table, pl.DataFrame)
    mapped = pl.col("label").replace_strict(SEVEN, default="")
    few = pl.int_range(pl.len()).over("capture") < MOST_ROWS
    table = table.filter(few).with_columns(label=mapped).filter(pl.col("label") != "")
    console.print(f"{len(table):,} packets of {table['capture'].n_unique()} captures")
    two = table.with_columns(
        label=pl.when(pl.col("label") == NORMAL).then(pl.lit(NORMAL)).otherwise(pl.lit("attack"))
    )
    table_ii(reports(two))
    table_iii(reports(table))


def made(folder: Path) -> tuple[Path, Mapping[str, object]]:
    """Captures of some days, one for each day and label, and what says which is which."""
    for day in range(DAYS):
        packets = list(generate(seed=day, duration_s=4, packets=3_000))
        for label in dict.fromkeys(LABELS[kind] for kind in KINDS):
            frames = ((packet.time_ns, packet.frame) for packet in packets if packet.label == label)
            write_capture(folder / f"{label}_{day}.pcap", frames)
    attacks = [label for label in dict.fromkeys(LABELS.values()) if label != NORMAL]
    rules = [{"label": label, "capture": f"{label}_*.pcap", "all": True} for label in attacks]
    return folder, {"version": 1, "rules": rules, "otherwise": NORMAL}


def reports(table: pl.DataFrame) -> list[Report]:
    """Of tree and network in floating point, then of both as integers: the same captures, kept apart."""
    floats, integers = [], []
    for estimator, settings in (("tree", {"depth": 5}), ("mlp", {})):
        training = ww.train(table, estimator, feature_set="hara2023", folds=0, **settings)  # type: ignore[arg-type]
        floats.append(training.report)
        compiled = ww.compile(training, verify="never")
        test = training.split.test
        rows, truth = matrix(training.table)[test], numbers(training.table, training.classes)[test]
        said = compiled.bundle.model.predict(rows)[0].astype(np.int64)
        integers.append(Report.of(truth, said, training.classes))
        console.print(
            f"{estimator}: {compiled.bundle.manifest.program.instructions:,} instructions with its features, "
            f"tested on {training.report.packets:,} packets"
        )
    return floats + integers


def table_ii(found: list[Report]) -> None:
    rows = []
    for name, report, paper in zip(COLUMNS, found, TABLE_II.values(), strict=True):
        attack = next(row for row in report.classes if row.name == "attack")
        ours = (report.accuracy, attack.precision, attack.recall, attack.f1)
        cells = (f"{own:.3f} ({theirs:.3f})" for own, theirs in zip(ours, paper, strict=True))
        rows.append((name, *cells))
    listing(
        ("", "accuracy", "precision", "recall", "F1"), rows, right=range(1, 5),
        title="Table II, binary: here (in the paper)",
    )  # fmt: skip


def table_iii(found: list[Report]) -> None:
    rows = []
    for name, paper in TABLE_III.items():
        own = [next((row for row in report.classes if row.name == name), None) for report in found]
        rows.append((
            name,
            *(
                f"{row.f1 if row and row.packets else float('nan'):.3f} ({theirs:.3f})".replace("nan", "-")
                for row, theirs in zip(own, paper, strict=True)
            ),
        ))  # fmt: skip
    rows.append(("accuracy", *(f"{r.accuracy:.3f} ({p:.3f})" for r, p in zip(found, ACCURACY, strict=True))))
    listing(("F1", *COLUMNS), rows, right=range(1, 5), title="Table III, seven classes: here (in the paper)")


ACCURACY = (0.969, 0.974, 0.944, 0.937)

if __name__ == "__main__":
    main()
