# SPDX-License-Identifier: Apache-2.0
"""What is found of each family of attacks, by flow, capture and source; and which families may be dropped.

A total over flows is that of the family with the most flows, a flood or a scan. So each family is judged by
itself, and each of its sources counts the same, however many flows it has. Sources are what a manifest calls
`source_repo`, else captures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.evaluate.classes import nameless
from wirewise.evaluate.intervals import Interval

Advice = Literal["enforce", "observe", "not visible", "not tested"]

FEWEST_SOURCES = 2
"""Below which nothing is known of other sources."""
NOT_VISIBLE = 0.1
"""Mean share of a family's flows, here and in every dealing, below which it counts as not visible."""
VISIBLE = 0.5
"""Share of flows from which a later packet counts as showing a family, and a class as being of a kind."""


@dataclass(frozen=True)
class FlowVerdicts:
    """Verdicts on F flows, with C classes, of which the first is benign.

    capture, source, application, label : names, (F,); source "" where the table names none. truth : class
    numbers, (F,). at, ever : whether a class is the verdict on a flow at the moments at which it is judged,
    and on any of its packets, (F, C). by_packet : the same if it were judged at that packet, class
    numbers (F,). late : as `ever`, of the packets that a late model judges (see `phases`); None without
    one.
    """

    capture: NDArray[np.object_]
    source: NDArray[np.object_]
    application: NDArray[np.object_]
    label: NDArray[np.object_]
    truth: NDArray[np.int64]
    at: NDArray[np.bool_]
    ever: NDArray[np.bool_]
    by_packet: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    late: NDArray[np.bool_] | None = None

    @property
    def of_source(self) -> NDArray[np.object_]:
        """The source of each flow; its capture where that has none."""
        return np.where(self.source != "", self.source, self.capture)

    def losing(self, classes: Collection[int]) -> NDArray[np.bool_]:
        """Whether a flow loses a packet, if these classes are dropped, (F,)."""
        return np.asarray(self.ever[:, sorted(classes)].any(axis=1))


@dataclass(frozen=True)
class Family:
    """A class of attacks, or a kind within one. Shares are of 0 to 1.

    sources : None where the table names none. recall : share of its flows that are found. of_captures,
    of_sources : the mean over its captures, and sources, of their shares; between : where the latter is over
    all sources of the kind (95 %). by_packet : recall if flows were judged at that packet. lost : share of
    benign flows that lose a packet if this class alone is dropped. dealings : `of_sources` in each
    cross-validation of the training, with sources dealt anew. advice : what to do with it, and why. late :
    of the flows that last to where a late model judges, the share that is found there; None if none does.
    kinds : what a class that no label names is judged by, see `of_nameless`.
    """

    name: str
    flows: int
    captures: int
    sources: int | None
    recall: float
    of_captures: float
    of_sources: float
    between: Interval
    by_packet: dict[int, float]
    lost: float
    dealings: tuple[float, ...] = ()
    advice: Advice = "observe"
    why: str = ""
    late: float | None = None
    kinds: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        """Sources, or captures where these are not named."""
        return self.captures if self.sources is None else self.sources

    @property
    def unit(self) -> str:
        return "capture" if self.sources is None else "source"

    @property
    def visible_at(self) -> int | None:
        """The packet from which on most of its flows are found; None if there is none."""
        return next((number for number, share in self.by_packet.items() if share >= VISIBLE), None)


