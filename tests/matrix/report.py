# SPDX-License-Identifier: Apache-2.0
"""What came of it: as JSON, as tables, and as the generated part of docs/kernels.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.matrix.machine import Outcome
from tests.matrix.packages import UnpackedKernel
from tests.matrix.programs import PUBLISHED, Subject
from wirewise.errors import WirewiseError
from wirewise.files import write_atomically

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
BEGIN, END = "<!-- written by `make test-kernels` -->\n", "<!-- until here -->\n"
VERIFIED_AT_MOST = 500_000
"""Half of the kernel's limit for each program: what docs/targets/ebpf.md promises of what we generate."""


def verify_step(subject: Subject) -> str:
    return f"verify {subject.clang}: {subject.name}"


@dataclass
class Report:
    """kernels: by name. loads: kernel -> program -> clang -> what the verifier said. life: kernel -> clang ->
    packets sent, or what went wrong. doctor: kernel -> findings that are errors. broken: kernel -> why its
    machine did not come to an end. dispatcher: kernel -> what went wrong beside xdp-filter.
    """

    accelerated: str
    clangs: dict[str, str]
    kernels: dict[str, dict[str, str]] = field(default_factory=dict)
    loads: dict[str, dict[str, dict[str, dict[str, Any]]]] = field(default_factory=dict)
    life: dict[str, dict[str, int | str]] = field(default_factory=dict)
    doctor: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    dispatcher: dict[str, str] = field(default_factory=dict)

    def add_kernel(
        self, kernel: UnpackedKernel, done: Mapping[str, Outcome], subjects: Sequence[Subject]
    ) -> None:
        """Take what `doctor` and the verifier of a kernel said."""
        for name in ("modules", "wire", "doctor"):
            if done[name].code:
                raise WirewiseError(f"Linux {kernel.release}: {name}: {done[name].messages}")
        findings = json.loads(done["doctor"].output)["findings"]
        self.kernels[kernel.name] = {"release": kernel.release, "package_version": kernel.package_version}
        self.doctor[kernel.name] = [f["found"] for f in findings if f["level"] == "error"]
        loads = self.loads.setdefault(kernel.name, {})
        for subject in subjects:
            loads.setdefault(subject.name, {})[subject.clang] = _load(subject, done[verify_step(subject)])

    def add_life(self, kernel: UnpackedKernel, clang: str, packets: int | str) -> None:
        self.life.setdefault(kernel.name, {})[clang] = packets

    def add_dispatcher(self, kernel: UnpackedKernel, failure: str | None) -> None:
        if failure is not None:
            self.dispatcher[kernel.name] = failure

    def failures(self) -> list[str]:
        """A line for each thing that must be and is not."""
        lines = [
            f"Linux {name}: doctor: {found}" for name, all_found in self.doctor.items() for found in all_found
        ]
        lines += self.broken.values()
        for kernel, loads in self.loads.items():
            for program, by_clang in loads.items():
                for clang, load in by_clang.items():
                    where = f"Linux {kernel}, {clang}, {program}"
                    if not load["accepted"]:
                        lines.append(f"{where}: refused: {load['reason']}")
                    elif load["largest"] >= VERIFIED_AT_MOST and program not in PUBLISHED:
                        lines.append(f"{where}: a program takes {load['largest']:,} verified instructions")
        for kernel, lives in self.life.items():
            lines += [
                f"Linux {kernel}, {clang}: {said}" for clang, said in lives.items() if isinstance(said, str)
            ]
        lines += [f"Linux {kernel}: {said}" for kernel, said in self.dispatcher.items()]
        return lines

    def write(self, path: Path) -> None:
        said = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "accelerator": self.accelerated,
            "clangs": self.clangs, "kernels": self.kernels, "doctor": self.doctor, "loads": self.loads,
            "life": self.life, "broken": self.broken, "dispatcher": self.dispatcher,
        }  # fmt: skip
        write_atomically(path, (json.dumps(said, indent=1) + "\n").encode())

    def table(self) -> str:
        """Markdown: for each kernel a row a program and a column a clang."""
        emulated = "under emulation" if self.accelerated == "tcg" else "in a virtual machine"
        parts = [
            f"Verified instructions of all programs of an object, and seconds to load it "
            f"{emulated}. Compilers: "
            + ", ".join(f"clang {version}" for version in self.clangs.values())
            + ".",
        ]
        for kernel, loads in self.loads.items():
            about = self.kernels[kernel]
            rows = [["program", *self.clangs]]
            rows += [
                [program, *(_cell(by_clang[clang]) for clang in self.clangs)]
                for program, by_clang in loads.items()
            ]
            rows.append(
                ["attach to detach", *(_life_cell(self.life[kernel][clang]) for clang in self.clangs)]
            )
            parts.append(f"### Linux {about['release']} (Debian {about['package_version']})")
            parts.append(_markdown(rows))
        reasons = [f"- {line}" for line in self.failures()]
        parts += ["### What does not load", "\n".join(reasons)] if reasons else []
        return "\n\n".join(parts)


def update_page(report: Report, page: Path = PAGE) -> None:
    """Put the tables of a report into the page, between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    write_atomically(page, f"{before}{BEGIN}\n{report.table()}\n\n{END}{after}".encode())


def _load(subject: Subject, outcome: Outcome) -> dict[str, Any]:
    try:
        said = json.loads(outcome.output)
    except json.JSONDecodeError:
        reason = outcome.messages or f"ended with code {outcome.code}"
        return {"accepted": False, "reason": _one_line(reason), "shape": subject.shape}
    if not said["accepted"]:
        reason = " | ".join((said.get("refusal") or {}).get("deciding", [])) or outcome.messages
        return {"accepted": False, "reason": _one_line(reason), "shape": subject.shape}
    each = [program["verified_instructions"] for program in said["programs"]]
    return {
        "accepted": True, "shape": subject.shape, "instructions": subject.instructions,
        "verified_instructions": sum(each), "largest": max(each), "load_ms": said["load_ms"],
    }  # fmt: skip


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _cell(load: dict[str, Any]) -> str:
    if not load["accepted"]:
        return "refused"
    return f"{load['verified_instructions']:,} ({load['load_ms'] / 1000:.2g} s)"


def _life_cell(said: int | str) -> str:
    return f"{said:,} packets" if isinstance(said, int) else "failed"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))
