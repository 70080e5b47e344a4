# SPDX-License-Identifier: Apache-2.0
"""What contrib/ has for monitoring, by a real Prometheus on a real service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import needs
from tests.e2e.serving import Lab, lab_in, token, until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
CONTRIB = ROOT / "contrib"
PROGRAMS = ROOT / "build/tools/prometheus/usr/bin"

pytestmark = [
    *needs.marks(),
    pytest.mark.skipif(
        not (PROGRAMS / "prometheus").exists(), reason="tools: no prometheus, see scripts/setup.sh"
    ),
]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((CONTRIB / "prometheus/wirewise.rules.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[str]:
    """The queries of the dashboard, with what its variables stand for."""
    board = json.loads((CONTRIB / "grafana/wirewise.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [query.replace("$interface", ".*") for query in queries]


def test_each_alert_fires_on_what_it_is_for_and_only_then() -> None:
    done = subprocess.run(
        [PROGRAMS / "promtool", "test", "rules", "wirewise.test.yml"],
        cwd=CONTRIB / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (CONTRIB / "prometheus/wirewise.test.yml").read_text()
    fired = set(re.findall(r'alertname="(\w+)"', text))
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.fixture
def prometheus(tmp_path: Path, bundles: Path) -> Iterator[tuple[Lab, str]]:
    """A service that carries packets in user space, and who asks it each second."""
    folder = tmp_path / "service"
    folder.mkdir()
    with lab_in(folder, bundles) as lab:
        secret, may_read = token("prometheus", "read")
        service, port = free_port(), free_port()
        lab.write(
            lab.entry(policy="drop.yaml", plane="af-packet"), listen=f"127.0.0.1:{service}", tokens=[may_read]
        )
        lab.start()
        config = yaml.safe_load((CONTRIB / "prometheus/prometheus.yml").read_text())
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = "1s"
        job["static_configs"] = [{"targets": [f"127.0.0.1:{service}"]}]
        config["global"] = {"evaluation_interval": "1s"}
        # Prometheus takes brackets in a path for a pattern, and the checkout's may have some.
        config["rule_files"] = [str(shutil.copy(CONTRIB / "prometheus/wirewise.rules.yml", tmp_path))]
        (tmp_path / "token").write_text(secret)
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [PROGRAMS / "prometheus", f"--config.file={tmp_path}/prometheus.yml"]
        command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield lab, f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def query(server: str, expression: str) -> list[dict[str, Any]]:
    url = f"{server}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url) as answer:
        return list(json.load(answer)["data"]["result"])


def answers(server: str, expression: str) -> bool:
    try:
        return bool(query(server, expression))
    except OSError:
        return False


def test_prometheus_reads_the_service_and_every_rule_and_panel_has_its_metrics(
    prometheus: tuple[Lab, str],
) -> None:
    lab, server = prometheus
    until("it is asked", lambda: answers(server, 'up{job="wirewise"} == 1'))
    lab.send(25)
    until(
        "packets are seen",
        lambda: answers(server, 'sum(wirewise_packets_total{outcome="would-drop"}) > 0'),
    )
    until("rates are recorded", lambda: answers(server, "wirewise:packets:rate1m > 0"))
    with urllib.request.urlopen(f"{server}/api/v1/rules") as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert len(group["rules"]) == len(rules())
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    with urllib.request.urlopen(f"{server}/api/v1/label/__name__/values") as answer:
        known = set(json.load(answer)["data"])
    # No shadow runs here, nor is there an aggregate.
    known |= {"wirewise_shadow_packets_total", "wirewise:shadow_disagrees:ratio5m"}
    for expression in [*(rule["expr"] for rule in rules()), *panels()]:
        query(server, expression)
        named = set(re.findall(r"\b(?:wirewise|process)[_:][a-z0-9_:]*", expression))
        assert named <= known, expression
