# SPDX-License-Identifier: Apache-2.0
"""`wirewise features`: captures to a table; without captures, what there is to compute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.output import (
    FeatureSetOption,
    Json,
    console,
    grid,
    listing,
    name_and_summary,
    note,
    print_json,
)

if TYPE_CHECKING:
    from wirewise.datasets import Labels, Rows, Table
    from wirewise.features import FeatureSet

_SUFFIXES = (".pcap", ".pcapng", ".cap")
_PACKED = (".gz", ".zst")


def register(app: typer.Typer) -> None:
    app.command("features")(features)


def features(
    captures: Annotated[
        list[Path] | None,
        typer.Argument(help="pcap or pcapng files (also .gz, .zst), or folders of them."),
    ] = None,
    feature_set: FeatureSetOption = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            "-l",
            help="What each packet is: a label file (.yaml), a list of flows (.csv), or a folder's manifest.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Table (Parquet) to write.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Rows only for these packets of each flow, such as 1,2,4,8.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Rows only for the first packet of each flow in every 1s (or other).")
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Rows only for the last packet of each flow.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Warn about captures that break off, and go on.")
    ] = False,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference", help="Compute with the slow Python reference, to compare; Ethernet only."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute the features of every packet of some captures, with labels, as a table to train on.

    Without captures: list the presets, packet fields and accumulators, or show one feature set (-f).

    The set's own program computes them, compiled as it is deployed and run by `wirewised` in user space. Each
    capture starts with an empty flow table. A packet that cannot be parsed has a row with its status.
    """
    from wirewise.datasets import Rows
    from wirewise.errors import InputError
    from wirewise.features import FeatureSet

    if not captures:
        _catalogue(FeatureSet.load(feature_set) if feature_set else None, as_json)
        return
    if feature_set is None:
        raise InputError(
            "no feature set was given", way_out="give -f hara2026, another preset or a YAML file"
        )
    chosen = FeatureSet.load(feature_set)
    paths, own_labels = _expand(captures)
    rows = Rows(_numbers(at), interval, at_end)
    labels = labels or own_labels
    if reference:
        table = _from_reference(paths, chosen, labels, rows, keep_going, progress=not as_json)
        if output:
            table.write(output)
    else:
        table = _from_program(paths, chosen, labels, rows, keep_going, output, progress=not as_json)
    _summarise(table, output, as_json)


def _from_program(
    paths: list[Path],
    feature_set: FeatureSet,
    labels: Path | None,
    rows: Rows,
    keep_going: bool,
    output: Path | None,
    progress: bool,
) -> Table:
    from wirewise.datasets import Table, Truth, extract_table
    from wirewise.files import replacing

    truth = Truth(labels) if labels else None
    with tempfile.TemporaryDirectory(prefix="wirewise-") as folder:
        # The agent keeps what it could read of a capture that breaks off; here that is no table to train on.
        with replacing(output or Path(folder) / "table", suffix=".parquet") as written:
            said = extract_table(
                paths, feature_set, written, truth=truth, rows=rows, keep_going=keep_going, progress=progress
            )
            table = Table.read(written)
        for warning in said["warnings"]:
            note(f"warning: {warning}")
        return table


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

    if rows.options() or keep_going or (labels and labels.suffix == ".csv"):
        raise InputError(
            "--reference", "makes a row for every packet, with rules or a manifest for labels", "leave it out"
        )
    source: Labels | None = None
    if labels:
        source = CaptureFolder.read(labels) if labels.is_dir() else LabelFile.read(labels)
    return build_table(paths, feature_set, source, progress=progress)


def _numbers(text: str | None) -> tuple[int, ...]:
    from wirewise.errors import InputError

    try:
        numbers = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise InputError(f"--at {text}", "must be packet numbers from 1", "write them as 1,2,4,8")
    return numbers


def _expand(captures: list[Path]) -> tuple[list[Path], Path | None]:
    """The files meant; the folder, as labels, if a folder with a manifest is all that was given."""
    from wirewise.datasets import CaptureFolder
    from wirewise.errors import InputError

    if len(captures) == 1 and (captures[0] / "manifest.json").is_file():
        folder = CaptureFolder.read(captures[0])
        wanted = [e for e in folder.entries if e.link_type == "ETHERNET" and e.label != "odd"]
        return [folder.file(entry) for entry in wanted], captures[0]
    paths: list[Path] = []
    for path in captures:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if _is_capture(p))
            if not found:
                raise InputError(str(path), f"holds no capture ({', '.join(_SUFFIXES)})", "name the files")
            paths += found
        elif path.exists():
            paths.append(path)
        else:
            raise InputError(str(path), "does not exist", "give pcap or pcapng files, or folders of them")
    return paths, None


def _is_capture(path: Path) -> bool:
    unpacked = path.with_suffix("") if path.suffix in _PACKED else path
    return unpacked.suffix in _SUFFIXES and path.is_file()


def _summarise(table: Any, output: Path | None, as_json: bool) -> None:
    from wirewise.features.packet import Status

    frame = table.frame
    statuses = {Status(code).name.lower(): n for code, n in frame["status"].value_counts().rows()}
    labels = dict(sorted(frame["label"].value_counts().rows(), key=lambda item: -item[1]))
    if as_json:
        print_json(
            {
                "packets": len(frame),
                "flows": frame["flow"].n_unique(),
                "labels": labels,
                "statuses": statuses,
                "feature_set": table.feature_set.to_dict(),
                "output": output and str(output),
            }
        )
        return
    flows = frame.group_by("label").agg(pl_unique_flows())
    by_label = dict(flows.rows())
    listing(
        ("label", "packets", "flows"),
        ((name or "(unlabelled)", f"{n:,}", f"{by_label[name]:,}") for name, n in labels.items()),
        right=(1, 2),
    )
    left_out = {name: n for name, n in statuses.items() if name != "classified"}
    grid(
        [
            ("packets", f"{len(frame):,} in {frame['capture'].n_unique()} captures"),
            *([("left out", ", ".join(f"{n:,} {name}" for name, n in left_out.items()))] if left_out else []),
            *([("written", output)] if output else []),
        ]
    )
    if not output:
        note("nothing was written; give -o table.parquet to keep the table")


def pl_unique_flows() -> Any:
    import polars as pl

    return pl.col("flow").n_unique()


def _catalogue(feature_set: FeatureSet | None, as_json: bool) -> None:
    from wirewise.features import ACCUMULATORS, FIELDS, KEYS, PRESETS

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
    console.print(
        "\nA feature is FIELD, ACCUMULATOR(FIELD) or count; with window=500ms over a tumbling "
        "window, and then previous for the last finished one:\n"
        '  features: [length, mean(length), "max(iat, window=500ms)", "count(window=1s, previous)"]\n'
        f"Flow keys: {', '.join(KEYS)}"
    )


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
