"""What a person can do on the page, done in a real browser."""

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.end_to_end.process import wait_until
from tests.outcomes.hooks import DECISION, Agent, decide

from .browser import Tab
from .conftest import Memory


def test_the_overview_says_how_the_memory_is(wide: Tab) -> None:
    """O-4, M-1: components, counts, levels, agents and latency."""
    page = wide.open("")
    expect(page.locator("#live-text")).to_have_text("Live, healthy")
    components = page.get_by_role("table", name="Components")
    for name in ("vectors", "embedder", "documents"):
        expect(
            components.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        ).to_contain_text("healthy")
    figures = page.locator(".figures > div")
    expect(figures.filter(has_text="Documents")).to_contain_text("6")
    expect(page.get_by_role("img", name="Searches over time")).to_be_visible()
    expect(page.get_by_role("img", name="Latency over time")).to_be_visible()
    expect(page.get_by_text("Level 1 vector and keyword search")).to_be_visible()
    expect(page.locator(".shares").filter(has_text="reviewer")).to_be_visible()
    page.get_by_text("The figures of both charts as a table").click()
    expect(page.get_by_role("table", name="Searches and latency over time")).to_contain_text("ms")


def test_what_happens_is_shown_without_reloading(wide: Tab, memory: Memory) -> None:
    page = wide.open("")
    latest = page.locator(".rows")
    expect(latest).to_contain_text("We retry a failed payment")
    memory.index("The lift in the north tower is painted green.", source="towers/north.md")
    memory.server.search("what colour is the lift", agent="painter")
    expect(latest).to_contain_text("The lift in the north tower")
    expect(page.locator(".shares").filter(has_text="painter")).to_be_visible()


def test_the_time_range_is_chosen(wide: Tab) -> None:
    page = wide.open("")
    month = page.get_by_role("button", name="30 days")
    with page.expect_request("**/events?timeRange=30d"):
        month.click()
    expect(month).to_have_attribute("aria-pressed", "true")
    expect(month).to_be_focused()


def test_a_search_explains_each_result(wide: Tab) -> None:
    """W-1: both scores, the rank in each retriever, and how the answer was obtained."""
    page = wide.open("search")
    page.get_by_label("Query").fill("how often is a failed payment retried")
    page.get_by_role("button", name="Search", exact=True).click()
    first = page.get_by_role("article", name="Result 1")
    expect(first).to_contain_text("We retry a failed payment three times")
    expect(first).to_contain_text("relevance")
    expect(page.get_by_label("How this answer was obtained")).to_contain_text("Level 1")
    first.get_by_text("Why this result").click()
    rows = first.get_by_role("table", name="Explanation")
    expect(rows.get_by_role("row").filter(has_text="Vector search")).to_contain_text("rank 1")
    expect(rows.get_by_role("row").filter(has_text="Keyword search")).to_contain_text("BM25")
    expect(rows.get_by_role("row").filter(has_text="After fusion")).to_contain_text("1.0000")
    page.get_by_text("What each retriever did").click()
    expect(page.get_by_role("table", name="Retrievers")).to_contain_text("ok")


def test_standing_instructions_stand_below_the_results(wide: Tab, memory: Memory) -> None:
    """H-4."""
    order = "[user] Always name the months when you write about payments."
    memory.index(order, source="months", contentType="chat", sessionId="orders")
    page = wide.open("search")
    page.get_by_label("Query").fill("write about payments")
    page.get_by_role("button", name="Search", exact=True).click()
    listed = page.get_by_role("region", name="Standing instructions")
    expect(listed).to_contain_text(order)
    listed.get_by_role("link", name="months").click()
    expect(page.get_by_role("heading", name=order)).to_be_visible()


def test_every_option_of_a_search_is_offered_and_sent(wide: Tab, memory: Memory) -> None:
    """The form is made of the tool's own schema."""
    page = wide.open("search")
    page.get_by_text("All filters and options").click()
    tools = page.request.get(f"{memory.server.url}/tools").json()["tools"]
    declared = next(tool["inputSchema"] for tool in tools if tool["name"] == "rag_context_search")
    for name in declared["properties"]:
        expect(page.locator(f"form [name={name}]")).to_be_visible()
    page.get_by_label("Query").fill("payment")
    page.get_by_label("Mode").select_option("text")
    page.get_by_label("Results").fill("2")
    page.get_by_label("Tags").fill("kept")
    page.get_by_label("Since").fill("2020-01-01T00:00")
    with page.expect_request("**/tools/rag_context_search") as sent:
        page.keyboard.press("Enter")
    body = sent.value.post_data_json or {}
    assert body | {"since": ""} == {
        "query": "payment", "mode": "text", "limit": 2, "tags": ["kept"], "since": "", "explain": True
    }  # fmt: skip
    assert body["since"].startswith("20")
    expect(page.get_by_label("Tags")).to_have_value("kept")


