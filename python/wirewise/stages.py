# SPDX-License-Identifier: Apache-2.0
"""Where a packet's time goes in a bundle's program: the same program without its model, without its features.

Three programs take turns in this kernel, without an interface (`wirewised bench`): parsing alone, with the
features that the model reads, and the bundle's own. What one takes more than the one before is a stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from wirewise import agent, ending, html
from wirewise.errors import MissingFeatureError
from wirewise.feature_sets import Feature
from wirewise.formats.bundle import Bundle
from wirewise.targets.ebpf import build, emit

STAGES = ("parsing, policy and counters", "flow table and features", "model")


@dataclass(frozen=True)
class Stage:
    """A part of the way: its share of the code, and of the time if that was measured (ns a packet)."""

    name: str
    instructions: int
    ns: float | None


@dataclass(frozen=True)
class Cost:
    """Where the time goes. measured : on what, or why the time was not measured."""

    bundle: str
    stages: list[Stage]
    measured: str

    @property
    def ns(self) -> float | None:
        """Of all stages, ns a packet; None if it was not measured."""
        known = [stage.ns for stage in self.stages if stage.ns is not None]
        return sum(known) if known else None

    def __repr__(self) -> str:
        parts = ", ".join(f"{stage.name} {self.amount(stage)}" for stage in self.stages)
        return f"<Cost of {self.bundle!r}: {parts}>"

    def amount(self, stage: Stage) -> str:
        """Of one stage, with its unit."""
        return f"{stage.instructions:,} instructions" if stage.ns is None else f"{stage.ns:.1f} ns"

    def length(self, stage: Stage) -> float:
        """Of one stage's bar: ns, or instructions where no time is known."""
        return float(stage.instructions) if stage.ns is None else stage.ns

    def to_html(self) -> str:
        """Bars, in the order of the way."""
        rows = [(stage.name, self.length(stage), self.amount(stage)) for stage in self.stages]
        return html.bars(rows) + html.paragraph(self.measured)

    def _repr_html_(self) -> str:
        return html.fragment(html.heading(f"Where time goes in {self.bundle}"), self.to_html())


def cost(bundle: Bundle, *, measure: bool | None = None) -> Cost:
    """Where the time of a bundle goes: instructions of each stage, and ns a packet of one flow.

    measure : whether to run the programs in this kernel, some seconds; None is if privileges allow. Nothing
    is attached. A stage that costs less than the noise can come out below 0. Raises MissingFeatureError
    without clang, or if it must measure and may not.
    """
    feature_set = bundle.feature_set
    used = tuple(feature_set.features[index] for index in bundle.model.used_features)
    packet_alone = replace(feature_set, features=(Feature.parse("length"),))
    before = [packet_alone, replace(feature_set, features=used) if used else packet_alone]
    built = [build(emit(None, features)) for features in before]
    counts = [0, *(program.instructions for program in built), bundle.manifest.program.instructions]
    objects = [*(program.object for program in built), bundle.program]
    times: list[float | None] = [None] * len(objects)
    measured = "instructions of the code, of which a packet runs a part; time was not to be measured"
    if measure is not False:
        try:
            said = bench(objects)
        except MissingFeatureError as error:
            if measure:
                raise
            measured = f"instructions of the code, of which a packet runs a part; no time, as {error}"
        else:
            totals = [0.0, *(float(result["ns_per_packet"]) for result in said["results"])]
            times = [after - first for first, after in pairwise(totals)]
            measured = f"ns a packet, packets of one flow, on Linux {said['kernel']}"
    code = [after - first for first, after in pairwise(counts)]
    stages = [Stage(*stage) for stage in zip(STAGES, code, times, strict=True)]
    return Cost(bundle.manifest.name, stages, measured)


def bench(objects: list[bytes]) -> dict[str, Any]:
    """What `wirewised bench` says of programs that take turns in this kernel, packets of one flow. Raises
    MissingFeatureError.
    """
    with ending.temporary_folder() as folder:
        arguments: list[str | Path] = []
        for index, data in enumerate(objects):
            path = folder / f"{index}.bpf.o"
            path.write_bytes(data)
            arguments += ["--object", path]
        return agent.call("bench", *arguments)
