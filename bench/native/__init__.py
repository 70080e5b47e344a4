# SPDX-License-Identifier: Apache-2.0
"""The data path compiled for this processor, from the same sources as the object.

The headers and C files beside this stand in for libbpf and run the packets; `compiled` makes a shared object
that crates/wirewised/examples/planes loads.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wirewise.errors import WirewiseError
from wirewise.feature_sets.flow import seed_from
from wirewise.files import write_atomically
from wirewise.targets import ebpf
from wirewise.targets.ebpf import clang

OPTIMISED = {"native": ("-O2", "-Werror"), "native-O3": ("-O3", "-march=native")}
"""Plane -> how clang optimises it. The first is what the engine is compared with; there a warning about our C
is an error. Not in the other, where clang may warn about this processor.
"""

PROGRAM = ("program.c", "runner.c")
INFERENCE = ("inference.c",)
"""What is compiled: a whole program, called for each packet; or its model alone."""

_HERE = Path(__file__).parent
_BPF = _HERE.parents[1] / "bpf"
_WAYS = 4
_FLAGS = (
    "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wno-unused-function",
    "-Wno-initializer-overrides", "-fbracket-depth=4096",
)  # fmt: skip


def compiled(
    sources: ebpf.Sources,
    path: Path,
    clang_path: str,
    plane: str,
    *,
    seed: int,
    table_size: int,
    check: bool,
    files: Sequence[str] = PROGRAM,
) -> Path:
    """A shared object, compiled again only if something changed: `path` with a digest in its name.

    seed, table_size : of the flow table, as the other planes are told. check : take the time from in front
    of the packet, and leave behind what happened to it. files : PROGRAM or INFERENCE. Raises WirewiseError
    with clang's first error.
    """
    config = _config(seed, table_size, check)
    made_of = [
        config,
        files,
        OPTIMISED[plane],
        _FLAGS,
        clang.clang_version(clang_path),
        sorted(sources.files.items()),
    ]
    headers = [file for folder in (_HERE, _BPF) for file in sorted(folder.rglob("*.[ch]"))]
    digest = hashlib.sha256(repr([*made_of, *(file.read_text() for file in headers)]).encode()).hexdigest()
    path = path.with_name(f"{path.name}-{plane}{'-check' if check else ''}-{digest[:16]}.so")
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(prefix="wirewise-") as name:
        folder = Path(name)
        for file, text in {**sources.files, "native_config.h": config}.items():
            (folder / file).write_text(text)
        includes = [f"-I{_HERE}", f"-I{folder}", f"-I{_BPF}"]
        given = [str(_HERE / name) for name in files]
        command = [clang_path, *OPTIMISED[plane], *_FLAGS, *includes, *given, "-o", str(folder / "out.so")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise WirewiseError(f"{path.name}: {errors[0] if errors else done.stderr[-500:]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (folder / "out.so").read_bytes())
    return path


def _config(seed: int, table_size: int, check: bool) -> str:
    buckets = table_size // _WAYS
    words = ", ".join(f"{word:#x}ULL" for word in seed_from(seed))
    fields = [f".bucket_mask = {buckets - 1}", ".shards = 1", ".ordered = 1", f".hash_seed = {{{words}}}"]
    if check:
        fields += [".clock = WW_CLOCK_METADATA", ".trace = 1"]
    return f"#define NATIVE_ENTRIES {buckets}\n#define NATIVE_CONFIG {', '.join(fields)}\n"
