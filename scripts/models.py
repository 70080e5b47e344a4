# SPDX-License-Identifier: Apache-2.0
"""Trains the ready models of the package, and writes their cards: `make models`.

    python -m scripts.models [--captures DIR ...] [--only @flood] [--output DIR]

DIR: folders of captures with a manifest that names sources (docs/labels.md). Without any, models learn from
made traffic alone, and @intrusion is left as it is. The same captures give the same files, byte by byte.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import wirewise as ww
from wirewise import compiler
from wirewise.console import step
from wirewise.datasets import CaptureFolder, Table
from wirewise.datasets.applications import COLUMN, by_folder
from wirewise.datasets.captures import ETHERNET, CapturedPacket
from wirewise.datasets.table import SOURCE, build_table_from
from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate import Training, out_of_fold, train
from wirewise.evaluate.apart import KEY as APART
from wirewise.evaluate.apart import Apart
from wirewise.evaluate.classes import TWO_CLASSES
from wirewise.evaluate.lesson import Recipe
from wirewise.evaluate.phases import KEY as LATE
from wirewise.evaluate.phases import Late
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.files import write_atomically
from wirewise.formats import model_file
from wirewise.formats.training_file import TrainingRecord
from wirewise.importers import import_model
from wirewise.ready import HERE, KEY, READY, Ready
from wirewise.traffic import generate, mix_of

SEEDS = 4
"""Dealings of the sources: the range of every figure is over them."""
MADE = "wirewise traffic"
AUTOMATION = "automation"
BUSY = 60_000
"""Packets of a run of busy traffic."""
_RECIPE = Recipe(first=10, flows=500, alike="capture")
_FLOODS = {
    "benign": "benign", "syn-flood": "syn-flood", "syn": "syn-flood", "udp-flood": "udp-flood",
    "udp": "udp-flood", "icmp-flood": "icmp-flood", "icmpv6-flood": "icmp-flood",
    "udp-amplification": "amplification", "tcp-reflection": "amplification", "tftp": "amplification",
    "portmap": "amplification", "port-scan": "port-scan", "service-scan": "port-scan",
    "host-scan": "host-scan",
}  # fmt: skip
_SESSIONS = {
    "voip_conferencing": "interactive", "gaming": "interactive", "remote_desktop_shell": "interactive",
    "file_sharing": "bulk", "video_streaming": "video",
}  # fmt: skip
_SHORTEST = 10
"""Packets of a flow of a capture that says what an application needs: others are its look-ups."""


@dataclass(frozen=True)
class Making:
    """How one is made. feature_set : a preset, or a file beside the models. table : what it learns from, of
    captures. by : what is never learned from and tested on. apart : trees of their own, which learn from
    traffic of what is `beside`.
    """

    feature_set: FeatureSet
    table: Callable[[FeatureSet, Sequence[Path]], Table]
    estimator: str
    trees: int
    depth: int
    two_classes: bool
    recipe: Recipe
    by: str
    leaf: int | None = None
    late: Late | None = None
    beside: Sequence[str] = ()
    apart: Apart | None = None


def floods(feature_set: FeatureSet, captures: Sequence[Path]) -> Table:
    """Made traffic, and of captures what is benign, a flood or a scan; classes are kinds."""
    made = made_traffic(feature_set, "denial", 16)
    busy = busy_traffic(feature_set, "denial", 6)
    found = _captures(feature_set, captures)
    return _of_kinds(Table.joined([made, busy, *found]), feature_set)


def conversations(feature_set: FeatureSet, captures: Sequence[Path]) -> Table:
    """Captures, whole."""
    if not captures:
        raise InputError("@intrusion", "learns from captures", "give folders: make models CAPTURES='DIR DIR'")
    return Table.joined(_captures(feature_set, captures))


def sessions(feature_set: FeatureSet, captures: Sequence[Path]) -> Table:
    """Made traffic, and of captures the flows of applications whose need is plain."""
    made = made_traffic(feature_set, "steering", 16)
    found = []
    for folder, table in zip(captures, _captures(feature_set, captures, relative=False), strict=True):
        frame = by_folder(table.frame, CaptureFolder.read(folder))
        named = frame.with_columns(label=pl.col(COLUMN).replace_strict(_SESSIONS, default=None))
        long = pl.len().over("capture", "flow") >= _SHORTEST
        frame = named.filter(pl.col("label").is_not_null() & long).drop(COLUMN)
        found.append(_relative(Table(frame, feature_set), folder))
    return Table.joined([made, *found])


MAKINGS = {
    "@flood": Making(
        FeatureSet.load(HERE / "flood.yaml"), floods, "forest", 20, 10, False, _RECIPE, "source"
    ),
    "@intrusion": Making(
        PRESETS["pairs"], conversations, "forest", 20, 12, True, _RECIPE, "source", leaf=20,
        late=Late(leaf=20), beside=["many-sources"], apart=Apart("flood"),
    ),
    "@voip-or-bulk": Making(
        FeatureSet.load(HERE / "voip-or-bulk.yaml"), sessions, "forest", 10, 8, False,
        Recipe(first=100, flows=500, alike="capture"), "capture",
    ),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.models", description=__doc__.split("\n")[0])
    parser.add_argument("--captures", type=Path, nargs="*", default=[], help="folders with manifest.json")
    parser.add_argument("--only", choices=sorted(MAKINGS), help="one of them")
    parser.add_argument("--output", type=Path, default=HERE, help="folder to write to [the package's]")
    options = parser.parse_args(arguments)
    try:
        for name in [options.only] if options.only else MAKINGS:
            if name == "@intrusion" and not options.captures and not options.only:
                print(f"{name}: left as it is, because it learns from captures: CAPTURES='DIR DIR'")
                continue
            for file, content in made(READY[name], MAKINGS[name], options.captures).items():
                write_atomically(options.output / file, content)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def made(model: Ready, making: Making, captures: Sequence[Path]) -> dict[str, bytes]:
    """The files of a model: JSON and card, by name."""
    table = making.table(making.feature_set, captures)
    beside = made_beside(making.feature_set, making.beside) if making.beside else None
    with step(f"training {model.name}"):
        training = train(
            table, making.estimator, trees=making.trees, depth=making.depth, leaf=making.leaf,
            two_classes=making.two_classes, recipe=making.recipe, late=making.late, group=making.by,
            seeds=SEEDS, refit=True, beside=beside, apart=making.apart,
        )  # fmt: skip
    imported = import_model(training.estimator, classes=training.classes, margin=True)
    facts = training.facts | {KEY: {"name": model.name}}
    point = None
    if model.wish is not None:
        point = out_of_fold.chosen(facts, imported.model, None, model.wish, 1)
        if point is None:
            raise InputError(model.name, "has no margin", "its training has no scores, or no benign flows")
    bundle = compiler.compile(
        imported, making.feature_set, name=model.name, classes=training.classes, operating_point=point,
        learned=table.labelled, verify="never",
    ).bundle  # fmt: skip
    record = TrainingRecord(making.feature_set, facts, training.report.to_dict())
    content = model_file.content(imported, record, bundle.manifest.reference)
    card = card_of(model, training, bundle, [folder.name for folder in captures])
    return {model.file.name: content, model.file.with_suffix(".md").name: card.encode()}


def made_traffic(feature_set: FeatureSet, profile: str, runs: int) -> Table:
    """Packets of a profile: several runs, of different rates, every other with both directions."""
    arguments = [
        (profile, 1000 + run, (2.0, 5.0, 12.0, 30.0)[run % 4], 12_000, run % 2 == 1) for run in range(runs)
    ]
    return _made(feature_set, profile, arguments)


def busy_traffic(feature_set: FeatureSet, profile: str, runs: int) -> Table:
    """The same with 10,000 to 40,000 packets per second: what is counted by destination depends on how busy a
    network is, and where it is busier than all that a model has learned from, ordinary bursts look like
    amplification.
    """
    arguments = [(profile, 2000 + run, (1.5, 3.0, 6.0)[run % 3], BUSY, run % 2 == 1) for run in range(runs)]
    return _made(feature_set, profile, arguments)


def slow_traffic(feature_set: FeatureSet, profile: str, runs: int) -> Table:
    """The same over minutes, most with both directions: programs show in them that they repeat themselves."""
    arguments = [
        (profile, 3000 + run, (30.0, 60.0, 120.0, 300.0)[run % 4], 8_000, run % 4 != 3) for run in range(runs)
    ]
    return _made(feature_set, profile, arguments)


def made_beside(feature_set: FeatureSet, traffic: Sequence[str]) -> Table:
    """28 captures of each profile or kind, of any pace, every other with both directions; of AUTOMATION 16
    slow ones.
    """
    parts = []
    for name in traffic:
        if name == AUTOMATION:
            runs = [slow_traffic(feature_set, name, 16)]
        else:
            runs = [made_traffic(feature_set, name, 24), busy_traffic(feature_set, name, 4)]
        for run in runs:
            named = run.frame.with_columns(pl.concat_str(pl.lit(f"{name}, "), "capture").alias("capture"))
            parts.append(Table(named, feature_set))
    return Table.joined(parts)


def _made(
    feature_set: FeatureSet, profile: str, arguments: Sequence[tuple[str, int, float, int, bool]]
) -> Table:
    table = build_table_from(_run, arguments, feature_set, what=f"making packets of {profile}")
    source = pl.concat_str(pl.lit(f"{MADE}, "), "capture")
    return Table(table.frame.with_columns(source.alias(SOURCE)), feature_set)


def _run(
    profile: str, seed: int, duration_s: float, packets: int, both: bool
) -> tuple[str, list[CapturedPacket], list[str]]:
    traffic = generate(
        seed, duration_s=duration_s, packets=packets, mix=mix_of(profile), both_directions=both
    )
    sent = list(traffic)
    captured = [CapturedPacket(p.time_ns, p.frame, len(p.frame), ETHERNET) for p in sent]
    return f"seed {seed}", captured, [p.label for p in sent]


def _captures(feature_set: FeatureSet, folders: Sequence[Path], *, relative: bool = True) -> list[Table]:
    tables = [Table(ww.features([folder], feature_set), feature_set) for folder in folders]
    return [_relative(*pair) for pair in zip(tables, folders, strict=True)] if relative else tables


def _relative(table: Table, folder: Path) -> Table:
    """The same with captures by their names below the folder: where that is must not deal them otherwise."""
    names = {
        name: f"{folder.name}/{Path(name).resolve().relative_to(folder.resolve())}"
        for name in table.frame["capture"].unique().to_list()
    }
    column = pl.col("capture").replace_strict(names, return_dtype=pl.String)
    return Table(table.frame.with_columns(column), table.feature_set)


def _of_kinds(table: Table, feature_set: FeatureSet) -> Table:
    reflected = pl.when(pl.col("label").str.starts_with("drdos-")).then(pl.lit("udp-amplification"))
    label = reflected.otherwise("label").replace_strict(_FLOODS, default="", return_dtype=pl.String)
    return Table(table.frame.with_columns(label.alias("label")), feature_set)


def card_of(model: Ready, training: Training, bundle: ww.Bundle, captures: Sequence[str]) -> str:
    """What is known of a model, as Markdown."""
    manifest = bundle.manifest
    made_too = APART in training.facts or any(_is_made(unit) for unit in _units(training))
    learned = [f"made traffic ({MADE})"] if made_too else []
    sources = sum(not _is_made(unit) for unit in _units(training))
    if captures:
        learned.append(f"captures of {sources} source{'s' if sources != 1 else ''}")
    lines = [
        f"# {model.name}: {model.doc}", "", model.use, "",
        f"**What it cannot see.** {model.blind}", "",
        f"- Classes: {', '.join(manifest.classes)}",
        f"- Reads: {len(manifest.features)} features, flows by {manifest.flow.key}",
        f"- Model: {manifest.model.summary}",
        *_others(training),
        f"- Learned from: {' and '.join(learned)}",
        "- Made by: `make models" + (f" CAPTURES='{' '.join(captures)}'" if captures else "") + "`", "",
    ]  # fmt: skip
    crossed = training.folds
    assert crossed is not None
    if model.wish is None:
        lines += ["| class | precision | recall |", "| --- | ---: | ---: |"]
        lines += [
            f"| {c.name} | {100 * c.precision:.1f} % | {100 * c.recall:.1f} % |"
            for c in crossed.report.classes
        ]
        note = "Figures are shares of packets, in captures that no training has seen."
        return "\n".join([*lines, "", note, ""])
    alone = (
        "While the only source of a family is judged, they have not met its kind"
        + (", or only what was made of it." if APART in training.facts else " at all.")
        if set(TWO_CLASSES) <= set(manifest.classes)
        else "A family of one source is dealt by flow, so its figure is too good."
    )
    return "\n".join([*lines, *_found(model.wish, crossed.scored, alone)])


def _others(training: Training) -> list[str]:
    """Trees beside the usual ones."""
    own, late = training.facts.get(APART), training.facts.get(LATE)
    lines = []
    if own:
        said = f"{own['trees']} of the trees; the only attacks they have met are made ones"
        lines.append(f"- The class `{own['name']}`: {said}")
    if late:
        said = f"{late['trees']} of the trees judge, with a margin of their own"
        lines.append(f"- Flows that last: from packet {late['start']} on, {said}")
    return lines


def _units(training: Training) -> list[str]:
    frame = training.table.frame
    return sorted(frame[SOURCE].unique().to_list()) if SOURCE in frame.columns else []


def _is_made(unit: str) -> bool:
    return unit.startswith(MADE)


def _found(wish: float, dealings: Sequence[pl.DataFrame], alone: str) -> list[str]:
    """What each dealing finds by the margin that it calls for: of each family, and of each of its sources.
    Sources of made traffic are one. alone : what is to know of families with one source.
    """
    shares: dict[tuple[str, str], list[float]] = {}
    lost = []
    for flows in dealings:
        [point] = [p for p in out_of_fold.points(flows) if (p.wish, p.after) == (wish, 1)]
        lost.append(point.elsewhere or 0.0)
        made_one = pl.when(pl.col("unit").str.starts_with(MADE)).then(pl.lit(MADE)).otherwise("unit")
        seen = flows.filter("attack").with_columns(unit=made_one, hit=out_of_fold.above(point))
        of_units = seen.group_by("label", "unit").agg(pl.col("hit").mean()).sort("label", "unit")
        for label, unit, share in of_units.iter_rows():
            shares.setdefault((label, unit), []).append(share)
    families = sorted({label for label, _ in shares})
    lines = [
        f"The margin is for {100 * wish:g} % of the benign flows, as a mean over captures. By the margin "
        f"that the other sources call for, {_range(lost)} of them lose a packet.",
        "",
        "Found is the share of flows with a verdict against them on any packet, by models that have not "
        f"seen the source; in brackets the range over {len(dealings)} ways to deal the sources. {alone}",
        "",
        "| family | source | found |", "| --- | --- | ---: |",
    ]  # fmt: skip
    for family in families:
        mine = {unit: found for (label, unit), found in shares.items() if label == family}
        means = [sum(one) / len(one) for one in zip(*mine.values(), strict=True)]
        lines.append(f"| **{family}** | {len(mine)} | {_range(means)} |")
        lines += [f"| | {unit} | {_range(found)} |" for unit, found in mine.items()]
    return [*lines, ""]


def _range(shares: Sequence[float]) -> str:
    mean, least, most = (100 * share for share in (sum(shares) / len(shares), min(shares), max(shares)))
    return f"{mean:.1f} % ({least:.1f} to {most:.1f})"


if __name__ == "__main__":
    sys.exit(main())
