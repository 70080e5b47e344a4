# SPDX-License-Identifier: Apache-2.0
"""Bundles: one file with all that a data plane needs, and where it came from.

A bundle is a zip archive, extension `.wirewise`, with these members: `manifest.json`, `model.json` (the IR),
`features.json` (the feature set), `program.bpf.o`, `card.md` (the model card) and `sources/...` (generated
C). The manifest has the SHA-256 of every other member. The archive's comment, the last 64 bytes of the file,
is the SHA-256 (hex) of all before it: a changed byte is found wherever it is, before anything else is read.
`wirewised sign` adds a member that is not in the manifest, `signature.json`. It is kept as it is, and only
the agent checks it: `wirewised verify`.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import wirewise
from wirewise import html
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.files import ELEMENTS, parse_json, read_bytes, write_atomically
from wirewise.formats import bundle_html
from wirewise.formats.card import write_card
from wirewise.formats.manifest import FeatureRecord, Flow, Manifest, ModelRecord, Program, Reference
from wirewise.models import BinaryBank, Bounded, Model
from wirewise.models import load as load_model
from wirewise.text import harmless_document

MAX_BYTES = 256 << 20  # of the file
MAX_OBJECT = 16 << 20  # of the program
# Members may unpack to _MAX_UNPACKED bytes plus _MAX_RATIO times the file, as in the agent (bundle/mod.rs).
_MAX_UNPACKED, _MAX_RATIO = 16 << 20, 8
_MAX_MEMBERS = 4096
_MANIFEST_ELEMENTS, _FEATURES_ELEMENTS = 320_000, 1 << 15

MANIFEST = "manifest.json"
MODEL = "model.json"
FEATURES = "features.json"
PROGRAM = "program.bpf.o"
CARD = "card.md"
SIGNATURE = "signature.json"
SOURCES = "sources/"
_CONFIG = b".rodata.ww_config"
SEAL = 64
"""Hex digits of SHA-256 at the end of the file; the agent calls them the bundle's digest."""
_ARCHIVE_END = struct.Struct("<4s6xH I4xH")  # signature, members, bytes of their list, bytes of the comment
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError, OSError, ValueError, OverflowError,
    LookupError,
)  # fmt: skip
_LISTED = 46 + 200 + 64  # bytes of a member's entry in that list: name and what else there may be


