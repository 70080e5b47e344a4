# SPDX-License-Identifier: Apache-2.0
"""What `make dist` built, used as somebody would who has nothing else: the wheel in an environment without a
compiler and as its container image installs it; the Debian package in a root of Debian's smallest packages;
the program alone in a root without another file. In both roots a bundle runs on a veth pair, by the commands
and with the rights of the systemd unit.

`make test-dist` runs them. They need root, and packages from Debian and PyPI.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
DIST = ROOT / "build/dist"
UNIT = PACKAGING / "wirewised@.service"
SUITE = "bookworm"
FRAMES = 1000
MAKE_CAPTURE = """
from wirewise.datasets import write_capture
from wirewise.traffic import generate
traffic = generate(seed=1, duration_s=4, packets=3000)
write_capture("traffic.pcap", ((packet.time_ns, packet.frame) for packet in traffic))
"""
LABELS = """
version: 1
rules:
  - {label: attack, proto: tcp, flags: S}
otherwise: benign
"""


def done(*command: object, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    result = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stderr or result.stdout}"
    return result.stdout


def the_only(pattern: str) -> Path:
    [path] = DIST.glob(pattern)
    return path


# --- The program ---------------------------------------------------------------------------------


def test_the_program_is_static_and_small() -> None:
    program = DIST / "wirewised"
    assert program.stat().st_size < 20_000_000
    assert "INTERP" not in done("readelf", "--program-headers", program)
    assert "NEEDED" not in done("readelf", "--dynamic", program)


# --- The wheel -----------------------------------------------------------------------------------


@dataclass
class Wheel:
    """An environment in which only the wheel and what it depends on is installed, and a folder to work in."""

    commands: Path
    folder: Path

    def run(self, *command: object, compilers: bool = False) -> subprocess.CompletedProcess[str]:
        program, *words = map(str, command)
        path = str(self.commands) + (os.pathsep + os.environ["PATH"] if compilers else "")
        return subprocess.run(
            [self.commands / program, *words],
            cwd=self.folder,
            env={"PATH": path, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self, *command: object, compilers: bool = False) -> str:
        result = self.run(*command, compilers=compilers)
        assert result.returncode == 0, f"{command}: {result.stderr}"
        return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    environment = tmp_path_factory.mktemp("environment")
    done(sys.executable, "-m", "venv", environment)
    done(environment / "bin/python", "-m", "pip", "install", "--quiet", the_only("wirewise-*-manylinux*.whl"))
    wheel = Wheel(environment / "bin", tmp_path_factory.mktemp("work"))
    (wheel.folder / "labels.yaml").write_text(LABELS, encoding="utf-8")
    wheel.done("python", "-c", MAKE_CAPTURE)
    options = ["-f", "hara2026", "-l", "labels.yaml", "-o", "table.parquet"]
    wheel.done("wirewise", "features", "traffic.pcap", "--reference", *options)
    wheel.done("wirewise", "train", "table.parquet", "-o", "model.pkl")
    return wheel


@pytest.fixture(scope="module")
def bundle(wheel: Wheel) -> Path:
    options = ["--table", "table.parquet", "-o", "model.wirewise"]
    wheel.done("wirewise", "compile", "model.pkl", *options, compilers=True)
    return wheel.folder / "model.wirewise"


@pytest.mark.parametrize(
    "command",
    [
        ["compile", "model.pkl", "--table", "table.parquet", "-o", "no.wirewise"],
        ["features", "traffic.pcap", "-f", "hara2026", "-l", "labels.yaml", "-o", "no.parquet"],
    ],
    ids=["compile", "features"],
)
def test_without_a_compiler_the_error_says_what_to_install(wheel: Wheel, command: list[str]) -> None:
    result = wheel.run("wirewise", *command)
    assert result.returncode == 3
    [line] = result.stderr.splitlines()
    assert "apt-get install clang libbpf-dev" in line
    assert not list(wheel.folder.glob("no.*"))


def test_all_else_works_without_a_compiler(wheel: Wheel, bundle: Path) -> None:
    assert "wirewised" in wheel.done("wirewised", "--version")
    (wheel.folder / "wirewised.yaml").write_text("version: 1\n", encoding="utf-8")
    assert "right" in wheel.done("wirewised", "serve", "--config", "wirewised.yaml", "--check")
    assert "attack" in wheel.done("wirewise", "inspect", bundle)
    wheel.done("wirewise", "evaluate", "model.pkl", "table.parquet")
    assert replayed(wheel.done("wirewised", "replay", "traffic.pcap", "--bundle", bundle, "--json")) > 2000


def replayed(output: str) -> int:
    """How many packets a replay's JSON counts."""
    packets = json.loads(output)["packets"]
    assert isinstance(packets, int)
    return packets


