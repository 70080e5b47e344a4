# SPDX-License-Identifier: Apache-2.0
"""The agent's events of an interface, and what the larger model has done about the unsure ones.

An event's score is computed here, by the bundle's own integers from the features that the event has: it is
the one that the program in the kernel had.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address, ip_network
from typing import Any, Literal

import numpy as np

from wirewise import agent
from wirewise.errors import InputError, MissingFeatureError, ToldError, WirewiseError
from wirewise.evaluate.operating_point import margins
from wirewise.second.band import Band
from wirewise.second.models import Pair

ORIGIN = "second"
"""Who denies, says the deny list."""
_LONGEST = 1 << 20
"""Bytes of an event's line; what is longer is none."""
_MINUTE_S = 60
_LOOK_S = 0.1
_LATE = timedelta(seconds=0.1)
"""How far the coarse clock of a program may be behind."""

Fate = Literal["denied", "would deny", "passes", "allowed", "unproven", "over the rate", "refused"]


@dataclass(frozen=True)
class Answer:
    """What became of an unsure event.

    time : the event's timestamp. source : who sent the flow's first packet. flow_id : the event's. ahead :
    the score. attack : how probable an attack is, says the big model, 0 to 1. why : of what was refused.
    """

    time: str
    source: str
    flow_id: int
    ahead: int
    attack: float
    fate: Fate
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        shown = {
            "timestamp": self.time, "event_type": "second", "source": self.source, "flow_id": self.flow_id,
            "ahead": self.ahead, "attack": round(self.attack, 6), "fate": self.fate.replace(" ", "-"),
        }  # fmt: skip
        return shown | ({"why": self.why} if self.why else {})


@dataclass(frozen=True)
class Place:
    """An attachment."""

    interface: str
    netns: str | None = None

    @property
    def options(self) -> list[str]:
        return ["--interface", self.interface, *(["--netns", self.netns] if self.netns else [])]

    def running(self, pair: Pair) -> dict[str, Any]:
        """What runs there. Raises InputError unless it is the pair's bundle."""
        attachments = self.call("status")["attachments"]
        if len(attachments) != 1:
            raise InputError(self.interface, f"means {len(attachments)} interfaces", "name one")
        (found,) = attachments
        if found["bundle"]["digest"] != pair.digest:
            raise InputError(
                pair.name, f"is not the bundle that runs on {self.interface}",
                f"give that one, {found['bundle']['file']}, and choose the unsure scores for it",
            )  # fmt: skip
        return dict(found)

    def check(self, pair: Pair, band: Band, *, spoofable: bool) -> list[str]:
        """Warnings about what runs there. Raises InputError, with what the policy must have, if its events do
        not carry enough; and as `running`.
        """
        found = self.running(pair)
        file = found["policy"]["file"]
        if file is None:
            raise InputError(
                self.interface,
                "runs without a policy, so it sends no events",
                "give it one, see docs/second.md",
            )
        classes = [f"--class={name}" for name in pair.bundle.classes]
        policy = agent.call("policy", file, *classes)["policy"]
        events = policy["events"]
        if not events["features"]:
            raise InputError(
                file, "its events have no features", "write `events: {each: flow, features: true}`"
            )
        quiet = [one["name"] for one in found["classes"] if one["action"] == "pass"]
        benign = pair.bundle.classes[0]
        if band.low > 0:
            quiet = [name for name in quiet if name != benign]
        if quiet:
            raise InputError(
                file, f"packets of {', '.join(quiet)} make no events, and the model is unsure of some",
                f"write `classes: {{{', '.join(f'{name}: count' for name in quiet)}}}`",
            )  # fmt: skip
        bans = [one["ban"] for one in policy["classes"] if one["ban"]]
        proves = any(not ban["spoofable"] for ban in bans) and events["each"] != "packet"
        if not spoofable and not proves:
            raise InputError(
                self.interface,
                "no event says that its sender has proved its address, so anybody could have others denied",
                "that takes a class with `ban` and without `spoofable`, `events: {each: flow}`, and "
                "`run --outgoing`; or give --spoofable, where source addresses are known to be right",
            )  # fmt: skip
        self.call("deny", "list")  # says so, if the policy has no list
        warnings = []
        if spoofable:
            warnings.append("--spoofable: whoever makes up an address has its owner denied")
        if found["mode"] != "enforce":
            warnings.append(
                f"{self.interface} observes: packets of who is denied are counted and pass, until `wirewised "
                "mode enforce`"
            )
        return warnings

    def allows(self, source: str) -> bool:
        """Whether the allow list has an address now."""
        address = ip_address(source)
        return any(address in ip_network(one["prefix"]) for one in self.call("allow", "list")["prefixes"])

    def deny(self, source: str, time_s: int) -> None:
        """Raises InputError if the agent refuses that."""
        self.call("deny", "add", source, "--for", f"{time_s}s", "--origin", ORIGIN)

    def follow(self) -> Iterator[list[dict[str, Any]]]:
        """Events from now on, as many at once as there are. Ends with an error if the attachment is gone."""
        began = datetime.now(timezone.utc) - _LATE
        command = [str(agent.find()), "events", "--follow", "--json", *self.options]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=agent.environment()
            )
        except OSError as error:
            raise MissingFeatureError(f"{command[0]}: cannot be run: {error.strerror}") from error
        assert process.stdout is not None
        rest = b""
        try:
            while data := _read(process.stdout.fileno()):
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > _LONGEST:
                    raise WirewiseError(f"`wirewised events` wrote a line of more than {_LONGEST >> 20} MiB")
                # The newest from before come first.
                yield [event for event in map(json.loads, lines) if _moment(event) >= began]
            raise ToldError(process.wait() or 1)
        finally:
            process.stdout.close()
            with suppress(OSError):
                process.terminate()
            process.wait()

    def call(self, command: str, *arguments: str) -> dict[str, Any]:
        return agent.call(*command.split(), *arguments, *self.options, asks=False)


