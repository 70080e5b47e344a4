# SPDX-License-Identifier: Apache-2.0
"""Captures to data frames: features to train on, and verdicts of a bundle."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import polars as pl

from wirewise import agent, ending
from wirewise.advice import in_python_terms
from wirewise.api.inputs import (
    AnyBundle,
    AnyFeatureSet,
    AnyPath,
    Document,
    bundle_file,
    document_file,
    feature_set_of,
)
from wirewise.datasets import Rows, Truth, find_captures, table_of
from wirewise.datasets.manifest import LeftOut, left_out_text
from wirewise.errors import InputError
from wirewise.frames import Kind, give


@overload
def features(
    captures: AnyPath | Sequence[AnyPath],
    feature_set: AnyFeatureSet,
    labels: Document | None = ...,
    *,
    at: Sequence[int] = ...,
    interval: str | None = ...,
    at_end: bool = ...,
    unclassified: bool = ...,
    keep_going: bool = ...,
    progress: bool = ...,
    frame: Literal["polars"] = ...,
) -> pl.DataFrame: ...
@overload
def features(
    captures: AnyPath | Sequence[AnyPath],
    feature_set: AnyFeatureSet,
    labels: Document | None = ...,
    *,
    at: Sequence[int] = ...,
    interval: str | None = ...,
    at_end: bool = ...,
    unclassified: bool = ...,
    keep_going: bool = ...,
    progress: bool = ...,
    frame: Literal["pandas"],
) -> Any: ...
@in_python_terms
def features(
    captures: AnyPath | Sequence[AnyPath],
    feature_set: AnyFeatureSet,
    labels: Document | None = None,
    *,
    at: Sequence[int] = (),
    interval: str | None = None,
    at_end: bool = False,
    unclassified: bool = False,
    keep_going: bool = False,
    progress: bool = False,
    frame: Kind = "polars",
) -> Any:
    """The features of every packet of some captures, computed by the program that is deployed.

    - captures: pcap or pcapng files (also compressed), folders of them, one or several. Each starts with an
      empty flow table.
    - feature_set: a preset's name, a YAML file, a `FeatureSet` or its JSON form.
    - labels: a label file (.yaml) or what would stand in it, a list of flows (.csv), or a folder with a
      manifest.json; see docs/labels.md.
    - at, interval, at_end: rows only for these packets of each flow (numbers from 1), for the first one in
      every interval ("1s"), or for the last one. At most one of them.
    - unclassified: give a row to packets that could not be parsed too; it has no features, and its `status`
      is not 0.
    - keep_going: a capture that breaks off is a warning, not an error.
    - progress: show it on stderr, if that is a terminal.
    - frame: "polars", or "pandas" (which must be installed, with PyArrow).

    Gives a data frame with a row a packet, in the order of the captures: `time_ns` (since 1970), `capture`,
    `packet` (its number in the capture, from 1), `flow` (the same text in both directions), one column of
    int64 for each feature in its own unit (see `FeatureSet`), `label` ("" is none), `status` (0 is
    classified).

    Raises InputError for files that cannot be read, MissingFeatureError without clang or `wirewised`.

    """
    chosen = feature_set_of(feature_set)
    paths, own_labels, left_out = find_captures(_paths(captures))
    with document_file(labels, "labels") as label_file:
        source = label_file or own_labels
        table, told = table_of(
            paths,
            chosen,
            truth=Truth(source) if source else None,
            rows=Rows(tuple(at), interval, at_end),
            keep_going=keep_going,
            progress=progress,
        )
    _warn(left_out, told)
    return give((table if unclassified else table.classified).frame, frame)


@overload
def replay(
    captures: AnyPath | Sequence[AnyPath],
    bundle: AnyBundle,
    policy: Document | None = ...,
    *,
    mode: str = ...,
    per: str = ...,
    passed: AnyPath | None = ...,
    dropped: AnyPath | None = ...,
    workers: int = ...,
    seed: int | None = ...,
    caged: bool = ...,
    keep_going: bool = ...,
    frame: Literal["polars"] = ...,
) -> pl.DataFrame: ...
@overload
def replay(
    captures: AnyPath | Sequence[AnyPath],
    bundle: AnyBundle,
    policy: Document | None = ...,
    *,
    mode: str = ...,
    per: str = ...,
    passed: AnyPath | None = ...,
    dropped: AnyPath | None = ...,
    workers: int = ...,
    seed: int | None = ...,
    caged: bool = ...,
    keep_going: bool = ...,
    frame: Literal["pandas"],
) -> Any: ...
@in_python_terms
def replay(
    captures: AnyPath | Sequence[AnyPath],
    bundle: AnyBundle,
    policy: Document | None = None,
    *,
    mode: str = "observe",
    per: str = "packet",
    passed: AnyPath | None = None,
    dropped: AnyPath | None = None,
    workers: int = 1,
    seed: int | None = None,
    caged: bool = False,
    keep_going: bool = False,
    frame: Kind = "polars",
) -> Any:
    """What a bundle makes of captures: its own program in user space, at the captured times.

    No interface is touched, and no privilege is needed.

    - captures: pcap or pcapng files (also compressed), or folders of them; several are merged by time.
    - bundle: the path of one, a `Bundle`, or what `compile` gives.
    - policy: a policy file or what would stand in it; without one every class passes.
    - mode: "observe", or "enforce": then the policy's drops happen.
    - per: "packet" or "flow", what a row is.
    - passed, dropped: captures (.pcap, .pcapng) to write the packets to that pass, or are dropped.
    - workers: threads, from 1.
    - seed: of the flow table's hash; None is random, which matters only where the table is full.
    - caged: run the program confined to its own memory, without asking the kernel's verifier first.
    - keep_going, frame: as in `features`.

    Gives a data frame with the columns that docs/replay.md names; per packet `time_ns`, `capture`, `packet`,
    `flow`, `status`, `class`, `action`, `outcome`, `passed`, `inferred`, `refused`, `packets_of_flow`.

    Raises InputError for files that cannot be read, MissingFeatureError without `wirewised`.

    """
    paths, _, left_out = find_captures(_paths(captures))
    wanted = {"--passed": passed, "--dropped": dropped}
    written = [part for name, path in wanted.items() if path for part in (name, str(path))]
    options = [
        "--mode", mode, "--per", per, "--workers", str(workers), *written,
        *(["--seed", str(seed)] if seed is not None else []),
        *(["--caged"] if caged else []), *(["--keep-going"] if keep_going else []),
    ]  # fmt: skip
    with (
        bundle_file(bundle) as bundle_path,
        document_file(policy, "policy") as policy_path,
        ending.temporary_folder() as folder,
    ):
        rules = ["--policy", str(policy_path)] if policy_path else []
        verdicts = folder / "verdicts.parquet"
        said = agent.call(
            "replay", *map(str, paths), "--bundle", bundle_path, *rules, *options, "--verdicts", verdicts,
            timeout=None,
        )  # fmt: skip
        with verdicts.open("rb") as file:  # by name Polars takes brackets for patterns, and wants UTF-8
            rows = pl.read_parquet(file)
    _warn(left_out, said.get("warnings", []))
    return give(rows, frame)


def _paths(captures: AnyPath | Sequence[AnyPath]) -> list[Path]:
    given = [captures] if isinstance(captures, str | PathLike) else list(captures)
    if not given:
        raise InputError("no capture was given", way_out="name at least one pcap or pcapng file")
    return [Path(path) for path in given]


def _warn(left_out: Sequence[LeftOut], told: Sequence[str]) -> None:
    for text in [*([left_out_text(left_out)] if left_out else []), *told]:
        warnings.warn(text, stacklevel=3)
