# SPDX-License-Identifier: Apache-2.0
"""Feature tables out of the very program that is deployed, by `wirewised features`.

`build_table` (datasets/table.py) makes the same table with the slow, obvious reference.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from wirewise import agent, ending
from wirewise.datasets.manifest import MANIFEST, CaptureFolder, LeftOut, left_out_text
from wirewise.datasets.table import SOURCE, Table
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.files import files_below, replacing
from wirewise.places import note_inputs
from wirewise.targets import ebpf

_SUFFIXES = (".pcap", ".pcapng", ".cap")
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4")


SEED = "0"
"""Of the tables' hash: what sketches estimate depends on it, and a table is to be the same each time."""


@dataclass(frozen=True)
class Truth:
    """Where labels come from: a label file (YAML), a list of flows (CSV), or a folder with a manifest.json.

    See docs/labels.md. Checked by the agent before it reads a packet.
    """

    path: Path
    otherwise: str | None = None
    """Label of the packets of no flow in a list of flows."""

    def options(self) -> list[str | Path]:
        return ["--labels", self.path, *(["--otherwise", self.otherwise] if self.otherwise else [])]


@dataclass(frozen=True)
class Rows:
    """Which packets get a row; all of them unless one of these is given.

    at : numbers of a flow's packets, from 1. interval : the first packet of each flow in every interval of
    the clock, such as "1s". at_end : the last packet of each flow.
    """

    at: tuple[int, ...] = ()
    interval: str | None = None
    at_end: bool = False

    def __post_init__(self) -> None:
        if bool(self.at) + bool(self.interval) + self.at_end > 1:
            raise InputError(
                "rows", "are chosen by packet number, by interval or at the end, not by several", "choose one"
            )

    def options(self) -> list[str]:
        return [
            *(["--at", ",".join(map(str, self.at))] if self.at else []),
            *(["--interval", self.interval] if self.interval else []),
            *(["--at-end"] if self.at_end else []),
        ]


def extract_table(
    captures: Sequence[str | Path],
    feature_set: FeatureSet,
    output: str | Path,
    *,
    truth: Truth | None = None,
    rows: Rows | None = None,
    keep_going: bool = False,
    clang: str | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Run captures through the feature set's own program, each with an empty flow table, into a Parquet file.

    captures : pcap or pcapng files, also compressed (gzip, zstd, xz, bzip2, lz4), of any link type that
    carries IP. output : read it with `Table.read`. keep_going : a capture that breaks off is a warning.
    progress : show it on a terminal, on stderr.

    Gives what `wirewised features --json` says. Raises InputError for captures or labels that cannot be read;
    MissingFeatureError without clang or the agent.
    """
    if not captures:
        raise InputError("no capture was given", way_out="name at least one pcap or pcapng file")
    built = ebpf.build(ebpf.emit(None, feature_set), clang=clang)
    with ending.temporary_folder() as folder:
        program, features = folder / "features.bpf.o", folder / "features.json"
        program.write_bytes(built.object)
        features.write_text(json.dumps(feature_set.to_dict()), encoding="utf-8")
        return agent.call(
            "features", *map(str, captures), "--object", program, "--feature-set", features, "-o", output,
            *(truth.options() if truth else []), *(rows.options() if rows else []),
            *(["--keep-going"] if keep_going else []), "--seed", SEED,
            timeout=None, progress=progress,
        )  # fmt: skip


def record_live(
    interface: str,
    feature_set: FeatureSet,
    output: str | Path,
    options: Sequence[str],
    *,
    clang: str | None = None,
) -> NoReturn:
    """Compile the feature set's program and go on as `wirewised record`, which ends this process.

    options : of that command. Raises MissingFeatureError without clang or the agent.
    """
    built = ebpf.build(ebpf.emit(None, feature_set), clang=clang)
    agent.become(
        "record", "--interface", interface, "-o", output, *options, "--seed", SEED,
        files={
            "--object": built.object,
            "--feature-set": json.dumps(feature_set.to_dict()).encode(),
        },
    )  # fmt: skip


def table_of(
    captures: Sequence[str | Path],
    feature_set: FeatureSet,
    *,
    truth: Truth | None = None,
    rows: Rows | None = None,
    keep_going: bool = False,
    output: Path | None = None,
    progress: bool = True,
) -> tuple[Table, list[str]]:
    """As `extract_table`, with the table in memory, and in a file if output is given; and warnings about
    captures that break off, packets that were skipped, and labels that fit nothing.
    """
    with ending.temporary_folder() as folder:
        # The agent keeps what it could read of a capture that breaks off; here that is no table to train on.
        with replacing(output or folder / "table", suffix=".parquet") as written:
            said = extract_table(
                captures,
                feature_set,
                written,
                truth=truth,
                rows=rows,
                keep_going=keep_going,
                progress=progress,
            )
            table = Table.read(written)
            if truth:  # the agent labels each packet as it comes, and knows no sources
                table = with_sources(table, truth)
                if output:
                    table.write(written)
        warnings = list(said["warnings"])
        if skipped := said["skipped_packets"]:
            warnings.append(
                f"{skipped:,} packets skipped: of a link type, interface or time that cannot be run"
            )
        for each in said["joined"]:
            flows = each["flows"]
            if not flows["matched"]:
                name = each["capture"]
                warnings.append(
                    f"{name}: of the {flows['listed']:,} flows listed for its time none has a packet"
                )
        return table, warnings


def with_sources(table: Table, truth: Truth) -> Table:
    """The table with the column `source`, where a manifest says where its captures come from."""
    if not (truth.path / MANIFEST).is_file():
        return table
    folder = CaptureFolder.read(truth.path)
    names = table.frame["capture"].unique().to_list()
    found = {name: folder.source(Path(name)) for name in names}
    if not any(found.values()):
        return table
    source = pl.col("capture").replace_strict(found, return_dtype=pl.String).alias(SOURCE)
    return Table(table.frame.with_columns(source), table.feature_set)


def find_captures(given: Sequence[str | Path]) -> tuple[list[Path], Path | None, list[LeftOut]]:
    """The captures meant by files and folders; the folder, as labels, if one with a manifest is all there is;
    and which captures of its manifest are left out, and why.

    Raises InputError for what does not exist, or a folder without captures.
    """
    captures = [Path(path) for path in given]
    if len(captures) == 1 and (captures[0] / MANIFEST).is_file():
        folder = CaptureFolder.read(captures[0])
        usable, left_out = folder.usable()
        if not usable:
            why = left_out_text(left_out) if left_out else "its manifest is empty"
            raise InputError(str(captures[0]), f"has no capture to learn from: {why}")
        files = [folder.file(entry) for entry in usable]
        note_inputs(files)
        return files, captures[0], left_out
    paths: list[Path] = []
    for path in captures:
        if path.is_dir():
            found = [file for file in files_below(path) if _is_capture(file)]
            if not found:
                raise InputError(str(path), f"holds no capture ({', '.join(_SUFFIXES)})", "name the files")
            paths += found
        elif path.exists():
            paths.append(path)
        else:
            raise InputError(str(path), "does not exist", "give pcap or pcapng files, or folders of them")
    note_inputs(paths)
    return paths, None, []


def _is_capture(path: Path) -> bool:
    unpacked = path.with_suffix("") if path.suffix in _PACKED else path
    return unpacked.suffix in _SUFFIXES
