# SPDX-License-Identifier: Apache-2.0
"""What is done with an interface in the virtual machine, and what must come of it.

The packets of one capture are sent in parts, one between each two things that happen to the interface. What
the engine, on this machine, makes of the same packets says what the counters must show.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.matrix.machine import Outcome, Step
from tests.matrix.programs import FIRST, SECOND, Learned, Subject
from tests.parity.frames import Fuzzer
from wirewise import agent
from wirewise.abi import Status
from wirewise.datasets import write_capture
from wirewise.demo.material import MAX_FRAME
from wirewise.traffic import generate

PACKETS, ODD_EVERY = 1500, 6
_MIN_FRAME = 14  # a packet socket sends no less than an Ethernet header
_GAP_NS = 1_000_000
PHASES = ("observed", "killed", "enforced", "swapped", "shadowed", "detached")
TC = "tc"  # a phase of its own, with empty flow tables: at TC, by a filter where the kernel has no tcx links
NO_CLASS = "(none)"  # as `stats` calls it
WHOLE, POLICY = "whole.pcap", "policy.yaml"
INTERFACE = ("--interface", "ww0")
TCX_SINCE = (6, 6)

Trace = NDArray[np.void]
ALL, SOME, NONE = "all", "some", "none"


@dataclass(frozen=True)
class Steered:
    """What becomes of every class but the first; with the same packets as at TC. done: to how many of them;
    the others pass, as there is no listener or route. arrive: whether those are seen to arrive.
    """

    plane: str
    rule: dict[str, Any]
    done: str = ALL
    arrive: bool = True


_SHARES = {ALL: (True, True), SOME: (True, False), NONE: (False, False)}
"""Whether it is done to any packet, and whether to all."""
_BACKEND = {"address": "192.0.2.1", "mac": "02:00:00:00:00:09"}
POOLS = {"web": {"method": "dsr", "backends": [_BACKEND]}}
_WRITTEN = {"mark": "7", "priority": "3", "queue": "0"}
COPIED = "companion"  # the one whose copies are counted, where they leave
STEERING = {
    "redirect": Steered("xdp-generic", {"redirect": {"interface": "lo"}, "dscp": "CS1"}, arrive=False),
    "bounce": Steered("tc-ingress", {"action": "bounce", "dscp": "EF", **_WRITTEN}),
    COPIED: Steered("xdp-generic", {"mirror": {"interface": "lo"}, **_WRITTEN}),
    "backend": Steered("xdp-generic", {"backend": "web"}, SOME, arrive=False),
    "forward": Steered("xdp-generic", {"action": "forward"}, NONE),
    "challenge": Steered("xdp-generic", {"action": "challenge"}, NONE),
}


class Failed(Exception):
    """Something else came of a step than must."""


@dataclass(frozen=True)
class Traffic:
    """The capture as files to send: name -> path. parts: where each phase's packets lie in the whole."""

    files: dict[str, bytes | Path]
    parts: dict[str, slice]


@dataclass(frozen=True)
class Expected:
    """What the engine makes of the whole capture, by bundle; alone, tc: of the parts of the shadow and of TC,
    begun with empty tables. digests: of the traces as files.
    """

    traces: dict[str, Trace]
    alone: Trace
    tc: Trace
    digests: dict[str, str]