@dataclass(frozen=True)
class Bundle:
    """A bundle in memory; `read` and `write` are the only ways in and out of the file format."""

    manifest: Manifest
    model: Model
    feature_set: FeatureSet
    program: bytes
    card: str
    sources: Mapping[str, str]
    signature: bytes | None = None

    def __repr__(self) -> str:
        return f"<Bundle {self.manifest.name!r}: {self.manifest.model.summary}>"

    def _repr_html_(self) -> str:
        return html.fragment(*bundle_html.overview(self.manifest, self.model))

    def to_html(self, *more: str) -> str:
        """All that is in it as a page of its own; more : parts of `wirewise.html`, behind the overview."""
        overview = bundle_html.overview(self.manifest, self.model)
        details = bundle_html.details(self.manifest, self.model)
        return html.page(self.manifest.name, *overview, *more, *details)

    @property
    def signed_by(self) -> str | None:
        """Fingerprint of the key that the signature names, which is not checked here; None: not signed."""
        if self.signature is None:
            return None
        try:
            key = bytes.fromhex(parse_json(self.signature, elements=64)["public_key"])
        except (ValueError, KeyError, TypeError):
            return "unreadable"
        return _sha256(key)

    @property
    def classes(self) -> list[str]:
        return self.manifest.classes

    @classmethod
    def create(
        cls,
        *,
        name: str,
        classes: list[str],
        model: Model,
        feature_set: FeatureSet,
        flow: Flow,
        program: Program,
        object_file: bytes,
        sources: Mapping[str, str],
        source: str = "",
        notes: list[str] | None = None,
        reference: Reference | None = None,
        training: dict[str, Any] | None = None,
        fidelity: dict[str, Any] | None = None,
        accuracy: dict[str, Any] | None = None,
        tools: Mapping[str, str] | None = None,
    ) -> Bundle:
        """A bundle from its parts: checks that they belong together and writes the model card.

        tools : what the target made the program with, beside its compiler.
        """
        manifest = Manifest(
            name=name,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            classes=classes,
            digests={},
            feature_names=feature_set.feature_names,
            features=feature_records(feature_set),
            flow=flow,
            program=program,
            model=model_record(model, source, notes or []),
            reference=reference,
            training=training,
            fidelity=fidelity,
            accuracy=accuracy,
            tools={
                "wirewise": wirewise.__version__, "python": platform.python_version(), "clang": program.clang,
                **(tools or {}),
            },
        )  # fmt: skip
        # Texts may come from file names and estimators; whoever reads the bundle shows them on a terminal.
        document = manifest.model_dump()
        texts = ("model", "program", "training", "fidelity", "accuracy", "tools")
        document |= {key: harmless_document(document[key]) for key in texts}
        # Facts in the order in which the file gives them, so that the card of what is read is the same.
        manifest = Manifest.model_validate(json.loads(_json(document)))
        manifest.check_names(name)
        card = write_card(manifest, model)
        bundle = cls(manifest, model, feature_set, object_file, card, dict(sources))
        digests = {member: _sha256(data) for member, data in bundle._members().items()}
        bundle = replace(bundle, manifest=manifest.model_copy(update={"digests": digests}))
        _check_parts_agree(bundle, name)
        return bundle

    def _members(self) -> dict[str, bytes]:
        """Every member but the manifest."""
        members = {
            MODEL: json.dumps(self.model.to_dict(), separators=(",", ":")).encode(),
            FEATURES: _json(self.feature_set.to_dict()),
            PROGRAM: self.program,
            CARD: self.card.encode(),
        }
        return members | {SOURCES + path: text.encode() for path, text in sorted(self.sources.items())}

    def to_bytes(self) -> bytes:
        """The file's content; equal bundles give equal bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            members = {MANIFEST: _json(self.manifest.model_dump(mode="json"))} | self._members()
            if self.signature is not None:
                members[SIGNATURE] = self.signature
            for member, data in members.items():
                info = zipfile.ZipInfo(member)  # dated 1980-01-01
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
            archive.comment = b"0" * SEAL
        body = buffer.getvalue()[:-SEAL]
        return body + _sha256(body).encode()

    def write(self, path: str | Path) -> None:
        """Writes the file in one step: a reader sees the old content or the new. Raises InputError."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def read(cls, path: str | Path) -> Bundle:
        """A bundle from its file. Raises InputError, one line, if any byte is not what was written."""
        return cls.from_bytes(read_bytes(path, what="bundle", limit=MAX_BYTES), source=str(path))

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Bundle:
        """As `read`, from the file's content; source: its name in errors."""
        members = _unpack(data, source)
        if MANIFEST not in members:
            raise InputError(
                source, f"has no {MANIFEST}", "it is no bundle; make one with `wirewise compile`"
            )
        document = _parse_json(members.pop(MANIFEST), source, MANIFEST, _MANIFEST_ELEMENTS)
        manifest = Manifest.parse(document, source)
        signature = members.pop(SIGNATURE, None)
        for member in sorted(members.keys() | manifest.digests.keys()):
            if member not in members:
                raise InputError(
                    source, f"{member} is missing", "the bundle is damaged; copy or compile it again"
                )
            if manifest.digests.get(member) != _sha256(members[member]):
                raise InputError(
                    source, f"the digest of {member} is not the one in the manifest",
                    "the bundle is damaged or was edited; copy or compile it again",
                )  # fmt: skip
        for member in (MODEL, FEATURES, PROGRAM, CARD):
            if member not in members:
                raise InputError(source, f"{member} is missing", "the bundle is damaged; compile it again")
        if len(members[PROGRAM]) > MAX_OBJECT:
            rule = f"{PROGRAM} is larger than {MAX_OBJECT >> 20} MiB"
            raise InputError(source, rule, "which no program is; compile it again")
        try:
            model = load_model(_parse_json(members[MODEL], source, MODEL))
        except InputError as error:
            way_out = error.way_out or "the bundle is damaged; compile it again"
            raise InputError(f"{source}: {MODEL}: {error.subject}", error.rule, way_out) from error
        document = _parse_json(members[FEATURES], source, FEATURES, _FEATURES_ELEMENTS)
        features = FeatureSet.from_dict(document, source=f"{source}: {FEATURES}")
        bundle = cls(
            manifest,
            model,
            features,
            members[PROGRAM],
            _text(members[CARD], source, CARD),
            {
                member.removeprefix(SOURCES): _text(content, source, member)
                for member, content in members.items()
                if member.startswith(SOURCES)
            },
            signature,
        )
        _check_parts_agree(bundle, source)
        # The agent loads no program without a configuration.
        if _CONFIG in bundle.program and manifest.meaning not in bundle.program:
            raise InputError(
                source,
                f"{PROGRAM} is compiled for other names of classes, features or state than are stated",
                "the bundle was edited; copy or compile it again",
            )  # fmt: skip
        return bundle


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _text(data: bytes, source: str, member: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(source, f"{member} is not UTF-8 text", "compile the bundle again") from error


def _parse_json(data: bytes, source: str, member: str, elements: int = ELEMENTS) -> Any:
    try:
        return parse_json(data, elements=elements)
    except ValueError as error:
        raise InputError(source, f"{member} is not JSON ({error})", "compile the bundle again") from error


def _unpack(data: bytes, source: str) -> dict[str, bytes]:
    if not data.startswith(b"PK\x03\x04") or len(data) < SEAL + _ARCHIVE_END.size:
        raise InputError(source, "is not a wirewise bundle", "make one with `wirewise compile`")
    body, seal = data[:-SEAL], data[-SEAL:]
    if _sha256(body).encode() != seal:
        raise InputError(
            source, "the file's digest does not match its content",
            "it is damaged, cut off or no bundle; copy it again or make one with `wirewise compile`",
        )  # fmt: skip
    # The list of members is built when an archive is opened, whatever its length.
    end = len(data) - SEAL - _ARCHIVE_END.size
    signature, members, listed, comment = _ARCHIVE_END.unpack_from(data, end)
    if signature != b"PK\x05\x06" or comment != SEAL:
        raise InputError(source, "is not an archive as bundles are", "compile it again")
    if members > _MAX_MEMBERS or listed > _MAX_MEMBERS * _LISTED:
        raise InputError(source, f"has more than {_MAX_MEMBERS} members", "compile it again")
    most = _MAX_UNPACKED + _MAX_RATIO * len(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) != len(names):
                raise InputError(source, "holds a member twice", "compile it again")
            if sum(info.file_size for info in infos) > most:
                raise InputError(
                    source, f"unpacks to more than {most >> 20} MiB, which no bundle of its size does",
                    "compile it again",
                )  # fmt: skip
            # Others may ask for gigabytes before they give a byte.
            if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
                raise InputError(source, "holds a member that is not packed with deflate", "compile it again")
            return {name: archive.read(name) for name in names}
    except _UNREADABLE as error:
        raise InputError(source, f"is not a readable archive ({error})", "compile it again") from error


def feature_records(feature_set: FeatureSet) -> list[FeatureRecord]:
    """The features, as a manifest lists them."""
    return [
        FeatureRecord(
            name=f.name, spec=f.spec, unit=f.unit, fraction_bits=f.fraction_bits,
            minimum=f.minimum, maximum=f.maximum,
        )
        for f in feature_set.features
    ]  # fmt: skip


def model_record(model: Model, source: str, notes: list[str]) -> ModelRecord:
    """The model, as a manifest describes it. source, notes : of the importer."""
    return ModelRecord(
        family=model.family, digest=model.digest, n_features=model.n_features,
        n_classes=model.n_classes, summary=model.describe(), source=source, notes=notes,
        used_features=list(model.used_features), n_outputs=model.n_outputs,
        networks=model_networks(model),
    )  # fmt: skip


def model_networks(model: Model) -> list[str] | None:
    """Names of a bank's networks; None of other models."""
    inside = model.model if isinstance(model, Bounded) else model
    return list(inside.names) if isinstance(inside, BinaryBank) else None


def _check_parts_agree(bundle: Bundle, source: str) -> None:
    """The manifest repeats facts of the model and the feature set for readers that do not open them."""
    manifest, model = bundle.manifest, bundle.model
    checks: dict[str, tuple[object, object]] = {
        "model digest": (manifest.model.digest, model.digest),
        "number of classes": (len(manifest.classes), model.n_classes),
        "number of features": (len(bundle.feature_set.features), model.n_features),
        "feature names": (manifest.feature_names, bundle.feature_set.feature_names),
        "features": ([f.name for f in manifest.features], bundle.feature_set.feature_names),
        "flow key": (manifest.flow.key, bundle.feature_set.key),
    }
    if manifest.model.used_features is not None:
        checks["used features"] = (manifest.model.used_features, list(model.used_features))
    checks["networks"] = (manifest.model.networks, model_networks(model))
    if manifest.model.n_outputs is not None:
        checks["number of outputs"] = (manifest.model.n_outputs, model.n_outputs)
    for what, (stated, actual) in checks.items():
        if stated != actual:
            raise InputError(
                source, f"{what}: {stated!r} where the parts say {actual!r}",
                "model, feature set and classes must belong together",
            )  # fmt: skip
