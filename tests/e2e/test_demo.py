# SPDX-License-Identifier: Apache-2.0
"""The demo, small: a real attach on a veth pair, and nothing left behind, however it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import needs
from tests.patience import PATIENCE_S
from tests.warm import WARM
from wirewise.demo.counters import Counters, tag
from wirewise.demo.network import inside_namespace, wire
from wirewise.demo.sender import open_sender, send
from wirewise.formats.bundle import Bundle
from wirewise.traffic import KINDS, generate

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "captures"
SMALL = ["--packets", "60000", "--duration", "6", "--no-watch"]


pytestmark = needs.marks()


def demo(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "wirewise.demo", *map(str, arguments)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "python")}


def left_behind(process: int) -> list[str]:
    """Namespaces and pins that the demo of this process made and did not remove."""
    places = [Path("/run/netns"), Path("/sys/fs/bpf/wirewise")]
    return [str(p) for place in places if place.is_dir() for p in place.iterdir() if str(process) in p.name]


def test_the_counters_count_exactly_and_in_the_right_place() -> None:
    packets = list(generate(1, duration_s=1, packets=5000))
    with wire() as made:
        counters = inside_namespace(made.inside, lambda: Counters(made.receiver, len(KINDS)))
        sender = inside_namespace(made.outside, lambda: open_sender(made.sender))
        sent = send(sender, [(p.time_ns, tag(p.frame, KINDS.index(p.kind))) for p in packets])
        counts = counters.read()
        assert counts == counters.read()
        sender.close()
        counters.close()
    assert counts == [sum(p.kind == kind for p in packets) for kind in KINDS]
    assert sent.packets == len(packets)
    assert 0.9 < sent.seconds < 1.5
    assert left_behind(os.getpid()) == []


def test_a_failure_inside_leaves_nothing_behind() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), wire():
        assert len(left_behind(os.getpid())) == 2
        raise RuntimeError("on purpose")
    assert left_behind(os.getpid()) == []


@pytest.mark.slow  # scripts/fresh-machine.sh runs it too
def test_the_demo_reaches_its_marks_and_its_report_adds_up(tmp_path: Path) -> None:
    process = subprocess.Popen(
        demo("-o", tmp_path, "--seed", "7", *SMALL, "--json"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(out) == report
    assert report["plane"] == "xdp-native"
    assert report["lost_before_program"] == 0
    assert report["attack_dropped_ratio"] >= 0.95
    assert report["benign_passed_ratio"] >= 0.99
    assert report["benign_connection_attempts_passed_ratio"] >= 0.96
    assert 0 < report["kernel_ns_per_packet"] < 100_000
    assert report["packets_per_second"] == pytest.approx(report["packets"] / report["seconds"])
    assert report["packets"] > 55_000
    assert_kinds_add_up(report)
    beside = report["ready"]
    assert beside["name"] == "@flood"
    assert beside["attack_dropped_ratio"] >= 0.6 and beside["benign_passed_ratio"] >= 0.95
    assert report["fidelity"]["agree"] == report["fidelity"]["rows"]
    assert all(miss["why"] and miss["passed"] for miss in report["missed"])
    assert (tmp_path / "demo.wirewise").is_file()
    assert left_behind(process.pid) == []


def assert_kinds_add_up(report: dict[str, Any]) -> None:
    kinds = report["kinds"]
    assert sum(row["sent"] for row in kinds) == report["packets"]
    assert all(row["passed"] + row["dropped"] == row["sent"] for row in kinds)
    for row in kinds:  # the wire's timing changes little: the same object offline says nearly the same
        assert abs(row["dropped"] - row["offline_dropped"]) <= max(20, 0.02 * row["sent"]), row


def test_a_ready_model_drops_the_attack_without_training(tmp_path: Path) -> None:
    few = ["--seed", "7", "--packets", "24000", "--duration", "4", "--no-watch"]
    process = subprocess.Popen(
        demo("-o", tmp_path, "--model", "@flood", *few, "--json"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["name"] == "@flood" and "put Suricata behind" in report["cannot_see"]
    assert not {"trained_on", "test_accuracy", "fidelity", "ready"} & report.keys()
    assert report["lost_before_program"] == 0
    assert_kinds_add_up(report)
    dropped = {row["kind"]: row["dropped_ratio"] for row in report["kinds"]}
    assert dropped["syn-flood"] >= 0.9 and dropped["port-scan"] >= 0.7
    assert report["benign_passed_ratio"] >= 0.95
    assert report["benign_connection_attempts"] > 50
    assert report["benign_connection_attempts_passed_ratio"] >= 0.8  # scanned hosts look flooded to it
    policy = yaml.safe_load((tmp_path / "policy.yaml").read_text())
    assert policy["classes"].pop("benign") == "pass" and set(policy["classes"].values()) == {"drop"}
    assert Bundle.read(tmp_path / "flood.wirewise").manifest.name == "flood"
    assert left_behind(process.pid) == []


def test_what_a_killed_demo_left_is_removed_by_the_next() -> None:
    script = (
        "import os; from wirewise.demo.network import wire\n"
        "with wire(): os.kill(os.getpid(), 9)"
    )  # fmt: skip
    killed = subprocess.Popen([sys.executable, "-c", script], env=environment())
    assert killed.wait() == -signal.SIGKILL
    assert len(left_behind(killed.pid)) == 2
    with wire():
        assert left_behind(killed.pid) == []


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        demo("-o", tmp_path, "--packets", "8000", "--duration", "60", "--no-watch"),
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while not any("sys/fs/bpf" in path for path in left_behind(process.pid)):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "never attached"
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert left_behind(process.pid) == []
    assert not (tmp_path / "report.json").exists()


def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, says in (
        (["--captures", tmp_path], "manifest.json"),
        (["--split", "odd"], "there are: time, files"),
        (["--model", "@flod"], "did you mean '@flood'"),
        (["--model", "@voip-or-bulk"], "has no class benign, but bulk, interactive, video"),
        (["--model", tmp_path / "none.wirewise"], "none.wirewise"),
    ):
        words = ["demo", "-o", *map(str, (tmp_path / "out", *arguments))]
        done = WARM.run(words, tmp_path, os.environ)
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_the_page_is_served_while_the_attack_goes_on_and_all_is_gone_afterwards(tmp_path: Path) -> None:
    process = subprocess.Popen(
        demo("-o", tmp_path, "--packets", "8000", "--duration", "5", "--page"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    said = ""
    try:
        assert process.stdout is not None
        while not (found := re.search(r"http://(127\.0\.0\.1:\d+)/#token=([0-9a-f]{64})\s", said)):
            line = process.stdout.readline()
            assert line, said
            said += line.replace("\n", " ")
        connection = http.client.HTTPConnection(found[1], timeout=PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while True:
            connection.request("GET", "/api/v1/flows", headers={"Authorization": f"Bearer {found[2]}"})
            (attached,) = [
                it
                for it in json.loads(connection.getresponse().read())["attachments"]
                if str(process.pid) in it["interface"]
            ]
            if attached["count"]:
                break
            assert time.monotonic() < until, "no flow came"
            time.sleep(0.05)
        connection.close()
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=PATIENCE_S)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said
    assert left_behind(process.pid) == []
