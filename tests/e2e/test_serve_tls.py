# SPDX-License-Identifier: Apache-2.0
"""HTTP for other hosts: encrypted, renewed while the service runs, and with certificates of clients."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.certificates import Pair, authority, signed
from tests.e2e.serving import PATIENCE_S, SERVE, Lab, asked, token, until
from tests.ports import free_port

pytestmark = needs.marks()


@dataclass
class Encrypted:
    """A service that other hosts can reach, and who asks it."""

    lab: Lab
    port: int
    secret: str
    tokens: list[dict[str, str]]
    authority: Pair

    def write(self, **tls: str) -> None:
        self.lab.write(listen=f"0.0.0.0:{self.port}", tls=tls, tokens=self.tokens)

    def context(self, own: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if own:
            context.load_cert_chain(own.certificate, own.key)
        return context

    def ask(self, context: ssl.SSLContext, secret: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=context)
        return asked(connection, "GET", "/api/v1/state", secret)

    def shown(self) -> bytes:
        """The certificate that the service shows."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as plain,
            self.context().wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
        ):
            return encrypted.getpeercert(binary_form=True) or b""


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


@pytest.fixture
def served(lab: Lab) -> Encrypted:
    ours = authority(lab.folder, "authority")
    for name in ("first", "second"):
        signed(lab.folder, name, ours)
    secret, may_read = token("reader", "read")
    served = Encrypted(lab, free_port(), secret, [may_read], ours)
    served.write(certificate="first.pem", key="first.key")
    lab.start()
    return served


def test_what_is_said_is_encrypted(served: Encrypted) -> None:
    assert served.ask(served.context(), served.secret)[0] == 200
    assert served.ask(served.context()) == (401, ""), "encryption admits nobody"
    with pytest.raises(ssl.SSLCertVerificationError):
        served.ask(ssl.create_default_context(), served.secret)
    old = served.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        served.ask(old, served.secret)
    plain = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    with pytest.raises((OSError, http.client.HTTPException)):
        asked(plain, "GET", "/api/v1/state", served.secret)
    assert served.lab.log.read_text().count("no TLS with 127.0.0.1") == 1, "once a minute"
    assert served.ask(served.context(), served.secret)[0] == 200


def test_a_certificate_is_renewed_by_a_reload(served: Encrypted) -> None:
    lab = served.lab
    first, second = (
        Pair(lab.folder / f"{name}.pem", lab.folder / f"{name}.key") for name in ("first", "second")
    )
    assert served.shown() == der(first)
    # The same files with other contents, as a client of ACME writes them. Half of it is refused.
    old = first.certificate.read_bytes(), der(first)
    first.certificate.write_bytes(second.certificate.read_bytes())
    code, said = lab.reload()
    assert code == 409 and "has to be that of the first certificate" in said["error"]["message"]
    assert served.shown() == old[1]
    first.key.write_bytes(second.key.read_bytes())
    lab.services[-1].send_signal(signal.SIGHUP)
    until("the new one is shown", lambda: served.shown() == der(second))
    # Other files.
    (lab.folder / "third.pem").write_bytes(old[0])
    served.write(certificate="third.pem", key="second.key")
    assert lab.reload()[0] == 409
    served.write(certificate="none.pem", key="second.key")
    code, said = lab.reload()
    assert code == 409 and "none.pem" in said["error"]["message"]
    assert served.shown() == der(second)
    # Encryption cannot be switched off by a reload, nor on.
    lab.write(listen=f"127.0.0.1:{served.port}", tokens=served.tokens)
    code, said = lab.reload()
    assert code == 409 and "restart it" in said["error"]["message"]
    assert served.ask(served.context(), served.secret)[0] == 200


def test_clients_may_need_a_certificate_beside_their_token(served: Encrypted) -> None:
    lab = served.lab
    clients = authority(lab.folder, "clients")
    client, stranger = signed(lab.folder, "client", clients), signed(lab.folder, "stranger", served.authority)
    files = {"certificate": "first.pem", "key": "first.key"}
    served.write(**files, client_ca="clients.pem")
    assert lab.reload()[0] == 200
    for own in (None, stranger):
        with pytest.raises((OSError, http.client.HTTPException)):
            served.ask(served.context(own), served.secret)
    assert served.ask(served.context(client), served.secret)[0] == 200
    for secret in (None, "0" * 64):
        assert served.ask(served.context(client), secret) == (401, "")
    # A session that began under one authority is not resumed under another.
    served.write(**files, client_ca="authority.pem")
    assert lab.reload()[0] == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        served.ask(served.context(client), served.secret)
    assert served.ask(served.context(stranger), served.secret)[0] == 200
    served.write(**files)
    assert lab.reload()[0] == 200
    assert served.ask(served.context(), served.secret)[0] == 200


def test_check_reads_certificates(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    signed(tmp_path, "other", ours)
    (tmp_path / "empty.pem").touch()
    locked = [
        "openssl",
        "pkey",
        "-in",
        ours.key,
        "-aes256",
        "-passout",
        "pass:a",
        "-out",
        tmp_path / "locked.key",
    ]
    subprocess.run(locked, check=True, capture_output=True)
    config = tmp_path / "wirewised.yaml"
    right = {"certificate": "ours.pem", "key": "ours.key"}
    cases: list[tuple[dict[str, str] | None, str]] = [
        (right, ""),
        (None, "name a certificate and its key under `tls`"),
        ({**right, "certificate": "none.pem"}, "none.pem"),
        ({**right, "certificate": "empty.pem"}, "has no certificate in PEM form"),
        ({**right, "certificate": "ours.key"}, "has no certificate in PEM form"),
        ({**right, "key": "other.key"}, "has to be that of the first certificate"),
        ({**right, "key": "ours.pem"}, "has no private key in PEM form"),
        ({**right, "key": "locked.key"}, "without a passphrase"),
        ({**right, "client_ca": "empty.pem"}, "`client_ca: "),
        ({**right, "client_ca": "ours.pem"}, ""),
    ]
    entry = {"name": "a", "role": "read", "sha256": "0" * 64}
    for tls, why in cases:
        wished = {"version": 1, "listen": "0.0.0.0:9469", "tokens": [entry], **({"tls": tls} if tls else {})}
        config.write_text(json.dumps(wished))
        done = subprocess.run(
            [SERVE, "--check", "--config", config], capture_output=True, text=True, check=False
        )
        assert (done.returncode, why in done.stderr) == (2 if why else 0, True), (tls, done.stderr)
