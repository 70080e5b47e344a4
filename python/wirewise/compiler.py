# SPDX-License-Identifier: Apache-2.0
"""From a model and a feature set to a bundle: emit, build, verify, compare with the estimator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wirewise import agent
from wirewise.bundle import Bundle, Flow, Program, StateField
from wirewise.errors import InputError, MissingFeatureError, RefusedError
from wirewise.features import FeatureSet
from wirewise.fidelity import HeldOut, measure
from wirewise.importers import Imported
from wirewise.models import Model
from wirewise.targets import ebpf

Step = Callable[[str], AbstractContextManager[None]]
Verify = Literal["if-possible", "always", "never"]


@dataclass(frozen=True)
class Compiled:
    """A bundle, and why the verifier was not asked ("" if it was)."""

    bundle: Bundle
    unverified: str


def compile(  # the verb everywhere: command, module, issue tracker
    model: Imported | Model,
    feature_set: FeatureSet,
    *,
    name: str,
    classes: Sequence[str] | None = None,
    rows: NDArray[np.int64] | None = None,
    held_out: HeldOut | None = None,
    shape: str = "auto",
    clang: str | None = None,
    verify: Verify = "if-possible",
    training: dict[str, Any] | None = None,
    accuracy: dict[str, Any] | None = None,
    predicted: Callable[[ebpf.Sources], None] | None = None,
    step: Step = lambda text: nullcontext(),
) -> Compiled:
    """A bundle from a model and the feature set it reads, in that order.

    classes : names, index = class id; those of an imported model unless given. rows : int64, shape
    (n, n_features): with an imported model, both are asked and the agreement is recorded; with held-out rows
    how good both are, too. shape, clang : see
    `wirewise.targets.ebpf`. verify : load the object with this machine's kernel (nothing is attached).
    predicted : called with the sources, which say their expected size, before they are compiled. step :
    called with what is done next, to show progress.

    Raises InputError for parts that do not fit, RefusedError if the verifier says no, MissingFeatureError
    without a compiler (or, with verify "always", without the privilege to load).
    """
    imported = model if isinstance(model, Imported) else None
    ir = imported.model if imported else model
    assert not isinstance(ir, Imported)
    names = list(classes or (imported.classes if imported else []))
    check_fits(ir, feature_set, names, imported.feature_names if imported else None)
    with step("generating C"):
        sources = ebpf.emit(ir, feature_set, shape=shape)
    if predicted:
        predicted(sources)
    with step("compiling it with clang"):
        built = ebpf.build(sources, clang=clang)
    verifier, unverified = None, "it was not to be asked"
    if verify != "never":
        with step("asking the kernel's verifier"):
            verifier, unverified = ask_verifier(built.object, must=verify == "always")
    fidelity = None
    if imported and rows is not None:
        with step("comparing with the estimator"):
            fidelity = measure(imported, rows, held_out, feature_set.feature_names)
    bundle = Bundle.create(
        name=name,
        classes=names,
        model=ir,
        feature_set=feature_set,
        flow=_flow(feature_set, ir),
        program=Program(
            section="xdp",
            entry="ww_xdp",
            tail_calls=list(sources.tail_calls),
            shape=sources.shape,
            why=sources.why,
            instructions=built.instructions,
            object_bytes=len(built.object),
            clang=built.clang,
            predicted=sources.predicted,
            verifier=verifier,
        ),
        object_file=built.object,
        sources=sources.files,
        source=imported.source if imported else "",
        notes=imported.notes if imported else None,
        training=training,
        fidelity=fidelity,
        accuracy=accuracy,
    )
    return Compiled(bundle, unverified)


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


def ask_verifier(object_file: bytes, *, must: bool = False) -> tuple[dict[str, Any] | None, str]:
    """The verifier's statistics, as a bundle records them; or None and why it could not be asked.

    Raises RefusedError with the deciding lines, and MissingFeatureError if it must and cannot.
    """
    try:
        said = agent.verify(object_file)
    except MissingFeatureError as error:
        if must:
            raise
        return None, str(error)
    if not said["accepted"]:
        refusal = said.get("refusal") or {}
        lines = " | ".join(refusal.get("deciding", [])) or "no reason given"
        log = f"; the whole log is in {refusal['log_file']}" if refusal.get("log_file") else ""
        program = refusal.get("program", "the program")
        raise RefusedError(f"the verifier of Linux {said['kernel']} refuses {program}: {lines}{log}")
    programs = said["programs"]
    return {
        "kernel": said["kernel"],
        "verified_instructions": sum(program["verified_instructions"] for program in programs),
        "instructions": sum(program["instructions"] for program in programs),
        "load_ms": said["load_ms"],
        "programs": programs,
    }, ""


def _flow(feature_set: FeatureSet, model: Model) -> Flow:
    used = model.used_features
    state = [StateField.model_validate(asdict(field)) for field in ebpf.state_fields(feature_set, used)]
    entry4, entry6 = (ebpf.entry_size(feature_set, version, used) for version in (4, 6))
    claim = ebpf.claim_offset(feature_set, used)
    layout = {
        "key": feature_set.key, "entry4": entry4, "entry6": entry6, "state": [f.model_dump() for f in state],
        "claim": claim,
    }  # fmt: skip
    return Flow(
        key=feature_set.key,
        table_size=feature_set.table_size,
        sharing="shared" if feature_set.shared else "per-cpu",
        claim=claim,
        idle_timeout_ns=feature_set.idle_timeout_ns,
        grace_ns=feature_set.grace_ns,
        proven_packets=feature_set.proven_packets,
        clock="fine" if feature_set.needs_time(used) else "coarse",
        entry4_size=entry4,
        entry6_size=entry6,
        layout_digest=hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest(),
        state=state,
    )
