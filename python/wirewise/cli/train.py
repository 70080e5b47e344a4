# SPDX-License-Identifier: Apache-2.0
"""`wirewise train`: a table to an estimator, with an honest report."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirewise.cli.options import Json, NetworkOption, PlotOption, TableArgument
from wirewise.cli.outputs import OUTPUT
from wirewise.console import console, grid, listing, note, percent, print_json, step, warn
from wirewise.text import file_name

if TYPE_CHECKING:
    from wirewise.datasets import Table
    from wirewise.evaluate import Report, Training
    from wirewise.evaluate.apart import Apart
    from wirewise.evaluate.phases import Late
    from wirewise.evaluate.teaching import Comparison, Fitted
    from wirewise.evaluate.train import CrossValidation


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    table: TableArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Estimator to write, such as model.pkl; for bnn, model.bnn."),
        OUTPUT,
    ] = None,
    asked: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            "--model",
            "-e",
            help="tree, forest, extra-trees, boosting, or a neural network: mlp, bnn (a binary one), or "
            "autoencoder (with --benign-only). Default: forest.",
        ),
    ] = None,
    trees: Annotated[int, typer.Option(help="Number of trees; for boosting, of rounds.")] = 10,
    depth: Annotated[int, typer.Option(help="Largest depth of a tree.")] = 10,
    leaf: Annotated[
        int | None, typer.Option(help="Least rows of a leaf of a tree. Default: 1; for boosting 20.")
    ] = None,
    network: NetworkOption = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Neurons of a network's hidden layers. Default: 16,16; for q16 32,32; for bnn 32,16; for "
            "autoencoder 16."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="How bnn encodes features: steps (thermometers where trees split; the default), quantiles "
            "(thermometers of equal shares), bits (of each value)."
        ),
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            help="CLASS=WEIGHT (repeatable), or `balanced`. A heavier benign loses fewer of its packets."
        ),
    ] = None,
    benign_only: Annotated[
        bool,
        typer.Option(
            "--benign-only",
            help="Learn from benign rows alone: an autoencoder; an attack is what it cannot restore.",
        ),
    ] = False,
    two_classes: Annotated[
        bool,
        typer.Option("--two-classes", help="Learn benign against attack, whatever kind a label says."),
    ] = False,
    learn_first: Annotated[
        int | None, typer.Option(help="Learn from each flow's first packets only, such as 10.")
    ] = None,
    flows_per_capture: Annotated[
        int | None,
        typer.Option(help="Learn from at most this many flows of each class of a capture, such as 500."),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="What weighs the same: each packet; each capture or source of a class; or each kind of "
            "attack, and in it each capture."
        ),
    ] = "packet",
    late_from: Annotated[
        int | None,
        typer.Option(
            help="Trees of their own for flows that last: from this packet of a flow on, such as 30, they "
            "judge, with a margin of their own. They are of the same kind."
        ),
    ] = None,
    late_trees: Annotated[
        int | None, typer.Option(help="Their number, with --late-from. Default: 20.")
    ] = None,
    late_depth: Annotated[int | None, typer.Option(help="Their largest depth. Default: 12.")] = None,
    late_leaf: Annotated[
        int | None, typer.Option(help="Least rows of their leaves. Default: 1; for boosting 20.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "--by",
            help="What is never learned from and tested on: source (where a manifest says that captures come "
            "from), capture, host (who sent a flow's first packet), time (later flows are tested) or flow. "
            "Default: source or capture where two are of one class, else flow.",
        ),
    ] = None,
    test_share: Annotated[
        float, typer.Option(help="Share of each class's captures, or flows, to test on.")
    ] = 0.3,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Folds of the cross-validation, 0 for none. Default: 5 for trees, by source or capture."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="How often the folds are dealt anew; the range says how far that matters.")
    ] = 3,
    at: Annotated[
        str | None,
        typer.Option(
            help="When flows are judged in it: at packets (5,30,100), after a time (10s), or at every packet "
            "(every). Default: 5; with --late-from also there."
        ),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Train again with all rows after the test, and write that model.")
    ] = False,
    augment: Annotated[
        str | None,
        typer.Option(
            help="Learn from variants of rows as well, in what should not matter: ports, ttl. (What must "
            "change packets is for `wirewise features --augment`.)"
        ),
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="Variants of each row, with --augment.")] = 1,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Learn from the scores of a large model: forest, extra-trees, hist-gradient-boosting, mlp, "
            "or one in a file."
        ),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="A table of the same features to learn from as well and never to test, such as of "
            "`wirewise traffic`. No margin rests on it. As often as there are tables."
        ),
    ] = None,
    apart: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="Trees of their own learn what --beside has, as a class of this name, such as flood; the "
            "others only its captures without attacks. Whichever are surer decide. With --two-classes.",
        ),
    ] = None,
    apart_trees: Annotated[
        int | None,
        typer.Option(
            help="Their number, with --apart: the fewer, the more they must agree. Default: four for five of "
            "--trees."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same model.")] = 0,
    plot: PlotOption = None,
    as_json: Json = False,
) -> None:
    """Train trees or a neural network on a table and test them on captures they have not seen.

    No capture is on both sides of the split, or no flow where each class comes from one capture: flows of one
    capture resemble each other, and a model is to meet other captures. The report is about the very model
    that is written (with --refit, about one that has seen less). An mlp is trained in floating point;
    `compile` turns it into integers of the kind that --network names, here or there. A bnn is trained with
    weights and activations of +1 and -1, which needs JAX, and written as plain JSON.
    """
    from wirewise.datasets import Table
    from wirewise.errors import InputError
    from wirewise.evaluate import train as fit
    from wirewise.evaluate.autoencoder import HIDDEN as REMEMBERED
    from wirewise.evaluate.lesson import Recipe, check_beside
    from wirewise.evaluate.moments import At
    from wirewise.evaluate.networks import HIDDEN
    from wirewise.evaluate.train import BENIGN_ONLY, NETWORKS
    from wirewise.plots import check_plot, write_plot
    from wirewise.quantize import Options

    if plot:
        check_plot(plot)
    if benign_only and asked not in (None, BENIGN_ONLY):
        raise InputError(f"--estimator {asked}", "needs attacks to learn from", "leave out --benign-only")
    estimator = BENIGN_ONLY if benign_only else asked or "forest"
    binary = estimator == "bnn"
    if output is not None and binary and output.suffix != ".bnn":
        raise InputError(str(output), "must end in .bnn", "binary networks are written as plain JSON")
    if output is not None and not binary and output.suffix not in (".pkl", ".pickle"):
        raise InputError(str(output), "must end in .pkl", "estimators are written with pickle")
    if estimator not in NETWORKS and (network or hidden):
        raise InputError(f"estimator {estimator!r}", "is no network", "add --estimator mlp")
    if binary and network:
        raise InputError(f"--network {network}", "is for mlp: bnn is binary already", "leave it out")
    if encoding and not binary:
        raise InputError(f"--encoding {encoding}", "is for binary networks", "add --estimator bnn")
    usual = "q16" if estimator == BENIGN_ONLY else "int8"  # its errors are small beside its inputs
    kind = "binary" if binary else Options(network=network or usual).network
    widths = _widths(hidden) if hidden else REMEMBERED if estimator == BENIGN_ONLY else HIDDEN[kind]
    loaded = Table.read(table)
    more = [Table.read(path) for path in beside or ()]
    for path, each in zip(beside or (), more, strict=True):
        check_beside(each, loaded, name=f"--beside {path}", other=str(table))
    with percent(f"training on {len(loaded.frame):,} packets", quiet=as_json) as progress:
        training = fit(
            loaded,
            estimator,
            depth=depth,
            trees=trees,
            leaf=leaf,
            hidden=widths,
            encoding=encoding or "steps",
            class_weight=_weights(class_weight),
            two_classes=two_classes,
            recipe=Recipe(learn_first, flows_per_capture, weights),
            late=_late(late_from, late_trees, late_depth, late_leaf),
            test_share=test_share,
            seed=seed,
            refit=refit,
            group=group,
            folds=folds,
            seeds=seeds,
            at=At.parse(at) if at else None,
            progress=progress,
            augment=augment.split(",") if augment else (),
            copies=copies,
            teacher=_teacher(teacher, table, seed, test_share, group),
            beside=Table.joined(more) if more else None,
            apart=_apart(apart, apart_trees),
        )
    facts = {
        **training.facts,
        **_settings(estimator, kind, widths, encoding or "steps", trees, depth, leaf),
        "class_weight": class_weight or [],
    }
    if plot:
        with step("plotting", quiet=as_json):
            write_plot(plot, f"{estimator} of {table.name}", training)
    if output:
        write_estimator(training, loaded, facts, table, output)
    if as_json:
        print_json(
            {
                "training": facts,
                "classes": training.classes,
                "accuracy": training.report.to_dict(),
                "by_flow": training.by_flow and training.by_flow.to_dict(),
                "cross_validation": training.folds and training.folds.to_dict(),
                "teaching": training.taught and training.taught.to_dict(),
                "warnings": training.doubts,
                "output": output and str(output),
            }
        )
        return
    print_split(training, loaded)
    print_report(training.report, training.classes)
    if training.taught:
        _print_taught(training.taught, str(training.facts["teacher"]))
    print_doubts(training)
    if output:
        grid([("written", f"{output}, with the record of its training")])
    elif plot:
        grid([("plotted", plot)])
    else:
        note(f"nothing was written; give -o model.{'bnn' if binary else 'pkl'} to keep the estimator")


def _late(start: int | None, trees: int | None, depth: int | None, leaf: int | None) -> Late | None:
    """The late model of these options; None without them."""
    from wirewise.errors import InputError
    from wirewise.evaluate.phases import Late

    asked = {"trees": trees, "depth": depth, "leaf": leaf}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if start is not None:
        return Late(start, **given)
    if given:
        raise InputError(f"--late-{next(iter(given))}", "is for a late model", "add --late-from 30")
    return None


def _apart(name: str | None, trees: int | None) -> Apart | None:
    """The class of what is beside, by these options; None without them."""
    from wirewise.errors import InputError
    from wirewise.evaluate.apart import Apart

    if name is not None:
        return Apart(name, trees)
    if trees is not None:
        raise InputError("--apart-trees", "is for a class of its own", "add --apart flood")
    return None


def _teacher(
    given: str | None, table: Path, seed: int, test_share: float, group: str | None
) -> str | Fitted | None:
    """The name of a kind of teacher, or the model of a file: one that has not seen what is kept apart, if its
    record says that it was trained on the same table, split the same way.
    """
    from wirewise.errors import InputError
    from wirewise.evaluate.teaching import TEACHERS, Fitted
    from wirewise.formats import training_file
    from wirewise.importers.saved import load

    if given is None or not Path(given).suffix:
        return given
    path = Path(given)
    if not path.is_file():
        raise InputError(
            given, "does not exist or is no file", f"give a model, or one of {', '.join(TEACHERS)}"
        )
    record = training_file.read(path)
    training = record.training if record else {}
    same = {"table_sha256": training_file.file_digest(table), "seed": seed, "test_share": test_share}
    apart = not training.get("refitted", True) and all(training.get(key) == same[key] for key in same)
    apart = apart and (group is None or training.get("split") == f"by {group}")
    return Fitted(load(path), file_name(path), apart)


def _print_taught(taught: Comparison, teacher: str) -> None:
    """Teacher, student and direct training, side by side."""
    names = {
        "teacher": f"teacher ({teacher})",
        "student": "student, as written",
        "direct": "without a teacher",
    }
    listing(
        ("on what was kept apart", "accuracy", "macro F1", "F1 by flow", "benign flagged %"),
        (
            (
                names[each.name], f"{each.accuracy:.4f}", f"{each.macro_f1:.4f}", f"{each.flow_f1:.4f}",
                f"{100 * each.flagged:.2f}",
            )
            for each in taught.models
        ),
        title="Teaching",
        right=range(1, 5),
    )  # fmt: skip


def _settings(
    estimator: str,
    kind: str,
    hidden: Sequence[int],
    encoding: str,
    trees: int,
    depth: int,
    leaf: int | None,
) -> dict[str, Any]:
    """What a record of the training says of the estimator's own settings."""
    from wirewise.evaluate.train import NETWORKS

    if estimator == "bnn":
        return {"encoding": encoding, "hidden": list(hidden)}
    if estimator in NETWORKS:
        return {"network": kind, "hidden": list(hidden)}
    return {"trees": trees, "depth": depth} | ({} if leaf is None else {"leaf": leaf})