def test_an_empty_answer_says_what_to_do(wide: Tab) -> None:
    page = wide.open("search?query=payment&sessionId=nobody")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    expect(page.locator(".empty")).to_contain_text("narrowed by session")


def test_a_rejected_search_says_why(wide: Tab) -> None:
    page = wide.open("search?query=payment&project=nowhere")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_documents_are_filtered_and_read(wide: Tab) -> None:
    page = wide.open("documents")
    expect(page.get_by_role("link", name="The pump of hall seven")).to_be_visible()
    page.get_by_text("Filters").click()
    page.get_by_label("Session").fill("payments")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="The pump of hall seven")).to_have_count(0)
    page.get_by_role("link", name="We retry a failed payment").click()
    expect(page.get_by_role("region", name="Content")).to_have_text(
        "We retry a failed payment three times, then tell the customer."
    )
    expect(page.get_by_label("About this document")).to_contain_text("reviewer")
    page.get_by_role("button", name="Find similar documents").click()
    expect(page.get_by_text("Compared by vectors.")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Session")).to_have_value("payments")


def test_a_document_says_when_it_was_written_and_when_indexed(wide: Tab, memory: Memory) -> None:
    id_ = memory.index("The old pier.", source="pier", sessionId="pier", occurredAt="2001-02-03T12:00:00Z")
    row = wide.open("documents?sessionId=pier").get_by_role("row").nth(1)
    expect(row).to_contain_text("yr. ago")
    expect(row).to_contain_text(re.compile("now|sec"))
    about = wide.open(f"documents/{id_}").get_by_label("About this document")
    expect(about).to_contain_text("2001")


def test_documents_come_page_by_page(wide: Tab, memory: Memory) -> None:
    memory.bulk(
        {"content": f"Entry {n} of the log.", "source": f"log/{n:02}.md", "sessionId": "log"} for n in range(55)
    )
    page = wide.open("documents?sessionId=log")
    rows = page.get_by_role("table").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(5)
    expect(page.get_by_text("51 to 55, newest first")).to_be_visible()
    page.get_by_role("button", name="Newer").click()
    expect(rows).to_have_count(50)


def test_deleting_shows_the_number_and_needs_a_confirmation(wide: Tab, memory: Memory) -> None:
    ids = [memory.index(f"Draft {n}.", source=f"drafts/{n}.md", sessionId="drafts") for n in range(3)]
    page = wide.open(f"documents/{ids[0]}")
    page.get_by_role("button", name="Delete everything of this session").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Delete 3 documents?")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Cancel").click()
    assert memory.server.tool("get", {"documentId": ids[0]}).status_code == 200
    page.get_by_role("button", name="Delete this document").click()
    dialog.get_by_role("button", name="Delete 1 document").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Documents")
    assert [memory.server.tool("get", {"documentId": id_}).status_code for id_ in ids] == [404, 200, 200]


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


def test_a_collection_is_read_and_queried(wide: Tab) -> None:
    page = wide.open("collections")
    expect(page.get_by_role("table", name="Providers")).to_contain_text("embedded")
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
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("table").locator("tbody tr").first).to_contain_text("day-42")


def test_what_agents_were_shown_is_listed_with_its_session_reason_and_tokens(
    wide: Tab, memory: Memory, tmp_path: Path
) -> None:
    """A-7."""
    (tmp_path / "proj").mkdir()
    document = decide(memory.server, tmp_path / "proj")
    agent = Agent(memory.project.parent / "data", tmp_path / "proj", session="yesterday")
    assert DECISION in agent.prompt()
    assert agent.prompt() == ""  # it was said before, and is withheld
    wait_until(lambda: len(memory.server.tool("injections", {}).json()["injections"]) >= 2)
    page = wide.open("receipts")
    rows = page.get_by_role("table", name="Shown to agents").locator("tbody tr")
    expect(rows).to_have_count(1)
    for text in ("claude-code", "yesterday", "prompt", "relevance"):
        expect(rows).to_contain_text(text)
    expect(rows.get_by_role("cell").last).to_have_text(re.compile(r"^\d+$"))
    page.get_by_label("Also what was withheld").check()
    expect(rows.filter(has_text="already said")).to_have_count(1)
    rows.first.get_by_role("link", name="yesterday").click()
    expect(page.get_by_role("link", name="All sessions")).to_be_visible()
    rows.filter(has_text="We decided to retry").first.get_by_role("rowheader").get_by_role("link").click()
    expect(page).to_have_url(re.compile(document))


def test_metrics_are_filtered(wide: Tab) -> None:
    page = wide.open("metrics")
    expect(page.get_by_role("rowheader", name="rag_queries_total")).to_be_visible()
    page.get_by_label("Name or help").fill("breaker")
    expect(page.get_by_role("rowheader", name="rag_circuit_breaker_state")).to_be_visible()
    expect(page.get_by_role("rowheader", name="rag_queries_total")).to_have_count(0)
    page.get_by_label("Name or help").fill("zzz")
    expect(page.get_by_text("No metric has this in its name or help")).to_be_visible()