def make_traffic(folder: Path, classes: list[str]) -> Traffic:
    """Generated packets, and among them odd ones: tags, extension headers, fragments, tunnels, damage."""
    odd = (frame for _, frame in Fuzzer(Random(12)).packets(PACKETS) if _MIN_FRAME <= len(frame) <= MAX_FRAME)
    frames: list[bytes] = []
    for number, packet in enumerate(generate(12, duration_s=4.0, packets=PACKETS)):
        frames.append(packet.frame[:MAX_FRAME])
        if number % ODD_EVERY == 0:
            frames.append(next(odd))
    timed = [(number * _GAP_NS, frame) for number, frame in enumerate(frames, 1)]
    size = -(-len(timed) // len(PHASES))
    parts = {phase: slice(n * size, min((n + 1) * size, len(timed))) for n, phase in enumerate(PHASES)}
    names = {WHOLE: slice(None), **{f"{phase}.pcap": part for phase, part in parts.items()}}
    for name, part in names.items():
        write_capture(folder / name, timed[part])
    write_capture(
        folder / f"{TC}.pcap", [it for it in timed[parts["detached"]] if not _ends_at_its_tag(it[1])]
    )
    actions = "".join(f"  {name}: {'pass' if name == classes[0] else 'drop'}\n" for name in classes)
    policy = f"version: 1\nclasses:\n{actions}trigger: every\nessential: drop\n".encode()
    steering = {
        f"{name}.yaml": json.dumps(
            {
                "version": "1",
                "classes": dict.fromkeys(classes[1:], it.rule),
                "essential": "drop",
                **({"pools": POOLS} if "backend" in it.rule else {}),
            }
        ).encode()
        for name, it in STEERING.items()
    }
    files = {name: folder / name for name in (*names, f"{TC}.pcap")}
    return Traffic({**files, POLICY: policy, **steering}, parts)


def _ends_at_its_tag(frame: bytes) -> bool:
    """The kernel takes tags off before TC, and drops what has not two bytes behind one."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    return at > 12 and len(frame) < at + 4


def expect(traffic: Traffic, bundles: Mapping[str, Subject], learned: Mapping[str, Learned]) -> Expected:
    """Ask the engine. It says the same whichever clang compiled the bundles: the digests check that."""
    whole, part, tc = (traffic.files[name] for name in (WHOLE, "shadowed.pcap", f"{TC}.pcap"))
    assert isinstance(whole, Path) and isinstance(part, Path) and isinstance(tc, Path)

    def trace(name: str, capture: Path) -> Trace:
        n_features = len(learned[name].feature_set.features)
        return agent.trace(capture, bundles[name].path, n_features=n_features, seed=1, plane="engine")

    def digest(name: str) -> str:
        """Of the file, as the virtual machine takes it."""
        with tempfile.TemporaryDirectory(prefix="wirewise-") as folder:
            file = Path(folder) / "trace"
            of = (
                "--bundle",
                bundles[name].path,
                "--plane",
                "engine",
                "--seed",
                "1",
                "--format",
                "raw",
                "-o",
                file,
            )
            agent.run("trace", whole, *of)
            return hashlib.sha256(file.read_bytes()).hexdigest()

    traces = {name: trace(name, whole) for name in bundles}
    return Expected(traces, trace(FIRST, part), trace(FIRST, tc), {name: digest(name) for name in bundles})


def steps(clang: str, bundles: Mapping[str, Subject], file_of: Mapping[Path, str]) -> Iterator[Step]:
    """Everything that happens with one clang's bundles."""
    path = {name: f"/files/{file_of[subject.path]}" for name, subject in bundles.items()}
    for name in bundles:
        for plane in ("kernel", "engine"):
            yield _step(clang, f"trace {plane} {name}", "trace_sum", plane, f"/files/{WHOLE}", path[name])
    policy = ("--policy", f"/files/{POLICY}")
    yield _step(clang, "attach", "foreground", "--bundle", path[FIRST], *INTERFACE, *policy)
    yield from _send(clang, "observed")
    yield _step(clang, "kill", "killed")
    yield from _send(clang, "killed")
    run = ("agent", "run", "--bundle", path[FIRST], *INTERFACE)
    yield _step(clang, "adopt", *run, "--json")
    yield _step(clang, "enforce", *run, "--mode", "enforce", "--yes", "--json")
    yield from _send(clang, "enforced")
    yield _step(clang, "swap", "agent", "swap", "--bundle", path[SECOND], *INTERFACE, "--json")
    yield from _send(clang, "swapped")
    yield _step(clang, "shadow", "agent", "swap", "--shadow", "--bundle", path[FIRST], *INTERFACE, "--json")
    yield from _send(clang, "shadowed")
    yield _step(clang, "detach", "agent", "detach", *INTERFACE, "--json")
    yield _step(clang, "untouched", "untouched")
    yield _step(clang, "send detached", "frames", "ww1", "ww0", "/files/detached.pcap")
    at_tc = ("--plane", "tc-ingress", "--outgoing", "--offloads", "off", "--mode", "enforce", "--yes")
    yield _step(clang, "attach at TC", *run, *policy, *at_tc, "--json")
    yield from _send(clang, TC)
    yield _step(clang, "swap at TC", "agent", "swap", "--bundle", path[SECOND], *INTERFACE, "--json")
    yield _step(clang, "detach from TC", "agent", "detach", *INTERFACE, "--json")
    yield _step(clang, "untouched by TC", "untouched")
    copies = ("cat", "/sys/class/net/lo/statistics/tx_packets")
    for name, it in STEERING.items():
        options = ("--plane", it.plane, "--offloads", "off", "--policy", f"/files/{name}.yaml")
        enforced = ("--mode", "enforce", "--yes", "--json")
        yield _step(clang, f"steer: {name}", *run, *options, *enforced)
        yield _step(clang, f"lo before {name}", *copies)
        yield from _send(clang, name, f"{TC}.pcap")
        yield _step(clang, f"lo after {name}", *copies)
        yield _step(clang, f"end: {name}", "agent", "detach", *INTERFACE, "--json")
        yield _step(clang, f"untouched by {name}", "untouched")


def outcome(
    kernel: str,
    clang: str,
    done: Mapping[str, Outcome],
    traffic: Traffic,
    expected: Expected,
    classes: list[str],
) -> int | str:
    """Packets sent, or what is not as it must be. kernel: its release."""
    try:
        return check(kernel, clang, done, traffic, expected, classes)
    except Failed as failed:
        return str(failed)


def check(
    kernel: str,
    clang: str,
    done: Mapping[str, Outcome],
    traffic: Traffic,
    expected: Expected,
    classes: list[str],
) -> int:
    """Packets sent, if all is as the engine says. Raises Failed with the first difference."""

    def output(name: str) -> str:
        return output_of(name, done[f"{clang}: {name}"])

    for name, digest in expected.digests.items():
        for plane in ("kernel", "engine"):
            equal(
                f"{name}: what plane {plane} says of the capture",
                output(f"trace {plane} {name}").split()[0],
                digest,
            )
    equal("after kill: run", json.loads(output("adopt"))["action"], "adopted")
    equal("the mode", json.loads(output("enforce"))["status"]["mode"], "enforce")
    equal("swap: the flow tables", json.loads(output("swap"))["flows"], "kept")
    for name in ("attach", "kill", "shadow", "detach", "untouched"):
        output(name)
    total: Counter[str] = Counter()
    sent_in_all = 0
    for phase in PHASES:
        sent = json.loads(output(f"send {phase}"))
        part = expected.traces[SECOND if phase in PHASES[3:] else FIRST][traffic.parts[phase]]
        enforced = phase in PHASES[2:5]
        counted = _counted(part, classes, enforced=enforced)
        dropped = sum(count for name, count in counted.items() if name.endswith(" drop"))
        arrive = len(part) - (0 if phase == "detached" else dropped)
        equal(f"{phase}: packets sent and arrived", (sent["sent"], sent["arrived"]), (len(part), arrive))
        sent_in_all += len(part)
        if phase == "detached":
            continue
        total += counted
        stats = json.loads(output(f"stats {phase}"))
        equal(f"{phase}: packets by class and outcome", of_stats(stats), dict(total))
        if phase == "shadowed":
            pairs = {f"{p['first']} {p['shadow']}": p["packets"] for p in stats["shadow"]["pairs"]}
            both = zip(_classes(part, classes), _classes(expected.alone, classes), strict=True)
            wanted = Counter(
                f"{first or NO_CLASS} {shadow or NO_CLASS}" for first, shadow in both if first or shadow
            )
            equal("what model and shadow say", pairs, dict(wanted))
    # Who counts the arrivals stands before TC, where also what is dropped there still comes by.
    of_tc = dict(_counted(expected.tc, classes, enforced=True))
    equal("at TC: packets sent", json.loads(output(f"send {TC}"))["sent"], len(expected.tc))
    equal("at TC: packets by class and outcome", of_stats(json.loads(output(f"stats {TC}"))), of_tc)
    status = json.loads(output("attach at TC"))["status"]
    release = tuple(int(number) for number in kernel.split(".")[:2])
    equal("at TC: by a filter of clsact", status["filter"] is not None, release < TCX_SINCE)
    equal("at TC: the other direction", status["outgoing"]["plane"], "tc-egress")
    for name in ("swap at TC", "detach from TC", "untouched by TC"):
        output(name)
    steered = {name.replace(" drop", " acted"): count for name, count in of_tc.items()}
    elsewhere = sum(count for name, count in steered.items() if name.endswith(" acted"))
    for name, it in STEERING.items():
        status = json.loads(output(f"steer: {name}"))["status"]
        equal(f"{name}: a program at TC beside it", status["companion"] is not None, name == COPIED)
        sent = json.loads(output(f"send {name}"))
        outcomes = of_stats(json.loads(output(f"stats {name}")))
        taken = sum(count for of, count in outcomes.items() if of.endswith(" acted"))
        equal(
            f"{name}: packets sent and arrived",
            (sent["sent"], sent["arrived"]),
            (len(expected.tc), len(expected.tc) - (0 if it.arrive else taken)),
        )
        either: Counter[str] = Counter()
        for of, count in outcomes.items():
            either[of.replace(" not-acted", " acted")] += count
        equal(f"{name}: packets by class and outcome", dict(either), steered)
        equal(f"{name}: how many are steered", (taken > 0, taken == elsewhere), _SHARES[it.done])
        if name == COPIED:
            before, after = (int(output(f"lo {when} {name}")) for when in ("before", "after"))
            equal(f"{name}: copies", after - before, elsewhere)
        output(f"end: {name}")
        output(f"untouched by {name}")
    return sent_in_all + (1 + len(STEERING)) * len(expected.tc)


def _step(clang: str, name: str, *command: str) -> Step:
    return Step(f"{clang}: {name}", command)


def _send(clang: str, phase: str, capture: str | None = None) -> Iterator[Step]:
    yield _step(clang, f"send {phase}", "frames", "ww1", "ww0", f"/files/{capture or phase + '.pcap'}")
    yield _step(clang, f"stats {phase}", "agent", "stats", *INTERFACE, "--json")


def _classes(trace: Trace, classes: list[str]) -> list[str]:
    """The class of each packet, "" if it got none."""
    return [classes[row["class_id"]] if row["status"] == Status.CLASSIFIED else "" for row in trace]


def output_of(name: str, outcome: Outcome) -> str:
    """What a step printed. Raises Failed if it ended with an error."""
    if outcome.code:
        raise Failed(f"{name} ended with code {outcome.code}: {outcome.messages or outcome.output}")
    return outcome.output


def equal(what: str, found: object, wanted: object) -> None:
    """Raises Failed unless both are."""
    if found != wanted:
        raise Failed(f"{what}: {found}, must be {wanted}")


def _counted(trace: Trace, classes: list[str], *, enforced: bool) -> Counter[str]:
    """Packets by class and outcome, or by why they have no class."""
    counted: Counter[str] = Counter()
    for row, name in zip(trace, _classes(trace, classes), strict=True):
        if not name:
            counted[Status(int(row["status"])).name.lower()] += 1
        elif name == classes[0]:
            counted[f"{name} pass"] += 1
        else:
            counted[f"{name} {'drop' if enforced else 'would-drop'}"] += 1
    return counted


def of_stats(stats: dict[str, Any]) -> dict[str, int]:
    """The same of the counters of an attachment."""
    counted = {
        f"{row['name']} {outcome}": count["packets"]
        for row in stats["classes"]
        for outcome, count in row["outcomes"].items()
    }
    counted |= {row["status"]: row["packets"] for row in stats["status"] if row["status"] != "classified"}
    return {name: count for name, count in counted.items() if count}
