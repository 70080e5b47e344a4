# SPDX-License-Identifier: Apache-2.0
"""Loads what is promised to load on Debian's kernels, from every clang, and uses an interface there.

    python -m tests.matrix             every kernel and clang; writes docs/kernels.md
    python -m tests.matrix --short     the oldest kernel, one clang, a few programs: what CI runs

Packages come from a Debian mirror, and are kept unpacked in build/matrix. Each kernel runs
in a virtual machine, emulated where there is no KVM. Exit code 1 if anything is refused or counted wrongly.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

from tests import objects
from tests.matrix import dispatcher, life, machine, packages, programs, report
from tests.matrix.machine import Outcome, Step
from tests.matrix.packages import UnpackedKernel
from tests.matrix.programs import Subject
from tests.matrix.registry import CLANGS, INSTALLED, KERNELS, Clang, Kernel
from wirewise.errors import WirewiseError
from wirewise.parallel import processors
from wirewise.targets.ebpf import target as ebpf_target
from wirewise.targets.ebpf.clang import clang_version

MODULES = ("veth", "sch_ingress", "cls_bpf")
KILLS, FEW_KILLS = 100, 6
"""How many commands that change a dispatcher are killed."""
_BEGAN = time.monotonic()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)
    kernels = [kernel for kernel in KERNELS if not options.kernel or kernel.name in options.kernel]
    clangs = [clang for clang in CLANGS if not options.clang or clang.name in options.clang]
    if options.short:
        kernels, clangs = kernels[:1], [clang for clang in CLANGS if clang.version == INSTALLED]
    try:
        # What clang made of the same sources before is kept, as in the tests.
        with patch.object(ebpf_target, "compile_sources", objects.compile_sources):
            found = run(
                kernels, clangs, options.output.resolve(), whole=not options.short, machines=options.machines
            )
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    found.write(options.output / "results.json")
    print(f"\n{found.table()}\n")
    if (kernels, clangs, options.short) == (list(KERNELS), list(CLANGS), False) and not found.broken:
        report.update_page(found)
    for line in found.failures():
        print(f"error: {line}", file=sys.stderr)
    return 1 if found.failures() else 0


def run(
    kernels: Sequence[Kernel], clangs: Sequence[Clang], folder: Path, *, whole: bool, machines: int
) -> report.Report:
    """Fetch, compile, boot each kernel, and compare. whole: all programs, not the bundles and a few alone.
    machines: that run at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _tell("fetching kernels and compilers")
    unpacked = [packages.fetch_kernel(kernel, folder, MODULES) for kernel in kernels]
    xdp_tools = {kernel.name: packages.fetch_xdp_tools(kernel, folder) for kernel in kernels}
    busybox = packages.fetch_busybox(folder)
    accelerated = machine.accelerator(unpacked[0], busybox, folder / "machines" / "probe")
    paths = {clang.name: packages.fetch_clang(clang, folder) for clang in clangs}
    versions = {name: clang_version(path) for name, path in paths.items()}
    _tell("training the demo's forests")
    learned = programs.learned()
    subjects = _compile(paths, folder / "programs-by-clang", whole=whole)
    classes = learned[programs.FIRST].classes
    traffic = life.make_traffic(folder, classes)
    expected = life.expect(traffic, _bundles(subjects, next(iter(paths))), learned)
    found = report.Report(accelerated, versions)

    def boot(kernel: UnpackedKernel) -> dict[str, Outcome] | WirewiseError:
        """What came of one kernel must not hang on another's."""
        try:
            tools = xdp_tools[kernel.name]
            kills = KILLS if whole else FEW_KILLS
            return _boot(kernel, busybox, accelerated, subjects, traffic, tools, kills, folder)
        except WirewiseError as error:
            return error

    with ThreadPoolExecutor(machines) as pool:
        outcomes = list(pool.map(boot, unpacked))
    for kernel, done in zip(unpacked, outcomes, strict=True):
        if isinstance(done, WirewiseError):
            found.broken[kernel.name] = str(done)
            continue
        found.add_kernel(kernel, done, subjects)
        found.add_dispatcher(kernel, dispatcher.outcome(kernel.name, done))
        for clang in paths:
            found.add_life(
                kernel, clang, life.outcome(kernel.release, clang, done, traffic, expected, classes)
            )
    return found


