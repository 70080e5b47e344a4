# SPDX-License-Identifier: Apache-2.0
"""From a model and a feature set to a bundle: emit, build, verify, compare with the estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.fidelity import HeldOut, measure
from wirewise.evaluate.open_set import OpenSet
from wirewise.evaluate.operating_point import OperatingPoint
from wirewise.evaluate.reference import reference_of
from wirewise.feature_sets import FeatureSet, keeping
from wirewise.formats.bundle import Bundle
from wirewise.formats.manifest import Reference
from wirewise.importers import Imported
from wirewise.models import UNKNOWN, Bounded, Model
from wirewise.targets import TARGETS, ProgramTarget, Sources
from wirewise.targets.target import Step


@dataclass(frozen=True)
class Compiled:
    """A bundle, and why the verifier was not asked ("" if it was). training_rows : those that the model is
    known to have learned from, as of `Training`; None if they are not known.
    """

    bundle: Bundle
    unverified: str
    training_rows: Table | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Compiled {self.bundle!r}{', not verified' if self.unverified else ''}>"

    def _repr_html_(self) -> str:
        return self.bundle._repr_html_()

    def write(self, path: str | Path) -> None:
        """Writes the bundle, see `Bundle.write`."""
        self.bundle.write(path)


def compile(  # the verb everywhere: command, module, issue tracker
    model: Imported | Model,
    feature_set: FeatureSet,
    *,
    name: str,
    classes: Sequence[str] | None = None,
    rows: NDArray[np.int64] | None = None,
    held_out: HeldOut | None = None,
    training: dict[str, Any] | None = None,
    accuracy: dict[str, Any] | None = None,
    operating_point: OperatingPoint | None = None,
    open_set: OpenSet | None = None,
    learned: Table | None = None,
    reference: Reference | None = None,
    target: str = "ebpf",
    keep_state_of: Bundle | None = None,
    predicted: Callable[[Sources], None] | None = None,
    step: Step = lambda text: nullcontext(),
    **options: object,
) -> Compiled:
    """A bundle from a model and the feature set it reads, in that order.

    classes : names, index = class id; those of an imported model unless given. rows : int64, shape
    (n, n_features): with an imported model, both are asked and the agreement is recorded; with held-out rows
    how good both are, too. operating_point : sets the model to it, see `wirewise.evaluate.operating_point`;
    the agreement is that of the model without. open_set : adds the class `unknown`, likewise. learned : rows
    that the model learned from, which the agent compares live flows with; reference : the same, made before.
    target : one of
    `wirewise.targets.TARGETS` that makes programs. options : of that target, by name; eBPF has shape, clang
    and verify ("if-possible", "always", "never": whether this machine's kernel is asked; nothing is
    attached), see `wirewise.targets.ebpf.Options`. keep_state_of : the bundle that runs, whose flow state the
    program has too, so that flows go on where it takes over (see `wirewise.feature_sets.keeping`). predicted:
    called with the sources, which say their expected size, before they are compiled. step : called with what
    is done next, to show progress.

    Raises InputError for parts that do not fit, RefusedError if the verifier says no, MissingFeatureError
    without a compiler (or, with verify "always", without the privilege to load).
    """
    maker = TARGETS.find(target)
    if not isinstance(maker, ProgramTarget):
        raise InputError(
            f"target {target!r}",
            "makes sources and no program, so there is no bundle",
            "take its sources: wirewise.compiler.emit, or `wirewise compile` on the command line",
        )
    imported, ir, names = _parts(model, feature_set, classes)
    feature_set = _keeping(feature_set, ir, keep_state_of)
    if operating_point:
        ir = operating_point.set(ir)
    if open_set:
        ir, names = _knowing(ir, open_set), [*names, UNKNOWN]
    chosen = maker.choose(options)
    with step("generating sources"):
        sources = maker.emit(ir, feature_set, chosen)
    if predicted:
        predicted(sources)
    made = maker.build(sources, ir, feature_set, names, chosen, step)
    fidelity = None
    if imported and rows is not None:
        with step("comparing with the estimator"):
            fidelity = measure(imported, rows, held_out, feature_set.feature_names)
    if operating_point:
        fidelity = {**(fidelity or {}), "operating_point": asdict(operating_point)}
    if open_set:
        fidelity = {**(fidelity or {}), "open_set": open_set.to_dict()}
    if learned:
        reference = reference_of(learned, ir, made.flow)
    bundle = Bundle.create(
        name=name,
        classes=names,
        model=ir,
        feature_set=feature_set,
        flow=made.flow,
        program=made.program,
        object_file=made.object_file,
        sources=sources.files,
        source=imported.source if imported else "",
        notes=imported.notes if imported else None,
        reference=reference,
        training=training,
        fidelity=fidelity,
        accuracy=accuracy,
        tools=made.tools,
    )
    return Compiled(bundle, made.unverified)


def emit(
    model: Imported | Model,
    feature_set: FeatureSet,
    *,
    target: str,
    classes: Sequence[str] | None = None,
    open_set: OpenSet | None = None,
    keep_state_of: Bundle | None = None,
    **options: object,
) -> Sources:
    """The sources that a target makes of a model and the feature set it reads; arguments as of `compile`.

    Pure: needs no tool and no privilege. Raises InputError for parts that do not fit.
    """
    maker = TARGETS.find(target)
    _, ir, _ = _parts(model, feature_set, classes)
    feature_set = _keeping(feature_set, ir, keep_state_of)
    if open_set:
        ir = _knowing(ir, open_set)
    sources: Sources = maker.emit(ir, feature_set, maker.choose(options))
    return sources


def _parts(
    model: Imported | Model, feature_set: FeatureSet, classes: Sequence[str] | None
) -> tuple[Imported | None, Model, list[str]]:
    """The imported model if it is one, the IR, and the names of the classes; all checked to fit."""
    imported = model if isinstance(model, Imported) else None
    ir = imported.model if imported else model
    assert not isinstance(ir, Imported)
    names = list(classes or (imported.classes if imported else []))
    check_fits(ir, feature_set, names, imported.feature_names if imported else None)
    return imported, ir, names


def _knowing(model: Model, open_set: OpenSet) -> Model:
    if isinstance(model, Bounded):
        raise InputError("model", f"has the class {UNKNOWN} already", "leave --unknown out")
    return Bounded(model, open_set.bounds)


def _keeping(feature_set: FeatureSet, model: Model, running: Bundle | None) -> FeatureSet:
    if running is None:
        return feature_set
    return keeping(feature_set, model.used_features, running.feature_set, running.model.used_features)


def check_fits(
    model: Model, feature_set: FeatureSet, classes: Sequence[str], trained_on: Sequence[str] | None
) -> None:
    """Raises InputError unless the model reads this feature set's features in order, and has the classes."""
    where, expected = f"feature set {feature_set.name!r}", feature_set.feature_names
    if trained_on and list(trained_on) != expected:
        first = next(
            (i for i, (a, b) in enumerate(zip(trained_on, expected, strict=False)) if a != b),
            min(len(trained_on), len(expected)),
        )
        pair = [repr(names[first]) if first < len(names) else "nothing" for names in (expected, trained_on)]
        raise InputError(
            where, f"its feature {first} is {pair[0]}, the model was trained on {pair[1]} there",
            "give the feature set that made the training table",
        )  # fmt: skip
    if model.n_features != len(expected):
        raise InputError(
            where, f"has {len(expected)} features, the model reads {model.n_features}",
            "give the feature set that made the training table",
        )  # fmt: skip
    if len(classes) != model.n_classes:
        raise InputError(
            "classes",
            f"{len(classes)} names for the model's {model.n_classes} classes",
            "name each class once",
        )
