# SPDX-License-Identifier: Apache-2.0
"""Compares the reference with the object in the kernel and in the engine, packet by packet and flow by flow.

    assert_agree(case, frames, folder)

A difference is shrunk to a short sequence of packets and reported with all that is needed to repeat it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from tests import needs
from tests.parity.cases import HASH_SEED, SMALL_LIMITS, Case
from tests.parity.frames import TimedFrame
from wirewise import agent
from wirewise.abi import Status
from wirewise.compiler import compile
from wirewise.datapath import DataPath, Decision
from wirewise.datasets import read_ethernet, write_capture
from wirewise.errors import WirewiseError
from wirewise.fate import Fate
from wirewise.feature_sets import FIELDS, Extractor
from wirewise.feature_sets.accumulators import CELLS
from wirewise.feature_sets.fields import BIDIRECTIONAL
from wirewise.feature_sets.flow import Entry, seed_from
from wirewise.feature_sets.state import (
    FlowState,
    ScopeState,
    previous_variable,
    track_suffix,
    way_variable,
)
from wirewise.policy import Policy
from wirewise.targets.ebpf import shapes

# Where the object runs; WIREWISE_PARITY_PLANES=engine compares there only.
PLANES = tuple(os.environ.get("WIREWISE_PARITY_PLANES", "kernel,kernel-tc,engine").split(","))

needs_kernel = needs.root

XDP_CODES = {Fate.DROP: 1, Fate.PASS: 2, Fate.BOUNCE: 3, Fate.REDIRECT: 4}
MOST_TRIES = 500
MODEL_SHOWN = 4000  # characters
_DESCRIBED = ("described", "flow_hash", "described_score")
_HEAD = (
    "status", "inferred", "class_id", "action", "outcome", "refused", "packets", "xdp_return", *_DESCRIBED,
)  # fmt: skip

FlowPlace = tuple[int, int, int]  # IP version, bucket, way


@dataclass(frozen=True)
class Run:
    """What one side made of a sequence. heads: (packets, 11), features, scores: int64, a row per packet."""

    heads: NDArray[np.int64]
    features: NDArray[np.int64]
    scores: NDArray[np.int64]
    flows: dict[FlowPlace, dict[str, Any]]
    left: list[bytes] | None = None
    """The frames that were not dropped, as they are afterwards; None: the policy changes none."""
    plane: str = "reference"

    @property
    def statuses(self) -> set[Status]:
        return {Status(int(value)) for value in np.unique(self.heads[:, 0])}


@dataclass(frozen=True)
class Difference:
    """packet: index of the first packet that differs, None where only the flow tables do at the end."""

    packet: int | None
    what: str
    reference: object
    plane: str
    object: object

    def __str__(self) -> str:
        where = "the flow table" if self.packet is None else f"packet {self.packet + 1}"
        return f"{where}: {self.what}: reference {self.reference}, {self.plane} {self.object}"


class Comparison:
    """One case, compiled, with the files it needs in `folder`."""

    def __init__(self, case: Case, folder: Path, *, cpus: int = 1, planes: Sequence[str] = PLANES) -> None:
        """cpus: of this machine's, on one of which each packet runs in the kernel; then only there."""
        self.case, self._folder, self._cpus = case, folder, cpus
        self.planes = planes if cpus == 1 else ("kernel",)
        self.bundle, self._policy = folder / "case.wirewise", folder / "policy.yaml"
        self._policy.write_text(yaml.safe_dump(case.policy))
        self._both_ways = case.feature_set.key.startswith(BIDIRECTIONAL)
        self._steers = any(rule.steering for rule in Policy.load(self._policy, case.classes).actions)
        limits: AbstractContextManager[Any] = nullcontext()
        if case.small_limits:
            limits = patch.multiple(shapes, **SMALL_LIMITS)
        with limits:
            compiled = compile(
                case.model,
                case.feature_set,
                name="case",
                classes=case.classes,
                shape=case.shape,
                verify="never",
            )
        self.programs = 1 + len(compiled.bundle.manifest.program.tail_calls)
        self.shape = compiled.bundle.manifest.program.shape
        compiled.bundle.write(self.bundle)

    def traced(self, frames: Sequence[TimedFrame] | Path, plane: str) -> Run:
        """What the object makes of them on one of the planes. frames: or a capture file."""
        capture = frames if isinstance(frames, Path) else self._folder / "packets.pcap"
        if not isinstance(frames, Path):
            write_capture(capture, frames)
        flows, packets = self._folder / "flows", self._folder / "left.pcap" if self._steers else None
        records = agent.trace(
            capture, self.bundle, n_features=len(self.case.feature_set.features), policy=self._policy,
            mode=self.case.mode, seed=HASH_SEED, flows=flows, packets=packets, plane=plane,
            cpus=self._cpus if plane == "kernel" else 1,
            observe=[name if time is None else f"{name}={time}ns" for name, time in self.case.observe],
        )  # fmt: skip
        heads = np.stack([records[name] for name in _HEAD], axis=1).astype(np.int64)
        dumped = [json.loads(line) for line in flows.read_text().splitlines()]
        for flow in dumped:
            del flow["cpu"]
        by_place = {(f.pop("ip_version"), f.pop("bucket"), f.pop("way")): f for f in dumped}
        left = [packet.frame for packet in read_ethernet(packets)] if packets else None
        return Run(heads, records["feature"], records["score"], by_place, left, plane)

    def reference(self, frames: Sequence[TimedFrame]) -> Run:
        case = self.case
        path = DataPath(
            case.feature_set, case.model, Policy.parse(self._policy.read_text(), case.classes),
            enforce=case.mode == "enforce", hash_seed=seed_from(HASH_SEED), observe=dict(case.observe),
        )  # fmt: skip
        no_features, no_scores = [0] * len(case.feature_set.features), [0] * case.model.n_outputs
        heads, features, scores, left = [], [], [], []
        for time_ns, frame in frames:
            said = path.process(frame, time_ns)
            seen = said.observation
            heads.append(
                (
                    said.status, said.inferred, said.class_id or 0, said.action or 0, said.outcome or 0,
                    seen is not None and seen.refused, seen.packets if seen else 0,
                    XDP_CODES[said.fate],
                    *described(said, both_ways=self._both_ways).values(),
                )
            )  # fmt: skip
            if not said.drops:
                left.append(said.frame)
            features.append(seen.features if seen and said.inferred else no_features)
            scores.append(said.scores or no_scores)
        flows = {
            (version, number, way): _flow(entry, path.extractor)
            for version, table in path.extractor.tables[""].items()
            for number, bucket in table.buckets.items()
            for way, entry in enumerate(bucket)
            if entry.packets
        }
        as_array = lambda rows: np.array(rows, np.int64).reshape(len(frames), -1)  # noqa: E731
        return Run(
            as_array(heads), as_array(features), as_array(scores), flows, left if self._steers else None
        )

    def difference(self, frames: Sequence[TimedFrame]) -> Difference | None:
        return self.compare(self.reference(frames), frames)

    def compare(self, ours: Run, frames: Sequence[TimedFrame] | Path) -> Difference | None:
        """The first difference to the reference's run; frames: or the capture file they are in."""
        found = (self.first_difference(ours, self.traced(frames, plane)) for plane in self.planes)
        return next((difference for difference in found if difference), None)

    def first_difference(self, ours: Run, theirs: Run) -> Difference | None:
        plane = theirs.plane
        if len(ours.heads) != len(theirs.heads):
            return Difference(None, "number of packets", len(ours.heads), plane, len(theirs.heads))
        names = (
            _HEAD,
            [f"feature {f.name}, {f.spec}" for f in self.case.feature_set.features],
            [f"score {output}" for output in range(self.case.model.n_outputs)],
        )
        # The order in which one is the consequence of another.
        parts = [
            (ours.heads[:, :1], theirs.heads[:, :1], names[0][:1]),
            (ours.features, theirs.features, names[1]),
            (ours.scores, theirs.scores, names[2]),
            (ours.heads, theirs.heads, names[0]),
        ]
        rows = [int(np.flatnonzero((a != b).any(axis=1))[0]) for a, b, _ in parts if (a != b).any()]
        for a, b, labels in parts:
            if rows and (a[min(rows)] != b[min(rows)]).any():
                row = min(rows)
                column = int(np.flatnonzero(a[row] != b[row])[0])
                return Difference(row, labels[column], int(a[row, column]), plane, int(b[row, column]))
        if ours.left != theirs.left:
            yours, mine = theirs.left or [], ours.left or []
            row = next(
                (n for n, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b),
                min(len(mine), len(yours)),
            )
            found = [frames[row].hex() if row < len(frames) else "none" for frames in (mine, yours)]
            return Difference(None, f"packet {row + 1} of those that are left", found[0], plane, found[1])
        for place in sorted(ours.flows.keys() | theirs.flows.keys()):
            for what, a, b in _entry_differences(ours.flows.get(place), theirs.flows.get(place)):
                version, bucket, way = place
                return Difference(None, f"IPv{version}, bucket {bucket}, way {way}: {what}", a, plane, b)
        return None


