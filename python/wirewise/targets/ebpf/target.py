# SPDX-License-Identifier: Apache-2.0
"""eBPF as a target: its options, and from sources to the program of a bundle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from wirewise import agent
from wirewise.errors import InputError, MissingFeatureError, RefusedError, choose
from wirewise.feature_sets import FeatureSet
from wirewise.formats.bundle import feature_records, model_networks
from wirewise.formats.manifest import Aggregate, Flow, Program, StateField, meaning
from wirewise.models import Model
from wirewise.targets.ebpf.clang import Built, StackError, compile_sources, data_path_digest
from wirewise.targets.ebpf.feature_code import claim_offset, entry_size, flow_features, state_fields
from wirewise.targets.ebpf.sources import Sources, emit
from wirewise.targets.target import Made, ProgramTarget, Step, option

SECTION, ENTRY = "xdp", "ww_main"
VERIFY = ("if-possible", "always", "never")


@dataclass(frozen=True)
class Options:
    """shape : one of `shapes.SHAPES`, or auto. clang : a path. verify : one of VERIFY, whether this machine's
    kernel is asked; nothing is attached.
    """

    shape: str = option(
        "auto",
        "How the model becomes code: inline, functions, tail-calls, or auto (the cheapest). Default: auto.",
    )
    clang: str | None = option(None, "Compiler to use. Default: the newest installed.", build=True)
    verify: str = option(
        "if-possible",
        "Insist on (or skip) the kernel's verifier. Default: ask it where privileges allow.",
        yes="always",
        no="never",
        build=True,
    )

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise InputError(f"verify {self.verify!r}", "is not known", choose(self.verify, VERIFY))


class EbpfTarget(ProgramTarget[Options, Sources]):
    """Programs for the Linux kernel."""

    name: ClassVar[str] = "ebpf"
    summary: ClassVar[str] = "a program for the Linux kernel's XDP hook"
    options = Options

    def emit(self, model: Model, feature_set: FeatureSet, options: Options) -> Sources:
        return emit(model, feature_set, shape=options.shape)

    def options_of(self, program: Program) -> dict[str, Any]:
        return {"shape": program.shape}

    def build(
        self,
        sources: Sources,
        model: Model,
        feature_set: FeatureSet,
        classes: Sequence[str],
        options: Options,
        step: Step,
    ) -> Made:
        flow = flow_record(feature_set, model)
        records, networks = feature_records(feature_set), model_networks(model)
        means = meaning(classes, feature_set.feature_names, records, flow, networks)
        with step("compiling it with clang"):
            built = build(sources, clang=options.clang, meaning=means)
        verifier, unverified = None, "--no-verify was given"
        if options.verify != "never":
            with step("asking the kernel's verifier"):
                verifier, unverified = ask_verifier(built.object, must=options.verify == "always")
        program = Program(
            section=SECTION,
            entry=ENTRY,
            tail_calls=list(sources.tail_calls),
            shape=sources.shape,
            why=sources.why,
            instructions=built.instructions,
            object_bytes=len(built.object),
            clang=built.clang,
            predicted=sources.predicted,
            verifier=verifier,
        )
        tools = {"datapath": data_path_digest()}
        return Made(built.object, program, flow, tools, unverified)


EBPF = EbpfTarget()


def build(sources: Sources, *, clang: str | None = None, meaning: bytes = b"") -> Built:
    """Compile generated sources. clang: a path, or None for the newest found (14 or later). meaning: of the
    manifest, for a program in a bundle.

    Raises InputError if feature set and model need more stack than the kernel has.
    """
    try:
        return compile_sources(sources.files, clang=clang, meaning=meaning)
    except StackError as error:
        raise InputError(
            f"feature set {sources.feature_set!r}",
            f"takes {error.amount} of stack with this model, and the kernel has {error.limit}",
            "leave out features, first those with a by= of their own; or give a newer clang with --clang",
        ) from error


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


def flow_record(feature_set: FeatureSet, model: Model) -> Flow:
    """The flow table that the program has, as the manifest states it."""
    used = model.used_features
    state = [StateField.model_validate(asdict(field)) for field in state_fields(feature_set, used)]
    entry4, entry6 = (entry_size(feature_set, version, used) for version in (4, 6))
    claim = claim_offset(feature_set, used)
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
        features=flow_features(feature_set, used),
        aggregates=[_aggregate(feature_set, used, by) for by in feature_set.aggregates(used)],
    )


def _aggregate(feature_set: FeatureSet, used: Collection[int], by: str) -> Aggregate:
    entry4, entry6 = (entry_size(feature_set, version, used, by) for version in (4, 6))
    layout = {"entry4": entry4, "state": [asdict(field) for field in state_fields(feature_set, used, by)]}
    record = {
        "by": by,
        "table_size": feature_set.aggregates_size,
        "entry4_size": entry4,
        "entry6_size": entry6,
        "layout_digest": hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest(),
    }
    return Aggregate.model_validate(record)
