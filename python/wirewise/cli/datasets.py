# SPDX-License-Identifier: Apache-2.0
"""`wirewise datasets`: published data sets to tables, a command for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from wirewise.cli.left_out import print_left_out
from wirewise.cli.options import FeatureSetOption, Json
from wirewise.cli.outputs import OUTPUT, OUTPUT_OR_FOLDER, check_commands
from wirewise.console import grid, listing, note, print_json, progress_console, warn

if TYPE_CHECKING:
    from wirewise.datasets.flow_list import FlowList, Skipped
    from wirewise.datasets.job import Outcome
    from wirewise.datasets.published import Reader

Captures = Annotated[
    list[Path] | None,
    typer.Argument(help="pcap or pcapng files (also compressed), or folders of them."),
]
LabelFiles = Annotated[
    list[Path] | None,
    typer.Option("--labels", "-l", help="Labels as published: files, or folders of them (repeat it)."),
]
OutputFolder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder for the table, or a file.flows for the labels alone."),
    OUTPUT_OR_FOLDER,
]
Otherwise = Annotated[
    str | None, typer.Option(help="Label of packets that belong to no labelled flow. Without it: none.")
]
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone", help="Of times without one: America/Halifax, -03:00. Default: the data set's."
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label-column", help="Column or field that names the class, where there are several."),
]
Alerts = Annotated[
    list[Path] | None,
    typer.Option("--alerts", help="Zeek: notice.log. Suricata: other EVE logs with the alerts (repeat it)."),
]
At = Annotated[str | None, typer.Option(help="Rows only for these packets of each flow, such as 1,2,4,8.")]
Interval = Annotated[
    str | None, typer.Option(help="Rows only for a flow's first packet in every interval, such as 1s.")
]
AtEnd = Annotated[bool, typer.Option("--at-end", help="Rows only for the last packet of each flow.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Captures at once. Default: one a CPU.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", help="Work on a Ray cluster: auto, local or ray://HOST:10001. Needs wirewise[ray]."
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Keep what can be read of captures that break off.")
]
Force = Annotated[bool, typer.Option("--force", help="Drop what another job left in the folder.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=_OnDemand, invoke_without_command=True, help=_HELP, context_settings={"max_content_width": 110}
    )
    group.callback()(datasets)
    app.add_typer(group, name="datasets")


def readers() -> typer.Typer:
    """A command for each data set."""
    from wirewise.datasets.published import READERS

    group = typer.Typer()
    for reader in READERS.values():
        group.command(reader.name, help=f"{reader.doc}.\n\n{_TEACHES}", short_help=reader.doc)(_verb(reader))
    group.command("lucid")(lucid)
    group.command("unsw-nb15-sets")(unsw_sets)
    check_commands(group)
    return group


class _OnDemand(TyperGroup):
    """Has its commands when somebody asks for them: readers import polars and numpy, and every other command
    of wirewise, and every completion, would wait for that.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        self._fill()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._fill()
        return super().get_command(ctx, cmd_name)

    def _fill(self) -> None:
        if not self.commands:
            self.commands = get_group(readers()).commands


_HELP = (
    "Turn published data sets into tables: captures, and labels in the format of the data set. "
    "Without a command: list them."
)
_TEACHES = (
    "Packets get the label of the flow they belong to: five-tuple and time, in either direction. The folder "
    "written is a table that `wirewise train` reads. An interrupted job goes on where it was.\n\n"
    "With -o FILE.flows and no captures, only the labels are read, for `wirewise features --labels`."
)


def datasets(context: typer.Context, as_json: Json = False) -> None:
    from wirewise.datasets.published import READERS

    if context.invoked_subcommand:
        return
    others = [
        ("lucid", "LUCID: windows of flows as HDF5 arrays, such as FLAD's samples of CIC-DDoS2019"),
        ("unsw-nb15-sets", "UNSW-NB15: the training and testing sets, flow by flow, without captures"),
    ]
    known = [(reader.name, reader.doc) for reader in READERS.values()] + others
    if as_json:
        print_json({"datasets": [{"name": name, "doc": doc} for name, doc in known]})
        return
    listing(("data set", ""), known)
    note("wirewise datasets NAME --help says how to read one; your own captures: wirewise features --help")