def write_estimator(
    training: Training, table: Table, facts: dict[str, Any], table_path: Path, output: Path
) -> None:
    """Writes the estimator, with the record of its training in the same file."""
    from wirewise.evaluate.binary_training import BinaryClassifier
    from wirewise.evaluate.networks import set_names
    from wirewise.files import write_atomically
    from wirewise.formats import training_file
    from wirewise.importers.binary import to_plain

    features = table.feature_set.feature_names
    facts = facts | {"table": file_name(table_path), "table_sha256": training_file.file_digest(table_path)}
    record = training_file.TrainingRecord(table.feature_set, facts, training.report.to_dict())
    # What it predicts and reads, by name: the file needs no other beside it to be understood.
    if isinstance(training.estimator, BinaryClassifier):
        plain = to_plain(training.estimator.model, training.classes, features)
        content = json.dumps(plain | {training_file.KEY: record.to_dict()}).encode()
    else:
        set_names(training.estimator, _names(training.classes), _names(features))
        content = training_file.behind_pickle(pickle.dumps(training.estimator), record)
    write_atomically(output, content)


def print_split(training: Training, table: Table) -> None:
    """What was kept apart, and how much of it."""
    split, frame = training.split, table.labelled.frame
    column = split.by if split.by in ("source", "capture") else "flow"
    learned, tested = (frame[column].gather(rows).n_unique() for rows in (split.learn, split.test))
    alone = f"; {', '.join(split.alone)} by flow" if split.alone else ""
    console.print(f"split by {split.by}: {learned:,} {column}s to learn from, {tested:,} to test on{alone}")


