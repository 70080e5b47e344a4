# SPDX-License-Identifier: Apache-2.0
"""The demo from beginning to end: packets, table, forest, bundle, kernel, report."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wirewise import compiler
from wirewise.console import step
from wirewise.datasets.manifest import BENIGN
from wirewise.demo import material as materials
from wirewise.demo.material import Material, Split
from wirewise.demo.network import check_needs, wire
from wirewise.demo.page import show
from wirewise.demo.results import make_report, second_look
from wirewise.demo.session import play
from wirewise.errors import InputError
from wirewise.evaluate import Training, matrix, train
from wirewise.files import write_atomically
from wirewise.formats.bundle import Bundle
from wirewise.importers import import_model


@dataclass(frozen=True)
class Options:
    """What to play.

    output : folder for the bundle, the policy, the headers sent and report.json. captures : a folder with a
    manifest.json; None makes packets. duration_s : of what is sent; None is 12 s for made packets, and 10,000
    packets/s for captures. packets : about how many to make. page_minutes : for how long `show_page` sends.
    """

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


def run(options: Options) -> dict[str, Any]:
    """Play the demo; gives what it writes to report.json.

    Everything it makes in the system is removed when it ends, is interrupted or fails. Raises WirewiseError.
    """
    began = time.monotonic()
    material, training, bundle, bundle_path = _prepare(options)
    policy_path = options.output / "policy.yaml"
    write_atomically(policy_path, _policy(bundle.classes).encode())
    with wire() as made:
        tags = 2 * len(material.kinds)
        played = play(made, bundle_path, policy_path, material.tagged(), tags, watch=options.watch)
    with step("looking at what was missed", quiet=options.quiet):
        features = len(material.feature_set.features)
        offline = second_look(material, bundle_path, policy_path, options.output, features)
    facts = {
        "source": str(options.captures) if options.captures else f"made here, seed {options.seed}",
        "split": options.split if options.captures else "another seed",
        "model": bundle.model.describe(),
        "trained_on": len(material.table.frame),
        "test_accuracy": training.report.accuracy,
        "fidelity": bundle.manifest.fidelity,
        "verifier": bundle.manifest.program.verifier,
        "bundle": str(bundle_path),
        "total_seconds": round(time.monotonic() - began, 1),
    }
    report = make_report(material, played, offline, bundle.classes, facts)
    write_atomically(options.output / "report.json", (json.dumps(report, indent=2) + "\n").encode())
    return report


def show_page(options: Options) -> None:
    """Play the demo's attack again and again, with a service whose page shows it, and print where that is.

    It ends after `page_minutes` or at a signal; what it makes in the system is removed then. Raises
    WirewiseError.
    """
    material, _, bundle, bundle_path = _prepare(options)
    policy_path = options.output / "policy-page.yaml"
    write_atomically(policy_path, _policy(bundle.classes, **_FOR_THE_PAGE).encode())
    with wire() as made:
        show(made, bundle_path, policy_path, material.tagged(), options.page_minutes)


def _prepare(options: Options) -> tuple[Material, Training, Bundle, Path]:
    """What is sent, what was learned, and the bundle with its file."""
    check_needs()
    material = _material(options)
    _make_folder(options.output)
    with step("training the forest", quiet=options.quiet):
        training = train(
            material.table,
            "forest",
            depth=options.depth,
            trees=options.trees,
            class_weight=material.class_weight,
            seed=options.seed,
            refit=True,
        )
    bundle = _compile(options, material, training)
    bundle_path = options.output / "demo.wirewise"
    bundle.write(bundle_path)
    return material, training, bundle, bundle_path


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made: {error.strerror}"
        raise InputError(str(path), rule, "give another folder with --output") from error


def _material(options: Options) -> Material:
    if options.captures is None:
        duration_s = options.duration_s or 12.0
        return materials.synthetic(options.seed, duration_s=duration_s, packets=options.packets)
    return materials.from_captures(options.captures, split=options.split, duration_s=options.duration_s)


def _compile(options: Options, material: Material, training: Training) -> Bundle:
    imported = import_model(training.estimator, classes=training.classes)
    compiled = compiler.compile(
        imported,
        material.feature_set,
        name="demo",
        classes=training.classes,
        rows=matrix(material.table.labelled),
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


def _policy(classes: list[str], **more: Any) -> str:
    """Drop every class but benign."""
    actions = {name: "pass" if name == BENIGN else "drop" for name in classes}
    return yaml.safe_dump({"version": 1, "classes": actions, "trigger": "every", **more}, sort_keys=False)
