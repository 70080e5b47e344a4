# SPDX-License-Identifier: Apache-2.0
"""The demo from beginning to end: packets, table, forest, bundle, kernel, report."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from wirewise import compiler, ready
from wirewise.console import step
from wirewise.datasets.manifest import BENIGN
from wirewise.demo import material as materials
from wirewise.demo.material import Lesson, Material, Split
from wirewise.demo.network import check_needs, wire
from wirewise.demo.page import show
from wirewise.demo.results import make_report, second_look, unsent, write_sent
from wirewise.demo.session import play
from wirewise.errors import InputError
from wirewise.evaluate import Training, matrix, train
from wirewise.files import write_atomically
from wirewise.formats import model_file
from wirewise.formats.bundle import Bundle
from wirewise.importers import import_model
from wirewise.models import UNKNOWN

BESIDE = "@flood"
"""The ready model that gets the same packets as the forest that is trained."""


@dataclass(frozen=True)
class Options:
    """What to play.

    model : a ready model (`@flood`) or a bundle's file; None trains a forest. output : folder for the bundle,
    the policy, the headers sent and report.json. captures : a folder with a manifest.json; None makes
    packets. duration_s : of what is sent; None is 12 s for made packets, and 10,000 packets/s for captures.
    packets : about how many to make. page_minutes : for how long `show_page` sends.
    """

    model: str | None = None
    output: Path = Path("build/demo")
    captures: Path | None = None
    split: Split = "time"
    seed: int = 1
    duration_s: float | None = None
    packets: int = 480_000
    trees: int = 10
    depth: int = 11
    watch: bool = True
    quiet: bool = False
    page_minutes: float = 10.0


@dataclass(frozen=True)
class _Prepared:
    """What is sent, and the bundle with its file. facts : what its origin adds to the report."""

    material: Material
    bundle: Bundle
    path: Path
    facts: dict[str, Any]


def run(options: Options) -> dict[str, Any]:
    """Play the demo; gives what it writes to report.json.

    Everything it makes in the system is removed when it ends, is interrupted or fails. Raises WirewiseError.
    """
    began = time.monotonic()
    prepared = _prepare(options)
    material, bundle = prepared.material, prepared.bundle
    policy_path = _write_policy(options.output / "policy.yaml", bundle)
    with wire() as made:
        tags = 2 * len(material.kinds)
        played = play(made, prepared.path, policy_path, material.tagged(), tags, watch=options.watch)
    with step("looking at what was missed", quiet=options.quiet):
        capture = write_sent(material, options.output)
        offline = _look(capture, material, bundle, prepared.path, policy_path)
    facts = {
        "source": str(options.captures) if options.captures else f"made here, seed {options.seed}",
        "name": options.model or bundle.manifest.name,
        "model": bundle.model.describe(),
        "verifier": bundle.manifest.program.verifier,
        "bundle": str(prepared.path),
        **prepared.facts,
    }
    if options.model is None:
        facts["ready"] = _compare(options, material, capture)
    facts["total_seconds"] = round(time.monotonic() - began, 1)
    report = make_report(material, played, offline, bundle.classes, facts)
    write_atomically(options.output / "report.json", (json.dumps(report, indent=2) + "\n").encode())
    return report


def show_page(options: Options) -> None:
    """Play the demo's attack again and again, with a service whose page shows it, and print where that is.

    It ends after `page_minutes` or at a signal; what it makes in the system is removed then. Raises
    WirewiseError.
    """
    prepared = _prepare(options)
    policy_path = _write_policy(options.output / "policy-page.yaml", prepared.bundle, **_FOR_THE_PAGE)
    with wire() as made:
        show(made, prepared.path, policy_path, prepared.material.tagged(), options.page_minutes)


def _prepare(options: Options) -> _Prepared:
    check_needs()
    return _train(options) if options.model is None else _take(options, options.model)


def _train(options: Options) -> _Prepared:
    """A forest that learns here."""
    material, lesson = _both(options)
    _make_folder(options.output)
    with step("training the forest", quiet=options.quiet):
        training = train(
            lesson.table,
            "forest",
            depth=options.depth,
            trees=options.trees,
            class_weight=lesson.class_weight,
            seed=options.seed,
            refit=True,
        )
    bundle = _compile(options, lesson, training)
    path = options.output / "demo.wirewise"
    bundle.write(path)
    facts = {
        "split": options.split if options.captures else "another seed",
        "trained_on": len(lesson.table.frame),
        "test_accuracy": training.report.accuracy,
        "fidelity": bundle.manifest.fidelity,
    }
    return _Prepared(material, bundle, path, facts)


def _take(options: Options, model: str) -> _Prepared:
    """A model that has learned elsewhere: it meets the same packets as a forest would."""
    found = ready.find(model)
    _check_classes(  # before packets are made
        model, model_file.read(found.file).classes if found else Bundle.read(model).classes
    )
    material = _both(options)[0] if options.captures else _synthetic(options)
    _make_folder(options.output)
    path = _compiled(options, model) if found else Path(model)
    return _Prepared(material, Bundle.read(path), path, {"cannot_see": found.blind} if found else {})


def _compiled(options: Options, model: str) -> Path:
    with step(f"compiling {model}", quiet=options.quiet):
        return ready.bundle(model, options.output)


def _check_classes(model: str, classes: list[str]) -> None:
    if BENIGN not in classes:
        raise InputError(
            model,
            f"has no class {BENIGN}, but {', '.join(classes)}",
            "the demo drops every other class; give a model of attacks, such as @flood",
        )


def _compare(options: Options, material: Material, capture: Path) -> dict[str, Any]:
    """What a ready model would have done with the same packets."""
    path = _compiled(options, BESIDE)
    bundle = Bundle.read(path)
    policy_path = _write_policy(options.output / f"policy-{bundle.manifest.name}.yaml", bundle)
    with step(f"giving {BESIDE} the same packets", quiet=options.quiet):
        offline = _look(capture, material, bundle, path, policy_path)
    return {"name": BESIDE, **unsent(material, offline)}


def _look(capture: Path, material: Material, bundle: Bundle, path: Path, policy: Path) -> NDArray[np.void]:
    return second_look(capture, len(material.packets), path, policy, len(bundle.feature_set.features))


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made: {error.strerror}"
        raise InputError(str(path), rule, "give another folder with --output") from error


def _both(options: Options) -> tuple[Material, Lesson]:
    if options.captures is not None:
        return materials.from_captures(options.captures, split=options.split, duration_s=options.duration_s)
    material = _synthetic(options)
    lesson = materials.lesson(options.seed, duration_s=_seconds(options), packets=options.packets)
    return material, lesson


def _synthetic(options: Options) -> Material:
    return materials.synthetic(options.seed, duration_s=_seconds(options), packets=options.packets)


def _seconds(options: Options) -> float:
    return options.duration_s or 12.0


def _compile(options: Options, lesson: Lesson, training: Training) -> Bundle:
    imported = import_model(training.estimator, classes=training.classes)
    compiled = compiler.compile(
        imported,
        lesson.feature_set,
        name="demo",
        classes=training.classes,
        rows=matrix(lesson.table.labelled),
        verify="always",
        training={
            "estimator": "forest",
            "trees": options.trees,
            "depth": options.depth,
            "seed": options.seed,
        },
        accuracy=training.report.to_dict(),
        step=lambda text: step(text, quiet=options.quiet),
    )
    return compiled.bundle


_FOR_THE_PAGE = {"deny": {}, "events": {"features": True, "each": "flow", "rate": "20/s", "burst": 20}}
"""What makes events few enough to read, and has them say why; and a list to try."""


def _write_policy(path: Path, bundle: Bundle, **more: Any) -> Path:
    """Drop every class but benign, and what a model does not know."""
    actions = {name: "pass" if name in (BENIGN, UNKNOWN) else "drop" for name in bundle.classes}
    policy = {"version": 1, "classes": actions, "trigger": "every", **more}
    write_atomically(path, yaml.safe_dump(policy, sort_keys=False).encode())
    return path