def print_doubts(training: Training) -> None:
    """The other numbers of a report, and what makes it doubtful."""
    from wirewise.evaluate.phases import start_of

    if crossed := training.folds:
        low, high = min(crossed.accuracy), max(crossed.accuracy)
        console.print(
            f"cross-validated over {crossed.by}s: accuracy {crossed.report.accuracy:.4f} ({low:.4f} to "
            f"{high:.4f} in {len(crossed.accuracy)} folds), macro F1 {crossed.report.macro_f1:.4f}"
        )
        if crossed.recall:
            _print_dealings(crossed, start_of(training.facts))
    if recorded := training.facts.get("out_of_fold"):
        _print_margins(recorded)
    if by_flow := training.by_flow:
        said = f"a split by flow would say: accuracy {by_flow.accuracy:.4f}, macro F1 {by_flow.macro_f1:.4f}"
        others = [training.report, *([training.folds.report] if training.folds else [])]
        if by_flow.accuracy > max(other.accuracy for other in others):
            said += ". Do not expect that: flows of one capture resemble each other"
        console.print(said)
    warn(*training.doubts)


_SHOWN = (0.001, 0.005, 0.01, 0.02, 0.05, 1.0)


def _print_margins(recorded: dict[str, Any]) -> None:
    """What `compile --max-benign-loss` would give."""
    points = [point for point in recorded["points"] if point["after"] == 1 and point["wish"] in _SHOWN]
    listing(
        (
            "benign flows that may lose a packet",
            "lost elsewhere %",
            "attack flows found %",
            "families found %",
        ),
        (
            (
                "all: without a margin" if point["wish"] == 1 else f"{100 * point['wish']:g} %",
                "-" if point["elsewhere"] is None else f"{100 * point['elsewhere']:.2f}",
                f"{100 * point['recall']:.1f}",
                f"{100 * point['families']:.1f}",
            )
            for point in points
        ),
        title=f"Margins (compile --max-benign-loss), each {recorded['by']} by a model that has not seen it",
        right=(1, 2, 3),
    )


