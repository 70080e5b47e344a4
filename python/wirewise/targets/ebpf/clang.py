# SPDX-License-Identifier: Apache-2.0
"""Runs clang on generated sources and reads what came out."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from wirewise import ending
from wirewise.abi import ACT_STACK, DENY_STACK, TELL_STACK
from wirewise.errors import MissingFeatureError, WirewiseError
from wirewise.feature_sets.feature_set import AGGREGATES, identifier
from wirewise.targets.ebpf import confined
from wirewise.targets.ebpf.sources import NO_MODEL

MINIMUM = 14
_TOO_LARGE = "BPF stack limit"  # clang's error, of a function that takes more by itself
_FRAME = re.compile(r"stack frame size \((\d+)\)[^\n]* in(?: function)? '(\w+)'")
# What decides what comes out is in bpf/clang.flags, which the agent reads too (`verify --rebuild`).
# -mcpu=v3: atomics with results and 32-bit jumps; every kernel from 5.12 on runs it.
FLAGS = (
    *(files("wirewise") / "bpf" / "clang.flags").read_text().split(),
    "-Wall",
    "-Werror",
    "-Wno-unused-function",
    "-Wframe-larger-than=1",
    "-Wno-error=frame-larger-than",
)

DATA_PATH = ("", "frame/", "classify/")
"""Folders of bpf/ that a bundle is compiled from; the actor, in act/, is the agent's."""

INSTALL = "apt-get install clang libbpf-dev linux-libc-dev"

# Bytes of stack the kernel allows for all nested calls together; parts of one large tree call each other.
STACK_LIMIT = 512
_FRAME_UNIT = 32
STACK_OF_PARTS = 5 * 32
# How the packet's path is cut (WW_SPLIT of pipeline.h): 0, IPv6 has a function of its own; 1, IPv4 has one
# too; 2, parsing is over before the flow is looked for. Each costs a packet a call more, so the first that
# fits is taken. The last has the verifier follow half as many instructions: without a model, where more
# features are read than any model reads, it is taken instead of 1 for large programs.
MAXIMUM_SPLIT = 2
LARGE_EXTRACTION = 9_000
"""Instructions."""
_PART = re.compile(r"__noinline \w+ ww_tree_\d+_\d+\(")


@dataclass(frozen=True)
class Built:
    """A compiled object. instructions: eBPF instructions of all programs, by the ELF sections. split: how the
    packet's path is cut to fit the kernel's stack, 0 to MAXIMUM_SPLIT.
    """

    object: bytes
    clang: str
    instructions: int
    split: int


class StackError(WirewiseError):
    """A program needs more stack than the kernel has, however its path is cut. limit, needed: bytes; needed
    is None where clang gave up on one function.
    """

    def __init__(self, limit: int, needed: int | None) -> None:
        self.limit, self.needed = limit, needed
        super().__init__(f"the program needs {self.amount} of stack, the kernel has {limit}")

    @property
    def amount(self) -> str:
        return "more bytes" if self.needed is None else f"{self.needed} bytes"


def find_clang() -> str:
    """The newest clang on PATH, 14 or later. Raises MissingFeatureError saying how to get one."""
    for version in range(24, MINIMUM - 1, -1):
        if path := shutil.which(f"clang-{version}"):
            return path
    if path := shutil.which("clang"):
        return path
    raise MissingFeatureError(
        f"no clang found: compiling needs clang {MINIMUM} or newer and libbpf's headers; {INSTALL}"
    )


