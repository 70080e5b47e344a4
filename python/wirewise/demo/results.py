# SPDX-License-Identifier: Apache-2.0
"""What the demo says in the end: who was dropped, who passed, which class was missed and why."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise import agent
from wirewise.abi import Status
from wirewise.datasets.captures import write_capture
from wirewise.demo.material import Material
from wirewise.demo.session import Played
from wirewise.errors import WirewiseError
from wirewise.fate import DROPPING

_KEPT = 192
"""Bytes of each frame that are kept for the second look: all headers."""
_EARLY = 3

LIKENESS: dict[str, str] = {
    "syn-flood": "part of the flood comes from real TCP stacks, and such a SYN is a visitor's SYN",
    "udp-amplification": "a small amplified answer, or the first of a burst, is an ordinary answer",
    "port-scan": "a probe from a real TCP stack, to a port in use, is an ordinary connection attempt",
    "slow-http": "until a client has been slow for a while, it has only connected, as every client does",
}
"""In what the generator's attacks are made to look like ordinary traffic."""


@dataclass(frozen=True)
class KindRow:
    """One kind of traffic: packets sent, and what came of them. offline_dropped : packets of it that the
    same object drops when it sees them with their exact times; the difference to dropped is what timing
    on the wire did.
    """

    kind: str
    label: str
    sent: int
    passed: int
    dropped: int
    offline_dropped: int

    @property
    def dropped_ratio(self) -> float:
        return self.dropped / self.sent if self.sent else 0.0


@dataclass(frozen=True)
class Missed:
    """An attack of which packets passed, and why.

    early_ratio : of those, how many were among the first three packets of their flow. classes : what the
    model took them for.
    """

    kind: str
    passed: int
    passed_ratio: float
    early_ratio: float
    classes: dict[str, int]
    why: str


def write_sent(material: Material, folder: Path) -> Path:
    """The headers of the packets, as `sent.pcap` in folder."""
    capture = folder / "sent.pcap"
    # The agent wants times a clock could show; any origin will do.
    write_capture(capture, ((10**18 + time_ns, frame[:_KEPT]) for time_ns, frame, _ in material.packets))
    return capture


def second_look(capture: Path, packets: int, bundle: Path, policy: Path, features: int) -> NDArray[np.void]:
    """What the object does with the packets sent, in this kernel, with their exact times: one row per packet.

    capture : what `write_sent` wrote. packets : how many it holds. features : how many the bundle reads.
    """
    seen = agent.trace(capture, bundle, n_features=features, policy=policy, mode="enforce")
    if len(seen) != packets:
        raise WirewiseError(f"the agent's trace of {capture} has not one row for each packet")
    return seen