def _verb(reader: Reader) -> Callable[..., None]:
    def read(
        captures: Captures = None,
        labels: LabelFiles = None,
        feature_set: FeatureSetOption = None,
        output: OutputFolder = None,
        otherwise: Otherwise = None,
        time_zone: TimeZone = None,
        label_column: LabelColumn = None,
        alerts: Alerts = None,
        at: At = None,
        interval: Interval = None,
        at_end: AtEnd = False,
        jobs: Jobs = None,
        ray: Ray = None,
        keep_going: KeepGoing = False,
        force: Force = False,
        as_json: Json = False,
    ) -> None:
        from wirewise.cli.features import numbers
        from wirewise.datasets import Rows, find_captures
        from wirewise.datasets.job import index_labels, run_job
        from wirewise.datasets.published import LabelOptions, find_label_files
        from wirewise.errors import InputError
        from wirewise.feature_sets import FeatureSet
        from wirewise.files import check_place

        if not labels:
            raise InputError("no labels were given", way_out=f"add --labels FILES of {reader.name}")
        if output is None:
            raise InputError("no place for the result was given", way_out="add -o FOLDER, or -o FILE.flows")
        for alert in alerts or ():
            check_readable(alert)
        options = LabelOptions(time_zone, label_column, tuple(alerts or ()))
        files = find_label_files(labels, reader)
        if not captures:
            if output.suffix != ".flows":
                raise InputError(
                    "no capture was given", way_out="name captures, or -o FILE.flows for the labels alone"
                )
            check_place(output)
            with _progress(not as_json) as show:
                listed, skipped = index_labels(output, reader, files, options, jobs=jobs, progress=show)
            _show_labels(listed, skipped, output, as_json)
            return
        if feature_set is None:
            raise InputError(
                "no feature set was given", way_out="give -f hara2026, another preset or a YAML file"
            )
        paths, _, left_out = find_captures(captures)
        print_left_out(left_out)
        with _progress(not as_json) as show:
            outcome = run_job(
                paths, reader, files, FeatureSet.load(feature_set), output,
                options=options, rows=Rows(numbers(at), interval, at_end), otherwise=otherwise,
                keep_going=keep_going, force=force, jobs=jobs, ray=ray, progress=show,
            )  # fmt: skip
        _show_job(outcome, as_json)
        if outcome.failed:
            why = next(iter(outcome.failed.values()))
            raise InputError(
                f"{len(outcome.failed)} of {len(paths)} captures could not be read", f"the first: {why}",
                "repair them and run the command again, or take what can be read with --keep-going",
            )  # fmt: skip

    return read


def check_readable(path: Path) -> None:
    from wirewise.errors import InputError

    if not path.is_file():
        raise InputError(str(path), "does not exist or is no file", "give the path of a log")


