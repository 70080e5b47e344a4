# SPDX-License-Identifier: Apache-2.0
"""The service's page, in a real browser."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import browser, needs
from tests.e2e.serving import Lab, Local, asked, lab_in, token, until
from tests.e2e.test_cpus import A, B
from tests.ports import free_port

pytestmark = needs.marks()

WIDTHS = (360, 1440)

WATCHED = """version: 1
classes: {attack: {action: drop, ban: {by: source, for: 10m, spoofable: true}}}
events: {features: true, rate: 1000/s, burst: 1000}
deny: {}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, bundles: Path) -> Iterator[tuple[Lab, str, str]]:
    """A service with one interface, where it answers, and a token that may operate."""
    with lab_in(tmp_path_factory.mktemp("service"), bundles) as lab:
        port = free_port()
        secret, may_operate = token("page", "operate")
        (lab.folder / "watched.yaml").write_text(WATCHED)
        lab.write(lab.entry(policy="watched.yaml"), listen=f"127.0.0.1:{port}", tokens=[may_operate])
        lab.start()
        until("it is kept", lab.kept)
        yield lab, f"http://127.0.0.1:{port}/", secret


def names(lab: Lab) -> str:
    """Whether an element is of this lab: other tests' interfaces may be on the page, too."""
    return f"(it) => it.textContent.includes('{lab.made.receiver}')"


def opened(page: browser.Page, address: str, secret: str, width: int, *, dark: bool = False) -> None:
    """The page, as it is after the token was typed."""
    page.open(address, width, dark=dark)
    until("it asks for a token", lambda: bool(page.evaluate("document.getElementById('login').open")))
    page.evaluate(f"document.getElementById('token').value = {secret!r}")
    page.evaluate("document.querySelector('#login button').click()")
    until("it shows the interface", lambda: bool(page.evaluate("document.querySelector('article') !== null")))


