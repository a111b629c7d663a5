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
MAX_BYTES = 130_000
DESK = (1120, 740)
CORPUS = ROOT / "examples" / "corpus"
TYPES: dict[str, str] = {"chats": "chat", "code": "code", "decisions": "decision", "docs": "documentation"}
SHOWN = "why did we not build a native app?"
QUERIES = (
    ("reviewer", "how do the tablets work without a network?"),
    ("planner", "which currency is money kept in?"),
    ("reviewer", "what do we do when a payment callback is sent twice?"),
    ("planner", "why do we calculate the tide ourselves?"),
    ("writer", "how is a booking cancelled?"),
    ("writer", "who is the king of Norway?"),
)
SESSION = "tide-tables"
TALK = """[user] How do we get the **tide table** onto the tablets?

[assistant] It is calculated on each device, because the harbour has no network below deck:

```python
def heights(day: date, station: Station) -> list[float]:
    # a year is 40 kB, and is never fetched
    return [station.height_at(hour) for hour in hours_of(day)]
```

[user] Keep it that way, and never fetch it while sailing.

[assistant] Noted. The table is renewed in the harbour only.
"""


def main() -> None:
    """Index the sample corpus, ask, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="rag-context-pictures-")
    with folder as name, served(Path(name) / "data") as server, launched() as browser:
        server.wait_ready()
        _fill(server)
        _take(browser, server, "home", "", scheme="light")
        _take(browser, server, "session", f"sessions/{SESSION}", scheme="light")
        _take(browser, server, "search", f"search?query={quote_plus(SHOWN)}", scheme="dark")
        _take(browser, server, "home-narrow", "", size=NARROW, scheme="dark")


def _fill(server: Served) -> None:
    for path in sorted(CORPUS.rglob("*.*")):
        name = path.relative_to(CORPUS)
        server.index(
            path.read_text(encoding="utf-8"),
            source=name.as_posix(),
            sessionId="harbour",
            contentType=TYPES[name.parts[0]],
        )
    server.index(TALK, source="claude-code/7", sessionId=SESSION, contentType="chat", metadata={"agent": "claude-code"})
    for agent, query in QUERIES:
        server.search(query, agent=agent)


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
