# SPDX-License-Identifier: Apache-2.0
"""The manifest of a bundle, `manifest.json`, version 1: what the bundle says of itself.

The agent reads the same records (crates/wirewised, `Manifest`). A field that is added gets a default, so
that bundles made before it still load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wirewise.abi import ABI_VERSION, MAX_CLASSES, MAX_FEATURES
from wirewise.errors import InputError
from wirewise.files import describe_validation_error
from wirewise.formats.records import AccuracyFacts, FidelityFacts, TrainingFacts, VerifierFacts
from wirewise.names import MAX, is_feature_name, is_name, is_network_name
from wirewise.text import harmless_document

FORMAT: Final = "wirewise-bundle"
VERSION: Final = 1

Count = Field(ge=0)


class _Record(BaseModel):
    """Part of a manifest. Unknown keys are refused: a misspelt one would read as a missing value."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StateField(_Record):
    """One variable of a flow's state; offset in bytes from the start of the state."""

    name: str
    type: Literal["u8", "u16", "u32", "u64", "s32", "s64"]
    offset: int = Count


class FlowFeature(_Record):
    """A feature that a flow's state alone gives, as of its last packet: value / 2^fraction_bits in `unit`.

    how : `value`, the variable as it is; `complement`, 2^shift - 1 less the variable; `ratio`,
    (variable << shift) / samples >> drop; the latter two are 0 without samples. variable, samples : names in
    `Flow.state`, or `packets` of the flow, or `intervals` between them, one less.
    """

    name: str
    unit: str
    fraction_bits: int = Field(ge=0, le=63)
    how: Literal["value", "complement", "ratio"]
    variable: str
    samples: str
    shift: int = Field(default=0, ge=0, le=63)
    drop: int = Field(default=0, ge=0, le=63)


class Aggregate(_Record):
    """Tables of what is kept of all packets with the same source, service or other end; as in Flow."""

    by: Literal["source", "destination", "service", "pair", "client-port", "hosts"]
    table_size: int = Field(ge=4)
    entry4_size: int = Count
    entry6_size: int = Count
    layout_digest: str


class Flow(_Record):
    """The flow table: sizes in bytes, times in nanoseconds, table_size in entries: of all CPUs together if
    they share it, else of each. claim : of a shared table, where in an entry's state its claim lies.
    features : what the state gives for people to read. aggregates : what is kept beside the flows.
    """

    key: str
    table_size: int = Field(ge=4)
    sharing: Literal["shared", "per-cpu"]
    claim: int | None = None
    idle_timeout_ns: int = Field(gt=0)
    grace_ns: int = Count
    proven_packets: int = Field(ge=1)
    clock: Literal["fine", "coarse"]
    entry4_size: int = Count
    entry6_size: int = Count
    layout_digest: str
    state: list[StateField]
    features: list[FlowFeature] = []
    aggregates: list[Aggregate] = []


class Histogram(_Record):
    """A feature over flows, as integers. edges : first values of all bins but the first, ascending. low, high
    : the least and largest value. counts : flows, by class and bin.
    """

    name: str
    low: int
    high: int
    edges: list[int] = Field(max_length=31)
    counts: list[list[int]]


class Reference(_Record):
    """What live flows are compared with: the rows that the model learned from, each flow at its last.

    packets, flows : how many, by the class that the model says. features : those that a flow's state gives.
    """

    packets: list[int]
    flows: list[int]
    features: list[Histogram]


class FeatureRecord(_Record):
    """One feature: what it is, and how its integer is read (value / 2^fraction_bits, in `unit`)."""

    name: str
    spec: str
    unit: str
    fraction_bits: int
    minimum: int
    maximum: int


class Program(_Record):
    """The eBPF object: how it was built and what the kernel said. verifier None: not asked (no privilege)."""

    section: str
    entry: str
    tail_calls: list[str]
    shape: str
    why: str
    instructions: int = Count
    object_bytes: int = Count
    clang: str
    predicted: dict[str, Any]
    verifier: VerifierFacts | None


