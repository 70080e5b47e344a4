# SPDX-License-Identifier: Apache-2.0
"""Feature tables out of the very program that is deployed, by `wirewised features`.

`build_table` (datasets/table.py) makes the same table with the slow, obvious reference.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirewise import agent
from wirewise.errors import InputError
from wirewise.features import FeatureSet
from wirewise.targets import ebpf


@dataclass(frozen=True)
class Truth:
    """Where labels come from: a label file (YAML), a list of flows (CSV), or a folder with a manifest.json.

    See docs/labels.md. Checked by the agent before it reads a packet.
    """

    path: Path

    def options(self) -> list[str | Path]:
        if self.path.is_dir():
            return ["--manifest", self.path]
        return ["--flows" if self.path.suffix == ".csv" else "--labels", self.path]


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

    captures : pcap or pcapng files, also packed with gzip or zstd, of any link type that carries IP. output :
    read it with `Table.read`. keep_going : a capture that breaks off is a warning. progress : show it on a
    terminal, on stderr.

    Gives what `wirewised features --json` says. Raises InputError for captures or labels that cannot be read;
    MissingFeatureError without clang or the agent.
    """
    if not captures:
        raise InputError("no capture was given", way_out="name at least one pcap or pcapng file")
    built = ebpf.build(ebpf.emit(None, feature_set), clang=clang)
    with tempfile.TemporaryDirectory(prefix="wirewise-") as folder:
        program, features = Path(folder) / "features.bpf.o", Path(folder) / "features.json"
        program.write_bytes(built.object)
        features.write_text(json.dumps(feature_set.to_dict()), encoding="utf-8")
        return agent.call(
            "features", *map(str, captures), "--object", program, "--features", features, "-o", output,
            *(truth.options() if truth else []), *(rows.options() if rows else []),
            *(["--keep-going"] if keep_going else []),
            timeout=None, progress=progress,
        )  # fmt: skip
