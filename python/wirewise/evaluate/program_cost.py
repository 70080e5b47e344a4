# SPDX-License-Identifier: Apache-2.0
"""What the programs of bundles cost a packet: instructions, and nanoseconds where they may be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wirewise.formats.bundle import Bundle
from wirewise.stages import bench


@dataclass(frozen=True)
class ProgramCost:
    """Instructions : of the program; a packet runs a part of them. verified : what the verifier walked when
    it was compiled, None if it was not asked. ns : a packet of one flow, the whole program; None unless it
    was measured. how : on what.
    """

    instructions: int
    verified: int | None
    ns: float | None
    how: str

    @property
    def text(self) -> str:
        """All of it in one line."""
        size = f"{self.instructions:,} instructions"
        if self.verified is not None:
            size += f" ({self.verified:,} verified)"
        return size if self.ns is None else f"{self.ns:,.0f} ns a packet ({self.how}); {size}"


def program_costs(bundles: Sequence[Bundle], *, measure: bool) -> list[ProgramCost]:
    """The cost of each, in order. measure : run all of them in this kernel, in turns, some seconds each.

    Raises MissingFeatureError if it must measure and may not.
    """
    times: list[float | None] = [None] * len(bundles)
    how = "not measured"
    if measure and bundles:
        said = bench([bundle.program for bundle in bundles])
        times = [float(result["ns_per_packet"]) for result in said["results"]]
        how = f"one flow, Linux {said['kernel']}"
    return [
        ProgramCost(
            bundle.manifest.program.instructions,
            (bundle.manifest.program.verifier or {}).get("verified_instructions"),
            ns,
            how,
        )
        for bundle, ns in zip(bundles, times, strict=True)
    ]