def share_by(units: NDArray[np.object_], flagged: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of flagged flows in each unit."""
    _, number = np.unique(units.astype(str), return_inverse=True)
    return np.asarray(np.bincount(number, weights=flagged) / np.bincount(number), np.float64)


def mean_share(
    verdicts: FlowVerdicts, wanted: NDArray[np.bool_], flagged: NDArray[np.bool_]
) -> tuple[float, int]:
    """The mean over sources of the mean over their captures; and of how many sources."""
    frame = pl.DataFrame(
        {
            "source": verdicts.of_source[wanted].astype(str),
            "capture": verdicts.capture[wanted].astype(str),
            "flagged": flagged[wanted],
        }
    )
    of_captures = frame.group_by("source", "capture", maintain_order=True).agg(pl.col("flagged").mean())
    of_sources = of_captures.group_by("source", maintain_order=True).agg(pl.col("flagged").mean())["flagged"]
    return float(of_sources.mean() or 0), len(of_sources)  # type: ignore[arg-type]


def between(mean: float, units: int) -> Interval:
    """Where the mean over all sources of the kind lies, with 95 %, if it is `mean` over some of them.

    Each of them counts as one trial that is found or not: of all shares with that mean these vary the most,
    so the interval is rather too wide. Jeffreys' interval (Brown, Cai and DasGupta, "Interval estimation for
    a binomial proportion", 2001).
    """
    from scipy.stats import beta

    if not units:
        return 0.0, 1.0
    low, high = beta.ppf((0.025, 0.975), *_posterior(mean, units))
    return 0.0 if mean == 0 else float(low), 1.0 if mean == 1 else float(high)


def predicted(mean: float, units: int, others: int) -> Interval:
    """The 95 % interval of the mean over that many other sources: as `between`, plus the chance of which
    sources these are.
    """
    from scipy.stats import betabinom

    low, high = betabinom.ppf((0.025, 0.975), others, *_posterior(mean, units))
    return float(low) / others, float(high) / others


def _posterior(mean: float, units: int) -> tuple[float, float]:
    return mean * units + 0.5, (1 - mean) * units + 0.5


def families(
    verdicts: FlowVerdicts,
    classes: Sequence[str],
    dropped: Collection[int],
    dealings: Mapping[str, Sequence[float]] | None = None,
) -> list[Family]:
    """One for each class of attacks that a flow is of, in the order of classes.

    dropped : class numbers; a flow is found if one of them is its verdict.
    """
    there = [(number, name, verdicts.truth == number) for number, name in enumerate(classes) if number]
    return [
        _family(verdicts, number, name, mine, dropped, (dealings or {}).get(name, ()))
        for number, name, mine in there
        if mine.any()
    ]


def of_nameless(
    verdicts: FlowVerdicts,
    classes: Sequence[str],
    dropped: Collection[int],
    dealings: Mapping[str, Sequence[float]] | None = None,
) -> list[Family]:
    """As `families`, one for each of the `nameless` classes: of the kinds of which it finds the most flows by
    itself. None for a class without such kinds.
    """
    found = []
    for number in nameless(set(verdicts.truth.tolist()), classes):
        alone = kinds(verdicts, classes, [number], dealings)
        of = [kind for kind in alone if kind.of_sources >= VISIBLE]
        if not of:
            continue
        mine = (verdicts.truth > 0) & np.isin(verdicts.label, [kind.name for kind in of])
        family = _family(verdicts, number, classes[number], mine, dropped, _pooled(of))
        found.append(replace(family, kinds=tuple(kind.name for kind in of)))
    return found


def _pooled(of: Sequence[Family]) -> Sequence[float]:
    """The mean over the sources of several kinds in each dealing, of those that were dealt."""
    dealt = [kind for kind in of if kind.dealings]
    sources = sum(kind.units for kind in dealt)
    weighted = ([share * kind.units / sources for share in kind.dealings] for kind in dealt)
    return [sum(shares) for shares in zip(*weighted, strict=False)]


def kinds(
    verdicts: FlowVerdicts,
    classes: Sequence[str],
    dropped: Collection[int],
    dealings: Mapping[str, Sequence[float]] | None = None,
) -> list[Family]:
    """As `families`, one for each label of an attack flow that differs from all classes, as under a model
    that knows only benign and attack.
    """
    attack = verdicts.truth > 0
    names = sorted(set(verdicts.label[attack].tolist()) - {"", *classes})
    found = []
    for name in names:
        mine = attack & (verdicts.label == name)
        number = int(verdicts.truth[mine][0])
        found.append(_family(verdicts, number, name, mine, dropped, (dealings or {}).get(name, ())))
    return found


def _family(
    verdicts: FlowVerdicts,
    number: int,
    name: str,
    mine: NDArray[np.bool_],
    dropped: Collection[int],
    dealings: Sequence[float],
) -> Family:
    """Number : of the class. mine : which flows are of it, (F,), one at least."""
    flagged = np.asarray(verdicts.at[:, sorted(dropped)].any(axis=1))
    benign = verdicts.truth == 0
    mean, units = mean_share(verdicts, mine, flagged)
    of_captures = share_by(verdicts.capture[mine], flagged[mine])
    by_packet = {
        packet: float(np.isin(said[mine], list(dropped)).mean())
        for packet, said in verdicts.by_packet.items()
    }
    return Family(
        name,
        int(mine.sum()),
        len(of_captures),
        units if (verdicts.source != "").any() else None,
        float(flagged[mine].mean()),
        float(of_captures.mean()),
        mean,
        between(mean, units),
        by_packet,
        float(verdicts.ever[benign, number].mean()) if benign.any() else 0.0,
        tuple(dealings),
        late=_late(verdicts, mine, dropped),
    )


def _late(verdicts: FlowVerdicts, mine: NDArray[np.bool_], dropped: Collection[int]) -> float | None:
    """The share of flows found late, of those among `mine` that last so long."""
    if verdicts.late is None:
        return None
    lasting = verdicts.late[mine & verdicts.late.any(axis=1)]
    return float(lasting[:, sorted(dropped)].any(axis=1).mean()) if len(lasting) else None


def means(found: Sequence[Family]) -> dict[str, float]:
    """The mean recall over families, over their captures, and over their sources."""
    if not found:
        return {}
    captures = sum(family.captures for family in found)
    units = sum(family.units for family in found)
    return {
        "families": sum(family.recall for family in found) / len(found),
        "captures": sum(family.of_captures * family.captures for family in found) / captures,
        "sources": sum(family.of_sources * family.units for family in found) / units,
    }
