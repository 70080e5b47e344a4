# SPDX-License-Identifier: Apache-2.0
"""The unit for systemd: its watchdog hears the service, and its system calls and capabilities are enough."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.certificates import authority, signed
from tests.e2e.serving import PATIENCE_S, SERVE, Lab, asked, token, until
from tests.ports import free_port
from wirewise import agent

pytestmark = needs.marks()

UNIT = Path(__file__).parents[2] / "packaging" / "wirewised.service"

TICKS_S = 5
"""Several times what lies between two signs of life of a service at rest."""


class Manager:
    """Hears what a service tells systemd."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def heard(self, seconds: float) -> list[str]:
        """All that is there already, and what comes within a time."""
        said, end = [], time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            try:
                said += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                return said

    def until(self, line: str) -> None:
        self.socket.settimeout(PATIENCE_S)
        while line not in self.socket.recv(4096).decode().splitlines():
            pass


def test_a_service_that_hangs_is_silent(lab: Lab) -> None:
    """Its API goes on, so only what does the work can say that it works."""
    hangs, hanging = lab.folder / "hangs", lab.folder / "hanging"
    program = lab.folder / "agent"
    program.write_text(
        f'#!/bin/sh\nwhile [ -e {hangs} ]; do touch {hanging}; sleep 0.1; done\nexec {agent.find()} "$@"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    manager = Manager(lab.folder / "notify")
    lab.write(lab.entry())
    service = lab.start(
        *("--agent", program),
        environment={"NOTIFY_SOCKET": str(lab.folder / "notify"), "WATCHDOG_USEC": "120000000"},
        by=("sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh"),
    )
    manager.until("READY=1")
    for _ in range(3):
        manager.until("WATCHDOG=1")
    hangs.touch()
    lab.write(lab.entry(bundle="second.wirewise"))
    service.send_signal(signal.SIGHUP)
    until("it hangs", hanging.exists)
    manager.heard(0)
    assert manager.heard(TICKS_S) == []
    assert lab.answers()
    hangs.unlink()
    manager.until("WATCHDOG=1")
    until("what was asked for is done", lambda: lab.attached()["bundle"]["name"] == "second")
    service.terminate()
    manager.until("STOPPING=1")
    assert service.wait(PATIENCE_S) == 0


def test_lines_for_the_journal_have_their_priority(lab: Lab) -> None:
    lab.write(lab.entry())
    lab.start(environment={"JOURNAL_STREAM": "8:1"})
    until("it is kept", lab.kept)
    lab.write(lab.entry(bundle="nosuch.wirewise"))
    assert lab.reload()[0] == 409
    until("it is logged", lambda: "<3>read again, and refused" in lab.log.read_text())
    assert "<6>audit: user 0 asks for POST" in lab.log.read_text()
    lab.end()
    lab.log.unlink()
    lab.write(lab.entry())
    lab.start("--log-level", "error")
    until("it is kept", lab.kept)
    lab.write(lab.entry(bundle="nosuch.wirewise"))
    assert lab.reload()[0] == 409
    until("it is logged", lambda: "ERROR read again, and refused" in lab.log.read_text())
    assert "audit" not in lab.log.read_text()


def test_without_a_watchdog_nothing_is_told_of_it(lab: Lab) -> None:
    manager = Manager(lab.folder / "notify")
    lab.write()
    lab.start(environment={"NOTIFY_SOCKET": str(lab.folder / "notify")})
    manager.until("READY=1")
    assert manager.heard(TICKS_S) == []


@pytest.mark.skipif(
    not shutil.which("systemd-socket-activate"), reason="tools: systemd-socket-activate is not installed"
)
def test_sockets_that_the_manager_opened_are_answered_at(lab: Lab) -> None:
    secret, may_read = token("reader", "read")
    port = free_port()
    by = ["systemd-socket-activate", "-l", lab.socket, "-l", f"127.0.0.1:{port}"]
    lab.write(lab.entry(), listen=f"127.0.0.1:{port}", tokens=[may_read])
    service = lab.start(by=by)
    until("it is kept", lab.kept)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    assert asked(connection, "GET", "/api/v1/state", secret)[0] == 200
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    # It is the manager's, for the next one.
    assert lab.socket.is_socket()
    # One that the configuration does not have is nobody's.
    with subprocess.Popen(
        ["systemd-socket-activate", "-l", lab.folder / "other.sock", SERVE, "--config", lab.config],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as other:
        try:
            until("it listens", lambda: connects(lab.folder / "other.sock"))
            said = other.communicate(timeout=PATIENCE_S)[1]
        finally:
            other.kill()
    assert other.returncode == 2
    assert "ListenStream=" in said


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="tools: systemd-analyze is not installed")
def test_its_system_calls_are_enough(lab: Lab) -> None:
    """For what it does itself, and for the commands that it runs."""
    ours = authority(lab.folder, "authority")
    signed(lab.folder, "own", ours)
    secret, may_read = token("reader", "read")
    port = free_port()
    fixed: dict[str, object] = {
        "listen": f"127.0.0.1:{port}",
        "tls": {"certificate": "own.pem", "key": "own.key"},
        "tokens": [may_read],
        "events": [{"file": "eve.json"}, {"unix_dgram": "nobody"}, {"syslog": "tcp://127.0.0.1:1"}],
    }
    filtered = (sys.executable, "-m", "tests.e2e.system_calls", UNIT)
    lab.write(lab.entry(), **fixed)
    service = lab.start(by=filtered, environment={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert "Seccomp:\t2" in Path(f"/proc/{service.pid}/status").read_text()
    until("it is kept", lab.kept)
    for entry in (
        {"bundle": "second.wirewise", "policy": "drop.yaml", "mode": "enforce"},
        {"plane": "tc-ingress"},
        {"plane": "xdp-generic"},
        {"plane": "af-xdp"},
        {"plane": "af-packet"},
    ):
        lab.write(lab.entry(**entry), **fixed)
        code, said = lab.reload()
        assert code == 200, said
        assert lab.attached()["attached"]
    lab.send(12)
    until("packets are judged", lambda: lab.metric("wirewise_packets_total") >= 12)
    carrier = lab.attached()["carrier"]["process"]
    os.kill(carrier, signal.SIGKILL)
    until("it is said", lambda: lab.metric("wirewise_serve_outages_total") == 1)
    until("another carries", lambda: lab.attached()["carrier"]["answers"])
    until("events are written", (lab.folder / "eve.json").exists)
    context = ssl.create_default_context(cafile=ours.certificate)
    for path in ("state", "status", "stats", "drift", "flows"):
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
        assert asked(connection, "GET", f"/api/v1/{path}", secret)[0] == 200
    lab.write(**fixed)
    assert lab.reload()[0] == 200
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
    assert "SIGSYS" not in lab.log.read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="tools: systemd-analyze is not installed")
def test_other_system_calls_end_a_process() -> None:
    """So that the test above shows something."""
    filtered = [sys.executable, "-m", "tests.e2e.system_calls", UNIT, sys.executable, "-c"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for call, code in (("getpid()", 0), ("umount2(b'/nonexistent', 0)", -signal.SIGSYS)):
        command = [*filtered, f"import ctypes; ctypes.CDLL(None).{call}"]
        assert subprocess.run(command, check=False, env=environment).returncode == code, call


CAPABILITIES = {
    name: 1 << bit
    for name, bit in {
        "CAP_CHOWN": 0,
        "CAP_NET_ADMIN": 12,
        "CAP_NET_RAW": 13,
        "CAP_IPC_LOCK": 14,
        "CAP_SYS_ADMIN": 21,
        "CAP_PERFMON": 38,
        "CAP_BPF": 39,
    }.items()
}


def bits(*names: str) -> int:
    return sum(CAPABILITIES[name] for name in names)


PROGRAMS = bits("CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON")
COMMANDS = bits("CAP_NET_RAW", "CAP_IPC_LOCK")


def held(process: int, name: str) -> set[int]:
    """A set of capabilities, of each thread."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    texts = [(task / "status").read_text() for task in tasks]
    return {int(re.findall(rf"^Cap{name}:\t(\w+)$", text, re.MULTILINE)[0], 16) for text in texts}


def test_it_keeps_the_capabilities_that_its_configuration_needs(lab: Lab) -> None:
    events: dict[str, object] = {"events": {"file": "eve.json"}, "evidence": {"directory": "."}}
    (mine,) = held(os.getpid(), "Prm")
    for entries, more, own in (
        ([], {}, PROGRAMS),
        ([], events, PROGRAMS | bits("CAP_NET_RAW")),
        ([lab.entry()], {}, PROGRAMS | bits("CAP_SYS_ADMIN")),
    ):
        lab.write(*entries, **more)
        service = lab.start()
        assert held(service.pid, "Eff") == {own & mine}
        assert held(service.pid, "Prm") == held(service.pid, "Bnd") == {(own | COMMANDS) & mine}
        assert "NoNewPrivs:\t1" in Path(f"/proc/{service.pid}/status").read_text()
        if not entries:
            lab.write(lab.entry(), **more)
            code, said = lab.reload()
            assert code == 409
            assert "CAP_SYS_ADMIN" in said["error"]["message"]
        service.terminate()
        assert service.wait(PATIENCE_S) == 0


def test_the_capabilities_of_the_unit_are_enough(lab: Lab) -> None:
    """Also for what carries packets in user space, which has no more of them than the service."""
    (names,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    (ambient,) = re.findall(r"^AmbientCapabilities=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert names == ambient
    granted = bits(*names.split())
    assert granted == PROGRAMS | COMMANDS | bits("CAP_SYS_ADMIN", "CAP_CHOWN")
    wanted = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())])
    by = ("setpriv", f"--bounding-set={wanted}", f"--inh-caps={wanted}", f"--ambient-caps={wanted}")
    (lab.folder / "evidence").mkdir()
    fixed = {
        "socket": {"path": str(lab.socket), "group": "daemon"},
        "events": {"file": "eve.json"},
        "evidence": {"directory": "evidence"},
    }
    lab.write(lab.entry(), **fixed)
    service = lab.start(by=by)
    assert held(service.pid, "Prm") == {granted & ~bits("CAP_CHOWN")}
    assert lab.socket.group() == "daemon"
    for entry in (
        {"bundle": "second.wirewise", "policy": "drop.yaml", "mode": "enforce"},
        {"plane": "tc-ingress"},
        {"plane": "af-xdp", "evidence": False},
        {"plane": "af-packet"},
    ):
        lab.write(lab.entry(**entry), **fixed)
        code, said = lab.reload()
        assert code == 200, said
        assert lab.attached()["attached"]
        if carrier := lab.attached()["carrier"]:
            assert held(carrier["process"], "Prm") == {granted & ~bits("CAP_CHOWN")}
    lab.send(12)
    until("packets are judged", lambda: lab.metric("wirewise_packets_total") >= 12)
    service.terminate()
    assert service.wait(PATIENCE_S) == 0
