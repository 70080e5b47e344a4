# SPDX-License-Identifier: Apache-2.0
"""The parts of `make test-kernels` that need no virtual machine."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.matrix import initramfs, life, machine, packages, report
from tests.matrix.machine import Outcome, Step
from tests.matrix.packages import UnpackedKernel
from tests.matrix.programs import Subject
from tests.matrix.registry import CLANGS, KERNELS
from wirewise.errors import MissingFeatureError, WirewiseError

KERNEL = UnpackedKernel("6.1", "6.1.0-1-cloud-amd64", "6.1.2-1", Path("vmlinuz"), [])
SAID = """\
@begin doctor
{"ready": true}

@messages
note: one
two

@end 0 1.50 3.75
@begin verify clang-14: tree
@messages
error: no
@end 4 4.00 4.25
"""


def verified(*counts: int) -> Outcome:
    programs = [{"verified_instructions": count} for count in counts]
    said = {"accepted": True, "programs": programs, "load_ms": 1234.5, "refusal": None}
    return Outcome(0, json.dumps(said), "", 2.0)


def refused() -> Outcome:
    said = {"accepted": False, "programs": [], "refusal": {"deciding": ["7: (0f) r1 += r4", "math  between"]}}
    return Outcome(4, json.dumps(said), "the whole log", 2.0)


def a_report(outcome: Outcome, packets: int | str) -> report.Report:
    subject = Subject("tree-10", "clang-14", Path("tree.bpf.o"), "inline", 900)
    doctor = Outcome(0, json.dumps({"findings": [{"level": "ok", "found": "on"}]}), "", 0.1)
    fine = Outcome(0, "", "", 0.1)
    made = report.Report("tcg", {"clang-14": "14.0.6"})
    done = {"modules": fine, "wire": fine, "doctor": doctor, report.verify_step(subject): outcome}
    made.add_kernel(KERNEL, done, [subject])
    made.add_life(KERNEL, "clang-14", packets)
    return made


def test_what_the_guest_says_is_read_by_step() -> None:
    first, second, end = machine._parsed(iter([*SAID.splitlines(), "@done"]))
    assert first == ("doctor", Outcome(0, '{"ready": true}', "note: one\ntwo", 2.25))
    assert second == ("verify clang-14: tree", Outcome(4, "", "error: no", 0.25))
    assert end is None


def test_a_step_keeps_its_words_apart() -> None:
    step = Step("trace kernel captures, retrained", ("trace_sum", "kernel", "/files/a b"))
    assert str(step) == "step 'trace kernel captures, retrained' trace_sum kernel '/files/a b'"


def test_a_machine_that_ends_too_early_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = tmp_path / "qemu"
    qemu.write_text(f"#!/bin/sh\ncat <<'X'\n{SAID}X\n")
    qemu.chmod(0o755)
    monkeypatch.setattr(machine, "QEMU", str(qemu))
    monkeypatch.setattr(initramfs, "write", lambda *_: None)
    steps = [Step("doctor", ("true",)), Step("verify clang-14: tree", ("true",)), Step("last", ("true",))]
    told: list[str] = []
    with pytest.raises(WirewiseError, match=r"6\.1\.0-1-cloud-amd64 .* did not end step 'last'"):
        machine.run(KERNEL, qemu, "tcg", {}, steps, tmp_path, lambda name, _: told.append(name))
    assert told == ["doctor", "verify clang-14: tree"]


@pytest.mark.parametrize(
    ("does", "found"), [("echo @done", "kvm"), ("exec sleep 60", "tcg"), ("exit 1", "tcg")]
)
def test_a_machine_that_starts_but_does_not_boot_is_emulated(
    does: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu, device = tmp_path / "qemu", tmp_path / "kvm"
    qemu.write_text(f"#!/bin/sh\n{does}\n")
    qemu.chmod(0o755)
    device.touch()
    monkeypatch.setattr(machine, "QEMU", str(qemu))
    monkeypatch.setattr(machine, "KVM", device)
    monkeypatch.setattr(machine, "_PROBE_S", 3)
    monkeypatch.setattr(initramfs, "write", lambda *_: None)
    assert machine.accelerator(KERNEL, qemu, tmp_path) == found
    device.unlink()
    assert machine.accelerator(KERNEL, qemu, tmp_path) == "tcg"


def test_a_member_of_the_archive_has_its_numbers_where_the_kernel_reads_them() -> None:
    parts = [
        initramfs._entry("bin", 0o40755),
        initramfs._entry("bin/tool", 0o100755, b"12345"),
        initramfs._entry("dev/console", 0o20600, device=(5, 1)),
        initramfs._entry("TRAILER!!!", 0),
    ]
    assert all(len(part) % 4 == 0 for part in parts)
    name_length, file_size = int(parts[1][94:102], 16), int(parts[1][54:62], 16)
    assert (name_length, file_size) == (len("bin/tool") + 1, 5)
    assert parts[1][110 : 110 + name_length] == b"bin/tool\0" and b"12345" in parts[1]
    assert (int(parts[2][78:86], 16), int(parts[2][86:94], 16)) == (5, 1)
    assert b"".join(parts).count(b"070701") == 4


def test_only_static_programs_go_in(tmp_path: Path) -> None:
    with pytest.raises(MissingFeatureError, match="needs libraries"):
        initramfs._check_static(Path(sys.executable).resolve())
    program = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", str(source), "-o", str(program)], check=True)
    initramfs._check_static(program)


def test_modules_come_after_those_they_need(tmp_path: Path) -> None:
    folder = tmp_path / "kernel" / "net"
    folder.mkdir(parents=True)
    (folder / "upper.ko.xz").write_bytes(lzma.compress(b"upper\0depends=lower_one,base\0"))
    (folder / "lower-one.ko").write_bytes(b"lower\0depends=base\0")
    (folder / "base.ko").write_bytes(b"base\0depends=\0")
    order = packages._in_order(tmp_path, ["upper"])
    assert [data.split(b"\0")[0] for data in order] == [b"base", b"lower", b"upper"]
    with pytest.raises(MissingFeatureError, match="no module other"):
        packages._in_order(tmp_path, ["other"])


def test_a_mirror_can_be_named_and_one_that_is_not_there_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(packages.MIRROR_VARIABLE, "http://127.0.0.1:9/debian")
    monkeypatch.setattr(packages, "_LISTS_LAST_S", 0)
    if not packages.KEYRING.is_file():
        pytest.skip("tools: Debian's keys are not here")
    with pytest.raises(MissingFeatureError, match=r"Debian bookworm of http://127\.0\.0\.1:9/debian: "):
        packages.Suite("bookworm", tmp_path).update()


def test_what_loads_stands_in_the_table_and_fails_nothing() -> None:
    made = a_report(verified(40_000, 2_345), 1800)
    assert (
        "| tree-10 | 42,345 (1.2 s) |" in made.table()
        and "| attach to detach | 1,800 packets |" in made.table()
    )
    assert made.failures() == [] and "does not load" not in made.table()


@pytest.mark.parametrize(
    ("outcome", "packets", "line"),
    [
        (refused(), 9, "Linux 6.1, clang-14, tree-10: refused: 7: (0f) r1 += r4 | math between"),
        (verified(500_000), 9, "Linux 6.1, clang-14, tree-10: a program takes 500,000 verified instructions"),
        (verified(1), "killed: no", "Linux 6.1, clang-14: killed: no"),
        (Outcome(143, "", "timed out", 900), 9, "Linux 6.1, clang-14, tree-10: refused: timed out"),
    ],
)
def test_what_fails_is_said_with_its_reason(outcome: Outcome, packets: int | str, line: str) -> None:
    made = a_report(outcome, packets)
    assert made.failures() == [line] and f"- {line}" in made.table()


def test_the_page_keeps_what_is_around_its_tables(tmp_path: Path) -> None:
    page = tmp_path / "kernels.md"
    page.write_text(f"before\n{report.BEGIN}old\n{report.END}after\n")
    report.update_page(a_report(verified(7), 9), page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| tree-10 | 7 (1.2 s) |" in text


def test_the_tables_of_the_page_have_every_kernel_and_compiler() -> None:
    """A page without tables waits for `make test-kernels`."""
    text = report.PAGE.read_text()
    _, begin, tables = text.partition(report.BEGIN)
    tables, end, _ = tables.partition(report.END)
    assert begin and end
    if tables.strip():
        assert tables.count("### Linux ") >= len(KERNELS)
        assert all(clang.name in tables for clang in CLANGS)


def test_the_traffic_is_sendable_and_odd(tmp_path: Path) -> None:
    traffic = life.make_traffic(tmp_path, ["benign", "flood"])
    assert set(traffic.parts) == set(life.PHASES)
    sizes = [part.stop - part.start for part in traffic.parts.values()]
    assert min(sizes) > 100 and b"flood: drop" in bytes(traffic.files[life.POLICY])  # type: ignore[arg-type]


def test_a_step_that_failed_is_told_with_its_message() -> None:
    with pytest.raises(life.Failed, match="ended with code 1: gone"):
        life.check(
            "6.1.0-50-cloud-amd64",
            "clang-14",
            {"clang-14: adopt": Outcome(1, "", "gone", 0.0)},
            life.Traffic({}, {}),
            life.Expected({}, None, None, {}),  # type: ignore[arg-type]
            [],
        )


def test_counters_are_compared_by_class_outcome_and_reason() -> None:
    """What `stats` shows, and what a trace says, as the same names."""
    trace = np.array([(0, 1), (0, 1), (0, 0), (1, 0)], dtype=[("status", "<u4"), ("class_id", "<u4")])
    classes = ["benign", "flood"]
    assert life._counted(trace, classes, enforced=True) == {"flood drop": 2, "benign pass": 1, "not_ip": 1}
    outcomes = {"pass": {"packets": 1}, "drop": {"packets": 0}}
    dropped = {"pass": {"packets": 0}, "drop": {"packets": 2}}
    stats = {
        "classes": [{"name": "benign", "outcomes": outcomes}, {"name": "flood", "outcomes": dropped}],
        "status": [{"status": "classified", "packets": 3}, {"status": "not_ip", "packets": 1}],
    }
    assert life.of_stats(stats) == dict(life._counted(trace, classes, enforced=True))
    assert life._counted(trace, classes, enforced=False)["flood would-drop"] == 2
