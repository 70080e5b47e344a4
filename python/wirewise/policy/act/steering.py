# SPDX-License-Identifier: Apache-2.0
"""What a policy may ask for beside passing and dropping: where packets go, and what is written on them.

The reference of bpf/act/steer.h for captured packets (docs/policy.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wirewise.abi import Outcome
from wirewise.fate import Fate
from wirewise.policy.act.backend import Pool
from wirewise.policy.act.dscp import with_dscp
from wirewise.policy.act.gtp import Pass, write_inside
from wirewise.policy.act.tunnels import Table


@dataclass(frozen=True)
class Steering:
    """What is asked for a class's packets; at least one attribute is set. dscp: 0 to 63. A challenge stands
    alone.
    """

    redirect: str | None = None
    """The interface that they leave by."""
    cpus: tuple[int, ...] = ()
    """Up the stack of one of these CPUs, the same for all packets of a flow; captured ones stay on theirs."""
    socket: int | None = None
    """To the socket of AF_XDP that belongs to this receive queue; captured packets are of all queues."""
    mirror: bool = False
    """A copy of some goes elsewhere; of captured packets there is none."""
    bounce: bool = False
    """Back out of the interface they came by, to the Ethernet address they came from."""
    forward: bool = False
    """Where the kernel's routes say, or between ports. Captured packets have none of these: they stay as they
    are, and pass."""
    challenge: bool = False
    """Who opens a TCP connection has to return a cookie. Captured packets are not answered: they pass."""
    dscp: int | None = None
    mark: int | None = None
    priority: int | None = None
    queue: int | None = None
    ports: tuple[str, ...] = ()
    """Between which they are forwarded; empty: by routes."""
    pool: Pool | None = None
    """Where they go."""
    decapsulate: bool = False
    """Out of its tunnel, if that is known."""
    encapsulate: bool = False
    """Into the tunnel of who it is for, and on by the routes; captured packets go nowhere."""
    qfi: int | None = None
    inner_dscp: int | None = None
    tunnels: Table = field(default_factory=Table)
    """Those that are known."""

    @classmethod
    def of(cls, acts: Mapping[str, Any], pools: Mapping[str, Pool], tunnels: Table) -> Steering:
        """From a policy's normal form."""
        given = {
            **acts,
            "cpus": tuple(acts["cpus"]),
            "ports": tuple(acts["ports"]),
            "mirror": acts["mirror"] is not None,
            "pool": pools[acts["backend"]] if acts["backend"] is not None else None,
            "tunnels": tunnels if acts["decapsulate"] or acts["encapsulate"] else Table(),
        }
        del given["backend"]
        return cls(**given)

    @property
    def fate(self) -> Fate:
        """Where its packets go, if what is asked for is done."""
        if self.bounce:
            return Fate.BOUNCE
        if self.encapsulate:
            return Fate.REDIRECT
        stays = self.redirect is None and self.socket is None and self.pool is None
        return Fate.PASS if stays else Fate.REDIRECT

    @property
    def takes_away(self) -> bool:
        """Whether some of its packets do not come to their receiver."""
        return self.fate is not Fate.PASS or self.forward or self.challenge or self.decapsulate

    @property
    def outcome(self) -> Outcome:
        """What becomes of captured packets, enforced, unless `apply` says otherwise."""
        through = self.decapsulate or self.encapsulate
        stays = self.forward and not through
        return Outcome.NOT_ACTED if stays or self.challenge else Outcome.ACTED

    def apply(self, frame: bytes) -> bytes | None:
        """The Ethernet frame as it leaves; None: what is asked for cannot be done. frame: one that was
        classified.
        """
        try:
            frame = self._through_tunnel(frame)
        except Pass:
            return None
        if self.pool is not None:
            to_backend = self.pool.apply(frame)
            if to_backend is None:
                return None
            frame = to_backend
        if self.dscp is not None:
            frame = with_dscp(frame, self.dscp)
        return frame[6:12] + frame[:6] + frame[12:] if self.bounce else frame

    def _through_tunnel(self, frame: bytes) -> bytes:
        if self.decapsulate:
            return self.tunnels.decapsulate(frame)
        if self.encapsulate:
            return self.tunnels.encapsulate(frame, qfi=self.qfi, inner_dscp=self.inner_dscp)
        if self.qfi is not None or self.inner_dscp is not None:
            return write_inside(frame, qfi=self.qfi, inner_dscp=self.inner_dscp)
        return frame
