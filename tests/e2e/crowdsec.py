# SPDX-License-Identifier: Apache-2.0
"""CrowdSec's local API, for tests."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.e2e.serving import until
from tests.patience import PATIENCE_S
from wirewise.demo.network import inside_namespace, within

CROWDSEC = Path(__file__).parents[2] / "build/tools/crowdsec"
PROGRAMS = CROWDSEC / "usr/bin"
KEY = "a-key-of-this-test"
URL = "http://127.0.0.1:8080"
is_there = pytest.mark.skipif(
    not (PROGRAMS / "cscli").exists(), reason="tools: no crowdsec, see scripts/setup.sh"
)


@dataclass
class LocalApi:
    """CrowdSec's, as Debian has it, in a network namespace, where loopback alone reaches it."""

    folder: Path
    namespace: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def spawn(self, *command: str | Path) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen([*within(self.namespace), *command], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start(self, **tls: str) -> subprocess.Popen[bytes]:
        """CrowdSec without anything but its local API: no logs to read, no central API."""
        paths = {f"{name}_dir": str(self.folder / name) for name in ("config", "data", "hub")}
        for path in paths.values():
            Path(path).mkdir(exist_ok=True)
        for name in ("profiles", "simulation"):
            (self.folder / f"{name}.yaml").write_bytes((CROWDSEC / f"etc/crowdsec/{name}.yaml").read_bytes())
        for name in ("console.yaml", "machine.yaml"):
            (self.folder / name).touch()
        (self.folder / "hub/.index.json").write_text("{}")
        server = {
            "listen_uri": "127.0.0.1:8080",
            "profiles_path": str(self.folder / "profiles.yaml"),
            "console_path": str(self.folder / "console.yaml"),
        }
        config = {
            "common": {"daemonize": False, "log_media": "stdout", "working_dir": "."},
            "config_paths": {
                **paths,
                "simulation_path": str(self.folder / "simulation.yaml"),
                "index_path": str(self.folder / "hub/.index.json"),
                "notification_dir": paths["config_dir"],
                "plugin_dir": paths["config_dir"],
            },
            "db_config": {
                "type": "sqlite",
                "db_path": str(self.folder / "data/crowdsec.db"),
                "use_wal": True,
            },
            "plugin_config": {"user": "nobody", "group": "nogroup"},
            "api": {
                "client": {"credentials_path": str(self.folder / "machine.yaml")},
                "server": {**server, **({"tls": tls} if tls else {})},
            },
            "prometheus": {"enabled": False},
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))
        if not (self.folder / "key").exists():
            credentials = self.folder / "machine.yaml"
            self.cscli("machines", "add", "tests", "--password", "secret", "-f", str(credentials), "-u", URL)
            self.cscli("bouncers", "add", "wirewise", "--key", KEY)
            (self.folder / "key").write_text(f"{KEY}\n")
        process = self.spawn(PROGRAMS / "crowdsec", "-c", self.folder / "config.yaml", "-no-cs")
        until("it listens", lambda: process.poll() is not None or self.listens())
        assert process.poll() is None, self.log.read_text()
        return process

    def listens(self) -> bool:
        def connect() -> bool:
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", 8080)) == 0

        return inside_namespace(self.namespace, connect)

    def cscli(self, *words: str) -> str:
        program = [str(PROGRAMS / "cscli"), "-c", str(self.folder / "config.yaml")]
        command = [*within(self.namespace), *program, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def decide(self, value: str, duration: str, *more: str) -> None:
        scope = "--range" if "/" in value else "--ip"
        self.cscli("decisions", "add", scope, value, "--duration", duration, *more)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)