def _read(descriptor: int) -> bytes:
    """What there is, or comes. Looks up now and then: a signal that another thread gets interrupts no call of
    this one.
    """
    while not select.select([descriptor], [], [], _LOOK_S)[0]:
        pass
    return os.read(descriptor, 1 << 16)


def _moment(event: dict[str, Any]) -> datetime:
    return datetime.strptime(event["timestamp"], "%Y-%m-%dT%H:%M:%S.%f%z")


@dataclass
class Second:
    """Asks the big model about events whose score is in the band, and answers.

    at_least : how probable an attack must be. time_s : how long a source is denied. per_minute : how many
    denials there may be. enforce : deny; else only say so. spoofable : also who has not proved its address.
    counts : of events, by what became of them; `sure`, `without features`, and `denied already` of those
    that the big model was not asked about.
    """

    pair: Pair
    band: Band
    place: Place
    at_least: float = 0.9
    time_s: int = 60
    per_minute: int = 60
    enforce: bool = False
    spoofable: bool = False
    clock: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    _until: dict[str, float] = field(default_factory=dict)
    _latest: deque[float] = field(default_factory=deque)

    def answers(self, events: Sequence[dict[str, Any]]) -> Iterator[Answer]:
        """One for each unsure event."""
        told = [event for event in events if self._is_told(event)]
        if not told:
            return
        names = self.pair.bundle.feature_set.feature_names
        rows = np.array(
            [[event["wirewise"]["features"].get(name, 0) for name in names] for event in told], np.int64
        )
        ahead = margins(self.pair.bundle.model, rows)
        unsure = np.flatnonzero(self.band.holds(ahead))
        self.counts["sure"] += len(told) - len(unsure)
        if not len(unsure):
            return
        attack = self.pair.attack(rows[unsure])
        for index, probability in zip(unsure.tolist(), attack.tolist(), strict=True):
            event = told[index]
            if self._denied(_source(event)):
                self.counts["denied already"] += 1
                continue
            fate, why = self._fate(event, probability)
            self.counts[fate] += 1
            yield Answer(
                event["timestamp"],
                _source(event),
                event["flow_id"],
                int(ahead[index]),
                probability,
                fate,
                why,
            )

    def _is_told(self, event: dict[str, Any]) -> bool:
        """Whether an event has what it takes to ask about it."""
        if not event["wirewise"].get("features") or not _source(event):
            self.counts["without features" if _source(event) else "without a source"] += 1
            return False
        return True

    def _fate(self, event: dict[str, Any], probability: float) -> tuple[Fate, str]:
        source = _source(event)
        if not probability >= self.at_least:
            return "passes", ""
        if not self.spoofable and not event["wirewise"].get("proven"):
            return "unproven", ""
        now = self.clock()
        while self._latest and self._latest[0] <= now - _MINUTE_S:
            self._latest.popleft()
        # Before commands are run for it: a flood must not have us run any.
        if len(self._latest) >= self.per_minute:
            return "over the rate", ""
        self.place.running(self.pair)  # another bundle's scores are other ones
        if self.place.allows(source):
            return "allowed", ""
        if self.enforce:
            try:
                self.place.deny(source, self.time_s)
            except InputError as error:
                return "refused", str(error)
        self._latest.append(now)
        self._until[source] = now + self.time_s
        return "denied" if self.enforce else "would deny", ""

    def _denied(self, source: str) -> bool:
        """Whether it is denied, or would be; what is over is forgotten."""
        now = self.clock()
        while self._until and next(iter(self._until.values())) <= now:  # in the order of their ends
            del self._until[next(iter(self._until))]
        return source in self._until


def _source(event: dict[str, Any]) -> str:
    """Who sent the flow's first packet; "" under a flow key that does not say."""
    return str(event["wirewise"].get("source") or event.get("src_ip") or "")
