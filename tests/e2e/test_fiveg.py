# SPDX-License-Identifier: Apache-2.0
"""examples/5g, in seconds: it records, trains, deploys, compares and steers.

How well the forest knows the traffic depends on how well this machine keeps its times. So no accuracy is
judged here, nor any time but where factors of a thousand are between two.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tests.e2e import needs
from tests.patience import PATIENCE_S
from wirewise.feature_sets import PRESETS, FeatureSet

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "5g"


def module(name: str) -> ModuleType:
    spec = spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(bool(needs.missing(1)), reason=needs.missing(1) or "nothing missing")
def test_the_pages_command(tmp_path: Path) -> None:
    page = (EXAMPLE / "README.md").read_text()
    (command,) = re.findall(r"^    sudo \.venv/bin/python (.+)$", page, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, *command.split(), "--output", str(tmp_path / "5g.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "5g.json").read_text())
    the_forest_is_the_papers(report["training"])
    every_verdict_is_the_estimators(report["equal"])
    each_way_classifies(report["classification"])
    steering_is_what_helps(report["delay"])
    assert "| accuracy, % | 99.60 | 99.91 |" in done.stdout and "| with steering |" in done.stdout
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("5g.png", "5g-delay.png"))
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert "5g-" not in spaces


def the_forest_is_the_papers(training: dict[str, Any]) -> None:
    assert len(training["nodes"]) == 10 and "10 trees" in training["model"]
    assert training["rows"] > 1000 and training["lost"] == 0
    assert sum(training["nodes"]) > 10, "trees that decide something"
    assert training["fidelity"]["agree"] == training["fidelity"]["rows"] > 1000


def every_verdict_is_the_estimators(equal: dict[str, int]) -> None:
    assert equal["differing"] == 0 and equal["judged"] == equal["packets"] > 1000
    forms = ("extension_headers", "fragments_of_n3", "fragments_inside", "ipv6_inside")
    assert all(0 < equal[form] < equal["packets"] for form in forms)


def each_way_classifies(ways: dict[str, Any]) -> None:
    assert list(ways) == ["none", "kernel", "scikit-learn", "compiled"]
    assert ways["none"]["judged"] == 0
    for way in ("kernel", "scikit-learn", "compiled"):
        assert 0 < ways[way]["right"] <= ways[way]["judged"], way
    kernel = ways["kernel"]
    # Datagrams that arrived, some of them in two fragments.
    assert 0.5 * kernel["packets"] < kernel["judged"]
    assert kernel["ns"] < ways["scikit-learn"]["ns"] / 10


def steering_is_what_helps(delay: dict[str, Any]) -> None:
    quiet, without, steered, at_n6, past = delay["variants"].values()
    assert quiet["written_ef"] == without["written_ef"] == 0 and steered["written_ef"] > 0.05
    assert without["offered_mbit"] > 0 == quiet["offered_mbit"]
    assert quiet["median_ns"] > 0 and steered["median_ns"] < without["p99_ns"]
    for way in (at_n6, past):
        assert way["arrived"] > 0 and way["median_ns"] < without["p99_ns"]
    assert past["seen_by_upf"] < without["seen_by_upf"]


def test_the_features_are_the_presets() -> None:
    ours, preset = FeatureSet.load(str(EXAMPLE / "features.yaml")), PRESETS["galvao2026"]
    assert ours.features == preset.features and ours.decapsulate == preset.decapsulate
    assert ours.key == preset.key and ours.shared


def test_the_page_has_the_policy_and_a_place_for_each_table() -> None:
    page = (ROOT / "docs" / "5g.md").read_text()
    policy = (EXAMPLE / "policy.yaml").read_text()
    assert policy[policy.index("version") :] in page
    for name in ("machine", "training", "equal", "classification", "delay"):
        assert re.search(rf"^<!-- {name} -->\n(?s:.*?)\n?<!-- end -->", page, re.MULTILINE)


def test_the_page_has_the_kept_results() -> None:
    """Of the last `make bench-5g KEEP=1`, if there was one."""
    page = (ROOT / "docs" / "5g.md").read_text()
    for kept in sorted((ROOT / "bench" / "results").glob("*-5g.json"))[-1:]:
        for name, part in module("figures").parts(json.loads(kept.read_text())).items():
            assert f"<!-- {name} -->\n{part}\n<!-- end -->" in page, f"{kept.name} has another {name}"


def test_tunnels() -> None:
    gtpu = module("gtpu")
    packet = bytes.fromhex("4500001c") + Random(1).randbytes(24)
    for tunnel in range(0x101, 0x107):
        message = gtpu.encapsulate(packet, tunnel, 70000)
        assert message[gtpu.begin_of_packet(message) :] == packet
        assert int.from_bytes(message[2:4], "big") == len(message) - 8
        for end in range(len(message) - len(packet) + 1):
            with pytest.raises(ValueError, match=r"breaks off|no G-PDU|nothing in it"):
                gtpu.begin_of_packet(message[:end])


def test_a_hostile_message_is_refused_or_read_within_its_bounds() -> None:
    gtpu, rng = module("gtpu"), Random(2)
    for _ in range(20_000):
        message = bytes([0x30 | rng.randrange(8), 255]) + rng.randbytes(rng.randrange(40))
        try:
            assert 8 <= gtpu.begin_of_packet(message) < len(message)
        except ValueError:
            continue
