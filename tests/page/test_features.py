"""What a person can do on the page, done in a real browser."""

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.end_to_end.process import served, wait_until
from tests.outcomes.hooks import DECISION, Agent, decide

from .browser import NARROW, Tab, tab
from .conftest import Memory

CHAT = (
    "[user] Which port does the **ferry gateway** use?\n\n[assistant] Port 8443:\n\n"
    "```python\nPORT = 8443  # since the migration\n```\n\n[user] Keep it."
)


def test_it_opens_on_what_the_memory_did(wide: Tab, memory: Memory) -> None:
    """W-4: questions, those without an answer, and what was stored by whom in which session."""
    memory.server.search("zzyzx frobnicate", agent="gemini")
    wait_until(lambda: "zzyzx" in memory.server.tool("stats", {"include": "recent"}).text)
    page = wide.open("")
    expect(page.get_by_role("heading", level=1)).to_have_text("What the memory did")
    figures = page.locator(".figures > div")
    expect(figures.filter(has_text="Without an answer").locator("dd")).to_contain_text("1")
    questions = page.locator("section").filter(has=page.get_by_role("heading", name="Questions")).locator(".rows")
    expect(questions).to_contain_text("how often is a payment retried")
    page.get_by_role("button", name="No answer (1)").click()
    expect(questions.get_by_role("listitem")).to_have_count(1)
    expect(questions).to_contain_text("gemini")
    sessions = page.locator("section").filter(has=page.get_by_role("heading", name="Latest sessions"))
    expect(sessions).to_contain_text("reviewer")
    page.get_by_role("button", name="24 hours").click()
    expect(page).to_have_url(re.compile("range=24h"))
    questions.get_by_role("link", name="how often is a payment retried").click()
    expect(page.get_by_role("searchbox", name="Question")).to_have_value("how often is a payment retried")


def test_what_happens_is_shown_without_reloading(wide: Tab, memory: Memory) -> None:
    page = wide.open("")
    expect(page.locator("#live-text")).to_contain_text("Live")
    memory.index("The lift in the north tower is painted green.", source="towers/north.md", sessionId="towers")
    memory.server.search("what colour is the lift", agent="painter")
    expect(page.locator("main")).to_contain_text("towers")
    expect(page.locator("main")).to_contain_text("what colour is the lift")


def test_an_empty_memory_is_filled_by_two_commands(browser: Browser, tmp_path: Path) -> None:
    """W-4: from nothing to a connected agent and past sessions; then something is written by hand."""
    with served(tmp_path / "data") as server, tab(browser, server.url, size=NARROW) as opened:
        server.wait_ready()
        opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = opened.open("")
        for command in ("rag-context install --all", "rag-context import-history"):
            page.get_by_role("button", name=f"Copy {command}").click()
            assert page.evaluate("navigator.clipboard.readText()") == command
        assert not opened.overflows()
        page.get_by_role("button", name="Write something down").click()
        page.get_by_label("What is to be remembered").fill("We **keep** the tide table for a year.")
        page.get_by_role("textbox", name="Tags").fill("tides, harbour")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.locator(".reader strong")).to_have_text("keep")
        expect(page.get_by_role("link", name="#tides")).to_be_visible()


def test_operations_say_how_the_memory_is(wide: Tab) -> None:
    """O-4, M-1: components, counts, levels, agents and latency, over a chosen time."""
    page = wide.open("operations")
    expect(page.locator("#live-text")).to_have_text("Live, healthy")
    components = page.get_by_role("table", name="Components")
    for name in ("vectors", "embedder", "documents"):
        expect(
            components.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        ).to_contain_text("healthy")
    expect(page.locator(".figures > div").filter(has_text="Documents")).to_contain_text(re.compile(r"\d"))
    expect(page.get_by_role("img", name="Searches over time")).to_be_visible()
    expect(page.get_by_role("img", name="Latency over time")).to_be_visible()
    expect(page.get_by_text("Level 1 vector and keyword search")).to_be_visible()
    expect(page.locator(".shares").filter(has_text="reviewer")).to_be_visible()
    page.get_by_text("The figures of both charts as a table").click()
    expect(page.get_by_role("table", name="Searches and latency over time")).to_contain_text("ms")
    month = page.get_by_role("button", name="30 days")
    with page.expect_request("**/events?timeRange=30d"):
        month.click()
    expect(month).to_have_attribute("aria-pressed", "true")
    expect(month).to_be_focused()


