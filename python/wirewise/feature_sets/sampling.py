# SPDX-License-Identifier: Apache-2.0
"""Which packets of a flow, an aggregate or a window are samples of what is accumulated there.

Each packet is, unless the field says otherwise (the first packet has no inter-arrival time, one without
payload has no bytes), or the feature names a direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wirewise.feature_sets.fields import FIELDS, Context, Field

DIRECTIONS = ("forward", "backward")
_THERE = {"payload": "payload_head", "question": "dns_name_length"}
"""Kind that only some packets have -> the field that is not 0 in them."""


@dataclass(frozen=True, order=True)
class Sampling:
    """kind : "iat" without the first packet, "own" without the first of each direction, "payload" those with
    payload, "question" those of DNS that ask for something, "gap" those that begin a flow of an aggregate
    which had one before, "" all. direction : of DIRECTIONS, or "" for both.
    """

    kind: Literal["", "gap", "iat", "own", "payload", "question"] = ""
    direction: str = ""

    @classmethod
    def of(cls, field: Field | None, direction: str = "") -> Sampling:
        """What a field has samples of; None: the packets themselves."""
        if field is not None and field.from_second:
            return cls("iat", direction)
        if field is not None and field.of_way:
            return cls("own", direction)
        if field is not None and field.of_aggregates:
            return cls("gap", direction)
        if field is not None and field.needs_question:
            return cls("question", direction)
        return cls("payload" if field is not None and field.needs_payload else "", direction)

    @property
    def variable(self) -> str:
        """How many there were, in the state of a window."""
        return "_".join(part for part in ("samples", self.kind, self.direction) if part)

    @property
    def counted(self) -> bool:
        """A flow, too, needs a counter of its own: the number of its packets does not tell."""
        return self.kind in ("gap", "own", *_THERE) or bool(self.direction)

    @property
    def conditions(self) -> tuple[tuple[Field, str], ...]:
        """A field, and C that is 1 where its value `{x}` makes a packet a sample, else 0. What "iat", "own"
        and "gap" leave out besides is not among them.
        """
        there = _THERE.get(self.kind)
        wanted = "{x}" if self.direction == "forward" else "1 ^ {x}"
        return (
            *(((FIELDS[there], "ww_is_not_0({x})"),) if there else ()),
            *(((FIELDS["direction"], wanted),) if self.direction else ()),
        )

    def takes(self, context: Context) -> bool:
        """Whether a packet is a sample."""
        if self.kind == "iat" and context.packets == 1:
            return False
        if self.kind in _THERE and not FIELDS[_THERE[self.kind]].read(context):
            return False
        if self.kind == "gap" and context.gap_ns is None:
            return False
        if self.kind == "own" and context.own_ns is None:
            return False
        return not self.direction or context.forward == (self.direction == "forward")