def described(said: Decision, *, both_ways: bool) -> dict[str, int]:
    """The struct ww_description of a packet, by the reference."""
    if said.metadata is None:
        return {"described": 0, "flow_hash": 0, "described_score": 0}
    flags = 1
    flags |= 2 if said.metadata.score is not None else 0
    flags |= (4 | (8 if both_ways else 0)) if said.metadata.changed else 0
    score = said.metadata.score or 0
    return {"described": flags, "flow_hash": said.metadata.flow_hash, "described_score": score}


def assert_agree(
    case: Case,
    frames: Sequence[TimedFrame],
    folder: Path,
    *,
    seen: Callable[[Run], None] = lambda run: None,
    cpus: int = 1,
    planes: Sequence[str] = PLANES,
) -> Comparison:
    """Fails with the shortest sequence found that makes the two sides differ. seen: gets the reference's
    run. cpus, planes: as `Comparison` has them.
    """
    try:
        comparison = Comparison(case, folder, cpus=cpus, planes=planes)
        ours = comparison.reference(frames)
        difference = comparison.compare(ours, frames)
    except WirewiseError as error:
        pytest.fail(f"{error}\n{describe(case)}", pytrace=False)
    if difference is not None:
        fail(comparison, frames)
    seen(ours)
    return comparison