def test_a_search_marks_words_and_explains_each_result(wide: Tab) -> None:
    """W-1, W-4: both scores, the rank in each retriever, and how the answer was obtained."""
    page = wide.open("search")
    page.get_by_role("searchbox", name="Question").fill("how often is a failed payment retried")
    page.get_by_role("button", name="Search", exact=True).click()
    first = page.get_by_role("article", name="Result 1", exact=True)
    expect(first).to_contain_text("We retry a failed payment three times")
    expect(first.locator("mark").first).to_have_text("failed")
    label = page.get_by_label("How this answer was obtained")
    expect(label).to_contain_text("Level 1")
    first.get_by_text("Why this result").click()
    rows = first.get_by_role("table", name="Explanation")
    expect(rows.get_by_role("row").filter(has_text="Vector search")).to_contain_text("rank 1")
    expect(rows.get_by_role("row").filter(has_text="Keyword search")).to_contain_text("BM25")
    expect(rows.get_by_role("row").filter(has_text="After fusion")).to_contain_text("1.0000")
    label.locator("summary").click()
    expect(page.get_by_role("table", name="Retrievers")).to_contain_text("ok")
    page.get_by_text("Options").click()
    page.get_by_label("Search by").select_option("text")
    page.get_by_label("Results at most").select_option("5")
    with page.expect_request("**/tools/rag_context_search") as sent:
        page.get_by_role("button", name="Search", exact=True).click()
    body = sent.value.post_data_json or {}
    assert (body["mode"], body["limit"], body["agent"]) == ("text", 5, "page")


def test_facets_count_and_narrow(wide: Tab, memory: Memory) -> None:
    """W-4: an address carries the question and the filters."""
    memory.index("A retry of the pump.", source="pumps/retry", sessionId="facets", metadata={"tags": ["facet"]})
    page = wide.open("search?query=retry")
    filters = page.get_by_role("complementary", name="Filters")
    tag = filters.get_by_role("link", name=re.compile(r"^facet \d|^facet\d"))
    expect(tag).to_contain_text("1")
    tag.click()
    expect(page).to_have_url(re.compile("tags=facet"))
    expect(page.get_by_role("article")).to_have_count(1)
    expect(tag).to_have_attribute("aria-current", "true")
    page.reload()
    expect(page.get_by_role("article")).to_have_count(1)
    filters.get_by_role("link", name=re.compile(r"^Today")).click()
    expect(page).to_have_url(re.compile("since=20"))
    filters.get_by_role("link", name="Clear all filters").click()
    expect(page.get_by_role("article").nth(1)).to_be_visible()
    with page.expect_request("**/tools/rag_context_search") as sent:
        filters.get_by_role("link", name=re.compile("^(or )?agents")).click()
    assert (sent.value.post_data_json or {})["minTrust"] == "agent"
    expect(page.get_by_role("article").first).to_contain_text(re.compile("words of (you|agents)"))
    with page.expect_request("**/tools/rag_context_search") as sent:
        filters.get_by_role("link", name=re.compile("^reviewer")).click()
    assert (sent.value.post_data_json or {})["agents"] == ["reviewer"]
    filters.get_by_role("link", name=re.compile("^(or )?agents")).click()
    expect(page).not_to_have_url(re.compile("minTrust"))


def test_standing_instructions_stand_below_the_results(wide: Tab, memory: Memory) -> None:
    """H-4."""
    order = "[user] Always name the months when you write about payments."
    memory.index(order, source="months", contentType="chat", sessionId="orders")
    page = wide.open("search?query=write+about+payments")
    listed = page.get_by_role("region", name="Standing instructions")
    expect(listed).to_contain_text(order)
    listed.get_by_role("link", name="months").click()
    expect(page.get_by_role("heading", level=1, name="Always name the months")).to_be_visible()


def test_an_empty_or_rejected_search_says_why(wide: Tab) -> None:
    page = wide.open("search?query=payment&sessionId=nobody")
    expect(page.locator(".empty")).to_contain_text("narrowed by filters")
    page = wide.open("search?query=payment&project=nowhere")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_a_session_is_read_as_a_chat(wide: Tab, memory: Memory) -> None:
    """W-4: from the time line and from a result, whose passage is marked."""
    memory.index(CHAT, source="ferry", contentType="chat", sessionId="ferry-talk", metadata={"agent": "codex"})
    page = wide.open("sessions")
    expect(page.locator(".line > li").filter(has_text="codex").first).to_contain_text("Conversations")
    page = wide.open("search?query=ferry+gateway+port&sessionId=ferry-talk")
    page.get_by_role("link", name="Read in its session").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Which port does the")
    expect(page.get_by_text("Session ferry-talk")).to_be_visible()
    bubbles = page.locator(".bubble")
    expect(bubbles).to_have_count(3)
    expect(bubbles.first).to_contain_text("You")
    expect(bubbles.first.locator("strong")).to_contain_text("ferry gateway")
    expect(bubbles.first).to_contain_text("Found by your search")
    expect(bubbles.nth(1)).to_contain_text("codex")
    expect(bubbles.nth(1).locator(".t-comment")).to_have_text("# since the migration")
    metadata = {"agent": "codex", "continues": "ferry-talk", "repeated": 3}
    memory.index("[user] And now?", source="fork", contentType="chat", sessionId="ferry-fork", metadata=metadata)
    page = wide.open("sessions/ferry-fork")
    expect(page.locator(".thread")).to_contain_text("The 3 messages before are in session ferry-talk")
    page.get_by_role("link", name="session ferry-talk").click()
    expect(page.get_by_text("Session ferry-talk")).to_be_visible()
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    page.get_by_role("button", name="Undo").click()
    wait_until(lambda: len(memory.server.tool("list", {"sessionId": "ferry-talk"}).json()["documents"]) == 1)


