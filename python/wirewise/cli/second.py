# SPDX-License-Identifier: Apache-2.0
"""`wirewise second`: a larger model about the flows that the one in the kernel is unsure of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirewise.cli import completing
from wirewise.cli.options import BundleOption
from wirewise.console import console, grid, listing, note, print_json, step, warn
from wirewise.text import harmless

if TYPE_CHECKING:
    from wirewise.evaluate.moments import At
    from wirewise.second.calibration import Calibration, Figures
    from wirewise.second.live import Answer, Second
    from wirewise.second.models import Pair

_EXAMPLES = """Examples:

  wirewise second big.pkl -b model.wirewise -t table.parquet

  wirewise second big.pkl -b model.wirewise -t table.parquet -i eth0

  wirewise second big.pkl -b model.wirewise --band=-120:35 -i eth0 --enforce

The first says which scores are unsure and what asking is worth, and touches nothing; the second also says who
would be denied on eth0; the third denies them, for a minute each. The policy on eth0 needs `deny: {}`,
`events: {each: flow, features: true}`, and `count` for classes that would pass: docs/second.md. A pickle runs
code when it is loaded: use files of people you trust, or skops and ONNX.
"""


def register(app: typer.Typer) -> None:
    app.command("second", epilog=_EXAMPLES)(second)


def second(
    big: Annotated[
        Path,
        typer.Argument(
            metavar="BIG_MODEL",
            help="The larger model: any classifier of scikit-learn that gives probabilities (.pkl, .joblib, "
            ".skops), or .onnx.",
            autocompletion=completing.files(".pkl", ".pickle", ".joblib", ".skops", ".onnx"),
        ),
    ],
    bundle: BundleOption,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", "-t", help="Labelled table of `wirewise features`, to choose the unsure scores by."
        ),
    ] = None,
    share: Annotated[str, typer.Option(help="Share of flows that may be unsure.")] = "5%",
    at: Annotated[
        str,
        typer.Option(
            help="When a flow is judged, as the policy's trigger says: at a packet (5) or after a time (10s)."
        ),
    ] = "5",
    band: Annotated[
        str | None,
        typer.Option(help="The unsure scores, LOW:HIGH, in place of --table; as --band=-120:35."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the larger model's classes, in its order: benign,attack.")
    ] = None,
    benign: Annotated[
        str | None,
        typer.Option(
            help="Its benign class. Default: the one called benign, normal or background, or class 0."
        ),
    ] = None,
    at_least: Annotated[
        float, typer.Option(min=0, max=1, help="How probable an attack must be, says the larger model.")
    ] = 0.9,
    interface: Annotated[
        str | None,
        typer.Option("--interface", "-i", help="Follow what the bundle judges there, until Ctrl-C."),
    ] = None,
    netns: Annotated[str | None, typer.Option(help="Network namespace of the interface.")] = None,
    time: Annotated[str, typer.Option("--for", help="How long a source is denied, whole seconds.")] = "60s",
    at_most: Annotated[int, typer.Option(min=1, max=100_000, help="Denials per minute.")] = 60,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Deny sources. Without it, only say who would be.")
    ] = False,
    spoofable: Annotated[
        bool,
        typer.Option(
            "--spoofable",
            help="Also deny sources that have not proved their address, where those are known to be right.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: one object, or with --interface one per line and answer."),
    ] = False,
) -> None:
    """Ask a larger model about flows that the model in the kernel is unsure of.

    With --table: choose the scores at which the bundle's model is wrong most, with no more than a share of
    flows, by half of the flows that neither model has learned from; and say what asking is worth by the other
    half. With --interface: follow the events there, ask the larger model about those with such a score, and
    where it says attack, deny the source for a while. Sources on the allow list are never denied.
    """
    from wirewise.errors import InputError
    from wirewise.evaluate.moments import At
    from wirewise.second.band import Band
    from wirewise.second.live import Place, Second
    from wirewise.second.models import Pair
    from wirewise.units import parse_duration, parse_share

    if (table is None) == (band is None):
        raise InputError(
            "--table" if table else "the unsure scores",
            "and --band both say which scores are unsure" if table else "are not known",
            "leave one out" if table else "give --table table.parquet, or --band=LOW:HIGH",
        )
    wished, moment = parse_share(share, what="--share"), At.parse(at)
    nanoseconds = parse_duration(time, what="--for")
    if nanoseconds % 1_000_000_000:
        raise InputError(f"--for {time}", "must be a whole number of seconds", "write 60s or 10m")
    if interface is None and (enforce or band):
        raise InputError(
            "--enforce" if enforce else "--band", "is for an interface", "name it: --interface eth0"
        )
    given_band = Band.parse(band) if band else None
    if not wished:
        raise InputError(f"--share {share}", "leaves no flow to ask about", "give more than 0")
    named = classes.split(",") if classes else None
    with step(f"opening {big}", quiet=as_json):
        pair = Pair.read(bundle, big, classes=named, benign=benign)
    for text in pair.big.notes:
        note(f"{big}: {text}")
    calibration = _calibrated(pair, table, wished, moment, at_least, as_json) if table else None
    chosen = calibration.band if calibration else given_band
    if calibration:
        warn(*calibration.warnings)
        _print_calibration(pair, calibration, as_json, alone=interface is None)
    if interface is None or chosen is None:
        return
    place = Place(interface, netns)
    warn(*place.check(pair, chosen, spoofable=spoofable))
    asking = Second(pair, chosen, place, at_least, nanoseconds // 1_000_000_000, at_most, enforce, spoofable)
    _follow(asking, as_json)


def _calibrated(pair: Pair, path: Path, share: float, at: At, at_least: float, quiet: bool) -> Calibration:
    from wirewise.datasets import Table
    from wirewise.second.calibration import calibrate

    with step(f"choosing by {path}", quiet=quiet):
        return calibrate(pair, Table.read(path), path, share=share, at=at, at_least=at_least)


def _print_calibration(pair: Pair, found: Calibration, as_json: bool, *, alone: bool) -> None:
    """Print it. alone : nothing follows."""
    if as_json:
        print_json(found.to_dict()) if alone else _line(
            {"event_type": "second", "calibration": found.to_dict()}
        )
        return

    def row(name: str, figures: Figures) -> list[str]:
        return [name, _share(figures.accuracy), _share(figures.found), _share(figures.flagged)]

    caught = "" if found.caught is None else f", and {_share(found.caught)} of the wrong ones"
    grid(
        [
            ("unsure", f"scores {found.band} (--band={found.band}): {_share(found.unsure)} of flows{caught}"),
            ("judged", f"at {found.at}: {found.how}"),
            (
                "flows",
                f"{found.chosen_by:,} chose the scores, {found.tried_on:,} others ({found.apart}) tried them",
            ),
            ("attack", f"{pair.big_name} says so from {found.at_least:g} on"),
        ]
    )
    head = ["", "accuracy", "attacks found", "benign flagged"]
    small = f"{pair.name} alone"
    rows = [
        row(small, found.small),
        row(f"{pair.big_name} alone", found.big),
        row("both", found.both),
    ]
    listing(head, rows, right=(1, 2, 3), title="flows")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _follow(asking: Second, as_json: bool) -> None:
    """Until a signal, which is how it ends."""
    from wirewise import ending

    band, place = asking.band, asking.place
    does = f"denies sources for {asking.time_s} s" if asking.enforce else "says who would be denied"
    note(f"following {place.interface}: asks {asking.pair.big_name} about scores {band}, and {does}")
    with ending.held():
        try:
            for events in place.follow():
                for answer in asking.answers(events):
                    _line(answer.to_dict()) if as_json else _print_answer(answer, asking)
        except KeyboardInterrupt:
            ending.expected()
    counts = {name: count for name, count in asking.counts.items() if count}
    if as_json:
        _line({"event_type": "second", "counts": {name.replace(" ", "-"): n for name, n in counts.items()}})
    else:
        grid([(name, f"{count:,}") for name, count in counts.items()], title="events")


def _print_answer(answer: Answer, asking: Second) -> None:
    fate = f"{answer.fate} for {asking.time_s} s" if answer.fate == "denied" else answer.fate
    why = f": {answer.why}" if answer.why else ""
    console.print(
        f"{answer.time}  {answer.source}  score {answer.ahead}, attack {answer.attack:.2f}  {fate}{why}",
        soft_wrap=True,
    )


def _line(value: object) -> None:
    """One JSON object on a line, at once."""
    print(harmless(json.dumps(value, ensure_ascii=False)), flush=True)
