# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels and compilers, unpacked by an apt that shares nothing with the system's."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.registry import KERNELS, Clang, Kernel
from wirewise.errors import MissingFeatureError
from wirewise.files import write_atomically
from wirewise.targets.ebpf.clang import clang_version

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PUBLIC_MIRROR = "http://deb.debian.org/debian"
MIRROR_VARIABLE = "WIREWISE_DEBIAN_MIRROR"
_LISTS_LAST_S = 24 * 3600
_DEPENDS = re.compile(r"[^,|\s(]+")


@dataclass(frozen=True)
class UnpackedKernel:
    """release: as `uname -r` says it. image: what a boot loader takes. modules: in the order of insertion."""

    name: str
    release: str
    package_version: str
    image: Path
    modules: list[bytes]


class Suite:
    """One suite of Debian: package lists of its own under `folder`, nothing installed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.mirror = mirror()

    def update(self) -> None:
        """Read the lists, unless they are less than a day old. Raises MissingFeatureError."""
        stamp = self.folder / "updated"
        if stamp.is_file() and time.time() - stamp.stat().st_mtime < _LISTS_LAST_S:
            return
        for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
            if shutil.which(tool) is None:
                raise MissingFeatureError(
                    f"Debian's kernels are unpacked with {tool}, which is not here; install {package}"
                )
        if not KEYRING.is_file():
            raise MissingFeatureError(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
        for folder in ("state/lists/partial", "cache/archives/partial", "debs"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / "state/status").touch()
        source = f"deb [arch=amd64 signed-by={KEYRING}] {self.mirror} {self.name} main\n"
        write_atomically(self.folder / "sources.list", source.encode())
        settings = {
            "Dir::Etc::sourcelist": self.folder / "sources.list", "Dir::Etc::sourceparts": "-",
            "Dir::State": self.folder / "state", "Dir::State::status": self.folder / "state/status",
            "Dir::Cache": self.folder / "cache", "APT::Architecture": "amd64",
            "APT::Install-Recommends": "false", "APT::Sandbox::User": "", "Acquire::Languages": "none",
            "Acquire::Retries": 3, "APT::Get::AllowUnauthenticated": "false",
        }  # fmt: skip
        text = "".join(f'{name} "{value}";\n' for name, value in settings.items())
        write_atomically(self.folder / "apt.conf", f'{text}APT::Architectures {{ "amd64"; }};\n'.encode())
        self._apt("apt-get", "update", "--error-on=any")
        stamp.touch()

    def depends(self, package: str) -> list[str]:
        """Names of all packages that a package depends on, alternatives included."""
        (line,) = re.findall(r"^Depends: (.*)$", self._show(package), re.MULTILINE) or [""]
        return [match[0] for part in re.split("[,|]", line) if (match := _DEPENDS.search(part))]

    def version(self, package: str) -> str:
        found = re.search(r"^Version: (.*)$", self._show(package), re.MULTILINE)
        return found[1] if found else ""

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Files of just these packages."""
        return self._fetched("download", *packages)

    def download_with_dependencies(self, packages: Sequence[str]) -> list[Path]:
        return self._fetched("install", "--download-only", "--yes", *packages)

    def _show(self, package: str) -> str:
        return self._apt("apt-cache", "show", "--no-all-versions", package)

    def _fetched(self, *arguments: str) -> list[Path]:
        """The files that an apt-get command fetches, or has fetched before."""
        said = self._apt("apt-get", arguments[0], "--print-uris", *arguments[1:])
        names = re.findall(r"^'[^']*' (\S+\.deb) ", said, re.MULTILINE)
        if not all((self.folder / "debs" / name).is_file() for name in names):
            debs = self.folder / "debs"
            self._apt("apt-get", "-o", f"Dir::Cache::archives={debs}", *arguments, within=debs)
        return [self.folder / "debs" / name for name in names]

    def _apt(self, *command: str, within: Path | None = None) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [command[0], "-q", *command[1:]],
            capture_output=True, text=True, cwd=within, env=environment, check=False,
        )  # fmt: skip
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or [
                done.stderr.strip()
            ]
            raise MissingFeatureError(
                f"Debian {self.name} of {self.mirror}: {said[0].removeprefix('E: ')}; "
                f"connect this machine to it, or name another mirror with {MIRROR_VARIABLE}=URL"
            )
        return done.stdout


def mirror() -> str:
    """Where Debian comes from: what the environment says, this Debian's own source, or the public one."""
    if given := os.environ.get(MIRROR_VARIABLE):
        return given
    names = re.findall(r"^VERSION_CODENAME=(\S+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(RELEASE) $(ORIGIN) $(REPO_URI)",
        "Created-By: Packages",
    ]
    said = (
        subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if shutil.which("apt-get")
        else ""
    )
    for line in said.splitlines():
        release, _, rest = line.partition(" ")
        origin, _, uri = rest.partition(" ")
        if origin == "Debian" and release in names and uri.startswith("http"):
            return uri.rstrip("/")
    return PUBLIC_MIRROR