def test_the_page_of_the_api_describes_and_tries_each_operation(browser: Browser, memory: Memory) -> None:
    with tab(browser, memory.server.url, size=NARROW) as opened:
        page = opened.page
        page.goto(f"{memory.server.url}/docs")
        expect(page.get_by_role("heading", level=1)).to_contain_text("rag-context")
        assert not opened.overflows()
        described = page.locator("#rag_context_search")
        described.locator("summary").click()
        expect(described.get_by_role("row").filter(has_text="minTrust").first).to_contain_text("owner")
        assert not opened.overflows()
        described.get_by_label("Body").fill('{"query": "how often is a failed payment retried"}')
        described.get_by_role("button", name="Send").click()
        expect(described.locator("output strong")).to_have_text("200")
        expect(described.locator("output pre")).to_contain_text("We retry a failed payment three times")


def test_documents_are_listed_and_read(wide: Tab, memory: Memory) -> None:
    memory.bulk({"content": f"Entry {n}.", "source": f"log/{n:02}.md", "sessionId": "log"} for n in range(35))
    page = wide.open("documents?sessionId=log")
    rows = page.locator(".cards > li")
    expect(rows).to_have_count(30)
    expect(page.get_by_text("30 of 35 documents")).to_be_visible()
    page.get_by_role("button", name="Older documents").click()
    expect(rows).to_have_count(35)
    wide.open("documents?sessionId=payments")
    page.get_by_role("link", name="We retry a failed payment").click()
    expect(page.get_by_role("region", name="Content")).to_have_text(
        "We retry a failed payment three times, then tell the customer."
    )
    expect(page.locator("main")).to_contain_text("reviewer")
    page.get_by_role("button", name="Source").click()
    expect(page.locator(".reader pre")).to_be_visible()
    page.get_by_role("button", name="Find similar documents").click()
    expect(page.get_by_text("Compared by vectors.")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile("sessionId=payments"))


def test_a_document_says_when_it_was_written_and_when_indexed(wide: Tab, memory: Memory) -> None:
    id_ = memory.index("The old pier.", source="pier", sessionId="pier", occurredAt="2001-02-03T12:00:00Z")
    row = wide.open("documents?sessionId=pier").locator(".cards > li")
    expect(row).to_contain_text("yr. ago")
    expect(row).to_contain_text(re.compile("now|sec"))
    about = wide.open(f"documents/{id_}").get_by_role("complementary", name="About this document")
    expect(about).to_contain_text("2001")


def test_a_document_is_corrected_tagged_pinned_and_forgotten(wide: Tab, memory: Memory) -> None:
    """W-4: and each of it can be undone."""
    id_ = memory.index("The crane lifts four tons.", source="crane.md", sessionId="cranes", contentType="decision")
    page = wide.open(f"documents/{id_}")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_role("textbox", name="Tags").fill("cranes, safety")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="#safety")).to_be_visible()
    page.get_by_role("button", name="Correct").click()
    page.get_by_label("What is right").fill("The crane lifts five tons.")
    page.get_by_role("textbox", name="Why").fill("measured again")
    page.get_by_role("button", name="Save the correction").click()
    expect(page.get_by_role("region", name="Content")).to_contain_text("five tons")
    expect(page.locator("main")).to_contain_text("Earlier version")
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("combobox", name="What")).to_contain_text("This document")
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Documents")
    page.get_by_role("link", name="Changes").click()
    newest = page.locator(".cards > li").first
    expect(newest).to_contain_text("forgot")
    newest.get_by_role("button", name="Undo").click()
    expect(newest).to_contain_text("restored")
    found = memory.server.tool("list", {"sessionId": "cranes"}).json()["documents"]
    assert [each["metadata"]["tags"] for each in found] == [["cranes", "safety"]]


