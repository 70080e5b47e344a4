# SPDX-License-Identifier: Apache-2.0
"""Bans of the service elsewhere: decisions at a real CrowdSec, routes of one real GoBGP to another."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import crowdsec, needs
from tests.e2e.crowdsec import KEY, URL, LocalApi
from tests.e2e.serving import Lab, until
from tests.e2e.test_cpus import A
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.demo.network import within

GOBGP = Path(__file__).parents[2] / "build/tools/gobgpd/usr/bin"
SENDER = A[0]
BLACKHOLE = 65535 << 16 | 666

pytestmark = needs.marks()
with_gobgp = pytest.mark.skipif(
    not (GOBGP / "gobgpd").exists(), reason="tools: no gobgpd, see scripts/setup.sh"
)


def write(lab: Lab, *outputs: Mapping[str, object], time: str = "60s", **more: object) -> None:
    (lab.folder / "ban.yaml").write_text(
        "version: 1\ndeny: {}\n"
        f"classes: {{attack: {{ban: {{by: source, for: {time}, spoofable: true}}}}}}\n"
    )
    lab.write(lab.entry(policy="ban.yaml", mode="enforce"), events=list(outputs), **more)


def lift(lab: Lab) -> None:
    agent.call("bans", "lift", "--all", *lab.place)


def of_output(lab: Lab) -> dict[str, Any]:
    (found,) = lab.state()["outputs"]
    return dict(found)


@pytest.fixture
def api(lab: Lab) -> Iterator[LocalApi]:
    subprocess.run(["ip", "-n", lab.made.outside, "link", "set", "lo", "up"], check=True)
    folder = lab.folder / "api"
    folder.mkdir()
    api = LocalApi(folder, lab.made.outside)
    try:
        yield api
    finally:
        api.end()


@crowdsec.is_there
def test_bans_become_decisions_and_decisions_denials(lab: Lab, api: LocalApi) -> None:
    server = api.start()
    (lab.folder / "password").write_text("secret\n")
    (lab.folder / "key").write_text(f"{KEY}\n")
    alerts = {"crowdsec": URL, "machine": "tests", "password_file": "password"}
    write(lab, alerts, crowdsec={"url": URL, "key_file": "key", "interval": "200ms"})
    lab.start(by=within(lab.made.outside))
    until("it is kept", lab.kept)

    def decisions() -> list[dict[str, Any]]:
        rows = json.loads(api.cscli("decisions", "list", "--all", "--output", "json")) or []
        return [{**it, "source": row["source"]} for row in rows for it in row["decisions"]]

    lab.send(15)
    until("the ban is a decision", lambda: len(decisions()) == 1)
    (ours,) = decisions()
    assert (ours["origin"], ours["scenario"]) == ("wirewise/tests", "wirewise/attack")
    assert (ours["type"], ours["scope"], ours["value"]) == ("ban", "Ip", SENDER)
    assert ours["duration"].endswith("s")
    assert 0 < float(ours["duration"].removesuffix("s").replace("1m", "60")) <= 60
    assert ours["source"]["value"] == SENDER
    # Ours was decided before this one, and does not come back.
    api.decide("192.0.2.7", "4h")

    def denied() -> list[str]:
        listed = agent.call("deny", "list", *lab.place)
        return [it["prefix"] for it in listed["prefixes"]]

    until("another's decision is followed", lambda: bool(denied()))
    assert denied() == ["192.0.2.7/32"]
    until("it is noted", lambda: lab.state()["crowdsec"]["decisions"] == 1)
    followed = lab.state()["crowdsec"]
    assert (followed["interfaces"], followed["error"]) == ([lab.made.receiver], None)
    assert lab.metrics()["wirewise_serve_crowdsec_decisions{}"] == 1
    assert lab.metrics()["wirewise_serve_crowdsec_follows{}"] == 1

    # A server that was started again refuses its earlier tokens.
    server.kill()
    server.wait(PATIENCE_S)
    until("the error shows", lambda: lab.state()["crowdsec"]["error"])
    assert lab.metrics()["wirewise_serve_crowdsec_follows{}"] == 0
    assert denied() == ["192.0.2.7/32"]
    api.start()
    lift(lab)
    lab.send(1)
    until("the next ban is a decision too", lambda: of_output(lab)["written"] == 2)
    assert of_output(lab)["lost"] == 0
    assert lab.kept()
    until("it follows again", lambda: lab.state()["crowdsec"]["error"] is None)
    assert "secret" not in lab.log.read_text()


@crowdsec.is_there
def test_a_wrong_password_is_said_and_bans_wait(lab: Lab, api: LocalApi) -> None:
    api.start()
    (lab.folder / "password").write_text("another\n")
    write(lab, {"crowdsec": URL, "machine": "tests", "password_file": "password"})
    lab.start(by=within(lab.made.outside))
    until("it is kept", lab.kept)
    lab.send(15)
    until("the error shows", lambda: "cscli machines add" in (of_output(lab)["error"] or ""))
    assert "another" not in lab.log.read_text()
    api.cscli("machines", "add", "tests", "--password", "another", "--force", "-f", "/dev/null")
    until("it waited", lambda: of_output(lab)["written"] == 1)


@contextmanager
def speaker(folder: Path, name: str, namespace: str, config: str) -> Iterator[Path]:
    """A GoBGP daemon; the socket of its API."""
    (folder / f"{name}.toml").write_text(config)
    path = folder / f"{name}.sock"
    path.unlink(missing_ok=True)
    words = ["-f", str(folder / f"{name}.toml"), "--pprof-disable", "--api-hosts", f"unix://{path}"]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*within(namespace), GOBGP / "gobgpd", *words], stdout=log, stderr=log)
    try:
        until("it answers", lambda: routes(path) is not None)
        yield path
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def routes(path: Path, family: str = "ipv4") -> dict[str, Any] | None:
    words = ["--target", f"unix://{path}", "global", "rib", "-a", family, "-j"]
    done = subprocess.run([GOBGP / "gobgp", *words], capture_output=True, check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else None


OWN = """
[global.config]
  as = 64512
  router-id = "192.0.2.1"
  port = -1