# --- In a root without anything else -------------------------------------------------------------


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package, in a root with Debian's essential packages, apt and systemd."""
    root = tmp_path_factory.mktemp("debian")
    done("mmdebstrap", "--variant=minbase", "--include=systemd", SUITE, root)
    shutil.copy(the_only("wirewised_*.deb"), root)
    done("chroot", root, "sh", "-c", "dpkg --install /wirewised_*.deb")
    return root


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bare")
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(DIST / "wirewised", root / "usr/bin")
    return root


def test_the_package_has_everything_in_its_place(debian: Path) -> None:
    listed = set(done("chroot", debian, "dpkg", "--listfiles", "wirewised").split())
    assert {
        "/usr/bin/wirewised",
        "/usr/bin/wirewised-serve",
        "/etc/wirewise/policy.yaml",
        "/usr/lib/systemd/system/wirewised@.service",
        "/usr/lib/systemd/system/wirewised.service",
        "/usr/lib/systemd/system/wirewised.socket",
        "/usr/share/bash-completion/completions/wirewised",
        "/usr/share/zsh/vendor-completions/_wirewised",
        "/usr/share/fish/vendor_completions.d/wirewised.fish",
        "/usr/share/man/man1/wirewised.1.gz",
        "/usr/share/man/man1/wirewised-run.1.gz",
    } <= listed
    assert "elfutils" in (debian / "usr/share/doc/wirewised/copyright").read_text(encoding="utf-8")
    assert "cranelift-jit" in (debian / "usr/share/doc/wirewised/crates.txt").read_text(encoding="utf-8")


def test_systemd_finds_no_fault_with_the_unit(debian: Path) -> None:
    for unit in ("wirewised@eth0.service", "wirewised.service", "wirewised.socket"):
        assert done("chroot", debian, "systemd-analyze", "verify", "--man=no", unit) == ""


def unit(setting: str) -> list[str]:
    """A setting of the unit for the interface in0, as words; its own variables put in."""
    text = UNIT.read_text(encoding="utf-8").replace("%I", "in0")
    variables = dict(word.split("=", 1) for word in _setting(text, "Environment"))
    words = _setting(text, setting)
    return [re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], word) for word in words]


def _setting(text: str, name: str) -> list[str]:
    values: list[str] = re.findall(rf"^{name}=-?(.*)$", text, re.MULTILINE)
    assert len(values) == 1, f"{name} is in the unit {len(values)} times"
    return values[0].split()


# What systemd does before it starts a command, as far as it decides whether the agent can work.
CONFINED = """
import ctypes, os, sys
root, kept, umask, *command = sys.argv[1:]
os.chroot(root)
os.chdir("/")
libc = ctypes.CDLL(None, use_errno=True)
with open("/proc/sys/kernel/cap_last_cap") as file:
    capabilities = range(int(file.read()) + 1)
for number in set(capabilities) - set(map(int, kept.split(","))):
    assert libc.prctl(24, number, 0, 0, 0) == 0  # PR_CAPBSET_DROP
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
os.umask(int(umask, 8))
os.execve(command[0], command, {})
"""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
SEND = """
import socket, sys
frame = bytes.fromhex(sys.argv[1])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind(("out0", 0))
    for _ in range(int(sys.argv[2])):
        out.send(frame)
"""
# UDP from 10.0.0.1:53 to 10.0.0.2:53 without data.
FRAME = "020000000001 020000000002 0800 4500001c0001000040110000 0a000001 0a000002 0035003500080000"


