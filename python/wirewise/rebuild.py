# SPDX-License-Identifier: Apache-2.0
"""Whether sources, manifest and card of a bundle are what wirewise writes for its model and feature set."""

from __future__ import annotations

import wirewise
from wirewise.errors import InputError
from wirewise.formats.bundle import FEATURES, MODEL, Bundle, feature_records, model_record
from wirewise.formats.card import write_card
from wirewise.targets.ebpf import EBPF
from wirewise.targets.ebpf.target import ENTRY, SECTION, flow_record
from wirewise.text import harmless_document


def compare(source: str, bundle: Bundle) -> None:
    """Generates everything again that follows from model.json and features.json, and compares it.

    source : the bundle's name in errors. Raises InputError for the first difference.
    """
    manifest, model, feature_set = bundle.manifest, bundle.model, bundle.feature_set
    sources = EBPF.emit(model, feature_set, EBPF.choose({}, manifest.program))
    for name in sorted(sources.files.keys() | bundle.sources.keys()):
        if sources.files.get(name) != bundle.sources.get(name):
            raise _differs(source, bundle, f"sources/{name}", f"what it writes for {MODEL} and {FEATURES}")
    program = manifest.program
    record = model_record(model, manifest.model.source, manifest.model.notes).model_dump()
    facts: dict[str, tuple[object, object]] = {
        "features": (manifest.features, feature_records(feature_set)),
        "flow": (manifest.flow, flow_record(feature_set, model)),
        "model": (manifest.model.model_dump(), harmless_document(record)),
        "program": (
            (program.section, program.entry, program.tail_calls, program.shape),
            (SECTION, ENTRY, list(sources.tail_calls), sources.shape),
        ),
    }
    for key, (stated, expected) in facts.items():
        if stated != expected:
            raise _differs(source, bundle, f"{key!r} in manifest.json", f"what {MODEL} and {FEATURES} give")
    if bundle.card != write_card(manifest, model):
        raise _differs(source, bundle, "card.md", "what the manifest gives")


def _differs(source: str, bundle: Bundle, what: str, expected: str) -> InputError:
    this, made_by = f"wirewise {wirewise.__version__}", bundle.manifest.made_by
    why = "was changed" if made_by == this else f"was changed, or made by another version ({made_by})"
    return InputError(source, f"{what} is not {expected} in {this}", f"the bundle {why}")
