# SPDX-License-Identifier: Apache-2.0
"""Compiled objects, kept from test to test, from run to run and from clone to clone, in the user's cache.

An object's name is the digest of all that decides what clang makes: the generated sources, the files in
bpf/, the system's headers, clang itself, the flags. So an object of other sources is never found, and a run
says the same with the folder and without it. Beyond KEPT_BYTES the objects go that were not used for longest.
Programs that a test starts compile for themselves.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from wirewise.targets.ebpf import clang as compiler
from wirewise.targets.ebpf.clang import Built

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wirewise" / "test-objects"
KEPT_BYTES = 1 << 30


def compile_sources(sources: dict[str, str], *, clang: str | None = None, meaning: bytes = b"") -> Built:
    """As the one of wirewise.targets.ebpf.clang, which it calls for what is not kept."""
    path = clang or compiler.find_clang()
    kept = FOLDER / digest(sources, path, meaning)
    try:
        built = pickle.loads(kept.read_bytes())
        os.utime(kept)
    except FileNotFoundError:
        built = compiler.compile_sources(sources, clang=path, meaning=meaning)
        FOLDER.mkdir(parents=True, exist_ok=True)
        # Workers write at the same time: each a file of its own, which then takes the name.
        with tempfile.NamedTemporaryFile(dir=FOLDER, delete=False) as file:
            file.write(pickle.dumps(built))
        Path(file.name).replace(kept)
    assert isinstance(built, Built)
    return built


def forget(folder: Path = FOLDER, most: int = KEPT_BYTES) -> None:
    """Removes the objects that were not used for longest, until the folder has at most `most` bytes."""
    found = []
    for path in folder.glob("*"):
        with suppress(FileNotFoundError):  # another run forgets too
            found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size


def digest(sources: dict[str, str], path: str, meaning: bytes = b"") -> str:
    """Of everything that decides what `path`, a clang, makes of the sources."""
    parts = [_around(path), meaning, *(part.encode() for pair in sorted(sources.items()) for part in pair)]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@cache
def _around(path: str) -> bytes:
    """The same for all sources: compiler, the module that calls it, hand-written C, system headers."""
    code = Path(compiler.__file__)
    folders = [ROOT / "bpf", *(Path("/usr/include") / name for name in ("bpf", "linux", "asm-generic"))]
    folders += [Path(name) / "asm" for name in compiler.system_includes()]
    binary = Path(path).resolve()
    status = binary.stat()
    said = [path, compiler.clang_version(path), str(binary), str(status.st_size), str(status.st_mtime_ns)]
    files = [code, *(file for folder in folders for file in folder.rglob("*.[ch]"))]
    return "\0".join([*said, *_digests(files)]).encode()


def _digests(files: Iterable[Path]) -> list[str]:
    """Files by name and content; those of this clone by their name in it."""
    names = {str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file): file for file in files}
    return [f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for name, file in sorted(names.items())]