def _print_dealings(crossed: CrossValidation, late: int | None) -> None:
    """What the folds found of each family, and how far that depends on how they were dealt. late : the packet
    from which on a late model judges.
    """
    listing(
        ("family", "found %, mean", "lowest", "highest"),
        (
            (name, *(f"{100 * share:.1f}" for share in (sum(found) / len(found), min(found), max(found))))
            for name, found in crossed.recall.items()
        ),
        title=f"Families by cross-validation, each {crossed.by} the same; {len(crossed.seeds)} dealings",
        right=(1, 2, 3),
    )
    print_curves(crossed.by_packet, crossed.late, late)
    low, high = min(crossed.benign_losing), max(crossed.benign_losing)
    console.print(f"benign flows that lose a packet: {100 * low:.2f} to {100 * high:.2f} %")


def print_curves(
    found: Mapping[str, Mapping[int, float]], late: Mapping[str, float | None], start: int | None
) -> None:
    """The share of each family's flows that is found, by the packet at which they are judged. late : found
    from packet `start` on, of those that last so long, if a late model judges them.
    """
    points = list(next(iter(found.values())))

    def last(name: str) -> list[str]:
        share = late.get(name)
        return [] if start is None else ["-" if share is None else f"{100 * share:.0f}"]

    listing(
        ("found %, by packet", *map(str, points), *([] if start is None else [f"{start} on"])),
        (
            (name, *(f"{100 * curve[packet]:.0f}" for packet in points), *last(name))
            for name, curve in found.items()
        ),
        title="Families by packet of decision",
        right=range(1, 2 + len(points)),
    )