def test_the_page_shows_what_happens_at_every_width(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    lab.send(30)
    shots = Path(os.environ.get("WIREWISE_SCREENSHOTS", tmp_path))
    with browser.page(tmp_path / "browser") as page:
        for width in WIDTHS:
            for dark in (False, True):
                opened(page, address, secret, width, dark=dark)
                until(
                    "events are there",
                    lambda: page.evaluate("document.querySelectorAll('#events tr').length") > 0,
                )
                until(
                    "flows are there",
                    lambda: page.evaluate("document.querySelectorAll('#flows tr').length") > 0,
                )
                until(
                    "all is well",
                    lambda: "as configured" in page.evaluate("document.getElementById('health').textContent"),
                )
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (
                    "the page does not scroll sideways"
                )
                assert lab.made.receiver in page.evaluate("document.getElementById('interfaces').textContent")
                assert {url.removeprefix(address).split("?")[0] for url in page.requests} <= {
                    "", "page.css", "page.js", "common.js", "details.js", "data:,",
                    *(f"api/v1/{name}" for name in ("stats", "status", "state", "flows", "events")),
                }  # fmt: skip
                unnamed = (
                    "[...document.querySelectorAll('button')].filter((it) => !it.textContent.trim()).length"
                )
                assert page.evaluate(unnamed) == 0
                assert page.complaints == []
                (shots / f"page-{width}{'-dark' if dark else ''}.png").write_bytes(page.screenshot())


def test_an_attack_is_on_the_page_within_two_seconds(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    count = "document.querySelectorAll('#events tr').length"
    with browser.page(tmp_path) as page:
        opened(page, address, secret, 1440)
        until(
            "it listens", lambda: bool(page.evaluate("performance.getEntriesByType('resource').length > 4"))
        )
        before = page.evaluate(count)
        lab.send(30)
        sent = time.monotonic()
        until("they are shown", lambda: page.evaluate(count) > before or page.evaluate(count) == 200)
        # On a busy machine it may be longer; how long it was is in the output of a failure only.
        print(f"shown after {time.monotonic() - sent:.2f} s")


def test_what_changes_something_is_asked_for_twice(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    own = f"[...document.querySelectorAll('article')].find({names(lab)})"

    def press(page: browser.Page, button: str, answer: str) -> None:
        page.evaluate(f"{own}.querySelector('[aria-label^=\"{button} \"]').click()")
        until("it asks", lambda: bool(page.evaluate("document.getElementById('confirm').open")))
        page.evaluate(f"document.querySelector('#confirm button[value={answer}]').click()")

    with browser.page(tmp_path) as page:
        opened(page, address, secret, 800)
        press(page, "Enforce", "no")
        press(page, "Enforce", "yes")
        until("it is done", lambda: lab.attached()["mode"] == "enforce")
        until(
            "it is shown",
            lambda: page.evaluate("document.querySelector('article .badge').textContent") == "enforce",
        )
        press(page, "Roll back", "yes")
        until("why not", lambda: page.evaluate("document.getElementById('answer').className") == "bad")
        press(page, "Observe", "yes")
        until("it is done", lambda: lab.attached()["mode"] == "observe")


def test_a_class_is_enforced_for_some_minutes(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    own = f"[...document.querySelectorAll('article')].find({names(lab)})"

    def shown() -> str:
        return str(page.evaluate(f"{own}.textContent"))

    at = f"interface={lab.made.receiver}&netns={lab.made.inside}"

    def asked_mode() -> dict[str, object] | None:
        (attack,) = (it for it in lab.attached()["classes"] if it["name"] == "attack")
        return attack["asked"] and dict(attack["asked"])

    def submit(mode: str, minutes: int, name: str = "attack") -> None:
        page.evaluate(
            f"(() => {{ const [name, mode] = {own}.querySelectorAll('select'); name.value = '{name}';"
            f" mode.value = '{mode}'; {own}.querySelector('input').value = {minutes};"
            f" {own}.querySelector('form button').click(); }})()"
        )
        until("it asks", lambda: bool(page.evaluate("document.getElementById('confirm').open")))
        page.evaluate("document.querySelector('#confirm button[value=yes]').click()")

    with browser.page(tmp_path) as page:
        opened(page, address, secret, 800)
        until(
            "the class can be chosen",
            lambda: bool(page.evaluate(f"{own}.querySelectorAll('option').length > 2")),
        )
        submit("enforce", 10)
        until("it is done", lambda: (asked_mode() or {}).get("mode") == "enforce")
        remaining = (asked_mode() or {})["remaining_seconds"]
        assert isinstance(remaining, float)
        assert 0 < remaining <= 600
        answer = "document.getElementById('answer').textContent"
        until("the limits of it are said", lambda: "as a whole observes" in page.evaluate(answer))
        until(
            "its end is shown",
            lambda: re.search(r"observe \(asked: enforce, \d+ (min|s) left\)", shown()) is not None,
        )
        submit("observe", 1)
        until("it observes", lambda: (asked_mode() or {}).get("mode") == "observe")
        # And the interface as a whole.
        submit("enforce", 10, "")
        until("it enforces", lambda: lab.attached()["mode"] == "enforce")
        until("its end is shown", lambda: re.search(r"enforce, \d+ (min|s) left", shown()) is not None)
        submit("observe", 1, "")
        until("it observes for a while", lambda: lab.attached()["observe_remaining_seconds"] is not None)
        until("its end is shown", lambda: re.search(r"observe, \d+ (min|s) left", shown()) is not None)
        assert asked(Local(lab.socket), "POST", f"/api/v1/mode?{at}&mode=observe")[0] == 200
        answer = asked(Local(lab.socket), "POST", f"/api/v1/mode?{at}&mode=observe&seconds=60")
        assert answer[0] == 409
        assert "nothing to return to" in answer[1]
    for query, code, rule in (
        ("class=atack", 409, 'no class \\"atack\\"'),
        ("seconds=0", 400, "from 1 to"),
        ("seconds=2592001", 400, "from 1 to"),
    ):
        place = f"{at}&mode=observe"
        got, body = asked(Local(lab.socket), "POST", f"/api/v1/mode?{place}&{query}")
        assert got == code, body
        assert rule in body
    # Without a time, the mode stays; here, that of the policy again.
    assert (
        asked(Local(lab.socket), "POST", f"/api/v1/mode?{place}&class=attack".replace("observe", "enforce"))[
            0
        ]
        == 200
    )
    until("no mode of its own is left", lambda: asked_mode() is None)


def test_an_event_is_explained(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    lab.send(30)
    text = "document.getElementById('why-text').textContent"
    own = f"[...document.querySelectorAll('#events tr')].find({names(lab)})"
    shots = Path(os.environ.get("WIREWISE_SCREENSHOTS", tmp_path))
    with browser.page(tmp_path / "browser") as page:
        for width in WIDTHS:
            opened(page, address, secret, width, dark=width == WIDTHS[0])
            until("it is told", lambda: bool(page.evaluate(f"{own} !== undefined")))
            page.evaluate(f"{own}.querySelector('button').click()")
            until("it is explained", lambda: "votes for attack" in page.evaluate(text))
            assert "> 10" in page.evaluate(text)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            (shots / f"why-{width}.png").write_bytes(page.screenshot())
            page.evaluate("document.querySelector('#why button[value=close]').click()")
            assert page.complaints == []


def test_lists_and_models_are_shown_and_changed(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    lab, address, secret = served
    lab.send(3)
    own = f"[...document.querySelectorAll('#listed tr')].filter({names(lab)})"
    choice = f"[...document.getElementById('deny-where').options].findIndex({names(lab)})"
    models = "document.getElementById('models').textContent"
    shots = Path(os.environ.get("WIREWISE_SCREENSHOTS", tmp_path))

    def listed(page: browser.Page) -> str:
        return str(page.evaluate(f"{own}.map((it) => it.textContent).join()"))

    def confirm(page: browser.Page) -> None:
        until("it asks", lambda: bool(page.evaluate("document.getElementById('confirm').open")))
        page.evaluate("document.querySelector('#confirm button[value=yes]').click()")

    def press(page: browser.Page, entry: str, button: str) -> None:
        allowed = "" if entry == "allowed" else "!"
        is_it = f"it.textContent.includes('198.51') && {allowed}it.textContent.includes('allowed:')"
        row = f"{own}.find((it) => {is_it})"
        page.evaluate(f"{row}.querySelector('button[aria-label^=\"{button}\"]').click()")
        confirm(page)

    with browser.page(tmp_path / "browser") as page:
        for width in WIDTHS:
            opened(page, address, secret, width, dark=width != WIDTHS[0])
            for section in ("talkers", "lists", "models"):
                page.evaluate(f"document.getElementById('{section}-section').open = true")
            until("it can be chosen", lambda: page.evaluate(choice) >= 0)
            page.evaluate(f"document.getElementById('deny-where').selectedIndex = {choice}")
            page.evaluate("document.getElementById('deny-prefix').value = '198.51.100.9'")
            page.evaluate("document.querySelector('#deny button').click()")
            confirm(page)
            until("it is denied", lambda: "198.51.100.9/32" in listed(page))
            until("the model is shown", lambda: f"first on {lab.made.receiver}" in page.evaluate(models))
            for said in ("SHA-256", "Drift by feature", "Shadow against active", "five-tuple"):
                assert said in page.evaluate(models), said
            until(
                "sources and targets are shown",
                lambda: all(
                    it in page.evaluate("document.getElementById('talkers').textContent")
                    for it in (A[0], B[0])
                ),
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            (shots / f"details-{width}.png").write_bytes(page.screenshot())
            press(page, "denied", "Allow for")
            until("it is allowed", lambda: "allowed: hand" in listed(page))
            press(page, "allowed", "Lift")
            until("it is no longer", lambda: "allowed: hand" not in listed(page))
            press(page, "denied", "Lift")
            until("it is let in", lambda: "198.51" not in listed(page))
            assert page.complaints == []


def test_a_wrong_token_is_asked_for_again(served: tuple[Lab, str, str], tmp_path: Path) -> None:
    _, address, secret = served
    with browser.page(tmp_path) as page:
        page.open(address, 800)
        until("it asks for a token", lambda: bool(page.evaluate("document.getElementById('login').open")))
        page.evaluate("document.getElementById('token').value = 'wrong'")
        page.evaluate("document.querySelector('#login button').click()")
        until(
            "it says so",
            lambda: "not known" in page.evaluate("document.getElementById('login-error').textContent"),
        )
        assert page.evaluate("document.querySelector('article') === null")
        page.evaluate(f"document.getElementById('token').value = {secret!r}")
        page.evaluate("document.querySelector('#login button').click()")
        until(
            "it shows the interface",
            lambda: bool(page.evaluate("document.querySelector('article') !== null")),
        )