"""
OWN_WITH_NEIGHBOR = f"""{OWN}
[[neighbors]]
  [neighbors.config]
    neighbor-address = "198.18.0.2"
    peer-as = 64513
  [neighbors.transport.config]
    local-address = "198.18.0.1"
    remote-port = 17900
"""
UPSTREAM = """
[global.config]
  as = 64513
  router-id = "192.0.2.2"
  port = 17900
  local-address-list = ["198.18.0.2"]
[[neighbors]]
  [neighbors.config]
    neighbor-address = "198.18.0.1"
    peer-as = 64512
  [neighbors.transport.config]
    passive-mode = true
"""


def serve(lab: Lab) -> subprocess.Popen[bytes]:
    service = lab.start(environment={"PATH": f"{GOBGP}:{os.environ['PATH']}"})
    until("it is kept", lab.kept)
    return service


@with_gobgp
def test_a_ban_is_a_route_upstream_for_as_long_as_it_holds(lab: Lab) -> None:
    outside, route = lab.made.outside, f"{SENDER}/32"
    # No router takes a next hop of 127.0.0.0/8.
    for words in (["addr", "add", "198.18.0.1/32"], ["addr", "add", "198.18.0.2/32"]):
        subprocess.run(["ip", "-n", outside, *words, "dev", "lo"], check=True)
    subprocess.run(["ip", "-n", outside, "link", "set", "lo", "up"], check=True)
    with (
        speaker(lab.folder, "upstream", outside, UPSTREAM) as upstream,
        speaker(lab.folder, "own", outside, OWN_WITH_NEIGHBOR) as own,
    ):
        write(lab, {"bgp": f"unix://{own}"})
        service = serve(lab)
        lab.send(15)
        until("the neighbour has the route", lambda: bool(routes(upstream)))
        ((prefix, paths),) = (routes(upstream) or {}).items()
        attributes = {it["type"]: it for it in paths[0]["attrs"]}
        assert (prefix, attributes[8]["communities"]) == (route, [BLACKHOLE])
        until("it is counted", lambda: of_output(lab)["routes"] == {"announced": 1, "refused": 0})
        assert lab.metric("wirewise_bans") == 1
        lift(lab)
        assert lab.metric("wirewise_bans") == 0
        until("who is let in has no route", lambda: routes(upstream) == {})

        # A service that dies leaves its routes to the next one.
        lab.send(1)
        until("it is banned again", lambda: bool(routes(upstream)))
        service.kill()
        service.wait(PATIENCE_S)
        lift(lab)
        assert list(routes(own) or {}) == [route]
        service = serve(lab)
        until("the next one takes it back", lambda: routes(upstream) == {})

        # One that ends in order takes its routes along, and the next one announces what still holds.
        lab.send(1)
        until("it is banned again", lambda: bool(routes(upstream)))
        service.terminate()
        assert service.wait(PATIENCE_S) == 0
        assert routes(own) == {}
        serve(lab)
        until("the ban holds still", lambda: bool(routes(upstream)))
    # The daemon is started again, without a neighbour.
    until("the error shows", lambda: of_output(lab)["error"])
    with speaker(lab.folder, "own", outside, OWN) as own:
        until("it is announced again", lambda: list(routes(own) or {}) == [route])
        until("all is well", lambda: of_output(lab)["error"] is None)
    assert lab.kept()


@with_gobgp
def test_routes_end_with_their_bans_and_have_a_limit(lab: Lab) -> None:
    with speaker(lab.folder, "own", lab.made.outside, OWN) as own:
        write(lab, {"bgp": f"unix://{own}", "routes": "flowspec"}, time="3s")
        service = serve(lab)
        lab.send(15)
        until(
            "it is announced", lambda: list(routes(own, "ipv4-flowspec") or {}) == [f"[source: {SENDER}/32]"]
        )
        until("it has expired", lambda: routes(own, "ipv4-flowspec") == {})
        service.terminate()
        service.wait(PATIENCE_S)
        write(lab, {"bgp": f"unix://{own}", "most": 0})
        serve(lab)
        lab.send(1)
        until("it is counted", lambda: of_output(lab)["routes"] == {"announced": 0, "refused": 1})
        sample = f'wirewise_serve_bgp_routes{{to="unix://{own}",state="refused"}}'
        assert lab.metrics()[sample] == 1
        assert routes(own) == {}
        assert "bans without a route: 1; `most` allows 0 routes" in lab.log.read_text()