class Machine:
    """Namespaces in which `root` is read-only but for the BPF file system, with a veth pair in0, out0."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.outside("mount", "--bind", root, root)
        self.outside("mount", "-o", "remount,ro,bind", root)
        self.outside("mount", "-t", "proc", "-o", "ro", "proc", root / "proc")
        self.outside("mount", "-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
        self.outside("mount", "-t", "bpf", "-o", "mode=700", "bpf", root / "sys/fs/bpf")
        self.outside("ip", "link", "add", "out0", "type", "veth", "peer", "name", "in0")
        for end in ("out0", "in0"):
            # No packets of the kernel's own, so that all that arrive are the test's.
            self.outside("sh", "-c", f"echo 1 >/proc/sys/net/ipv6/conf/{end}/disable_ipv6")
            self.outside("ip", "link", "set", end, "up")

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()

    def outside(self, *command: object) -> str:
        """In these namespaces, with this machine's programs."""
        return done("nsenter", f"--target={self._holder.pid}", "--mount", "--net", *command)

    def inside(self, *command: object) -> str:
        """In the root, with the unit's rights."""
        kept = ",".join(str(CAPABILITIES[name]) for name in unit("CapabilityBoundingSet"))
        [umask] = unit("UMask")
        return self.outside(sys.executable, "-c", CONFINED, self.root, kept, umask, *command)


@pytest.mark.parametrize("kind", ["debian", "bare"])
def test_a_bundle_runs_as_the_unit_starts_it(
    kind: str, request: pytest.FixtureRequest, wheel: Wheel, bundle: Path
) -> None:
    root: Path = request.getfixturevalue(kind)
    for folder in ("proc", "sys", "etc/wirewise"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGING / "policy.yaml", root / "etc/wirewise")
    shutil.copy(bundle, root / "etc/wirewise/in0.wirewise")
    shutil.copy(wheel.folder / "traffic.pcap", root / "etc/wirewise")
    capture, bundle_inside = "/etc/wirewise/traffic.pcap", "/etc/wirewise/in0.wirewise"
    machine = Machine(root)
    try:
        machine.inside("/usr/bin/wirewised", "doctor", "--interface", "in0")
        replay = ["/usr/bin/wirewised", "replay", capture, "--bundle", bundle_inside, "--json"]
        assert replayed(machine.inside(*replay)) > 2000
        machine.inside(*unit("ExecStart"))
        assert "prog/xdp" in machine.outside("ip", "link", "show", "in0")
        machine.inside(*unit("ExecReload"))
        machine.outside(sys.executable, "-c", SEND, FRAME, FRAMES)
        stats = json.loads(machine.inside("/usr/bin/wirewised", "stats", "--interface", "in0", "--json"))
        assert stats["mode"] == "observe"
        assert sum(row["packets"] for row in stats["classes"]) == FRAMES
        machine.inside(*unit("ExecStop"))
        assert "prog/xdp" not in machine.outside("ip", "link", "show", "in0")
        assert machine.outside("find", root / "sys/fs/bpf", "-mindepth", "2").split() == []
    finally:
        machine.close()


# --- Containers ----------------------------------------------------------------------------------
# No image can be built where tests run: these are what can be wrong with the files without one.

# This machine's way to PyPI.
SETTINGS = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"]
CONTAINERS = sorted(PACKAGING.glob("containers/*.Containerfile"))


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.stem)
def test_what_an_image_copies_is_built(file: Path) -> None:
    copied = re.findall(r"^COPY (\S+) \S+$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert copied
    for pattern in copied:
        assert len(list(DIST.glob(pattern))) == 1, f"{file.name} copies {pattern}"


def test_the_toolkit_s_image_installs_and_compiles(wheel: Wheel, tmp_path: Path) -> None:
    """Its steps in a root with the packages it names."""
    text = (PACKAGING / "containers/wirewise.Containerfile").read_text(encoding="utf-8")
    [packages] = re.findall(r"apt-get install -y --no-install-recommends ([^&]+) &&", text)
    [step] = re.findall(r"^RUN (python3 .*)$", text, re.MULTILINE)
    [path] = re.findall(r"^ENV PATH=(.*)$", text, re.MULTILINE)
    root = tmp_path / "root"
    done("mmdebstrap", "--variant=minbase", f"--include={','.join(packages.split())}", SUITE, root)
    shutil.copy(the_only("wirewise-*.whl"), root / "tmp")
    for setting in filter(Path.exists, map(Path, SETTINGS)):
        copy = root / setting.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(setting, copy)
    done("/usr/sbin/chroot", root, "sh", "-c", step, env={**os.environ, "PATH": path})
    for file in ("model.pkl", "table.parquet"):
        shutil.copy(wheel.folder / file, root)
    options = ["--table", "table.parquet", "-o", "model.wirewise"]
    inside = {"PATH": path, "LC_ALL": "C"}
    done("/usr/sbin/chroot", root, "/opt/wirewise/bin/wirewise", "compile", "model.pkl", *options, env=inside)
    assert (root / "model.wirewise").stat().st_size > 0
