"""The page in a real browser, over an empty index and over a large one.

Times are taken inside the browser, from the start of a navigation or of a click until the result is drawn.
Browser and server share the processors. Documents have one passage each, of invented text.
"""

import statistics
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from tests.page.browser import launched

from benchmarks.figures import Figure
from benchmarks.large_export import clustered, imported
from benchmarks.processes import Server, serving, until_ready

DOCUMENTS = 100_000
ROUNDS = 10
WATCHED_S = 10.0
# Notes when the first state has been drawn.
_NOTE_LIVE = """
addEventListener("DOMContentLoaded", () => {
  const line = document.getElementById("live-text");
  new MutationObserver(() => { if (line.textContent.startsWith("Live")) window.firstState ??= performance.now(); })
    .observe(line, { childList: true });
});
"""
_FIRST_STATE = """async () => {
  while (window.firstState === undefined) await new Promise(requestAnimationFrame);
  return window.firstState;
}"""
# Milliseconds from an action until an element fits that did not before.
_TIMED = """async ([action, selector, text]) => {
  const fits = () => [...document.querySelectorAll(selector)].some(each => each.textContent.includes(text));
  const started = performance.now();
  if (action.startsWith("#")) location.hash = action;
  else [...document.querySelectorAll("button")].find(each => each.textContent === action).click();
  while (!fits()) await new Promise(requestAnimationFrame);
  return performance.now() - started;
}"""


def measure(folder: Path, count: int) -> list[Figure]:
    """Open the page over both, and use it over the one of `count` documents."""
    large = folder / "large"
    folder.mkdir()
    vectors_of = clustered()
    imported(large, count, lambda number: vectors_of(number)[:1], per_document=1)
    with launched() as browser:
        return [
            *_opened(browser, folder / "empty", "an empty index"),
            *_opened(browser, large, f"{_grouped(count)} documents"),
            *_browsed(browser, large, count),
        ]


def _opened(browser: Browser, data_dir: Path, what: str) -> list[Figure]:
    """From the address to a page that shows the state and can be used, with nothing in the browser's cache."""
    with serving(data_dir) as server:
        until_ready(server)
        loads = [_load(browser, server) for _ in range(ROUNDS)]
    times = [ms for ms, _ in loads]
    return [
        Figure(f"page: open and live, {what}, median", statistics.median(times), "ms", 500),
        Figure(f"page: all files, {what}", loads[-1][1] / 1000, "kB", 200),
    ]


def _load(browser: Browser, server: Server) -> tuple[float, int]:
    context = browser.new_context()
    page = context.new_page()
    sizes: list[int] = []
    page.on("response", lambda reply: sizes.append(int(reply.headers.get("content-length", 0))))
    page.add_init_script(_NOTE_LIVE)
    page.goto(f"http://{server.host}:{server.port}/")
    live: float = page.evaluate(_FIRST_STATE)
    context.close()
    return live, sum(sizes)


def _browsed(browser: Browser, data_dir: Path, count: int) -> list[Figure]:
    """The list of documents page by page, a filter, a search; and what an open page costs the server."""
    steps: dict[str, list[float]] = {"list of documents": [], "next page": [], "a filter": [], "a search": []}
    with serving(data_dir) as server:
        until_ready(server)
        page = browser.new_page()
        page.goto(f"http://{server.host}:{server.port}/")
        page.wait_for_selector(".figures")
        before = server.processor_s
        time.sleep(WATCHED_S)
        watched = (server.processor_s - before) * 100 / WATCHED_S
        for number in range(ROUNDS):
            steps["list of documents"].append(_timed(page, "#/documents", ".cards .meta", "/notes/"))
            steps["next page"].append(_timed(page, "Older documents", ".bar > .dim", "60 of"))
            session = f"session-{number}"
            steps["a filter"].append(_timed(page, f"#/documents?sessionId={session}", "aside [aria-current]", session))
            steps["a search"].append(_timed(page, f"#/search?query=note+{number}", "main summary", "Why this result"))
            _timed(page, "#/collections", "p", "Stores:")
    figures = [
        Figure(f"page: {step}, {_grouped(count)} documents, median", statistics.median(times), "ms", 300)
        for step, times in steps.items()
    ]
    return [
        *figures,
        Figure(f"page: processor time of the server while one is open, {_grouped(count)} documents", watched, "%"),
    ]


def _timed(page: Page, action: str, selector: str, text: str) -> float:
    arguments: list[Any] = [action, selector, text]
    ms: float = page.evaluate(_TIMED, arguments)
    return ms


def _grouped(count: int) -> str:
    return f"{count:,}".replace(",", " ")
