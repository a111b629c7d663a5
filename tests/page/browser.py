"""A real Chromium, and a page in it that notes whatever goes wrong."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

TIMEOUT_MS = 20_000
WIDE = (1280, 900)
NARROW = (360, 740)
expect.set_options(timeout=TIMEOUT_MS)

# The page is on this machine; none of Chromium's own calls to its maker.
_FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Said by the page in words of its own; a test of errors expects it.
_EXPECTED = "Failed to load resource"


def chromium() -> str:
    """Where the browser is. A test without one fails: it must not be taken for one that passed."""
    found = os.environ.get("RAG_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail("No Chromium: `make browser` installs it, or RAG_TEST_CHROMIUM names one")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of one server; what went wrong in it is noted."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_EXPECTED):
            self.faults.append(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog of a script: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "about:blank")):
            self.faults.append(f"a request to {request.url}")
        self.requests.append((request.method, request.url.removeprefix(self.url).partition("?")[0]))

    def open(self, view: str) -> Page:
        """Show a view, such as `search?query=x`, as its address does."""
        # An address that differs behind # only would leave the last view there until the next one is complete.
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#/{view}")
        self.page.wait_for_selector("h1")
        return self.page

    def overflows(self) -> bool:
        """Whether something stands out at the right, so that the whole page scrolls sideways."""
        overflows: bool = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return overflows


@contextmanager
def tab(
    browser: Browser, url: str, *, size: tuple[int, int] = WIDE, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Tab]:
    """A tab of its own, without anything of an earlier one. At the end nothing may have gone wrong in it."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    opened = Tab(context.new_page(), url)
    try:
        yield opened
    finally:
        context.close()
    assert opened.faults == []
