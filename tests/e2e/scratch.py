# SPDX-License-Identifier: Apache-2.0
"""A machine of its own for the commands of the documentation: namespaces in which they may do as they like.

What they mount, pin, write to /etc or /run, and the users they make are gone with it. Its network has `eth0`,
one end of a veth pair, and so has the network namespace `blue`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

FOLLOWED = ("--watch", "--follow", "af-packet", "af-xdp")
"""Words of commands that go on until they are interrupted."""

_SETUP = """
set -e
mount -t tmpfs none /run && mkdir /run/netns
mount -t sysfs none /sys && mount -t bpf none /sys/fs/bpf
mkdir {overlay}/etc {overlay}/work {overlay}/bin
mount -t overlay none -o lowerdir=/etc,upperdir={overlay}/etc,workdir={overlay}/work /etc
useradd --no-create-home --uid 4711 watch
ip link set lo up
wire() {{ ip $1 link add $2 type veth peer name $3 && ip $1 link set $2 up && ip $1 link set $3 up; }}
wire "" eth0 peer
wire "" eth1 peer1
ip netns add blue
wire "-netns blue" eth0 peer
"""
_SUDO = """#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2; shift 2
exec runuser -u "$user" -- "$@"
"""


@dataclass(frozen=True)
class Machine:
    """`folder` is where commands run; `programs` comes first on their PATH."""

    folder: Path
    programs: Path
    process: int

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as bash does. One that would go on is interrupted as Ctrl-C does, after a second."""
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        session = "198.51.100.7 50000 198.51.100.1 22"  # as if logged in over SSH
        environment = {**os.environ, "PATH": path, "SSH_CONNECTION": session, "HOME": str(self.folder)}
        environment["OMP_NUM_THREADS"] = "1"  # other tests run beside these
        goes_on = any(option in command.split("#")[0].split() for option in FOLLOWED)
        if goes_on:
            # In the foreground: another job may not set up a terminal where the shell in between stays.
            limited = ["timeout", "--foreground", "--preserve-status", "--signal=INT"]
            limited += [f"--kill-after={PATIENCE_S}", "1"]
            limited += ["bash", "-c", f"exec {command}"]
            # A live view wants a terminal, JSON does not.
            given = limited if "--json" in command else ["script", "-qec", shlex.join(limited), "/dev/null"]
        else:
            given = ["bash", "-c", command]
        # A folder chosen by nsenter itself would be one of the mounts left behind.
        within = ["bash", "-c", 'cd "$1" && shift && exec "$@"', "within", self.folder]
        done = subprocess.run(
            ["nsenter", f"--target={self.process}", "--mount", "--net", *within, *given],
            capture_output=True, encoding="utf-8", env=environment, stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if goes_on and done.returncode == 128 + signal.SIGINT:
            done.returncode = 0
        return done


@contextmanager
def machine() -> Iterator[Machine]:
    """A machine, until the block ends. Needs root."""
    with tempfile.TemporaryDirectory(prefix="wirewise-docs-") as name:
        root = Path(name)
        root.chmod(0o755)  # for the users that its commands become
        folder, programs, overlay = root / "folder", root / "programs", root / "overlay"
        for each in (folder, programs, overlay):
            each.mkdir()
        holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation=private", "sh", "-c",
             f"mount -t tmpfs none {overlay} && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert holder.stdout and holder.stdout.readline() == b"ready\n"
            made = Machine(folder, programs, holder.pid)
            wirewise = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wirewise "$@"\n'
            for name, script in (("sudo", _SUDO), ("wirewise", wirewise)):
                (programs / name).write_text(script)
                (programs / name).chmod(0o755)
            done = made.run(_SETUP.format(overlay=overlay))
            assert done.returncode == 0, done.stderr
            yield made
        finally:
            holder.kill()
            holder.wait()
