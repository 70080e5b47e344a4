# SPDX-License-Identifier: Apache-2.0
"""The demo's attack, again and again, with a service whose page shows it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wirewise import agent, ending
from wirewise.console import note
from wirewise.demo.network import Wire, inside_namespace, within
from wirewise.demo.sender import open_sender, send
from wirewise.errors import WirewiseError

_STARTS_WITHIN_S = 60.0
_ENDS_WITHIN_S = 10.0


def show(
    wire: Wire, bundle: Path, policy: Path, packets: Sequence[tuple[int, bytes]], minutes: float
) -> None:
    """Serve the page on this machine, say where it is, and send packets through the bundle meanwhile.

    packets : (time_ns from the start, frame), sent once more until `minutes` are over. Whatever ends it, the
    service and what it attached are gone afterwards. Raises WirewiseError if the service does not start.
    """
    sender = inside_namespace(wire.outside, lambda: open_sender(wire.sender))
    try:
        with _served(wire, bundle, policy) as (address, service):
            note(f"the page, for {minutes:g} minutes or until Ctrl-C: {address}")
            end = time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                send(sender, packets)
                if service.poll() is not None:
                    raise WirewiseError(f"the service ended with exit code {service.returncode}")
    finally:
        sender.close()


@contextmanager
def _served(wire: Wire, bundle: Path, policy: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The page's address, with its token, and the service."""
    with ending.temporary_folder() as folder:
        config, log = folder / "wirewised.yaml", folder / "log"
        token, entry = _new_token(config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        interface = {
            "interface": wire.receiver,
            "netns": wire.inside,
            "bundle": str(bundle.absolute()),
            "policy": str(policy.absolute()),
            "mode": "enforce",
        }
        wished = {
            "version": 1,
            "interfaces": [interface],
            "socket": {"path": str(folder / "control.sock")},
            "listen": listen,
            "tokens": [entry],
        }
        config.write_text(json.dumps(wished), encoding="utf-8")
        command = [str(agent.find()), "serve", "--config", str(config)]
        with log.open("wb") as errors:
            service = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=errors, env=agent.environment()
            )
        try:
            _await(service, listen, token, log)
            yield f"http://{listen}/#token={token}", service
        finally:
            _end(service)
            agent.call("detach", "--interface", wire.receiver, within=within(wire.inside))


def _new_token(config: Path) -> tuple[str, dict[str, str]]:
    """A token that may change things, and its entry of the configuration."""
    command = [
        str(agent.find()),
        "serve",
        "--config",
        str(config),
        "--new-token",
        "demo",
        "--role",
        "operate",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=agent.environment())
    token, digest = (re.search(rf"{what}: ([0-9a-f]{{64}})", done.stdout) for what in ("once", "sha256"))
    if done.returncode or token is None or digest is None:
        raise WirewiseError(f"`wirewised serve --new-token` failed: {done.stderr.strip()}")
    return token[1], {"name": "demo", "role": "operate", "sha256": digest[1]}


def _await(service: subprocess.Popen[bytes], listen: str, token: str, log: Path) -> None:
    """Until the bundle runs."""
    end = time.monotonic() + _STARTS_WITHIN_S
    why: str | None = "it said nothing"
    while why is not None:
        why = _lacking(listen, token) if service.poll() is None else "it ended"
        if service.poll() is not None or (why is not None and time.monotonic() > end):
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise WirewiseError(f"the service did not start: {said[-1] if said else why}")
        time.sleep(0.05)


def _lacking(listen: str, token: str) -> str | None:
    """Why the bundle does not run yet; None: it does."""
    connection = http.client.HTTPConnection(listen, timeout=_ENDS_WITHIN_S)
    try:
        connection.request("GET", "/api/v1/state", headers={"Authorization": f"Bearer {token}"})
        places = json.loads(connection.getresponse().read())["places"]
    except OSError as error:
        return str(error)
    finally:
        connection.close()
    if places and all(place["kept"] for place in places):
        return None
    return next((str(place["error"]) for place in places), "nothing is attached")


def _end(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()
