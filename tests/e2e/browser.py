# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, told what to do through a pipe by the DevTools protocol.

The pipe is what `--remote-debugging-pipe` opens: JSON, with a zero byte behind each message. So nothing but
the standard library is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

NAMES = ("chromium", "google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


class Page:
    """A tab. requests : what it asked for; complaints : what its console, and its errors, said."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # Each page begins without what an earlier one kept. Cleared there, it would be missed.
        self.call("Page.addScriptToEvaluateOnNewDocument", source="sessionStorage.clear()")

    def open(self, url: str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Show a page at this width, in CSS pixels, and wait until it is there."""
        self.requests, self.complaints = [], []
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self._loaded = False
        self.call("Page.navigate", url=url)
        end = time.monotonic() + PATIENCE_S
        while not self._loaded:
            self._take(self._message(end))

    def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            said = self._message(end)
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said['error']}"
                return said["result"]
            self._take(said)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0, end - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE_S} s"
            data = os.read(self._reads, 1 << 16)
            assert data, "Chromium ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _take(self, said: dict[str, Any]) -> None:
        method, given = said.get("method"), said.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(given))


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A tab of a Chromium that keeps what it keeps in a folder, and is gone at the end."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("browser: chromium is not installed")
    theirs, writes = os.pipe()
    reads, answers = os.pipe()
    # The protocol's pipe is at the descriptors 3 and 4.
    command = f'exec "$0" "$@" 3<&{theirs} 4>&{answers}'
    arguments = [*_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", command, program, *arguments],
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    os.close(answers)
    try:
        yield Page(reads, writes)
    finally:
        os.close(writes)  # which ends it
        os.close(reads)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
