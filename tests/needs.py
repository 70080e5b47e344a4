# SPDX-License-Identifier: Apache-2.0
"""What a test needs of the machine, and what becomes of it where that is not there.

It is skipped, and `make test` names it at its end; or it fails, where WIREWISE_REQUIRE lists what it needs
(`root,clang,...`). A reason to skip is `need: why`, with a need of NEEDS. crates/test-needs does the same for
Rust.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NEEDS = {
    "root": "to load and attach programs, and make network namespaces",
    "clang": "every clang that scripts/setup.sh installs",
    "cpus": "two of them",
    "tools": "other programs and packages of the system that scripts/setup.sh installs, and wirewised",
    "packages": "the Python packages of `wirewise[dev]`",
    "browser": "Chromium, to look at pages; scripts/setup.sh installs it where the distribution has it",
    "ray": "Ray, which is large; `make test-ray` installs it in an environment of its own",
    "p4": "p4c and bmv2's simple_switch, which no registry has; `make test-p4` takes their paths",
    "torch": "PyTorch, which is large and in no group of packages",
    "captures": "the collection in ../shared/data/captures",
}
REQUIRE = "WIREWISE_REQUIRE"
SKIPPED = "WIREWISE_SKIPPED"

root = pytest.mark.skipif(os.geteuid() != 0, reason="root: running programs in the kernel needs root")
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="cpus: two CPUs contend")


def package(name: str, need: str = "packages") -> Any:
    """The module, which the tests of a module or one test cannot do without."""
    return pytest.importorskip(name, reason=f"{need}: {name} is not installed")


def required() -> set[str]:
    return {name.strip() for name in os.environ.get(REQUIRE, "").split(",")} - {""}


def pytest_configure() -> None:
    if unknown := sorted(required() - set(NEEDS)):
        raise pytest.UsageError(f"{REQUIRE}: {unknown[0]!r} is none of {', '.join(NEEDS)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    return _judged(report) if not hasattr(report, "wasxfail") else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    return _judged((yield))


def _judged(report: Any) -> Any:
    """The report, of a failure if it is that of a test skipped which must not be."""
    if not report.skipped:
        return report
    why = report.longrepr[2].removeprefix("Skipped: ")
    need = why.partition(":")[0]
    if need not in NEEDS:
        report.outcome = "failed"
        report.longrepr = f"a reason to skip begins with what is needed ({', '.join(NEEDS)}): {why}"
    elif need in required():
        report.outcome = "failed"
        report.longrepr = f"would be skipped, but {REQUIRE} lists {why}"
    elif path := os.environ.get(SKIPPED):
        with Path(path).open("a") as file:
            file.write(f"{report.nodeid}\t{why}\n")
    return report
