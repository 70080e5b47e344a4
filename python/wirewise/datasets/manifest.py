# SPDX-License-Identifier: Apache-2.0
"""A folder of captures with a `manifest.json` that says what each file and each packet is.

The manifest is a list with one object for each file: `path`, `link_type`, `class` (of the attack or
application), `label` (`attack`, `mixed`, `benign`, `odd`), and for attacks the rules `attack_rule` and
`reply_rule` and what the `rest` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wirewise.datasets.captures import READABLE_LINKS, CapturedPacket, link_name
from wirewise.datasets.labels import UNLABELLED, Labeller, Rule
from wirewise.errors import InputError
from wirewise.feature_sets.packet import Packet
from wirewise.files import describe_validation_error, parse_json, read_bytes

BENIGN = "benign"
MANIFEST = "manifest.json"
_LIMIT = 256 << 20


class CaptureEntry(BaseModel):
    """What the manifest says of one file; what we do not need is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    path: str
    link_type: str
    packets: int
    duration_s: float | None = None
    group: str = Field(alias="class")
    label: Literal["attack", "mixed", "benign", "odd"]
    attack_rule: Rule | None = None
    reply_rule: Rule | None = None
    rest: str | None = None
    source_repo: str | None = None
    attack_packets: int | None = None
    reply_packets: int | None = None

    def labeller(self) -> Labeller:
        """`benign`, the class of the attack, or unlabelled: replies, and what the manifest cannot tell.

        Replies get the label of their flow in the table (`table.whole_flows`).
        """
        if self.label == "benign":
            return lambda captured, packet: BENIGN
        if self.attack_rule is None:
            return lambda captured, packet: UNLABELLED
        attack = self.attack_rule.compile(0)
        reply = self.reply_rule.compile(0) if self.reply_rule else None
        rest = BENIGN if self.rest == "benign" else UNLABELLED
        name = self.group.replace("_", "-")

        def label(captured: CapturedPacket, packet: Packet | None) -> str:
            if attack.holds(captured, packet):
                return name
            return UNLABELLED if reply and reply.holds(captured, packet) else rest

        return label


@dataclass(frozen=True)
class LeftOut:
    """Captures that a folder leaves out for one reason. captures : how many; example : the path of one."""

    reason: str
    captures: int
    example: str


def left_out_text(left_out: Sequence[LeftOut]) -> str:
    """All of them in one line."""
    reasons = (f"{one.captures:,} {one.reason} (such as {one.example})" for one in left_out)
    return f"{sum(one.captures for one in left_out):,} captures left out: {', '.join(reasons)}"


@dataclass(frozen=True)
class CaptureFolder:
    """Captures and their manifest."""

    path: Path
    entries: tuple[CaptureEntry, ...]
    _by_path: dict[Path, CaptureEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {(self.path / entry.path).resolve(): entry for entry in self.entries}
        object.__setattr__(self, "_by_path", known)

    @classmethod
    def read(cls, path: str | Path) -> CaptureFolder:
        """Raises InputError when the folder has no manifest or it is not one."""
        path = Path(path)
        file = path / MANIFEST
        try:
            document = parse_json(read_bytes(file, what="manifest of captures", limit=_LIMIT))
            entries = TypeAdapter(list[CaptureEntry]).validate_python(document)
        except ValidationError as error:
            raise InputError(str(file), describe_validation_error(error), "see docs/labels.md") from error
        except ValueError as error:
            rule = f"is not JSON ({error})"
            raise InputError(str(file), rule, "give a folder with a manifest.json") from error
        return cls(path, tuple(entries))

    def usable(self, links: frozenset[str] = READABLE_LINKS) -> tuple[list[CaptureEntry], list[LeftOut]]:
        """The captures to learn from: of these link types, and not `odd`; and the others by reason, the most
        frequent first.
        """
        usable: list[CaptureEntry] = []
        left_out: dict[str, list[str]] = {}
        for entry in self.entries:
            link = link_name(int(entry.link_type)) if entry.link_type.isdecimal() else entry.link_type
            if entry.label == "odd":
                left_out.setdefault("marked as odd", []).append(entry.path)
            elif link not in links:
                left_out.setdefault(f"link type {link}", []).append(entry.path)
            else:
                usable.append(entry)
        by_reason = [LeftOut(reason, len(paths), paths[0]) for reason, paths in left_out.items()]
        return usable, sorted(by_reason, key=lambda one: -one.captures)

    def file(self, entry: CaptureEntry) -> Path:
        return self.path / entry.path

    def application(self, capture: Path) -> str:
        """What a benign capture is of; "" for any other file."""
        entry = self._by_path.get(capture.resolve())
        return entry.group.replace("_", "-") if entry and entry.label == BENIGN else ""

    def source(self, capture: Path) -> str:
        """Where a file comes from; "" if that is not known."""
        entry = self._by_path.get(capture.resolve())
        return (entry.source_repo if entry else None) or ""

    def labeller(self, capture: Path) -> Labeller:
        entry = self._by_path.get(capture.resolve())
        if entry is None:
            rule = f"is not in {self.path / MANIFEST}"
            raise InputError(str(capture), rule, "label it with a label file")
        return entry.labeller()