def _names(names: list[str]) -> Any:
    import numpy as np

    return np.array(names, dtype=object)


def _widths(given: str) -> tuple[int, ...]:
    from wirewise.errors import InputError

    try:
        return tuple(int(part) for part in given.split(","))
    except ValueError:
        raise InputError(f"hidden layers {given!r}", "are not numbers", "write 16,16") from None


def _weights(given: list[str] | None) -> str | dict[str, float] | None:
    from wirewise.errors import InputError

    if not given:
        return None
    if given == ["balanced"]:
        return "balanced"
    weights = {}
    for entry in given:
        name, _, value = entry.rpartition("=")
        try:
            weights[name] = float(value)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"class weight {entry!r}", "is not CLASS=WEIGHT", "write benign=3, or balanced")
    return weights


def print_report(report: Report, classes: list[str]) -> None:
    """Per class numbers and the confusion matrix."""
    from wirewise.evaluate.classes import ATTACK

    listing(
        ("class", "packets", "precision", "recall", "F1"),
        (
            (row.name, f"{row.packets:,}", f"{row.precision:.4f}", f"{row.recall:.4f}", f"{row.f1:.4f}")
            for row in report.classes
            if row.packets
        ),
        right=(1, 2, 3, 4),
    )
    console.print(
        f"accuracy {report.accuracy:.4f} over {report.packets:,} packets, macro F1 {report.macro_f1:.4f}"
    )
    if report.absent:
        console.print(f"not tested, as no packet is of them: {', '.join(report.absent)}")
    if report.nameless:
        console.print(f"counted as {ATTACK} because no label names them: {', '.join(report.nameless)}")
    print_confusion(report.confusion, classes)


WIDE = 100
"""Characters from which on the columns of a confusion matrix have numbers instead of names."""


def print_confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> None:
    """Rows are what packets are, columns what is said of them; those of neither are left out."""
    there = [at for at, row in enumerate(confusion) if any(row) or any(other[at] for other in confusion)]
    numbered = sum(len(classes[at]) + 2 for at in there) > WIDE
    names = {at: f"{at} {classes[at]}" if numbered else classes[at] for at in there}
    listing(
        ("is \\ said", *(str(at) if numbered else classes[at] for at in there)),
        (
            (names[row], *(f"{confusion[row][at]:,}" if confusion[row][at] else "." for at in there))
            for row in there
        ),
        title="Confusion, in packets",
        right=range(1, len(there) + 1),
    )