class ModelRecord(_Record):
    """What the model is, without reading it.

    used_features : indices of the features that the program computes, ascending; n_outputs : how many scores
    the model gives. None in bundles made before these were stated. networks : names of a bank's, in the order
    of their scores.
    """

    family: str
    digest: str
    n_features: int = Field(ge=1)
    n_classes: int = Field(ge=2)
    summary: str
    source: str = ""
    notes: list[str] = []
    used_features: list[int] | None = None
    n_outputs: int | None = Field(default=None, ge=1, le=MAX_CLASSES)
    networks: list[str] | None = Field(default=None, min_length=2, max_length=MAX_CLASSES)


class Manifest(_Record):
    """`manifest.json`, version 1."""

    format: Literal["wirewise-bundle"] = FORMAT
    version: Literal[1] = VERSION
    abi: int = ABI_VERSION
    name: str
    created: str
    classes: list[str] = Field(min_length=2, max_length=MAX_CLASSES)
    digests: dict[str, str]
    feature_names: list[str] = Field(min_length=1, max_length=MAX_FEATURES)
    features: list[FeatureRecord] = []
    flow: Flow
    program: Program
    model: ModelRecord
    reference: Reference | None = None
    training: TrainingFacts | None = None
    fidelity: FidelityFacts | None = None
    accuracy: AccuracyFacts | None = None
    tools: dict[str, str]

    @property
    def made_by(self) -> str:
        """The wirewise that made it."""
        return f"wirewise {self.tools.get('wirewise', 'of an unknown version')}"

    @classmethod
    def parse(cls, document: object, source: str) -> Manifest:
        """The manifest of a bundle from its JSON. source: the bundle's name in errors. Raises InputError."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(
                source, "its manifest is not one of a wirewise bundle", "make one with `wirewise compile`"
            )
        for key, known in (("version", VERSION), ("abi", ABI_VERSION)):
            if document.get(key) != known:
                raise InputError(
                    source, f"{key} {document.get(key)!r} is unknown, this wirewise reads {key} {known}",
                    "use the wirewise that wrote it, or compile the model again",
                )  # fmt: skip
        if harmless_document(document) != document:
            raise InputError(
                source,
                "manifest.json holds a character that a terminal would obey or hide",
                "compile it again",
            )
        try:
            manifest = cls.model_validate(document)
        except ValidationError as error:
            raise InputError(
                source, f"manifest.json: {describe_validation_error(error)}", "compile it again"
            ) from error
        manifest.check_names(source)
        return manifest

    @property
    def meaning(self) -> bytes:
        """What `meaning` gives for what it says."""
        return meaning(self.classes, self.feature_names, self.features, self.flow, self.model.networks)

    def check_names(self, source: str) -> None:
        """Raises InputError for a name that is none; source: the bundle's name in errors."""
        shown = (*self.classes, self.name, self.program.clang, *self.tools.keys(), *self.tools.values())
        identifiers = (
            *self.feature_names, *(f.name for f in self.features), *(f.name for f in self.flow.features),
            # Of a window, and of what is in it.
            *(part for f in self.flow.state for part in f.name.split(".")),
            self.program.entry, *self.program.tail_calls,
        )  # fmt: skip
        for names, is_one, rule in (
            (shown, is_name, f"use 1 to {MAX} printable characters"),
            (identifiers, is_feature_name, "use lower-case letters, digits and _"),
            (self.model.networks or (), is_network_name, "use letters, digits and _ . -"),
        ):
            for name in names:
                if not is_one(name):
                    raise InputError(source, f"{name!r} cannot be a name", rule)
        if len(set(self.classes)) != len(self.classes):
            raise InputError(source, "a class name stands twice", "name each class once")


def meaning(
    classes: Sequence[str],
    feature_names: Sequence[str],
    features: Sequence[FeatureRecord],
    flow: Flow,
    networks: Sequence[str] | None,
) -> bytes:
    """SHA-256, 32 bytes, of what the numbers of a program mean by its manifest.

    It is compiled into the program, so that no manifest gives its verdicts other names. The agent makes the
    same text (`Manifest::meaning`).
    """
    document = {
        "classes": list(classes),
        "feature_names": list(feature_names),
        "features": [feature.model_dump() for feature in features],
        "flow": flow.model_dump(),
        "networks": None if networks is None else list(networks),
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()