def clang_version(clang: str) -> str:
    """`19.1.7` of `clang version 19.1.7`."""
    try:
        text = subprocess.run([clang, "--version"], capture_output=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingFeatureError(f"{clang}: cannot be run: {error}; give --clang PATH") from error
    match = re.search(r"version (\d+)([.\d]*)", text)
    if match is None or int(match[1]) < MINIMUM:
        raise MissingFeatureError(f"{clang}: is {text.splitlines()[0]!r}; clang {MINIMUM} or newer is needed")
    return match[1] + match[2]


def system_includes() -> list[str]:
    """Where the UAPI headers' asm/ lies: the multiarch folder, which `-target bpf` does not search."""
    return [str(path) for path in sorted(Path("/usr/include").glob("*-linux-gnu")) if (path / "asm").is_dir()]


def data_path_digest() -> str:
    """SHA-256 of the lines that `sha256sum` writes of what DATA_PATH holds: which data path a bundle was
    compiled with.
    """
    bpf = files("wirewise") / "bpf"
    names = sorted(
        folder + file.name
        for folder in DATA_PATH
        for file in (bpf / folder).iterdir()
        if file.name.endswith((".c", ".h"))
    )
    lines = (f"{hashlib.sha256((bpf / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compile_sources(sources: dict[str, str], *, clang: str | None = None, meaning: bytes = b"") -> Built:
    """Compile main.bpf.c with the generated headers. sources: file name -> text. meaning: what is written
    into its `ww_config`, see `wirewise.formats.manifest.meaning`.

    Raises MissingFeatureError without a usable clang, StackError if the program would not fit the kernel's
    stack, WirewiseError with clang's first error otherwise.
    """
    clang = clang or find_clang()
    version = clang_version(clang)
    with ending.temporary_folder() as folder, as_file(files("wirewise") / "bpf") as bpf:
        for file, text in sources.items():
            (folder / file).write_text(text, encoding="utf-8")
        includes = [f"-I{folder}", f"-I{bpf}", *(f"-isystem{path}" for path in system_includes())]
        paths = [f"-ffile-prefix-map={folder}=.", "-fdebug-compilation-dir=."]
        command = [
            *_confined(folder, bpf),
            str(Path(shutil.which(clang) or clang).absolute()),
            *FLAGS,
            *paths,
            *includes,
            *([f"-DWW_MEANING={','.join(map(str, meaning))}"] if meaning else []),
            "-c",
            str(folder / "main.bpf.c"),
            "-o",
            str(folder / "program.bpf.o"),
        ]
        split = 0
        without_model = any(NO_MODEL in text for text in sources.values())
        # No part of a model behind tail calls is called while the packet's path is on the stack.
        parts = "ww_tail_calls.h" not in sources and any(map(_PART.search, sources.values()))
        limit = STACK_LIMIT - (STACK_OF_PARTS if parts else 0)
        while True:
            done = subprocess.run(
                [*command, f"-DWW_SPLIT={split}"],
                capture_output=True,
                encoding="utf-8",
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder)},
                check=False,
            )
            if done.returncode == confined.CANNOT:
                raise MissingFeatureError(done.stderr.strip())
            if missing := re.search(r"'([\w/.]+)' file not found", done.stderr):
                raise MissingFeatureError(f"{clang} {version}: no header {missing[1]}; {INSTALL}")
            too_large = bool(done.returncode) and _TOO_LARGE in done.stderr
            if done.returncode and not too_large:
                raise WirewiseError(f"{clang} {version}: {_first_error(done.stderr)}")
            needed = _stack(done.stderr)
            # The last may do without room for all parts, which few models need at once; the verifier knows.
            last = split == MAXIMUM_SPLIT
            if not too_large and needed <= (STACK_LIMIT if last else limit):
                data = (folder / "program.bpf.o").read_bytes()
                instructions = _instructions(data)
                if last or not (split and without_model and instructions > LARGE_EXTRACTION):
                    break
            elif last:
                raise StackError(STACK_LIMIT, None if too_large else needed)
            split += 1
    return Built(data, version, instructions, split)


def _confined(folder: Path, data_path: Path) -> list[str]:
    """A command in front of clang's: it reads nothing but itself, headers and these folders, and writes
    nothing but the first, whatever somebody's feature set makes of the sources. See confined.py. Nothing on a
    kernel without Landlock: what is compiled here was generated here, from names that were checked.
    """
    if confined.version() < 1:
        return []
    return [sys.executable, "-I", "-S", confined.__file__, str(folder), str(data_path.resolve()), "--"]


