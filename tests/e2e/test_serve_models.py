# SPDX-License-Identifier: Apache-2.0
"""A network, its drift and its shadow on the service's page, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.e2e import browser, needs
from tests.e2e.sending import send_all
from tests.e2e.serving import Lab, lab_in, token, until
from tests.e2e.test_cpus import A, B, udp
from tests.e2e.test_serve_page import WIDTHS, names, opened
from tests.ports import free_port
from wirewise.compiler import compile
from wirewise.datasets import Table
from wirewise.demo.network import inside_namespace
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_quantized_mlp

pytestmark = needs.marks()

WHY = "document.getElementById('why-text').textContent"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, str, str]]:
    """A network that remembers its training, with a shadow; where the page is, and a token."""
    folder = tmp_path_factory.mktemp("bundles")
    feature_set = FeatureSet("lengths", ["count", "max(length)"], sharing="shared")
    learned = Table(
        pl.DataFrame(
            {
                "capture": ["a"] * 200, "flow": [f"17 10.0.0.1|{n} 10.0.0.2|999" for n in range(200)],
                "sender": [1] * 200, "count": [1 + n % 4 for n in range(200)],
                "max_length": [400 + n for n in range(200)],
            }
        ),
        feature_set,
    )  # fmt: skip
    for name, seed in (("network", 5), ("second", 6)):
        model = random_quantized_mlp(
            np.random.default_rng(seed), n_features=2, layers=(6,), ranges=[(0, 40), (0, 200)]
        )
        made = compile(
            model, feature_set, name=name, classes=["benign", "attack"], learned=learned, verify="never"
        )
        made.bundle.write(folder / f"{name}.wirewise")
    with lab_in(tmp_path_factory.mktemp("compared"), folder) as lab:
        port = free_port()
        secret, may_read = token("page", "read")
        (lab.folder / "watched.yaml").write_text(
            "version: 1\nclasses: {benign: count, attack: count}\n"
            "events: {features: true, rate: 1000/s, burst: 1000}\n"
        )
        entry = lab.entry(bundle="network.wirewise", policy="watched.yaml")
        lab.write(entry, listen=f"127.0.0.1:{port}", tokens=[may_read])
        lab.start()
        until("it is kept", lab.kept)
        lab.look("swap", "--shadow", "--bundle", str(lab.folder / "second.wirewise"))
        yield lab, f"http://127.0.0.1:{port}/", secret


def test_drift_a_shadow_and_a_network_are_shown(compared: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = compared
    flows = 120

    def send() -> None:
        frames = [udp((A[0], 2000 + flow), B) for _ in range(15) for flow in range(flows)]
        with open_sender(lab.made.sender) as sender:
            send_all(lab.made.sender, sender, frames, burst=1)

    inside_namespace(lab.made.outside, send)
    until("the shadow judged all", lambda: lab.look("stats")["shadow"]["packets"] == 15 * flows)
    agree = lab.look("stats")["shadow"]["agree"]
    own = f"[...document.querySelectorAll('#models article')].find({names(lab)})"
    event = f"[...document.querySelectorAll('#events tr')].find({names(lab)})"
    shots = Path(os.environ.get("WIREWISE_SCREENSHOTS", tmp_path))
    with browser.page(tmp_path / "browser") as page:
        for width in WIDTHS:
            for dark in (False, True):
                opened(page, address, secret, width, dark=dark)
                page.evaluate("document.getElementById('models-section').open = true")
                until("the model is shown", lambda: bool(page.evaluate(f"{own} !== undefined")))
                text = page.evaluate(f"{own}.textContent")
                assert f"{flows} live flows, 200 of training" in text
                assert "max_length" in text
                assert "out of depth" in text
                assert f"{100 * agree / (15 * flows):.1f} % of {15 * flows:,} packets" in text
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                name = f"{width}{'-dark' if dark else ''}"
                (shots / f"models-{name}.png").write_bytes(page.screenshot())
                until("the event is shown", lambda: bool(page.evaluate(f"{event} !== undefined")))
                page.evaluate(f"{event}.querySelector('button').click()")
                until("it is explained", lambda: "If one feature alone" in page.evaluate(WHY))
                (shots / f"network-{name}.png").write_bytes(page.screenshot())
                page.evaluate("document.querySelector('#why button[value=close]').click()")
                assert page.complaints == []
