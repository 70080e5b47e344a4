# SPDX-License-Identifier: Apache-2.0
"""`wirewise features`: captures to a table; without captures, what there is to compute."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.left_out import print_left_out
from wirewise.cli.options import FeatureSetOption, Json
from wirewise.cli.outputs import OUTPUT
from wirewise.console import console, grid, listing, name_and_summary, note, print_json

if TYPE_CHECKING:
    from wirewise.datasets import Labels, Rows, Table
    from wirewise.datasets.manifest import LeftOut
    from wirewise.feature_sets import FeatureSet


def register(app: typer.Typer) -> None:
    app.command("features")(features)


def features(
    captures: Annotated[
        list[Path] | None,
        typer.Argument(help="pcap or pcapng files (also compressed), or folders of them."),
    ] = None,
    feature_set: FeatureSetOption = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            "-l",
            help="What each packet is: rules (.yaml), a list of flows (.csv, .flows), or a manifest.",
        ),
    ] = None,
    otherwise: Annotated[
        str | None,
        typer.Option(help="With a list of flows: the label of packets that belong to none of them."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table (Parquet) to write."), OUTPUT
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="Rows only for these packets of each flow, such as 1,2,4,8.")
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(help="Rows only for a flow's first packet in every interval, such as 1s."),
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Rows only for the last packet of each flow.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Only warn about captures that break off.")
    ] = False,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Use the slow Python reference instead, for comparison; Ethernet only.",
        ),
    ] = False,
    augment: Annotated[
        str | None,
        typer.Option(
            help="Add variants of the captures, in what should not matter: ports, ttl, flags, pace, padding. "
            "They are learned from, and never tested."
        ),
    ] = None,
    variants: Annotated[int, typer.Option(min=1, help="Variants of each capture, with --augment.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same variants.")] = 0,
    as_json: Json = False,
) -> None:
    """Compute the features of every packet of some captures, with labels, as a table to train on.

    Without captures: list the presets, packet fields and accumulators, or show one feature set (-f).

    They are computed by the program that will be deployed, which `wirewised` runs in user space. Each capture
    starts with an empty flow table. A packet that cannot be parsed has a row with its status.
    """
    import polars as pl

    from wirewise.augment import chosen as chosen_variants
    from wirewise.augment import with_variants
    from wirewise.datasets import Rows, Truth, find_captures, table_of
    from wirewise.datasets.table import VARIANT
    from wirewise.errors import InputError
    from wirewise.feature_sets import FeatureSet

    if not captures:
        _catalogue(FeatureSet.load(feature_set) if feature_set else None, as_json)
        return
    if feature_set is None:
        raise InputError(
            "no feature set was given", way_out="give -f hara2026, another preset or a YAML file"
        )
    chosen = FeatureSet.load(feature_set)
    paths, own_labels, left_out = find_captures(captures)
    print_left_out(left_out)
    rows = Rows(numbers(at), interval, at_end)
    labels = labels or own_labels
    what = chosen_variants(augment.split(",")) if augment else []
    if what and (rows.options() or keep_going or reference):
        raise InputError(
            "--augment", "needs a row for every packet of whole captures",
            "leave out --at, --interval, --at-end, --keep-going and --reference",
        )  # fmt: skip
    if otherwise and labels is None:
        raise InputError(f"--otherwise {otherwise}", "is for a list of flows", "add --labels FLOWS.csv")
    if reference:
        table = _from_reference(paths, chosen, labels, rows, keep_going, progress=not as_json)
        if output:
            table.write(output)
    else:
        table, warnings = table_of(
            paths,
            chosen,
            truth=Truth(labels, otherwise) if labels else None,
            rows=rows,
            keep_going=keep_going,
            output=None if what else output,
            progress=not as_json,
        )
        if what:
            table = with_variants(table, what, variants, seed, progress=not as_json)
            varied = table.frame.group_by("capture").agg((pl.col(VARIANT) != "").any())
            if plain := sorted(varied.filter(~pl.col(VARIANT))["capture"].to_list()):
                warnings.append(
                    f"captures without variants because not Ethernet: {len(plain)} of {len(varied)}, "
                    f"such as {plain[0]}"
                )
            if output:
                table.write(output)
        for warning in warnings:
            note(f"warning: {warning}")
    _summarise(table, output, left_out, as_json)


def _from_reference(
    paths: list[Path],
    feature_set: FeatureSet,
    labels: Path | None,
    rows: Rows,
    keep_going: bool,
    progress: bool,
) -> Table:
    from wirewise.datasets import CaptureFolder, LabelFile, build_table
    from wirewise.errors import InputError

    if rows.options() or keep_going or (labels and labels.suffix in (".csv", ".flows")):
        raise InputError(
            "--reference", "makes a row for every packet, with rules or a manifest for labels", "leave it out"
        )
    source: Labels | None = None
    if labels:
        source = CaptureFolder.read(labels) if labels.is_dir() else LabelFile.read(labels)
    return build_table(paths, feature_set, source, progress=progress)


def numbers(text: str | None) -> tuple[int, ...]:
    """Packet numbers as written for --at."""
    from wirewise.errors import InputError

    try:
        given = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        given = (0,)
    if any(number < 1 for number in given):
        raise InputError(f"--at {text}", "must be packet numbers from 1", "write them as 1,2,4,8")
    return given


def _summarise(table: Any, output: Path | None, left_out: list[LeftOut], as_json: bool) -> None:
    from wirewise.abi import Status

    frame = table.frame
    statuses = {Status(code).name.lower(): n for code, n in frame["status"].value_counts().rows()}
    labels = dict(sorted(frame["label"].value_counts().rows(), key=lambda item: -item[1]))
    if as_json:
        print_json(
            {
                "packets": len(frame),
                "flows": frame.select(_flows()).item(),
                "labels": labels,
                "statuses": statuses,
                "feature_set": table.feature_set.to_dict(),
                "output": output and str(output),
                "captures_left_out": [asdict(one) for one in left_out],
            }
        )
        return
    flows = frame.group_by("label").agg(_flows())
    by_label = dict(flows.rows())
    listing(
        ("label", "packets", "flows"),
        ((name or "(unlabelled)", f"{n:,}", f"{by_label[name]:,}") for name, n in labels.items()),
        right=(1, 2),
    )
    unclassified = {name: n for name, n in statuses.items() if name != "classified"}
    grid(
        [
            ("packets", f"{len(frame):,} in {frame['capture'].n_unique()} captures"),
            *(
                [("left out", ", ".join(f"{n:,} {name}" for name, n in unclassified.items()))]
                if unclassified
                else []
            ),
            *([("written", output)] if output else []),
        ]
    )
    if not output:
        note("nothing was written; give -o table.parquet to keep the table")


def _flows() -> Any:
    """The number of flows. Packets that have none, such as those that are not IP, count as none."""
    import polars as pl

    return pl.col("flow").filter(pl.col("flow") != "").n_unique()


def _catalogue(feature_set: FeatureSet | None, as_json: bool) -> None:
    from wirewise.feature_sets import ACCUMULATORS, FIELDS, KEYS, PRESETS
    from wirewise.feature_sets.baseline import COMPARISONS

    if feature_set is not None:
        if as_json:
            print_json(feature_set.to_dict())
        else:
            _show(feature_set)
        return
    if as_json:
        print_json(
            {
                "presets": list(PRESETS),
                "keys": list(KEYS),
                "fields": [{"name": f.name, "unit": f.unit, "doc": f.doc} for f in FIELDS.values()],
                "accumulators": [{"name": a.name, "doc": a.doc} for a in ACCUMULATORS.values()],
                "comparisons": [{"name": c.name, "unit": c.unit, "doc": c.doc} for c in COMPARISONS.values()],
            }
        )
        return
    listing(
        ("preset", "features", "from"),
        ((p.name, len(p.features), " ".join(p.doc.split())) for p in PRESETS.values()),
        title="Presets",
        right=(1,),
    )
    listing(("field", "unit", ""), ((f.name, f.unit, f.doc) for f in FIELDS.values()), title="Packet fields")
    listing(("accumulator", ""), ((a.name, a.doc) for a in ACCUMULATORS.values()), title="Accumulators")
    listing(
        ("comparison", ""),
        ((c.name, c.doc) for c in COMPARISONS.values()),
        title="Comparisons with what is usual",
    )
    console.print()
    console.print(
        "A feature is FIELD, ACCUMULATOR(FIELD) or count; with window=500ms over a tumbling "
        "window, and then previous for the last finished one:"
    )
    console.print(
        '  features: [length, mean(length), "max(iat, window=500ms)", "count(window=1s, previous)"]'
    )
    console.print(f"Flow keys: {', '.join(KEYS)}")


def _show(feature_set: FeatureSet) -> None:
    from wirewise.units import format_duration

    name_and_summary(feature_set.name, " ".join(feature_set.doc.split()))
    listing(
        ("", "feature", "is", "unit", "fraction bits"),
        (
            (index, f.name, f.spec, f.unit, f.fraction_bits or "")
            for index, f in enumerate(feature_set.features)
        ),
        right=(0, 4),
    )
    grid(
        [
            ("key", feature_set.key),
            ("idle timeout", format_duration(feature_set.idle_timeout_ns)),
            (
                "table size",
                f"{feature_set.table_size:,} flows per IP version"
                + ("" if feature_set.shared else " and CPU"),
            ),
            ("looks into", ", ".join(feature_set.decapsulate) or "no tunnels"),
        ]
    )
