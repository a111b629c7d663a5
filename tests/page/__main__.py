"""Take the pictures of docs/page.md: `make pictures`. The server, its memory and the browser are the tests' own."""

import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote_plus

from playwright.sync_api import Browser, expect

from tests.end_to_end.process import Served, served

from .browser import NARROW, launched, tab

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
MAX_BYTES = 120_000
DESK = (1120, 760)
TALL = (1120, 900)
CORPUS = ROOT / "examples" / "corpus"
TYPES: dict[str, str] = {"chats": "chat", "code": "code", "decisions": "decision", "docs": "documentation"}
SHOWN = "why did we not build a native app?"
QUERIES = (
    ("reviewer", "how do the tablets work without a network?"),
    ("planner", "which currency is money kept in?"),
    ("reviewer", "what do we do when a payment callback is sent twice?"),
    ("planner", "why do we calculate the tide ourselves?"),
    ("writer", "how is a booking cancelled?"),
)


def main() -> None:
    """Index the sample corpus, ask, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="rag-context-pictures-")
    with folder as name, served(Path(name) / "data") as server, launched() as browser:
        server.wait_ready()
        _fill(server)
        _take(browser, server, "overview", "", scheme="light")
        _take(browser, server, "search", f"search?query={quote_plus(SHOWN)}", size=TALL, scheme="dark")
        _take(browser, server, "overview-narrow", "", size=NARROW, scheme="dark")


def _fill(server: Served) -> None:
    for path in sorted(CORPUS.rglob("*.*")):
        name = path.relative_to(CORPUS)
        server.index(
            path.read_text(encoding="utf-8"),
            source=name.as_posix(),
            sessionId="harbour",
            contentType=TYPES[name.parts[0]],
        )
    for _ in range(4):
        for agent, query in QUERIES:
            server.search(query, agent=agent, explain=True)


def _take(
    browser: Browser,
    server: Served,
    name: str,
    view: str,
    *,
    size: tuple[int, int] = DESK,
    scheme: Literal["light", "dark"],
) -> None:
    with tab(browser, server.url, size=size, scheme=scheme) as opened:
        page = opened.open(view)
        expect(page.locator("#live-text")).to_have_text("Live, healthy")
        if view.startswith("search"):
            page.get_by_text("Why this result").first.click()
        path = PICTURES / f"page-{name}.png"
        page.screenshot(path=path)
    assert path.stat().st_size <= MAX_BYTES, f"{path.name} is too large for a page of the documentation"


if __name__ == "__main__":
    main()
