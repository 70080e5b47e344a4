# SPDX-License-Identifier: Apache-2.0
"""Commands that read, by the control socket, for somebody of its group who has no rights otherwise."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e import needs
from tests.e2e.serving import PATIENCE_S, Lab, Local, asked, until
from wirewise import agent

pytestmark = needs.marks()

NOBODY, GROUP, GID, OTHER_GID = 65534, "daemon", 1, 65534


@dataclass
class Reader:
    """A user who may read by the socket, if in its group."""

    lab: Lab
    program: Path
    """Where everybody may run it."""

    def command(self, *words: str) -> list[str]:
        where = ["--interface", self.lab.made.receiver, "--netns", self.lab.made.inside]
        return [str(self.program), *words, *where]

    def popen(self, command: list[str], gid: int = GID) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            user=NOBODY,
            group=gid,
            extra_groups=[],
            env={"WIREWISE_SOCKET": str(self.lab.socket)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, gid: int = GID) -> tuple[int, str, str]:
        process = self.popen(self.command(*words), gid)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output, errors

    def as_root(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def reader(lab: Lab) -> Iterator[Reader]:
    folder = Path(tempfile.mkdtemp(prefix="wirewise-readers-"))
    try:
        folder.chmod(0o755)
        lab.socket_folder = folder
        # As members name none.
        lab.root = []
        program = Path(shutil.copy(agent.find(), folder))
        (lab.folder / "count.yaml").write_text("version: 1\nclasses: {attack: count}\n")
        lab.write(lab.entry(policy="count.yaml"), socket={"path": str(lab.socket), "group": GROUP})
        lab.start()
        until("it is kept", lab.kept)
        lab.send(15)
        until("all are judged", lambda: lab.metric("wirewise_packets_total") == 15)
        yield Reader(lab, program)
    finally:
        lab.end()
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "status --json",
        "status --check",
        "stats",
        "stats --json",
        "stats --drift",
        "flows",
        "flows --json",
        "flows --state --all",
        "events",
        "events --json",
        "flows --class nosuch",
    ],
)
def test_the_group_reads_what_root_reads(reader: Reader, words: str) -> None:
    def steady(said: str) -> str:
        # Times go on, and with them the width of their column.
        said = re.sub(r"\d+(\.\d+)? ?(ns|µs|us|ms|s|min|h)\b", "T", said)
        said = re.sub(r" {2,}", "  ", said)
        said = re.sub(r'"time": ?"[^"]+"(,\s*"attached")', r"T\1", said)  # when it was asked
        return re.sub(r'("(?:age|idle|duration)\w*": ?)[\d.]+', r"\1T", said)

    told, wanted = (
        (code, steady(said), errors)
        for code, said, errors in (reader.run(*words.split()), reader.as_root(*words.split()))
    )
    assert told == wanted
    assert wanted[1] or wanted[0]


def test_who_is_not_in_the_group_is_told_so(reader: Reader) -> None:
    code, said, errors = reader.run("status", gid=OTHER_GID)
    assert (code, said) == (3, "")
    assert f"in the group of {reader.lab.socket}" in errors


def test_events_are_followed_until_a_signal(reader: Reader) -> None:
    process = reader.popen(reader.command("events", "--follow", "--json"))
    assert process.stdout
    kept = [json.loads(process.stdout.readline())["wirewise"]["packets"] for _ in range(5)]
    reader.lab.send(1)
    assert [*kept, json.loads(process.stdout.readline())["wirewise"]["packets"]] == list(range(11, 17))
    children = Path(f"/proc/{reader.lab.services[-1].pid}/task/{reader.lab.services[-1].pid}/children")
    assert children.read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    until("its command ends with it", lambda: not children.read_text())
    # Also if the reader only goes away.
    process = reader.popen(reader.command("events", "--follow", "--json"))
    assert process.stdout and process.stdout.readline()
    process.kill()
    process.wait()
    until("its command ends with it", lambda: not children.read_text())


def test_only_what_reads_is_run(reader: Reader) -> None:
    """Whatever somebody writes into the socket."""

    def ask(*words: str) -> tuple[int, str]:
        path = f"/api/v1/command?words={quote(json.dumps(words))}"
        return asked(Local(reader.lab.socket), "GET", path)

    before = reader.lab.attached()
    for words in (
        ["detach", "--interface", reader.lab.made.receiver],
        ["run", "--interface", "lo", "--bundle", "first.wirewise"],
        ["status", "--pin-root", "/sys/fs/bpf/other"],
        ["status", "--netns", "/proc/1/ns/net"],
        ["status", "--netns", "../../proc/1/ns/net"],
        ["replay", "/etc/shadow"],
        ["serve"],
        ["--help"],
        ["status", "--nosuch"],
        [],
    ):
        code, said = ask(*words)
        assert code == 400, (words, said)
        assert json.loads(said)["error"]["message"]
    for query in ("", "?words=status", "?words=%5B1%5D", "?words=%5B%5D&more=1", "?words=%00"):
        assert asked(Local(reader.lab.socket), "GET", f"/api/v1/command{query}")[0] == 400, query
    assert asked(Local(reader.lab.socket), "POST", "/api/v1/command")[0] == 405
    assert reader.lab.attached()["program_id"] == before["program_id"]


def test_many_readers_are_held_off(reader: Reader) -> None:
    path = f"/api/v1/command?words={quote(json.dumps(['events', '--follow', *reader.command()[1:]]))}"
    held: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            each = stack.enter_context(socket.socket(socket.AF_UNIX))
            each.settimeout(PATIENCE_S)
            each.connect(str(reader.lab.socket))
            each.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert each.recv(12) == b"HTTP/1.0 200"
            held.append(each)
        code, errors = reader.run("status")[::2]
        assert code == 2 and "too many commands" in errors
        assert reader.lab.answers()
    until("they are let go", lambda: reader.run("status")[0] == 0)
