# SPDX-License-Identifier: Apache-2.0
"""Verdicts of the real object: a bundle's program on labelled captures, in the engine or in this kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import sched_getaffinity
from pathlib import Path

import numpy as np
import polars as pl

from wirewise import agent
from wirewise.abi import Status
from wirewise.datasets import CaptureFolder, Table, Truth
from wirewise.datasets.applications import by_folder
from wirewise.datasets.extraction import table_of
from wirewise.datasets.manifest import MANIFEST
from wirewise.errors import InputError, WirewiseError
from wirewise.formats.bundle import Bundle
from wirewise.text import file_name


def labelled(
    bundle: Bundle, captures: Sequence[Path], truth: Truth, *, progress: bool = True
) -> tuple[Table, list[str]]:
    """A row for every packet of some captures, with its label and the features that the bundle reads; and
    warnings.

    Each capture starts with an empty flow table. Raises InputError for what cannot be read,
    MissingFeatureError without clang or the agent.
    """
    for capture in captures:
        if not _is_text(capture):
            raise InputError(
                file_name(capture), "has a name that is not UTF-8, by which its rows would be known",
                "rename it, or evaluate the table that `wirewise features` makes of it",
            )  # fmt: skip
    table, warnings = table_of(captures, bundle.feature_set, truth=truth, progress=progress)
    if (truth.path / MANIFEST).is_file():
        folder = CaptureFolder.read(truth.path)
        if any(folder.application(capture) for capture in captures):
            table = Table(by_folder(table.frame, folder), table.feature_set)
    return table, warnings


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def run(
    path: Path,
    bundle: Bundle,
    table: Table,
    *,
    kernel: bool,
    progress: Callable[[float], None] = lambda share: None,
) -> Table:
    """The rows of `labelled` that the program classified, and what it said of them in two columns: `said`,
    class numbers, and `scores`, arrays of n_outputs.

    path : of the bundle. kernel : whether this kernel runs it (by test run, nothing is attached), else the
    engine. progress : is told the share of captures that are done, 0 to 1. Raises MissingFeatureError
    without the privilege to load programs.
    """
    parts = table.frame.partition_by("capture", maintain_order=True)
    names = [str(part["capture"][0]) for part in parts]
    trace = partial(
        agent.trace,
        bundle=path,
        n_features=len(bundle.feature_set.features),
        seed=0,
        plane="kernel" if kernel else "engine",
    )
    found = []
    with ThreadPoolExecutor(len(sched_getaffinity(0))) as pool:
        pending = pool.map(trace, names)
        try:
            for done, (name, part, records) in enumerate(zip(names, parts, pending, strict=True), 1):
                if len(records) != len(part):
                    seen = f"its program saw {len(records):,} packets, and {len(part):,} have labels"
                    raise WirewiseError(f"{name}: {seen}")
                found.append(records[["status", "class_id", "score"]].copy())
                progress(done / len(names))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    verdicts = np.concatenate(found)
    classified = verdicts["status"] == int(Status.CLASSIFIED)
    said = verdicts["class_id"][classified].astype(np.int64)
    if len(said) and said.max() >= len(bundle.classes):
        raise WirewiseError(f"{path}: its program says class {said.max()}, which the bundle does not name")
    rows = pl.concat(parts).filter(pl.Series(classified))
    scores = pl.Series("scores", verdicts["score"][classified].astype(np.int64))
    return Table(rows.with_columns(pl.Series("said", said), scores), table.feature_set)