@contextmanager
def _progress(shown: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar over bytes, on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    if not shown or not progress_console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console, transient=True) as bar:
        task = bar.add_task("reading labels", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _skips(skipped: Skipped) -> list[tuple[str, str]]:
    return [
        (f"skipped: {reason}", f"{count:,} (first in {skipped.places[reason]})")
        for reason, count in skipped.counts.items()
    ]


def _labels_json(listed: FlowList, skipped: Skipped) -> dict[str, Any]:
    return {
        "flows": listed.flows,
        "by_label": listed.labels,
        "first_ns": listed.first_ns,
        "last_ns": listed.last_ns,
        "rows_read": skipped.rows,
        "skipped": skipped.counts,
        "skipped_first_in": skipped.places,
    }


def _show_labels(listed: FlowList, skipped: Skipped, output: Path, as_json: bool) -> None:
    if as_json:
        print_json({"output": str(output), **_labels_json(listed, skipped)})
        return
    by_count = sorted(listed.labels.items(), key=lambda item: -item[1])
    listing(("label", "flows"), ((name, f"{count:,}") for name, count in by_count), right=(1,))
    grid(
        [("flows", f"{listed.flows:,} of {skipped.rows:,} rows"), *_skips(skipped), ("written", str(output))]
    )


def _show_job(outcome: Outcome, as_json: bool) -> None:
    rows, listed = outcome.rows, outcome.labels
    joined = [part["joined"][0]["flows"] for part in outcome.parts.values()]
    counted = ("listed", "matched", "ambiguous_packets", "unmatched_packets", "rewinds")
    sums = {name: sum(flows[name] for flows in joined) for name in counted}
    skipped_packets = sum(part["skipped_packets"] for part in outcome.parts.values())
    statuses: dict[str, int] = {}
    for part in outcome.parts.values():
        for name, count in part["statuses"].items():
            statuses[name] = statuses.get(name, 0) + count
    if as_json:
        print_json(
            {
                "output": str(outcome.output),
                "labels": _labels_json(listed, outcome.skipped),
                "packets": outcome.packets,
                "rows": rows,
                "statuses": statuses,
                "joined": sums,
                "skipped_packets": skipped_packets,
                "captures": len(outcome.parts),
                "resumed": outcome.resumed,
                "failed": outcome.failed,
                "warnings": outcome.warnings(),
            }
        )
        return
    names = sorted(rows, key=lambda name: -rows[name])
    listing(
        ("label", "rows", "flows listed"),
        ((name or "(unlabelled)", f"{rows[name]:,}", f"{listed.labels.get(name, 0):,}") for name in names),
        right=(1, 2),
    )  # fmt: skip
    left_out = {name: count for name, count in statuses.items() if name != "classified"}
    resumed = f", of them {len(outcome.resumed):,} done before" if outcome.resumed else ""
    grid(
        [
            ("captures", f"{len(outcome.parts):,}{resumed}"),
            ("packets", f"{outcome.packets:,}"),
            *([("left out", ", ".join(f"{n:,} {name}" for name, n in left_out.items()))] if left_out else []),
            *([("skipped", f"{skipped_packets:,} packets that cannot be run")] if skipped_packets else []),
            ("flows listed", f"{listed.flows:,} of {outcome.skipped.rows:,} rows of labels"),
            *_skips(outcome.skipped),
            ("flows joined", f"{sums['matched']:,} of {sums['listed']:,} listed for the captures' times"),
            ("of no flow", f"{sums['unmatched_packets']:,} IP packets"),
            *([("in doubt", f"{sums['ambiguous_packets']:,} packets of flows that differ: the latest "
                "decides")] if sums["ambiguous_packets"] else []),
            *([("out of order", f"{sums['rewinds']:,} times by more than 2 s")] if sums["rewinds"] else []),
            ("written", str(outcome.output)),
        ]
    )  # fmt: skip
    warn(*outcome.warnings())


def lucid(
    arrays: Annotated[list[Path], typer.Argument(help="HDF5 files (.hdf5), or folders of them.")],
    feature_set: FeatureSetOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table (Parquet) to write."), OUTPUT
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="Label of the attack. Default: from the folder's name, such as 01-LDAP."),
    ] = None,
    as_json: Json = False,
) -> None:
    """LUCID's arrays (up to 10 packets of a flow in a window), replayed into the features they allow.

    The arrays hold neither addresses, ports, directions nor TTLs: features of those are left out, and named.
    """
    from wirewise.datasets.lucid import read_arrays
    from wirewise.errors import InputError
    from wirewise.feature_sets import FeatureSet

    if feature_set is None:
        raise InputError(
            "no feature set was given", way_out="give -f hara2026, another preset or a YAML file"
        )
    read = read_arrays(arrays, FeatureSet.load(feature_set), attack)
    if output:
        read.table.write(output)
    counts = dict(sorted(read.table.frame["label"].value_counts().rows(), key=lambda item: -item[1]))
    if as_json:
        print_json(
            {
                "output": output and str(output), "packets": len(read.table.frame), "samples": read.samples,
                "labels": counts, "feature_set": read.table.feature_set.to_dict(), "left_out": read.left_out,
            }
        )  # fmt: skip
        return
    listing(("label", "packets"), ((name, f"{count:,}") for name, count in counts.items()), right=(1,))
    grid(
        [
            ("samples", f"{read.samples:,} in {read.files:,} files"),
            ("features", ", ".join(read.table.feature_set.feature_names)),
            *((f"left out: {name}", why) for name, why in read.left_out.items()),
            *([("written", str(output))] if output else []),
        ]
    )
    if not output:
        note("nothing was written; give -o table.parquet to keep the table")


def unsw_sets(
    sets: Annotated[
        list[Path], typer.Argument(help="UNSW_NB15_training-set.csv, UNSW_NB15_testing-set.csv.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table (Parquet) to write."), OUTPUT
    ] = None,
    as_json: Json = False,
) -> None:
    """UNSW-NB15: the training and testing sets, a row for each flow, with the features of siracusano2022.

    These files have statistics of whole flows, without addresses, so there is nothing to join with captures.
    """
    import polars as pl

    from wirewise.datasets import Table
    from wirewise.datasets.published.unsw import NOT_COMPUTED, read_set

    read = [read_set(path) for path in sets]
    table = Table(pl.concat([table.frame for table, _ in read]), read[0][0].feature_set)
    if output:
        table.write(output)
    counts = dict(sorted(table.frame["label"].value_counts().rows(), key=lambda item: -item[1]))
    notes = [text for _, texts in read for text in texts]
    if as_json:
        print_json(
            {"output": output and str(output), "flows": len(table.frame), "labels": counts,
             "not_computed": NOT_COMPUTED, "notes": notes}
        )  # fmt: skip
        return
    listing(("label", "flows"), ((name, f"{count:,}") for name, count in counts.items()), right=(1,))
    grid(
        [
            ("features", ", ".join(table.feature_set.feature_names)),
            *((f"not computed: {names}", why) for names, why in NOT_COMPUTED.items()),
            *([("written", str(output))] if output else []),
        ]
    )
    warn(*notes)
