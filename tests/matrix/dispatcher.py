# SPDX-License-Identifier: Apache-2.0
"""wirewise and xdp-filter in one dispatcher of libxdp: either comes first, either leaves, and both keep their
verdicts. xdp-tools are those of the kernel's own Debian.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.matrix import life
from tests.matrix.life import INTERFACE, POLICY, TC, Failed, equal
from tests.matrix.machine import Outcome, Step

CAPTURE = f"/files/{TC}.pcap"
LOADER = "ld-linux-x86-64.so.2"
LIBRARIES = (
    "libxdp.so.1",
    "libbpf.so.1",
    "libelf.so.1",
    "libz.so.1",
    "libzstd.so.1",
    "libc.so.6",
    "libm.so.6",
)
TOOLS = ("xdp-filter", "xdp-loader")
OLD_LIBXDP = ("6.12",)
"""Kernels that refuse an extension with a tail call in the slots of their Debian's libxdp (before 1.5.5)."""
_RUN = ("--policy", f"/files/{POLICY}", "--mode", "enforce", "--yes", "--json")


_MUST_WORK = (
    "filter first", "swap", "rollback", "filter leaves", "filter joins", "join again", "leave", "untouched",
    "filter ends", "ours first", "filter second", "all leave", "end", "clean", "nothing left",
)  # fmt: skip


def files(tools: Path) -> dict[str, bytes | Path]:
    """What xdp-tools need, of their unpacked packages, by its name under /files."""
    found: dict[str, bytes | Path] = {}
    for name in (LOADER, *LIBRARIES, *TOOLS):
        places = [path for path in sorted(tools.rglob(name)) if path.is_file()]
        if places:
            found[name] = places[0].resolve()
    return found | {path.name: path for path in tools.rglob("xdp*.o")}


def steps(bundle: str, second: str, kills: int) -> Iterator[Step]:
    """bundle, second : where they are in the guest. kills : of commands that join, swap and leave."""
    run = ("agent", "run", "--bundle", bundle, *INTERFACE, *_RUN)
    yield _step("filter first", "tool", "xdp-filter", "load", "ww0")
    yield from _send("filter alone", stats=False)
    yield _step("join", *run, "--order", "20")
    yield _step("shown", "tool", "xdp-loader", "status", "ww0")
    yield from _send("both")
    yield _step("swap", "agent", "swap", "--bundle", second, *INTERFACE, "--json")
    yield _step("rollback", "agent", "rollback", *INTERFACE, "--json")
    yield from _send("after rollback")
    yield _step("filter leaves", "tool", "xdp-filter", "unload", "ww0")
    yield from _send("ours alone")
    yield _step("filter joins", "tool", "xdp-filter", "load", "ww0", "-p", "deny")
    yield from _send("behind a closed filter")
    where = INTERFACE[1]
    yield _step("kills", "kills", str(kills), CAPTURE, where, bundle, second, *_RUN, "--order", "20")
    yield _step("join again", *run, "--order", "20")
    yield from _send("behind a closed filter after kills")
    yield _step("leave", "agent", "detach", *INTERFACE, "--json")
    yield _step("untouched", "untouched")
    yield from _send("closed filter alone", stats=False)
    yield _step("filter ends", "tool", "xdp-filter", "unload", "ww0")
    yield _step("ours first", *run, "--order", "5")
    yield _step("filter second", "tool", "xdp-filter", "load", "ww0", "-p", "deny")
    yield from _send("before a filter")
    yield _step("all leave", "tool", "xdp-loader", "unload", "ww0", "-a")
    yield _step("gone", "agent", "status", "--json")
    yield _step("end", "agent", "detach", *INTERFACE, "--json")
    yield _step("clean", "tool", "xdp-loader", "clean")  # what a killed command had pinned
    yield _step("nothing left", "no_dispatcher")


def outcome(kernel: str, done: Mapping[str, Outcome]) -> str | None:
    """What is not as it must be. kernel : its name in the matrix."""
    try:
        (_check_refusal if kernel in OLD_LIBXDP else _check)(done)
    except Failed as failed:
        return f"dispatcher: {failed}"
    return None


def _check(done: Mapping[str, Outcome]) -> None:
    for name in _MUST_WORK:
        _output(done, name)
    equal("the run priority", json.loads(_output(done, "join"))["status"]["run_priority"], 20)
    equal("xdp-loader shows ours", "ww_component" in _output(done, "shown"), True)
    filtered = _sent(done, "filter alone")[1]
    before = (0, 0)
    for name in ("both", "after rollback", "ours alone"):
        sent, arrived = _sent(done, name)
        reached = sent if name == "ours alone" else filtered
        now = _judged(done, name)
        judged, dropped = now[0] - before[0], now[1] - before[1]
        equal(f"{name}: packets judged", judged, reached)
        equal(f"{name}: some dropped, some passed", 0 < dropped < judged, True)
        equal(f"{name}: packets arrived", arrived, reached - dropped)
        before = now
    equal("behind a closed filter: arrived", _sent(done, "behind a closed filter")[1], 0)
    equal("behind a closed filter: judged", _judged(done, "behind a closed filter"), before)
    *sent_amid, killed = map(json.loads, _output(done, "kills").splitlines())
    equal("amid kills: some were killed, and packets sent", killed["killed"] > 0 and len(sent_amid) > 0, True)
    equal("amid kills: arrived", sum(said["arrived"] for said in sent_amid), 0)
    equal("after kills: arrived", _sent(done, "behind a closed filter after kills")[1], 0)
    equal("closed filter alone: arrived", _sent(done, "closed filter alone")[1], 0)
    sent, arrived = _sent(done, "before a filter")
    equal("before a filter: judged and arrived", (_judged(done, "before a filter")[0], arrived), (sent, 0))
    equal(
        "taken out by xdp-loader: attached",
        json.loads(_output(done, "gone"))["attachments"][0]["attached"],
        False,
    )


def _check_refusal(done: Mapping[str, Outcome]) -> None:
    """Ours is refused, and so is what would come to it; neither is taken off."""
    join = done[_name("join")]
    equal("join: exit code", join.code, 3)
    equal("join: why", "before 1.5.5" in join.messages, True)
    equal("join: the filter goes on", _sent(done, "both")[1], _sent(done, "filter alone")[1])
    for name in ("ours first", "end", "nothing left"):
        _output(done, name)
    equal("filter second: refused", done[_name("filter second")].code != 0, True)
    sent, arrived = _sent(done, "before a filter")
    judged, dropped = _judged(done, "before a filter")
    equal("ours first: judged, and arrived", (judged, arrived), (sent, sent - dropped))


def _sent(done: Mapping[str, Outcome], name: str) -> tuple[int, int]:
    said = json.loads(_output(done, f"send {name}"))
    return said["sent"], said["arrived"]


def _judged(done: Mapping[str, Outcome], name: str) -> tuple[int, int]:
    """Packets that the data path saw since it was attached, and those that it dropped."""
    counts = life.of_stats(json.loads(_output(done, f"stats {name}")))
    return sum(counts.values()), sum(count for of, count in counts.items() if of.endswith(" drop"))


def _output(done: Mapping[str, Outcome], name: str) -> str:
    return life.output_of(name, done[_name(name)])


def _send(name: str, *, stats: bool = True) -> Iterator[Step]:
    yield _step(f"send {name}", "frames", "ww1", "ww0", CAPTURE)
    if stats:
        yield _step(f"stats {name}", "agent", "stats", *INTERFACE, "--json")


def _step(name: str, *command: str) -> Step:
    return Step(_name(name), command)


def _name(name: str) -> str:
    return f"dispatcher: {name}"