def test_what_needs_a_decision_is_decided(wide: Tab, memory: Memory) -> None:
    """W-4: the same words twice, of which one is kept."""
    text = "The slipway is closed from November to March, because the rails are taken out and painted."
    for number in (1, 2):
        memory.index(text, source=f"slipway-{number}.md", contentType="decision", sessionId="slipway")
    page = wide.open("review")
    card = page.locator("article").filter(has_text="slipway-1.md").filter(has_text="slipway-2.md")
    card.get_by_role("button", name="Keep the later one").click()
    expect(card).to_have_count(0)
    wait_until(lambda: len(memory.server.tool("list", {"sessionId": "slipway"}).json()["documents"]) == 1)


def test_a_document_that_is_gone_says_what_to_do(wide: Tab) -> None:
    page = wide.open("documents/7c9e6679-7425-50de-944b-e07fc1f90ae7")
    expect(page.get_by_role("alert")).to_contain_text("Go back to the list")


def test_a_project_is_read_promoted_and_forgotten(wide: Tab, memory: Memory) -> None:
    page = wide.open("projects")
    expect(page.get_by_text("followed", exact=True)).to_be_visible()
    page.get_by_role("button", name="Document types of app").click()
    expect(page.get_by_role("table", name="Document types")).to_contain_text("problem")
    page.get_by_role("link", name="Documents of app").click()
    page.get_by_role("link", name="Pool exhaustion").click()
    page.get_by_label("Level").select_option("critical")
    page.get_by_role("button", name="Set the level").click()
    expect(page.get_by_text("It was standard and is critical now")).to_be_visible()
    assert "promotion_level: critical" in (memory.project / "docs" / "problems" / "pool.md").read_text()
    page.get_by_role("link", name="Projects").click()
    page.get_by_role("button", name="Forget app").click()
    expect(page.get_by_role("dialog")).to_contain_text("The files stay as they are")
    page.get_by_role("button", name="Forget 2 documents").click()
    expect(page.get_by_text("No project is stored")).to_be_visible()
    assert (memory.project / "docs" / "problems" / "pool.md").exists()


def test_a_collection_is_created_filled_read_and_queried(wide: Tab) -> None:
    page = wide.open("collections")
    page.get_by_role("button", name="New collection").click()
    page.get_by_label("Name").fill("recipes")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Add texts").click()
    page.get_by_role("textbox", name="Texts").fill("Bread is baked for an hour.\n\nSoup is cooked for two.")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="2 documents")).to_be_visible()
    page = wide.open("collections")
    expect(page.get_by_text(re.compile("Stores: .*embedded"))).to_be_visible()
    page.get_by_role("link", name="handbook").click()
    expect(page.get_by_text("1 to 50 of 60, by id")).to_be_visible()
    page.get_by_role("button", name="Later").click()
    expect(page.get_by_text("day-60", exact=True)).to_be_visible()
    page.get_by_label("Only where").fill('{"days": 7}')
    page.get_by_role("button", name="List documents").click()
    expect(page.get_by_role("heading", name="1 document that matches")).to_be_visible()
    page.get_by_label("Only where").fill("{")
    page.get_by_role("button", name="List documents").click()
    expect(page.get_by_role("alert")).to_contain_text("must be valid JSON")
    page.get_by_label("Only where").fill("")
    page.get_by_label("Query").fill("kind 42")
    page.locator("main").get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("table").locator("tbody tr").first).to_contain_text("day-42")


def test_what_agents_were_shown_is_listed_with_its_session_reason_and_tokens(
    wide: Tab, memory: Memory, tmp_path: Path
) -> None:
    """A-7: and it is read again by itself."""
    (tmp_path / "proj").mkdir()
    document = decide(memory.server, tmp_path / "proj")
    page = wide.open("shown?withheld=1")
    expect(page.get_by_text("Agents were shown nothing")).to_be_visible()
    agent = Agent(memory.project.parent / "data", tmp_path / "proj", session="yesterday")
    assert DECISION in agent.prompt()
    assert agent.prompt() == ""  # it was said before, and is withheld
    section = page.get_by_role("region", name="Session yesterday")
    expect(section.get_by_text("already said")).to_be_visible()
    shown = section.locator("li:not(.withheld)").first
    for text in ("with a prompt", "relevance", "tokens", "We decided to retry"):
        expect(shown).to_contain_text(text)
    expect(section).to_contain_text("claude-code")
    page.get_by_label("Also what was withheld").uncheck()
    expect(page.get_by_text("already said")).to_have_count(0)
    section.get_by_role("link", name="yesterday").click()
    expect(page.get_by_role("link", name="All sessions")).to_be_visible()
    section.get_by_role("link", name="We decided to retry").first.click()
    expect(page).to_have_url(re.compile(document))


def test_the_theme_is_chosen_and_kept(wide: Tab) -> None:
    page = wide.open("collections")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(background) == dark
    page.get_by_role("button", name="System").click()
    assert page.evaluate(background) == light
