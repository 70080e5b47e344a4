# SPDX-License-Identifier: Apache-2.0
"""`wirewise record`: rows to train on, from live traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wirewise.cli.options import FeatureSetOption, Json
from wirewise.cli.outputs import OUTPUT_OR_FOLDER


def register(app: typer.Typer) -> None:
    app.command("record")(record)


def record(
    interface: Annotated[str, typer.Option("--interface", "-i", help="Whose packets are recorded.")],
    feature_set: FeatureSetOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table to write (.parquet); with parts, a folder for them."),
        OUTPUT_OR_FOLDER,
    ] = None,
    label: Annotated[str | None, typer.Option(help="Label of every packet.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels", "-l", help="What each packet is: rules (.yaml), or a list of flows (.csv, .flows)."
        ),
    ] = None,
    otherwise: Annotated[
        str | None,
        typer.Option(help="With a list of flows: the label of packets that belong to none of them."),
    ] = None,
    plane: Annotated[
        str | None,
        typer.Option(
            help="Where: xdp-native (default), xdp-generic, tc-ingress, tc-egress, af-packet, af-xdp, dpdk."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="With a plane in user space: where what comes in goes on to.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="With a plane in user space: threads that carry packets.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="Rows only for these packets of each flow, such as 1,2,4,8.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Rows only for a flow's first packet in every interval, such as 1s.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="End after so many rows.")] = None,
    duration: Annotated[str | None, typer.Option(help="End after so long, such as 10m.")] = None,
    megabytes: Annotated[int | None, typer.Option(min=1, help="End once the table has so many MB.")] = None,
    part_rows: Annotated[
        int | None, typer.Option(min=1, help="Begin a new part of the table after so many rows.")
    ] = None,
    part_every: Annotated[
        str | None, typer.Option(help="Begin a new part of the table after so long.")
    ] = None,
    buffer: Annotated[
        int | None, typer.Option(min=1, help="Memory for rows that wait to be read, in MB. Default: 64.")
    ] = None,
    netns: Annotated[str | None, typer.Option(help="Enter this network namespace first.")] = None,
    as_json: Json = False,
) -> None:
    """Record the features of live traffic, as a table to train on.

    The feature set's program runs on the interface without a model and lets every packet pass. The rows are
    those that `wirewise features` makes of a capture of the same packets. What finds no room is counted and
    said. Ends with Ctrl-C or a limit; nothing stays attached, however it ends. Needs root and clang.
    """
    from wirewise.datasets.extraction import record_live
    from wirewise.errors import InputError
    from wirewise.feature_sets import FeatureSet

    if feature_set is None:
        raise InputError(
            "no feature set was given", way_out="give -f galvao2026, another preset or a YAML file"
        )
    if output is None:
        raise InputError("no table was named", way_out="give -o table.parquet")
    given = {
        "label": label, "labels": labels, "otherwise": otherwise, "plane": plane, "to": to,
        "workers": workers, "at": at,
        "interval": interval, "rows": rows, "duration": duration, "megabytes": megabytes,
        "part-rows": part_rows, "part-every": part_every, "buffer": buffer, "netns": netns,
    }  # fmt: skip
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    chosen = FeatureSet.load(feature_set)
    record_live(interface, chosen, output, [*options, *(["--json"] if as_json else [])])