def _compile(paths: dict[str, str], folder: Path, *, whole: bool) -> list[Subject]:
    """Everything by every clang, on all CPUs; what clang refuses is an error."""
    Make = Callable[[str, str, str, Path], Subject]
    names = programs.OBJECTS if whole else programs.SHORT
    objects: list[tuple[Make, str]] = [(programs.compile_object, name) for name in names]
    bundles: list[tuple[Make, str]] = [(programs.compile_bundle, name) for name in programs.learned()]
    work = [(make, name, clang) for make, name in [*objects, *bundles] for clang in paths]
    _tell(f"compiling {len(work)} programs, unless they were before")

    def compile_one(item: tuple[Make, str, str]) -> Subject:
        make, name, clang = item
        began = time.monotonic()
        subject = make(name, clang, paths[clang], folder)
        if time.monotonic() - began > 5:
            _tell(f"compiled {name} by {clang} in {time.monotonic() - began:.0f} s")
        return subject

    with ThreadPoolExecutor(processors()) as pool:
        return list(pool.map(compile_one, work))


def _boot(
    kernel: UnpackedKernel,
    busybox: Path,
    accelerated: str,
    subjects: list[Subject],
    traffic: life.Traffic,
    xdp_tools: Path,
    kills: int,
    folder: Path,
) -> dict[str, Outcome]:
    """Everything on one kernel, by the names of its steps."""
    file_of = {subject.path: f"{number}{subject.path.suffix}" for number, subject in enumerate(subjects)}
    steps = [
        Step("modules", ("insert",)),
        Step("wire", ("wire",)),
        Step("doctor", ("agent", "doctor", *life.INTERFACE, "--json")),
    ]
    for subject in subjects:
        where = f"/files/{file_of[subject.path]}"
        steps.append(Step(report.verify_step(subject), ("verify", subject.option, where)))
    for clang in dict.fromkeys(subject.clang for subject in subjects):
        steps += life.steps(clang, _bundles(subjects, clang), file_of)
    bundles = _bundles(subjects, subjects[0].clang)
    first, second = (f"/files/{file_of[bundles[name].path]}" for name in (programs.FIRST, programs.SECOND))
    steps += dispatcher.steps(first, second, kills)
    files = {**traffic.files, **dispatcher.files(xdp_tools), **{name: path for path, name in file_of.items()}}
    _tell(f"booting Linux {kernel.release} ({accelerated}): {len(steps)} steps")

    def tell(name: str, outcome: Outcome) -> None:
        if outcome.code or outcome.seconds > 5:
            said = f", code {outcome.code}: {outcome.messages.splitlines()[-1:]}" if outcome.code else ""
            _tell(f"{kernel.release}: {name} in {outcome.seconds:.0f} s{said}")

    return machine.run(kernel, busybox, accelerated, files, steps, folder / "machines" / kernel.release, tell)


def _bundles(subjects: list[Subject], clang: str) -> dict[str, Subject]:
    return {s.name: s for s in subjects if s.clang == clang and s.option == "--bundle"}


def _tell(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.0f} s  {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix", description=lines[0], epilog=lines[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--short", action="store_true", help="the oldest kernel, one clang, three bundles and a few programs")
    add(
        "--kernel", action="append", choices=[kernel.name for kernel in KERNELS], help="only this; repeatable"
    )
    add("--clang", action="append", choices=[clang.name for clang in CLANGS], help="only this; repeatable")
    add("--machines", type=int, default=1, metavar="N", help="at a time; load times suffer [%(default)s]")
    add("--output", type=Path, default=Path("build/matrix"), metavar="FOLDER", help="[%(default)s]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
