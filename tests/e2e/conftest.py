"""A real browser on a real installation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.e2e.site import Site
from tests.e2e.stage import stage

__all__ = ["stage"]

#: Milliseconds; two busy cores are slow, a hang is slower.
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)

#: Refusals that a journey provokes on purpose are told in the console too; they are no faults.
EXPECTED = (
    "Failed to load resource: the server responded with a status of",
    "Failed to load resource: net::",
    # htmx tells of a request that the cut connection ended: the approvals badge asks now and then.
    "htmx:afterRequest",
    "htmx:sendError",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The demo, started once for the journeys of a module."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, or the one that ``CHROMIUM`` names."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is missing: `apt-get install chromium`, or set CHROMIUM to its path")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody's browser. What its console complains about fails the test."""

    site: Site
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)

    def sign_in(self, username: str) -> None:
        self.page.goto(f"{self.site.url}/sign-in/")
        self.page.get_by_label("User name").fill(username)
        self.page.get_by_label("Password").fill(self.site.passwords[username])
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.site.url}/")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.site.url}{path}")

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(EXPECTED):
            self.complaints.append(message.text)


@pytest.fixture
def visit(site: Site, browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Open a browser for somebody: ``visit("member")``, ``visit("manager", width=360)``."""
    opened: list[Visitor] = []

    def _visit(username: str = "", *, width: int = 1280, theme: str = "light") -> Visitor:
        context = browser.new_context(
            storage_state=site.sessions.get(username),
            viewport={"width": width, "height": 800},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        page = context.new_page()
        visitor = Visitor(site, context, page)
        page.on("console", visitor.hear)
        page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        page.set_default_timeout(PATIENCE)
        opened.append(visitor)
        if username in site.sessions:
            visitor.open("/")
        elif username:
            visitor.sign_in(username)
            site.sessions[username] = context.storage_state()
        return visitor

    yield _visit
    for visitor in opened:
        visitor.context.close()
    assert [c for v in opened for c in v.complaints] == []
