# SPDX-License-Identifier: Apache-2.0
"""What is loaded on every kernel, compiled by every clang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench import published
from bench.programs import KERNEL_ONLY, PROGRAMS
from tests import largest
from wirewise import compiler
from wirewise.demo import material
from wirewise.demo.run import Options
from wirewise.evaluate import train
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.files import write_atomically
from wirewise.formats import model_file
from wirewise.importers import Imported, import_model
from wirewise.ready import READY, Ready
from wirewise.targets import ebpf


def _flow_extraction(preset: str) -> ebpf.Sources:
    """A preset's features, over flow tables that CPUs share."""
    said = PRESETS[preset].to_dict()
    return ebpf.emit(None, FeatureSet.from_dict({**said, "flow_table": {"sharing": "shared"}}))


def _ready(model: Ready) -> ebpf.Sources:
    """A model of the package, with its feature set."""
    loaded, record = model_file.read(model.file), model.record()
    return ebpf.emit(loaded.model, record.feature_set)


BANK = "17 networks 152-128-64-2"
DEMO, FIRST, SECOND = "demo", "captures", "captures, retrained"
LARGEST: dict[str, Callable[[], ebpf.Sources]] = {
    "largest forest": lambda: ebpf.emit(*largest.forest()),
    "int8 64-128-64-16": lambda: ebpf.emit(*largest.wide()),
    "int8 12-64-64-7": lambda: ebpf.emit(*largest.many_classes()),
    "binary 200-64": lambda: ebpf.emit(*largest.thermometer()),
    BANK: lambda: ebpf.emit(*largest.bank()),
}
PUBLISHED: dict[str, Callable[[], ebpf.Sources]] = {
    name: partial(published.sources, name, 1) for name in published.COUNTERPART
}
SHARED: dict[str, Callable[[], ebpf.Sources]] = {
    f"{name}, shared": partial(_flow_extraction, name) for name in ("hara2023", "hara2026", "pairs")
}
READY_MADE: dict[str, Callable[[], ebpf.Sources]] = {
    name: partial(_ready, model) for name, model in READY.items()
}
# Those that take clang longest first, so that the last ones to end are short.
OBJECTS: dict[str, Callable[[], ebpf.Sources]] = {
    **LARGEST, **READY_MADE, **PROGRAMS, **KERNEL_ONLY, **PUBLISHED, **SHARED
}  # fmt: skip
"""Name -> sources of what is only loaded."""
SHORT: tuple[str, ...] = ("flow-hara2026", "flow-no-time", "by-destination", BANK, *READY_MADE, *SHARED)
"""Of these, what CI loads too: refused by an old kernel once, quick to make, or run by its name."""


@dataclass(frozen=True)
class Learned:
    """A model of the demo's, with what it is made into a bundle from."""

    model: Imported
    feature_set: FeatureSet
    classes: list[str]


@dataclass(frozen=True)
class Subject:
    """A file for `wirewised verify`: an object or a bundle, by one clang."""

    name: str
    clang: str
    path: Path
    shape: str
    instructions: int

    @property
    def option(self) -> str:
        return "--bundle" if self.path.suffix == ".wirewise" else "--object"


@cache
def learned() -> dict[str, Learned]:
    """The demo's forest, and two over its feature set for captures, which reads no times: one may follow the
    other on an interface, and its verdicts do not hang on when a packet comes.
    """
    options = Options()
    whole = material.lesson(options.seed, duration_s=12.0, packets=options.packets)
    part = material.lesson(options.seed, duration_s=12.0, packets=40_000, features="features-captures.yaml")
    made = {
        DEMO: (whole, options.trees, options.depth, options.seed),
        FIRST: (part, options.trees, options.depth, 1),
        SECOND: (part, options.trees, options.depth - 3, 2),
    }
    return {name: _learn(*what) for name, what in made.items()}


def _learn(what: material.Lesson, trees: int, depth: int, seed: int) -> Learned:
    training = train(
        what.table, "forest", depth=depth, trees=trees, class_weight=what.class_weight, seed=seed, refit=True
    )
    imported = import_model(training.estimator, classes=training.classes)
    return Learned(imported, what.feature_set, training.classes)


def compile_object(name: str, clang_name: str, clang: str, folder: Path) -> Subject:
    sources = OBJECTS[name]()
    built = ebpf.build(sources, clang=clang)
    path = folder / f"{clang_name}-{_file_name(name)}.bpf.o"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, built.object)
    return Subject(name, clang_name, path, sources.shape, built.instructions)


def compile_bundle(name: str, clang_name: str, clang: str, folder: Path) -> Subject:
    """The bundle that `make demo` makes, by this clang; it has no verdict of this machine's kernel."""
    what, short = learned()[name], _file_name(name)
    compiled = compiler.compile(
        what.model, what.feature_set, name=short, classes=what.classes, clang=clang, verify="never"
    )
    path = folder / f"{clang_name}-{short}.wirewise"
    compiled.bundle.write(path)
    program = compiled.bundle.manifest.program
    return Subject(name, clang_name, path, program.shape, program.instructions)


def _file_name(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")
