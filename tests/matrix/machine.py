# SPDX-License-Identifier: Apache-2.0
"""A virtual machine that boots a kernel, runs steps and says what came of each."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.matrix import initramfs
from tests.matrix.packages import UnpackedKernel
from wirewise.errors import MissingFeatureError, WirewiseError

STEP_LIMIT_S = 900  # a large program takes the verifier a second natively, and much longer under emulation
_SILENCE_S = STEP_LIMIT_S + 60
MEMORY_MB, CPUS = 2048, 2
# Emulated with two CPUs, cmpxchg16b spoils the flags now and then (QEMU 7.2), and the kernel panics.
CPU = {"kvm": "max", "tcg": "max,-cx16"}
QEMU = "qemu-system-x86_64"
KVM = Path("/dev/kvm")
_PROBE_S = 30  # where it boots at all it takes two


@dataclass(frozen=True)
class Step:
    """A command in the guest: words for its shell, functions of guest.sh included."""

    name: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(("step", self.name, *self.command))


@dataclass(frozen=True)
class Outcome:
    """What came of a step. seconds: by the guest's clock."""

    code: int
    output: str
    messages: str
    seconds: float


def accelerator(kernel: UnpackedKernel, busybox: Path, folder: Path) -> str:
    """`kvm` if this kernel boots with it here, else `tcg`, emulation.

    A /dev/kvm says little, and so does a machine that starts: within some virtual machines it never comes to
    its first instruction. Raises MissingFeatureError without QEMU.
    """
    if shutil.which(QEMU) is None:
        raise MissingFeatureError(f"{QEMU} is missing: apt-get install qemu-system-x86")
    if not KVM.exists():
        return "tcg"
    try:
        run(kernel, busybox, "kvm", {}, [], folder, lambda *_: None, silence_s=_PROBE_S)
    except WirewiseError:
        return "tcg"
    return "kvm"


def run(
    kernel: UnpackedKernel,
    busybox: Path,
    accelerated: str,
    files: dict[str, bytes | Path],
    steps: list[Step],
    folder: Path,
    tell: Callable[[str, Outcome], None],
    *,
    silence_s: float = _SILENCE_S,
) -> dict[str, Outcome]:
    """Boot a kernel and run the steps in turn. tell: called with each as it ends. silence_s: how long the
    machine may say nothing.

    What the kernel says is kept in console.log of `folder`. Raises WirewiseError if the machine ends, or is
    silent, before its last step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, console = folder / "initramfs.cpio", folder / "console.log"
    script = "\n".join([f"LIMIT_S={STEP_LIMIT_S}", *map(str, steps), ""])
    initramfs.write(archive, busybox, files, kernel.modules, script)
    command = [
        QEMU, "-accel", accelerated, "-cpu", CPU[accelerated], "-m", str(MEMORY_MB), "-smp", str(CPUS),
        "-nodefaults", "-no-reboot", "-display", "none", "-monitor", "none", "-nic", "none",
        "-kernel", str(kernel.image), "-initrd", str(archive),
        "-append", "console=ttyS0 rdinit=/init panic=-1 quiet",
        "-serial", f"file:{console}", "-serial", "stdio",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    done: dict[str, Outcome] = {}
    try:
        ended = False
        for line_group in _parsed(_lines(process, silence_s)):
            if line_group is None:
                ended = True
                break
            name, outcome = line_group
            done[name] = outcome
            tell(name, outcome)
    finally:
        process.kill()
        process.wait()
        archive.unlink(missing_ok=True)
    if not ended:
        missing = next((step.name for step in steps if step.name not in done), "boot")
        last = console.read_text(errors="replace").strip().splitlines() if console.is_file() else []
        said = last[-1].strip() if last else "nothing was said"
        raise WirewiseError(
            f"Linux {kernel.release} in {QEMU} did not end step {missing!r}: {said}; see {console}"
        )
    return done


def _lines(process: subprocess.Popen[bytes], silence_s: float) -> Iterator[str]:
    """Lines of the second serial port; ends with the machine, or when it is silent for too long."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(silence_s):
            got = os.read(process.stdout.fileno(), 1 << 16)
            if not got:
                return
            *whole, rest = (rest + got).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in whole)


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, Outcome] | None]:
    """Each step's name and outcome; None when the guest says that it is done."""
    name, parts = "", ([], [])  # type: tuple[str, tuple[list[str], list[str]]]
    into: list[str] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "@done":
            yield None
            return
        if word == "@begin":
            name, parts = rest, ([], [])
            into = parts[0]
        elif word == "@messages":
            into = parts[1]
        elif word == "@end":
            code, began, ended = rest.split()
            output, messages = ("\n".join(part).strip() for part in parts)
            yield name, Outcome(int(code), output, messages, float(ended) - float(began))
        else:
            into.append(line)