def fetch_kernel(kernel: Kernel, folder: Path, modules: Sequence[str]) -> UnpackedKernel:
    """A suite's kernel, with the modules named and what they depend on. Raises MissingFeatureError."""
    suite = Suite(kernel.suite, folder / "apt")
    suite.update()
    (image,) = [name for name in suite.depends(kernel.package) if re.match(r"linux-image-\d", name)]
    # Newer packages of an image hold nothing themselves.
    parts = [name for name in suite.depends(image) if re.match(r"linux-(binary|modules)-\d", name)]
    root = _unpacked(suite.download([image, *parts]), folder / "kernels" / f"{image}_{suite.version(image)}")
    release = image.removeprefix("linux-image-")
    return UnpackedKernel(
        kernel.name,
        release,
        suite.version(image),
        _one(root, f"boot/vmlinuz-{release}", f"usr/lib/modules/{release}/vmlinuz"),
        _in_order(_one(root, f"lib/modules/{release}", f"usr/lib/modules/{release}/kernel"), modules),
    )


def fetch_busybox(folder: Path) -> Path:
    """A shell and its commands in one static program. Raises MissingFeatureError."""
    suite = Suite(KERNELS[0].suite, folder / "apt")
    suite.update()
    name = "busybox-static"
    root = _unpacked(
        suite.download([name]), folder / "programs" / f"{name}_{suite.version(name)}".replace(":", ".")
    )
    return _one(root, "bin/busybox", "usr/bin/busybox")


def fetch_xdp_tools(kernel: Kernel, folder: Path) -> Path:
    """A suite's xdp-tools, unpacked with all that they run on. Raises MissingFeatureError."""
    suite = Suite(kernel.suite, folder / "apt")
    suite.update()
    name = "xdp-tools"
    files = suite.download_with_dependencies([name])
    return _unpacked(files, folder / "programs" / f"{name}_{suite.version(name)}".replace(":", "."))


def fetch_clang(clang: Clang, folder: Path) -> str:
    """Path of a compiler: the installed one, or one unpacked that runs on its own suite's libraries.

    Raises MissingFeatureError.
    """
    if installed := shutil.which(clang.name):
        return installed
    suite = Suite(clang.suite, folder / "apt")
    suite.update()
    files = [*suite.download([clang.name]), *suite.download_with_dependencies(clang.libraries)]
    root = _unpacked(files, folder / "clangs" / f"{clang.name}_{suite.version(clang.name)}".replace(":", "."))
    loader = _one(root, "lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2")
    program = root / f"usr/lib/llvm-{clang.version}/bin/clang"
    libraries = ":".join(
        str(root / place)
        for place in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", f"usr/lib/llvm-{clang.version}/lib")
    )
    # Run by its own loader, it must be told where it lies: the kernel would say the loader's place.
    script = (
        f'#!/bin/sh\nexec "{loader.resolve()}" --library-path "{libraries}" --argv0 "{program}" "{program}" '
        '-no-canonical-prefixes "$@"\n'
    )
    wrapper = root / clang.name
    if not wrapper.is_file() or wrapper.read_text() != script:
        write_atomically(wrapper, script.encode())
        wrapper.chmod(0o755)
    clang_version(str(wrapper))
    return str(wrapper)


def _unpacked(files: Sequence[Path], root: Path) -> Path:
    """The content of packages in a folder, which appears when it is whole."""
    if root.is_dir():
        return root
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in files:
        # tar leaves links alone that are there: merged /usr, as Debian's own installer makes it.
        subprocess.run(["dpkg-deb", "--extract", str(file), str(partial)], check=True)
    partial.rename(root)
    return root


def _one(root: Path, *places: str) -> Path:
    for place in places:
        if (root / place).exists():
            return root / place
    raise MissingFeatureError(f"{root}: has none of {', '.join(places)}; this Debian packs it otherwise")


def _in_order(folder: Path, names: Sequence[str]) -> list[bytes]:
    """Modules and, before each, those it needs."""
    loaded: dict[str, bytes] = {}

    def load(name: str) -> None:
        if name in loaded:
            return
        found = [
            path
            for path in folder.rglob(f"{name.replace('_', '?')}.ko*")
            if path.name.endswith((".ko", ".ko.xz"))
        ]
        if not found:
            raise MissingFeatureError(f"{folder}: has no module {name}")
        data = found[0].read_bytes()
        data = lzma.decompress(data) if found[0].suffix == ".xz" else data
        needs = re.search(rb"\0depends=([^\0]*)\0", data)
        for needed in needs[1].decode().split(",") if needs and needs[1] else ():
            load(needed)
        loaded[name] = data

    for name in names:
        load(name)
    return list(loaded.values())
