# SPDX-License-Identifier: Apache-2.0
"""Certificates of an authority that lasts as long as a test."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


def _made(folder: Path, name: str, *options: str | Path) -> Pair:
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    command: list[str | Path] = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.certificate]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return pair


def authority(folder: Path, name: str) -> Pair:
    return _made(folder, name)


def signed(folder: Path, name: str, by: Pair) -> Pair:
    """For 127.0.0.1, as a server or a client."""
    whose = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    return _made(folder, name, "-CA", by.certificate, "-CAkey", by.key, *whose)
