# SPDX-License-Identifier: Apache-2.0
"""What may be varied: by name, how in packets, and how (or why not) in rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from wirewise.augment import frames
from wirewise.augment.kinds import Augmentation
from wirewise.augment.rows import vary_ports, vary_ttl
from wirewise.errors import InputError
from wirewise.registry import Registry

AUGMENTATIONS: Registry[Augmentation] = Registry(
    "augmentation",
    lambda entry: entry.name,
    (
        Augmentation("ports", "a capture's services are on other ports", frames.ports, vary_ports),
        Augmentation("ttl", "other systems, other numbers of hops away", frames.ttl, vary_ttl),
        Augmentation(
            "flags", "other TCP stacks: ECN in SYNs, PSH on data", frames.flags,
            why_not="counts of flags do not say in which packets these were",
        ),
        Augmentation(
            "pace", "all times of a capture stretched or shrunk, up to four times", None,
            why_not="windows and idle times would begin elsewhere, and a row does not hold what they held",
        ),
        Augmentation(
            "padding", "longer UDP and ICMP datagrams", frames.padding,
            why_not="no row says how the lengths behind a sum or a maximum are spread",
        ),
    ),
)  # fmt: skip


def chosen(names: Sequence[str]) -> list[Augmentation]:
    """The augmentations of these names, each once, in the registry's order. Raises InputError."""
    wanted = {AUGMENTATIONS.find(name).name for name in names}
    return [entry for entry in AUGMENTATIONS.values() if entry.name in wanted]


def chosen_for_rows(names: Sequence[str]) -> list[Augmentation]:
    """As `chosen`, for rows of a table. Raises InputError for one that must change packets."""
    for entry in (entries := chosen(names)):
        if entry.rows is None:
            possible = ", ".join(each.name for each in AUGMENTATIONS.values() if each.rows)
            raise InputError(
                f"augmentation {entry.name!r}",
                f"cannot be done on a table: {entry.why_not}",
                f"give it to `wirewise features --augment {entry.name}`; on tables there are {possible}",
            )
    return entries
