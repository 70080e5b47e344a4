# SPDX-License-Identifier: Apache-2.0
"""`wirewise traffic`: made traffic as a capture, with its labels."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirewise.cli.options import Json
from wirewise.cli.outputs import OUTPUT
from wirewise.console import grid, listing, note, print_json, progress_console

if TYPE_CHECKING:
    from wirewise.traffic.stream import Variation

_MOST_PACKETS = 50_000_000
_FRAME = 600  # bytes of a frame and its header in the file, about


def register(app: typer.Typer) -> None:
    app.command("traffic")(traffic)


def _names(incomplete: str) -> list[str]:
    from wirewise.traffic import ALL_KINDS, PROFILES

    return [name for name in [*PROFILES, *ALL_KINDS] if name.startswith(incomplete)]


def traffic(
    profile: Annotated[
        str | None,
        typer.Argument(help="A profile, or one kind of traffic (--list shows them).", autocompletion=_names),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Capture (.pcap) to write."), OUTPUT
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", "-l", help="Labels to write: .flows (default, beside the capture) or .csv."),
        OUTPUT,
    ] = None,
    duration: Annotated[str, typer.Option(help="Length of the capture, such as 10m.")] = "60s",
    rate: Annotated[
        float, typer.Option(help="Packets a second towards the protected network, about.")
    ] = 1000.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same packets.")] = 1,
    mix: Annotated[
        str | None, typer.Option(help="Shares of kinds instead of the profile's: web=0.8,drdos-ntp=0.2.")
    ] = None,
    benign: Annotated[
        str | None, typer.Option(help="Share of ordinary traffic to mix in, such as 40%.")
    ] = None,
    ports: Annotated[
        str, typer.Option(help="Ports of attackers and reflectors: usual, or random (a port of their own).")
    ] = "usual",
    flags: Annotated[
        str | None, typer.Option(help="TCP flags of floods, letters of FSRPAUEC, such as A or SA.")
    ] = None,
    pace: Annotated[
        float, typer.Option(help="Attack flows take this many times as long (0.01 to 100).")
    ] = 1.0,
    both_directions: Annotated[
        bool, typer.Option("--both-directions", help="Also what the protected network sends.")
    ] = False,
    start: Annotated[str, typer.Option(help="Time of the first packet, in UTC.")] = "2026-01-01T00:00:00Z",
    large: Annotated[
        bool, typer.Option("--large", help=f"Make more than {_MOST_PACKETS:,} packets.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List profiles and kinds.")] = False,
    as_json: Json = False,
) -> None:
    """Make traffic: a seeded capture of ordinary use and attacks, and what each of its flows is.

    `wirewise features CAPTURE --labels FILE.flows` reads the two. Frames have right lengths and checksums;
    payloads are filler. For real data sets see `wirewise datasets`.
    """
    from wirewise.errors import InputError
    from wirewise.traffic import mix_of
    from wirewise.traffic.recording import record
    from wirewise.units import parse_duration

    if show or not profile:
        _list(as_json)
        return
    if output is None:
        raise InputError("no place for the capture was given", way_out="add -o FILE.pcap")
    shares = dict(mix_of(profile)) if mix is None else _mix(mix)
    if benign:
        shares = _with_benign(shares, benign)
    beside = labels or output.with_suffix(".flows")
    if beside.suffix not in (".flows", ".csv"):
        raise InputError(str(beside), "is neither .flows nor .csv", "name the labels so")
    if beside.resolve() == output.resolve():
        raise InputError(str(output), "cannot be both capture and labels", "name the capture .pcap")
    seconds = parse_duration(duration, what="--duration") / 1e9
    _check_size(output, seconds * rate * (1.7 if both_directions else 1), large)
    with _progress(seconds, not as_json) as tell:
        made = record(
            output, beside, seed=seed, mix=shares, duration_s=seconds, rate=rate, start_ns=_start(start),
            both_directions=both_directions, variation=_variation(ports, flags, pace), progress=tell,
        )  # fmt: skip
    if as_json:
        print_json(
            {"capture": str(output), "labels": str(beside), "packets": made.packets, "bytes": made.bytes,
             "flows": made.flows, "kinds": made.kinds, "seed": seed}
        )  # fmt: skip
        return
    listing(("kind", "packets"), ((kind, f"{count:,}") for kind, count in made.kinds.items()), right=(1,))
    grid(
        [
            (
                "packets",
                f"{made.packets:,}, {made.packets / seconds:,.0f} a second, {made.bytes / 1e6:,.1f} MB",
            ),
            ("flows", f"{made.flows:,}"),
            ("written", f"{output}, {beside}"),
        ]
    )


def _list(as_json: bool) -> None:
    from wirewise.traffic import KINDS_BY_NAME, PROFILES

    if as_json:
        print_json(
            {
                "profiles": [{"name": p.name, "doc": p.doc, "mix": dict(p.mix)} for p in PROFILES.values()],
                "kinds": [{"name": k.name, "label": k.label, "doc": k.doc} for k in KINDS_BY_NAME.values()],
            }
        )
        return
    listing(("profile", ""), ((p.name, p.doc) for p in PROFILES.values()), title="Profiles")
    kinds = KINDS_BY_NAME.values()
    listing(("kind", "label", ""), ((k.name, k.label, k.doc) for k in kinds), title="Kinds of traffic")
    note("wirewise traffic PROFILE -o day.pcap --duration 60s --rate 10000; --mix has shares of your own")


def _mix(text: str) -> dict[str, float]:
    from wirewise.errors import InputError

    shares: dict[str, float] = {}
    for part in text.split(","):
        kind, _, share = part.strip().partition("=")
        try:
            shares[kind] = float(share)
        except ValueError:
            raise InputError(
                f"--mix {part.strip()!r}", "is no share", "write web=0.8,drdos-ntp=0.2"
            ) from None
    return shares


def _with_benign(shares: dict[str, float], share: str) -> dict[str, float]:
    """The attacks of a mix with so much ordinary traffic among them."""
    from wirewise.errors import InputError
    from wirewise.traffic import BENIGN, KINDS_BY_NAME, mix_of
    from wirewise.traffic.profiles import check_mix
    from wirewise.units import parse_share

    check_mix(shares)
    wanted = parse_share(share, what="--benign")
    attacks = {kind: n for kind, n in shares.items() if KINDS_BY_NAME[kind].label != BENIGN and n > 0}
    if not attacks or not 0 <= wanted < 1:
        raise InputError(
            f"--benign {share}", "leaves no attack", "give less than 100%, and a profile with attacks"
        )
    whole = sum(attacks.values())
    return {kind: n * wanted for kind, n in mix_of("benign").items()} | {
        kind: n / whole * (1 - wanted) for kind, n in attacks.items()
    }


def _variation(ports: str, flags: str | None, pace: float) -> Variation:
    from wirewise.datasets.labels import FLAG_LETTERS
    from wirewise.errors import InputError
    from wirewise.traffic.stream import Variation

    number = None
    if flags is not None:
        letters = flags.upper()
        if not letters or set(letters) - set(FLAG_LETTERS) or len(set(letters)) < len(letters):
            raise InputError(
                f"--flags {flags!r}", "is no set of TCP flags", f"write letters of {FLAG_LETTERS}"
            )
        number = sum(1 << FLAG_LETTERS.index(letter) for letter in letters)
    return Variation(ports, number, pace)  # type: ignore[arg-type]  # it checks


def _start(text: str) -> int:
    from datetime import datetime, timezone

    from wirewise.errors import InputError

    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise InputError(f"--start {text!r}", "is no time", "write 2026-01-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp()) * 1_000_000_000


def _check_size(output: Path, packets: float, large: bool) -> None:
    from wirewise.errors import InputError

    if not packets < _MOST_PACKETS and not large:
        raise InputError(
            f"{packets:,.0f} packets", f"are more than {_MOST_PACKETS:,}",
            "choose a shorter --duration or lower --rate, or say --large",
        )  # fmt: skip
    free = shutil.disk_usage(output.absolute().parent).free
    if packets * _FRAME > free:
        raise InputError(
            str(output), f"would take some {packets * _FRAME / 1e9:,.1f} GB, {free / 1e9:,.1f} are free",
            "choose a shorter --duration or lower --rate",
        )  # fmt: skip


@contextmanager
def _progress(seconds: float, shown: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar over the time that has been written, on a terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    if not shown or not progress_console.is_terminal:
        yield None
        return
    columns = (TextColumn("making traffic"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console, transient=True) as bar:
        task = bar.add_task("traffic", total=seconds * 1e9)
        yield lambda done_ns: bar.update(task, completed=done_ns)
