# SPDX-License-Identifier: Apache-2.0
"""Traffic shunting and anomaly detection: the other two uses of siracusano-n3ic, made again from other data.

    python examples/traffic_analysis.py anomaly                     # traffic that wirewise makes
    python examples/traffic_analysis.py anomaly --captures FOLDER   # with a manifest (docs/labels.md)
    python examples/traffic_analysis.py shunting --captures FOLDER  # some of whose captures have class p2p

A network 256-32-16-2 tells attacks from the rest, or peer-to-peer traffic, which the device then handles
itself, from what must go on to a host. It reads the 16 features that depend most on the class, by the
chi-squared test, of the preset `intrusion` (without the TTL, which says where a capture was taken). A row is
a flow at its tenth packet, or at its last if it has fewer. Each kind of network learns from the same flows,
and is tested twice: on other flows, as the paper does, and on other captures, as the packets of an unknown
place would do; five folds each.

G. Siracusano et al., "Re-architecting Traffic Analysis with Neural Network Interface Cards" (2022), section
5, appendix C.1, Tables 1 and 5.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import wirewise as ww
from wirewise.console import console, listing
from wirewise.datasets import CaptureFolder, write_capture
from wirewise.errors import InputError, WirewiseError
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.traffic import LABELS, generate

HIDDEN = (32, 16)
FEATURES = 16
PAPER = {"anomaly": (90.3, 85.3), "shunting": (96.2, 88.6)}
"""Accuracy in percent, of the network in floating point and of the binary one: Table 5."""
CLASSES = {"anomaly": "attack", "shunting": "p2p"}
KINDS: dict[str, tuple[str, str]] = {
    "float": ("mlp", "steps"),
    "binary, bits": ("bnn", "bits"),
    "binary, steps": ("bnn", "steps"),
}
"""Estimator and, of binary ones, how features become bits: docs/networks.md."""
JUDGED_AT = 10  # packets of a flow
MOST_FLOWS = 300  # of a capture, so that no flood is all there is
DAYS = 6


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("use", choices=list(CLASSES))
    parser.add_argument("--captures", type=Path, help="folder with a manifest.json")
    asked = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="wirewise-") as scratch:
            frame = flows(asked.use, asked.captures, Path(scratch))
        judge(asked.use, frame)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def flows(use: str, captures: Path | None, scratch: Path) -> pl.DataFrame:
    """A row a flow, with two labels."""
    if captures is None and use == "shunting":
        raise InputError(
            "shunting",
            "needs captures of peer-to-peer traffic, which wirewise does not make",
            "--captures FOLDER",
        )
    folder, labels = (captures, captures) if captures else made(scratch)
    frame = ww.features(folder, "intrusion", labels)
    assert isinstance(frame, pl.DataFrame)
    number = pl.int_range(pl.len()).over("capture", "flow")
    frame = frame.filter((pl.col("label") != "") & (number < JUDGED_AT))
    last = pl.int_range(pl.len()).over("capture", "flow") == pl.len().over("capture", "flow") - 1
    frame = frame.filter(last).filter(pl.int_range(pl.len()).over("capture") < MOST_FLOWS)
    benign = pl.col("label") == "benign"
    if use == "anomaly":
        return frame.with_columns(label=pl.when(benign).then(pl.lit("benign")).otherwise(pl.lit("attack")))
    assert captures is not None
    shunted = [
        str(captures / entry.path) for entry in CaptureFolder.read(captures).entries if entry.group == "p2p"
    ]
    of_these = pl.col("capture").is_in(shunted)
    return frame.filter(benign).with_columns(
        label=pl.when(of_these).then(pl.lit("p2p")).otherwise(pl.lit("benign"))
    )


def made(folder: Path) -> tuple[Path, Mapping[str, object]]:
    """Captures of some days, one for each day and label, and what says which is which."""
    kinds = list(dict.fromkeys(LABELS.values()))
    for day in range(DAYS):
        packets = list(generate(seed=day, duration_s=4, packets=3_000))
        for label in kinds:
            frames = ((packet.time_ns, packet.frame) for packet in packets if packet.label == label)
            write_capture(folder / f"{label}_{day}.pcap", frames)
    attacks = [label for label in kinds if label != "benign"]
    rules = [{"label": label, "capture": f"{label}_*.pcap", "all": True} for label in attacks]
    return folder, {"version": 1, "rules": rules, "otherwise": "benign"}


def judge(use: str, frame: pl.DataFrame) -> None:
    """Trains and tests each kind of network, and says what it takes in the kernel."""
    wanted = (frame["label"] != "benign").to_numpy()
    chosen = sixteen(frame, wanted)
    console.print(
        f"{len(frame):,} flows of {frame['capture'].n_unique()} captures, {wanted.sum():,} of class "
        f"{CLASSES[use]}\nfeatures by chi-squared: {', '.join(chosen.feature_names)}"
    )
    rows, instructions = [], ""
    for name, (estimator, encoding) in KINDS.items():
        settings = {"feature_set": chosen, "hidden": HIDDEN, "encoding": encoding, "folds": 5}
        by_flow = ww.train(frame, estimator, group="flow", **settings)  # type: ignore[arg-type]
        by_capture = ww.train(frame, estimator, group="capture", **settings)  # type: ignore[arg-type]
        paper = PAPER[use][estimator == "bnn"]
        cells = []
        for training in (by_flow, by_capture):
            assert training.folds is not None
            found = next(row for row in training.folds.report.classes if row.name != "benign")
            cells += [f"{100 * training.folds.report.accuracy:.1f}", f"{found.f1:.3f}"]
        rows.append((name, f"{paper:.1f}", *cells))
        if estimator == "bnn":
            program = ww.compile(by_flow, verify="never").bundle.manifest.program
            instructions += f"\n{name}: {program.instructions:,} instructions with its features"
    always = f"{100 * max(wanted.mean(), 1 - wanted.mean()):.1f}"
    listing(
        ("256-32-16-2", "paper's %", "other flows %", "F1", "other captures %", "F1"),
        [("always the commoner class", "-", always, "-", always, "-"), *rows],
        title=f"{use}: accuracy in percent, and F1 of {CLASSES[use]}",
        right=range(1, 6),
    )
    console.print(instructions)


def sixteen(frame: pl.DataFrame, wanted: NDArray[np.bool_]) -> FeatureSet:
    """The features of `intrusion` with the largest chi-squared statistic, in their order."""
    preset = PRESETS["intrusion"]
    names = [name for name in preset.feature_names if name != "ttl"]
    worth = {name: chi_squared(frame[name].to_numpy(), wanted) for name in names}
    best = sorted(names, key=lambda name: -worth[name])[:FEATURES]
    document = preset.to_dict()
    return FeatureSet.from_dict(
        {
            **document,
            "name": "sixteen",
            "features": [one for one in document["features"] if one["name"] in best],
        }
    )


def chi_squared(values: NDArray[np.int64], wanted: NDArray[np.bool_]) -> float:
    """Of the classes and sixteenths of the values: how far their counts are from those of independence."""
    bins = np.unique(np.quantile(values, np.arange(1, 16) / 16, method="lower"))
    at = np.searchsorted(bins, values)
    counts = np.array([np.bincount(at[wanted == of], minlength=len(bins) + 1) for of in (False, True)], float)
    expected = counts.sum(axis=0) * counts.sum(axis=1, keepdims=True) / counts.sum()
    return float(((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum())


if __name__ == "__main__":
    sys.exit(main())