def dropped(seen: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which packets of a trace were dropped, by their outcomes: the demo's policy drops nothing malformed."""
    mask: NDArray[np.bool_] = np.isin(seen["outcome"], DROPPING) & (seen["status"] == Status.CLASSIFIED)
    return mask


def kind_rows(material: Material, played: Played, offline: NDArray[np.void]) -> list[KindRow]:
    """One row for each kind that was sent."""
    kinds = np.array([kind for _, _, kind in material.packets])
    rows = []
    for number, kind in enumerate(material.kinds):
        mask = kinds == number
        sent = int(mask.sum())
        passed = played.passed[2 * number] + played.passed[2 * number + 1]
        offline_dropped = int(dropped(offline[mask]).sum())
        if sent:
            rows.append(KindRow(kind, material.label_of[kind], sent, passed, sent - passed, offline_dropped))
    return rows


def missed(
    material: Material, rows: list[KindRow], offline: NDArray[np.void], classes: list[str]
) -> list[Missed]:
    """The attacks of which packets passed, the one with most first."""
    kinds = np.array([kind for _, _, kind in material.packets])
    found = []
    for row in rows:
        through = (kinds == material.kinds.index(row.kind)) & ~dropped(offline)
        if not material.attacks(row.kind) or not row.passed:
            continue
        early = float((offline["packets"][through] <= _EARLY).mean()) if through.any() else 0.0
        taken = Counter(classes[int(number)] for number in offline["class_id"][through])
        why = f"taken for {taken.most_common(1)[0][0]}" if taken else "late on the wire"
        why += f"; {early:.0%} were among the first {_EARLY} packets of their flow"
        if material.made and row.kind in LIKENESS and row.label in classes:
            why += f": {LIKENESS[row.kind]}"
        found.append(
            Missed(row.kind, row.passed, row.passed / row.sent, early, dict(taken.most_common()), why)
        )
    return sorted(found, key=lambda miss: -miss.passed)


def connections(material: Material, passed: list[int]) -> tuple[int, int]:
    """TCP connections of benign traffic that begin: first SYNs sent, and passed. A visitor turned away at the
    first packet is one packet of many in the ratio of packets.

    passed : packets that passed, by tag.
    """
    first = _first_tags(material)
    sent = Counter(material.tags)
    return sum(sent[tag] for tag in first), sum(passed[tag] for tag in first)


def _first_tags(material: Material) -> list[int]:
    return [2 * number + 1 for number, kind in enumerate(material.kinds) if not material.attacks(kind)]


def turned_away(material: Material, offline: NDArray[np.void], classes: list[str]) -> dict[str, int]:
    """What those first SYNs of benign traffic were taken for that the object drops, most first."""
    lost = np.isin(material.tags, _first_tags(material)) & dropped(offline)
    return dict(Counter(classes[int(number)] for number in offline["class_id"][lost]).most_common())


def unsent(material: Material, offline: NDArray[np.void]) -> dict[str, float]:
    """What a bundle would have done with the same packets, as the ratios of `make_report`."""
    tags = np.array(material.tags)
    gone = dropped(offline)
    attack = np.array([material.attacks(kind) for kind in material.kinds])[tags // 2]
    began, passed = connections(
        material, np.bincount(tags[~gone], minlength=2 * len(material.kinds)).tolist()
    )
    return {
        "attack_dropped_ratio": float(gone[attack].mean()) if attack.any() else 0.0,
        "benign_passed_ratio": float(1 - gone[~attack].mean()) if not attack.all() else 0.0,
        "benign_connection_attempts_passed_ratio": passed / max(1, began),
    }


def make_report(
    material: Material,
    played: Played,
    offline: NDArray[np.void],
    classes: list[str],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of report.json.

    Ratios are 0 to 1. Packets that did not reach the program (the pair's ring was full) are counted as attack
    packets that it did not drop, and as benign packets that it did not pass: never in favour of the model.
    """
    rows = kind_rows(material, played, offline)
    lost = played.sent.packets - played.seen
    attack = [row for row in rows if material.attacks(row.kind)]
    benign = [row for row in rows if not material.attacks(row.kind)]
    attack_dropped, attack_sent = sum(row.dropped for row in attack), sum(row.sent for row in attack)
    attempts, attempts_passed = connections(material, played.passed)
    return {
        "plane": played.status["plane_obtained"],
        "packets": played.sent.packets,
        "attack_dropped_ratio": max(0, attack_dropped - lost) / max(1, attack_sent),
        "benign_passed_ratio": sum(row.passed for row in benign) / max(1, sum(row.sent for row in benign)),
        "kernel_ns_per_packet": played.run_time_ns / max(1, played.runs),
        "packets_per_second": played.sent.packets / played.sent.seconds,
        "benign_connection_attempts": attempts,
        "benign_connection_attempts_passed_ratio": attempts_passed / max(1, attempts),
        "benign_connection_attempts_taken_for": turned_away(material, offline, classes),
        "seconds": played.sent.seconds,
        "late_us_99": played.sent.late_ns / 1000,
        "lost_before_program": lost,
        "kinds": [asdict(row) | {"dropped_ratio": row.dropped_ratio} for row in rows],
        "missed": [asdict(miss) for miss in missed(material, rows, offline, classes)],
        "left_out": material.notes,
        "flows": played.stats["flows"],
        "flow_table_bytes": played.status["flow_tables"]["bytes"],
        "truth": "the last byte of the source MAC address names the kind of a packet, no feature reads it, "
        "and the kernel counts by it what arrives",
        "machine": {
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "cpus": os.cpu_count(),
        },
        **facts,
    }
