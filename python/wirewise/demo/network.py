# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a veth pair: the network the demo plays in, made and removed by it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, get_errno
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from wirewise import agent, ending
from wirewise.errors import MissingFeatureError, WirewiseError

_NAMESPACES = Path("/run/netns")
_PINS = Path("/sys/fs/bpf/wirewise")
_PREFIX = "wwdemo"
_CLONE_NEWNET = 0x40000000

T = TypeVar("T")


@dataclass(frozen=True)
class Wire:
    """A cable between `outside`, from where packets are sent, and `inside`, where the program sits."""

    outside: str
    inside: str
    sender: str
    receiver: str


def within(namespace: str) -> list[str]:
    """The command that runs another in a network namespace.

    Only the network namespace changes. `ip netns exec` would also mount a new /sys, without the BPF file
    system, and the pins would be lost with it.
    """
    return ["nsenter", f"--net={_NAMESPACES / namespace}", "--"]


@contextmanager
def wire() -> Iterator[Wire]:
    """Make the namespaces and the pair; remove them, and any pins left on them, whatever happens.

    Raises MissingFeatureError without the privilege or the tools.
    """
    check_needs()
    _remove_leftovers()
    made = _names(os.getpid())
    with ending.held(), _removed_at_end(made):
        for namespace in (made.outside, made.inside):
            _run("ip", "netns", "add", namespace)
        _run(
            *("ip", "link", "add", made.sender, "netns", made.outside, "type", "veth"),
            *("peer", "name", made.receiver, "netns", made.inside),
        )
        for namespace, interface in ((made.outside, made.sender), (made.inside, made.receiver)):
            inside_namespace(namespace, partial(_silence, interface))
            _run("ip", "-n", namespace, "link", "set", interface, "arp", "off", "up")
        yield made


@contextmanager
def _removed_at_end(made: Wire) -> Iterator[None]:
    try:
        yield
    finally:
        _remove(made)


def inside_namespace(namespace: str, action: Callable[[], T]) -> T:
    """Run a function with the calling thread in a network namespace: sockets it opens stay there."""
    result: list[T] = []
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            with (_NAMESPACES / namespace).open() as handle:
                if CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
                    raise OSError(get_errno(), os.strerror(get_errno()), namespace)
            result.append(action())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=enter)  # the namespace is the thread's, and ends with it
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _silence(interface: str) -> None:
    """No neighbour discovery of the namespaces' own among the packets that are counted."""
    setting = Path("/proc/sys/net/ipv6/conf", interface, "disable_ipv6")
    if setting.exists():  # a kernel may be without IPv6
        setting.write_text("1", encoding="utf-8")


def _names(process: int) -> Wire:
    return Wire(f"{_PREFIX}-{process}-out", f"{_PREFIX}-{process}-in", f"wwd{process}o", f"wwd{process}i")


def check_needs() -> None:
    agent.find()
    for tool, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            raise MissingFeatureError(
                f"the demo needs {tool}: apt-get install {package} (or run `make demo`)"
            )
    if os.geteuid() != 0:
        raise MissingFeatureError(
            "the demo makes network namespaces, for which it must be root: run it with sudo"
        )


def _remove_leftovers() -> None:
    """What demos that were killed left behind."""
    for path in _NAMESPACES.glob(f"{_PREFIX}-*-out") if _NAMESPACES.is_dir() else ():
        process = path.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            _remove(_names(int(process)))


def _remove(made: Wire) -> None:
    """Remove what there is of a wire; a second Ctrl-C waits until it is done."""
    endings = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    try:
        for pins in _PINS.glob(f"{made.receiver}*"):  # the agent may have been stopped half-way
            shutil.rmtree(pins)
        for namespace in (made.outside, made.inside):
            if (_NAMESPACES / namespace).exists():
                subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise WirewiseError(f"`{shlex.join(command)}` failed: {reason}")