def fail(comparison: Comparison, frames: Sequence[TimedFrame]) -> None:
    pytest.fail(report(comparison, frames), pytrace=False)


def report(comparison: Comparison, frames: Sequence[TimedFrame]) -> str:
    """What is needed to repeat and understand a difference."""
    shrunk = shrink(comparison, frames)
    lines = [
        str(comparison.difference(shrunk)),
        describe(comparison.case),
        f"{len(shrunk)} packets (ns, frame):",
    ]
    lines += [f"  ({time_ns}, bytes.fromhex({frame.hex()!r}))," for time_ns, frame in shrunk[:60]]
    return "\n".join(lines)


def describe(case: Case) -> str:
    model = json.dumps(case.model.to_dict())
    if len(model) > MODEL_SHOWN:
        model = case.model.describe()
    return "\n".join(
        [
            f"seed: {case.seed}",
            f"feature set: {json.dumps(case.feature_set.to_dict())}",
            f"model ({case.kind}, shape {case.shape}, small limits {case.small_limits}): {model}",
            f"policy ({case.mode}, observed {dict(case.observe)}): {json.dumps(case.policy)}",
        ]
    )


def shrink(comparison: Comparison, frames: Sequence[TimedFrame]) -> list[TimedFrame]:
    """Drops packets as long as some difference remains (delta debugging, up to MOST_TRIES)."""
    tries = count(1)
    kept = list(frames)
    found = comparison.difference(kept)
    if found and found.packet is not None:
        kept = kept[: found.packet + 1]
    size = max(1, len(kept) // 2)
    while True:
        for shorter in _without_a_part(kept, size):
            if next(tries) > MOST_TRIES:
                return kept
            found = comparison.difference(shorter)
            if found:
                kept = shorter if found.packet is None else shorter[: found.packet + 1]
                break
        else:
            if size == 1:
                return kept
            size = max(1, size // 2)
        size = max(1, min(size, len(kept) // 2))


def _without_a_part(frames: list[TimedFrame], size: int) -> Iterator[list[TimedFrame]]:
    for start in range(0, len(frames), size):
        shorter = frames[:start] + frames[start + size :]
        if shorter:
            yield shorter


# -- flow table


def _flow(entry: Entry, extractor: Extractor) -> dict[str, Any]:
    """An entry of the reference's table as the agent dumps one."""
    assert entry.key is not None
    key = entry.key
    from ipaddress import ip_address

    return {
        "source": str(ip_address(key.source)),
        "destination": str(ip_address(key.destination)),
        "source_port": key.source_port,
        "destination_port": key.destination_port,
        "protocol": key.protocol,
        **({} if key.teid is None else {"teid": key.teid}),
        "packets": entry.packets,
        "last_seen_ns": entry.last_seen_ns,
        "class_id": entry.verdict,
        "swapped": entry.swapped,
        "state": _state(entry, extractor),
        "features": _features(entry.state, extractor),
    }


def _features(state: FlowState, extractor: Extractor) -> dict[str, tuple[int, str]]:
    """What the state alone gives, by the reference: those features that do not look at the last packet."""
    feature_set, found = extractor.feature_set, dict[str, tuple[int, str]]()
    for feature in (*feature_set.kept, *feature_set.features):
        field, accumulator, scope = feature.field, feature.accumulator, feature.scope
        if scope.previous and not scope.by:
            windows = [w for w in extractor.layouts[""].windows if w.window_ns == scope.window_ns]
            if any(previous_variable(feature) in window.previous_variables for window in windows):
                value = state.previous[scope.window_ns].read(feature, None)
                found[feature.name] = (value, feature.unit)
            continue
        if scope.by or (accumulator is not None and accumulator.of_state is None):
            continue
        values = state.flow
        if scope.window_ns:
            if scope.window_ns not in state.current:
                continue
            values = state.current[scope.window_ns]
        if feature.sampling not in values.samples:
            continue
        if field is not None:
            place = (field.name, scope.direction)
            if accumulator is None or accumulator.of_sample or place not in values.cells:
                continue
            if not {v for c in accumulator.cells for v in CELLS[c].variables} <= values.cells[place].keys():
                continue
        value = values.read(feature, None)
        found[feature.name] = (value, feature.unit)
    return found


def _state(entry: Entry, extractor: Extractor) -> dict[str, int]:
    """Every variable the reference has, by its name in the generated C."""
    state, layout = entry.state, extractor.layouts[""]

    def scope(prefix: str, values: ScopeState) -> dict[str, int]:
        cells = {
            f"{prefix}{v}_{track_suffix(FIELDS[field], direction)}": x
            for (field, direction), cells in values.cells.items()
            for v, x in cells.items()
        }
        return cells | {f"{prefix}{sampling.variable}": n for sampling, n in values.samples.items()}

    named = scope("", state.flow) | {"first_seen_ns": state.first_seen_ns}
    named |= {way_variable(way): seen_ns for way, seen_ns in state.way_seen_ns.items()}
    if layout.paths:
        named |= state.rounds.variables
    for window in layout.windows:
        named[window.offset[0]] = entry.last_seen_ns - state.start_ns[window.window_ns]
        named |= scope(f"current_{window.suffix}.", state.current[window.window_ns])
        for feature in window.previous:
            variable = f"previous_{window.suffix}.{previous_variable(feature)}"
            named[variable] = state.previous[window.window_ns].read(feature, None)
    return named


def _entry_differences(
    ours: dict[str, Any] | None, theirs: dict[str, Any] | None
) -> Iterator[tuple[str, object, object]]:
    """The kernel keeps only the state that is needed; what it keeps must be what the reference has."""
    if ours is None or theirs is None:
        yield "entry", ours, theirs
        return
    for name, value in ours.items():
        if name not in ("state", "features") and value != theirs[name]:
            yield name, value, theirs[name]
    for name, value in theirs["state"].items():
        if value != ours["state"].get(name):
            yield f"state {name}", ours["state"].get(name), value
    for feature in theirs["features"]:
        name, said = feature["name"], (feature["raw"], feature["unit"])
        if said != ours["features"].get(name):
            yield f"feature {name} of the state", ours["features"].get(name), said
