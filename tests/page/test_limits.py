"""What the page must withstand: hostile text, keys, small and wide screens, no mouse, no good eyes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from rag_context.api.operations import Access
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from tests.end_to_end.process import TIMEOUT_S, Served, served, wait_until
from tests.server.server_thread import running
from tests.server.stub_service import StubService

from .browser import NARROW, WIDE, Tab, tab
from .conftest import Memory

HOSTILE = (
    "<script>alert('script')</script>",
    "<img src=x onerror=alert('image')>",
    '"><svg onload=alert(1)>',
    "<iframe src=http://example.com></iframe>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "</pre></main><h1>Owned</h1><style>*{display:none}</style>",
    "\u202egnp.exe\u2066 left to right",
    "nul \x01 and \x7f escape \x1b[31mred",
)
DRAWN = ["color-contrast", "target-size"]
"""The rules of axe-core that depend on colours and sizes."""

VIEWS = (
    "",
    "sessions",
    "sessions/payments",
    "search?query=pump",
    "documents",
    "shown?withheld=1",
    "review",
    "changes",
    "projects",
    "collections",
    "collections/handbook",
    "operations",
)


def plain(text: str) -> str:
    """Without the control characters that a name may not have."""
    return "".join(sign for sign in text if sign.isprintable() or sign in "\u202e\u2066")


def settled(page: Page) -> None:
    """Wait until the view has all its replies."""
    expect(page.locator("#live-text")).to_contain_text("Live")
    expect(page.locator("[aria-busy]")).to_have_count(0)


def test_hostile_text_is_shown_as_text(wide: Tab, memory: Memory) -> None:
    """W-1: in contents, titles, sources, sessions and metadata, in every view. What ran would open a dialog."""
    everything = "\n".join(HOSTILE)
    memory.server.search(HOSTILE[0], agent=HOSTILE[1])
    ids = {}
    for number, text in reversed(list(enumerate(HOSTILE))):
        source = f"hostile/{number} {plain(text)}"
        metadata = {"tags": [plain(text)[:60]], "agent": HOSTILE[0], "title": text, "further": {text[:20]: everything}}
        session = f"{HOSTILE[1]} {number}"
        ids[number] = memory.index(everything, source=source, sessionId=session, metadata=metadata)
    document = {"id": "<b>id</b>", "text": everything, "metadata": {"<i>key": HOSTILE[0]}}
    with httpx2.Client(base_url=memory.server.url) as client:
        body = {"name": HOSTILE[1], "embedding_provider": "rag-context", "metadata": {"note": everything}}
        assert client.post("/collections", json=body).status_code == 201
        added = client.post("/tools/collection_add", json={"name": HOSTILE[1], "documents": [document]})
        assert added.status_code == 200, added.text
    wait_until(lambda: "onerror" in memory.server.tool("stats", {"include": "recent"}).text)
    page = wide.open("")
    for text in HOSTILE[:2]:
        expect(page.locator(".rows").first).to_contain_text(text)
    page = wide.open("operations")
    expect(page.locator(".shares").filter(has_text=HOSTILE[1])).to_be_visible()
    page = wide.open("search?query=alert")
    expect(page.get_by_role("article", name="Result 1", exact=True)).to_contain_text(HOSTILE[0])
    page.get_by_text("Why this result").first.click()
    wide.open("documents")
    expect(page.locator(".cards")).to_contain_text("hostile/2")
    wide.open(f"sessions/{quote(HOSTILE[1] + ' 1', safe='')}")
    expect(page.locator(".note-card")).to_contain_text(HOSTILE[6])
    wide.open(f"documents/{ids[1]}")
    expect(page.get_by_role("region", name="Content")).to_contain_text(HOSTILE[6])
    page.get_by_role("button", name="Source").click()
    expect(page.get_by_role("region", name="Content")).to_contain_text(HOSTILE[0])
    page.get_by_role("button", name="Find similar documents").click()
    expect(page.get_by_text("Compared by vectors.")).to_be_visible()
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog")).to_contain_text("All of its source")
    page.get_by_role("button", name="Cancel").click()
    wide.open("collections")
    page.get_by_role("link", name=HOSTILE[1]).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[1])
    expect(page.get_by_role("table")).to_contain_text(HOSTILE[4])
    dangerous = "script, iframe, img, style, h1:nth-of-type(2), [onload], [onerror], a[href^=javascript]"
    assert page.locator("main").locator(dangerous).count() == 0


def test_signs_that_hide_or_turn_text_are_visible(wide: Tab, memory: Memory) -> None:
    id_ = memory.index("Harmless.", source="invoice\u202egpj.exe")
    page = wide.open(f"documents/{id_}")
    assert "\u202e" not in page.locator("main").inner_text()
    expect(page.locator("main")).to_contain_text("invoice\u2423202egpj.exe")
    id_ = memory.index("Pay\U000e0041 now\u200b.\n\nA joiner stays: \U0001f469\u200d\U0001f4bb.", source="invisible")
    content = wide.open(f"documents/{id_}").get_by_role("region", name="Content")
    expect(content).to_contain_text("Pay\u2423e0041 now\u2423200b.")
    expect(content).to_contain_text("\U0001f469\u200d\U0001f4bb")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a](javascript:alert(1))", "a"),
        ("![x](http://127.0.0.1:1/x.png)", "[picture: x]"),
        (
            "<a href='javascript:alert(1)' onclick=alert(1)>b</a>",
            "<a href='javascript:alert(1)' onclick=alert(1)>b</a>",
        ),
        ("[c](data:text/html,<script>alert(1)</script>)", "c"),
    ],
)
def test_markdown_makes_no_dangerous_link_and_loads_no_picture(
    wide: Tab, memory: Memory, text: str, shown: str
) -> None:
    id_ = memory.index(text, source=f"md/{shown}")
    content = wide.open(f"documents/{id_}").get_by_role("region", name="Content")
    expect(content).to_have_text(shown)
    assert content.locator("a, img").count() == 0


def test_a_title_without_a_space_is_wrapped(browser: Browser, memory: Memory) -> None:
    id_ = memory.index("Long.", source="long", sessionId="long", metadata={"title": "A" * 200})
    with tab(browser, memory.server.url, size=NARROW) as opened:
        opened.open("documents?sessionId=long")
        assert not opened.overflows()
        opened.open(f"documents/{id_}")
        assert not opened.overflows()


def test_an_address_that_is_no_view_harms_nothing(wide: Tab) -> None:
    for view in ("nowhere", "__proto__", "constructor", "documents/%E0%A4%A", "search?query=%", "documents?limit=<b>"):
        page = wide.open(view)
        expect(page.locator("h1")).to_be_visible()


def test_the_page_only_reads_by_get(wide: Tab) -> None:
    for view in VIEWS:
        settled(wide.open(view))
    gets = {path for method, path in wide.requests if method == "GET" and not path.startswith("/page/")}
    assert gets == {"/", "/events", "/providers"}


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_page_requests_a_key_and_keeps_it_in_memory_or_for_the_session(browser: Browser, is_kept: bool) -> None:
    """X-1, W-1, W-4."""
    keys = tuple(
        HashedKey.parse(name, hash_key(f"{name}-key"), access)
        for name, access in (("reader", Access.READ), ("writer", Access.WRITE))
    )
    with running(StubService(), ServerOptions(port=0, api_keys=keys)) as server, tab(browser, server.url) as opened:
        page = opened.page
        page.goto(f"{server.url}/#/documents/d1")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("This server asks for a key")).to_be_focused()
        page.keyboard.type("wrong-key")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("This key is not valid.")
        page.keyboard.type("reader-key")
        if is_kept:
            dialog.get_by_label("Remember it").check()
        dialog.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Patterns")
        expect(page.locator("#live-text")).to_contain_text("Live")
        page.get_by_role("button", name="Tag", exact=True).click()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("This API key may only read")
        page.keyboard.press("Escape")
        stored = page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        )
        assert ("reader-key" in stored) == is_kept
        assert "reader-key" not in page.evaluate("JSON.stringify([{...localStorage}, document.cookie, location.href])")
        assert "reader-key" not in json.dumps(opened.requests)
        page.get_by_role("button", name="Forget the API key").click()
        expect(dialog).to_be_visible()


def test_a_key_with_bounds_sees_its_part(browser: Browser, tmp_path: Path) -> None:
    """W-4, X-6: what is about the whole memory is left out, and nothing that is left ends in an error."""
    scopes = {"agent": {"agents": ["ci"]}, "part": {"projects": ["app"], "collections": ["handbook"]}, "owner": None}
    keys = [
        {"name": name, "hash": hash_key(f"{name}-key"), "access": "admin", "scope": scope}
        for name, scope in scopes.items()
    ]
    for name, text in {
        ".rag-context/config.json": '{"project_name": "app"}',
        ".git/HEAD": "ref: refs/heads/main",
        "docs/pools.md": "# Pools",
    }.items():
        (tmp_path / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "app" / name).write_text(text)
    with served(tmp_path / "data", RAG_CONTEXT_SERVER__API_KEYS=json.dumps(keys)) as server:
        _store(server, "owner-key", "/tools/activate_project", {"config_path": str(tmp_path / "app")})
        for name in ("handbook", "payroll"):
            _store(server, "owner-key", "/collections", {"name": name, "embedding_provider": "rag-context"})
        for name in ("owner", "agent"):
            body = {"content": f"Words of {name}.", "contentType": "chat", "sessionId": f"{name}-1", "source": name}
            _store(server, f"{name}-key", "/tools/rag_context_index", body)
        for name, figures, absent in (
            ("part", {"Projects": "1app", "Collections": "1handbook"}, "payroll"),
            ("agent", {"Documents": "1said or written, in 1 session", "Collections": "0"}, "owner"),
        ):
            with tab(browser, server.url) as opened:
                opened.page.goto(f"{server.url}/#/home")
                opened.page.get_by_label("This server asks for a key").fill(f"{name}-key")
                opened.page.keyboard.press("Enter")
                expect(opened.page.get_by_role("heading", level=1)).to_have_text("What this key may see")
                for title, text in figures.items():
                    figure = opened.page.locator(".figures > div").filter(has_text=title)
                    expect(figure.locator("dd")).to_have_text(text)
                expect(opened.page.locator("main")).not_to_contain_text(absent)
                expect(opened.page.locator("#live-text")).to_have_text("Reload for what is new")
                links = opened.page.locator("#nav a")
                expect(links).to_have_text(["Home", "Sessions", "Documents", "Collections", "Projects"])
                for number in range(links.count()):
                    links.nth(number).click()
                    expect(opened.page.locator("[aria-busy]")).to_have_count(0)
                    expect(opened.page.get_by_role("alert")).to_have_count(0)
                    assert violations(opened.page) == ""
                if name == "agent":
                    opened.page.goto(f"{server.url}/#/sessions/agent-1")
                    expect(opened.page.locator(".thread")).to_contain_text("Words of agent.")


def _store(server: Served, key: str, path: str, body: Mapping[str, object]) -> None:
    reply = httpx2.post(server.url + path, json=body, headers={"x-api-key": key}, timeout=TIMEOUT_S)
    assert reply.status_code < 300, reply.text


def test_a_server_that_goes_and_comes_is_noticed(browser: Browser) -> None:
    """A stream of events does not keep a server from stopping either."""
    options = ServerOptions(port=0)
    with running(StubService(), options) as server, tab(browser, server.url) as opened:
        page = opened.open("operations")
        expect(page.locator("#live-text")).to_contain_text("Live")
        with page.expect_event("requestfailed", timeout=30_000):
            page.context.set_offline(True)
            page.get_by_role("button", name="7 days").click()
        expect(page.locator("#live-text")).to_have_text("No connection, trying again")
        page.get_by_role("link", name="Collections").click()
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
        page.context.set_offline(False)
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("heading", name="Collections")).to_be_visible()
        expect(page.locator("#live-text")).to_contain_text("Live", timeout=30_000)


@pytest.mark.parametrize(("size", "scheme", "rules"), [(WIDE, "light", None), (NARROW, "dark", DRAWN)])
def test_axe_finds_no_violation(
    browser: Browser, memory: Memory, size: tuple[int, int], scheme: Literal["light", "dark"], rules: list[str] | None
) -> None:
    """W-1: WCAG AA as far as a program can tell; each view with all that can be opened in it, and dialogs.

    The second run looks for what differs by theme and width alone.
    """
    id_ = memory.index("A passage to read.", source=f"axe/{scheme}.md")
    with tab(browser, memory.server.url, size=size, scheme=scheme) as opened:
        for view in (*VIEWS, f"documents/{id_}", "search?query=x&project=nowhere"):
            page = opened.open(view)
            settled(page)
            page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            assert violations(page, rules=rules) == "", view
            assert not opened.overflows(), view
        page = opened.open(f"documents/{id_}")
        for name in ("Correct", "Forget"):
            page.get_by_role("button", name=name).click()
            expect(page.get_by_role("dialog")).to_be_visible()
            assert violations(page, rules=rules) == ""
            page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox")).to_be_focused()
        assert violations(page, rules=rules) == ""


def violations(page: Page, *, rules: list[str] | None = None) -> str:
    """What axe-core has to say."""
    run = (
        {"type": "rule", "values": rules}
        if rules
        else {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    )
    found = Axe().run(page, options={"runOnly": run})
    return "" if found.violations_count == 0 else str(found.generate_report())


def test_everything_can_be_done_by_keyboard(wide: Tab, memory: Memory) -> None:
    """W-4: from any view to the question, the result, its correction and its session; with a visible focus."""
    id_ = memory.index("A sentence about walruses.", source="walrus.md", sessionId="walrus")
    page = wide.open("")
    settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("collec")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Collections")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("walruses")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Search")).to_be_focused()
    title = page.get_by_role("article", name="Result 1", exact=True).get_by_role(
        "link", name="A sentence about walruses."
    )
    expect(title).to_be_visible()
    press_until(page, "Tab", title.evaluate_handle("each => each"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="A sentence about walruses.")).to_be_focused()
    forget = page.get_by_role("button", name="Forget")
    press_until(page, "Tab", forget.evaluate_handle("each => each"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(forget).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Documents")).to_be_visible()
    assert memory.server.tool("get", {"documentId": id_}).status_code == 404


def press_until(page: Page, key: str, element: object) -> None:
    """Press a key until the element has the focus; what cannot be reached fails."""
    for _ in range(90):
        if page.evaluate("each => document.activeElement === each", element):
            return
        page.keyboard.press(key)
    pytest.fail("not reached by keyboard")