_BESIDE_PARSING = (
    "ww_find_network", "ww_skip_pppoe", "ww_read_payload", "ww_shadow_time",
    "ww_shadow_answer", "ww_allowed_prefix4", "ww_allowed_prefix6", "ww_allowed_port", "ww_essential",
)  # fmt: skip


def _stack(warnings: str) -> int:
    """Bytes of the deepest nest of calls: ww_main, a function of the packet's path and the largest of the
    others, each rounded up as the kernel does; or what finds a place in a shared table, which calls the
    search, and for an aggregate is called itself; or the walk over IPv6 extensions, which calls what reads
    one, and is called by what looks for a socket; or what reads a question, which calls what folds its name;
    or a bank of networks, which calls their layers; or the deny list, or what chooses events, which the agent
    may link. It may link the actor too, which IPv4 calls where it is, and IPv6 when the rest of its path has
    returned.

    What parses at MAXIMUM_SPLIT calls only what the lists need beside it.

    clang says each function's frame when asked to warn of all that are not empty.
    """
    frames = {m[2]: -(-int(m[1]) // _FRAME_UNIT) * _FRAME_UNIT for m in _FRAME.finditer(warnings)}
    main = frames.pop("ww_main", 0)
    parse4, parse6 = frames.pop("ww_process_ipv4", 0), frames.pop("ww_process_ipv6", 0)
    path4, path6 = frames.pop("ww_follow4", parse4), frames.pop("ww_follow6", parse6)
    acting = max(frames.pop("ww_act_ipv6", _FRAME_UNIT), path4) + ACT_STACK
    nested = [
        sum(frames.get(f"{part}{table}{version}", _FRAME_UNIT) for part in parts)
        for version in (4, 6)
        for table, parts in (
            ("", ("ww_obtain", "ww_search")),
            *((f"_{identifier(by)}", ("ww_aggregate", "ww_obtain", "ww_search")) for by in AGGREGATES),
        )
    ]
    extensions = frames.get("ww_skip_extensions", _FRAME_UNIT) + max(
        frames.get(name, _FRAME_UNIT) for name in ("ww_skip_extension", "ww_jumbo_payload")
    )
    sockets = frames.get("ww_established", _FRAME_UNIT) + extensions
    questions = frames.get("ww_read_question", _FRAME_UNIT) + frames.get("ww_fold_name", _FRAME_UNIT)
    layers = [size for name, size in frames.items() if name.startswith("ww_bank_")]
    telling = max(frames.get(f"ww_send_event{version}", _FRAME_UNIT) for version in (4, 6)) + TELL_STACK
    bank = frames.get("ww_bank", _FRAME_UNIT) + max(layers, default=0)
    beside = max(*(frames.get(name, _FRAME_UNIT) for name in _BESIDE_PARSING), sockets, questions, DENY_STACK)
    parsing = max(parse4, parse6) + beside
    return main + max(
        parsing, max(path4, path6) + max(*frames.values(), *nested, bank, beside, telling), acting
    )


def _first_error(text: str) -> str:
    errors = [line for line in text.splitlines() if "error" in line]
    if any("bpf/bpf_helpers.h" in line or "linux/bpf.h" in line for line in errors):
        return f"{errors[0]}; install the headers: apt-get install libbpf-dev linux-libc-dev"
    return errors[0] if errors else text.strip()[-500:]


def _instructions(data: bytes) -> int:
    """Instructions (8 bytes each) of the executable sections of a 64-bit little-endian ELF file."""

    def number(offset: int, size: int) -> int:
        return int.from_bytes(data[offset : offset + size], "little")

    table, entry_size, count = number(0x28, 8), number(0x3A, 2), number(0x3C, 2)
    executable = 0x4
    sections = range(table, table + count * entry_size, entry_size)
    return sum(number(at + 32, 8) // 8 for at in sections if number(at + 8, 8) & executable)
