"""Project documents from outside: the right document, in the right order, in a bounded context."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.process import PATIENT, Served, command, served, wait_until
from tests.outcomes.embedding import cheap_embeddings
from tests.outcomes.large_projects import activate, ask, valve_code, write_project

ROOT = Path(__file__).parents[2]
IDENTIFIERS = 30
LARGE_CHARS = 256 * 1024  # some thirty times what an answer may hold
QUESTIONS = (
    "why do orders wait for the payment provider",
    "how are customers told",
    "which checks run before a release",
)


@dataclass(frozen=True)
class Shop:
    """A server with some projects; each is named as requests name it."""

    server: Served
    client: httpx2.Client
    data_dir: Path
    home: Path
    settings: dict[str, str]
    own: dict[str, str]
    handbooks: dict[str, str]
    sample: dict[str, str]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("projects")
    own = home / "own"
    shutil.copytree(ROOT / "docs", own / "docs", ignore=shutil.ignore_patterns("*.svg"))
    (own / ".rag-context").mkdir()
    (own / ".rag-context" / "config.json").write_text('{"project_name": "own"}')
    shutil.copytree(ROOT / "examples" / "sample-project", home / "sample")
    handbooks = write_project(home / "handbooks", "handbooks", pages=20, large=3, large_chars=LARGE_CHARS)
    data_dir = home / "data"
    data_dir.mkdir()
    with cheap_embeddings() as settings, served(data_dir, **settings, **PATIENT) as server:
        server.wait_ready()
        with httpx2.Client(base_url=server.url, timeout=60.0) as client:
            named = [activate(client, root) for root in (own, handbooks, home / "sample")]
            wait_until(lambda: server.health()["pendingDocuments"] == 0)
            yield Shop(server, client, data_dir, home, settings, *named)


def identifiers(docs: Path) -> dict[str, str]:
    """Names with underscores that stand in one document, and in which."""
    places: dict[str, set[str]] = {}
    for file in sorted(docs.glob("*.md")):
        for name in re.findall(r"\b(?=\w*_)[A-Za-z]\w{7,}\b", file.read_text()):
            places.setdefault(name, set()).add(file.name)
    single = sorted(name for name, files in places.items() if len(files) == 1)
    return {name: places[name].pop() for name in single[:: max(1, len(single) // IDENTIFIERS)][:IDENTIFIERS]}


def rank(path: str, paths: list[str]) -> int | None:
    return paths.index(path) + 1 if path in paths else None


def test_an_identifier_has_the_same_rank_by_every_tool(shop: Shop) -> None:
    tenant = {"project": "own", "branch": shop.own["branch"], "pathHash": shop.own["path_hash"]}
    first = 0
    differing = []
    for name, path in identifiers(ROOT / "docs").items():
        plain = ask(shop.client, "rag_context_search", query=name, limit=20, **tenant)["results"]
        expected = rank(path, list(dict.fromkeys(each["source"].rpartition("/")[2] for each in plain)))
        listed = ask(shop.client, "semantic_search", query=name, **shop.own)["results"]
        reported = ask(shop.client, "rag_query", query=name, max_sources=10, link_depth=0, **shop.own)["sources"]
        ranks = [rank(path, [each["path"] for each in found]) for found in (listed, reported)]
        if expected is not None and expected <= 10 and ranks != [expected, expected]:
            differing.append((name, expected, ranks))
        if expected == 1:
            first += 1
            (source,) = ask(shop.client, "rag_query", query=name, max_sources=1, **shop.own)["sources"]
            assert source["path"] == path
    assert differing == []
    assert first >= IDENTIFIERS // 3


def test_a_large_document_answers_by_its_best_parts_and_displaces_no_other(shop: Shop) -> None:
    for number in range(3):
        for budget in ({}, {"max_tokens": 1500}):
            question = f"who resets valve code {valve_code(number)}"
            reply = ask(shop.client, "rag_query", query=question, **budget, **shop.handbooks)
            best = reply["sources"][0]
            assert (best["path"], best["excerpt"]) == (f"handbook-{number}.md", True)
            assert f"The valve code {valve_code(number)} is reset by the night shift." in reply["context"]
            assert reply["token_count"] <= budget.get("max_tokens", 8000)
            assert reply["char_count"] == len(reply["context"])
            assert re.search(
                r"- \*\*Excerpt\*\*: lines [\d, -]+ of \d+; \d+ of \d+ characters left out", reply["context"]
            )
    listed = ask(shop.client, "semantic_search", query="billing", min_relevance_score=0, **shop.handbooks)["results"]
    assert len(listed) == 10
    assert len({each["path"] for each in listed}) == 10


def test_no_question_brings_an_empty_or_an_endless_context(shop: Shop) -> None:
    for question in ("chapter on billing", "handbook of the cache queue", "login and backup", "deploy metrics search"):
        reply = ask(shop.client, "rag_query", query=question, max_sources=20, **shop.handbooks)
        assert reply["fallback_level"] == 1
        assert 0 < reply["token_count"] <= 8000
        assert reply["sources"]
        reported = [each["path"] for part in ("sources", "linked_docs", "critical_docs") for each in reply[part]]
        assert len(reported) == len(set(reported)) == reply["context"].count("- **Path**: ")


def test_every_result_says_where_it_stands_and_its_lines_can_be_read(shop: Shop) -> None:
    found = ask(shop.client, "semantic_search", query=f"valve code {valve_code(1)}", limit=1, **shop.handbooks)[
        "results"
    ][0]
    assert valve_code(1) in found["snippet"]
    assert found["heading"].startswith("Handbook 1 > Chapter")
    lines = (shop.home / "handbooks" / "docs" / found["path"]).read_text().split("\n")
    read = ask(
        shop.client,
        "read_document",
        path=found["path"],
        start_line=found["start_line"],
        end_line=found["end_line"],
        **shop.handbooks,
    )
    assert read["content"].split("\n") == lines[found["start_line"] - 1 : found["end_line"]]
    assert (read["document_id"], read["total_lines"]) == (found["document_id"], len(lines) - 1)
    whole = ask(shop.client, "read_document", path=found["path"], **shop.handbooks)
    assert whole["truncated"]
    assert len(whole["content"]) <= 40_000
    missing = shop.client.post("/tools/read_document", json={"path": "handbok-1.md", **shop.handbooks})
    assert (missing.status_code, missing.json()["code"]) == (404, "DOCUMENT_NOT_FOUND")
    assert "handbook-1.md" in missing.json()["error"]


def test_promotion_adds_its_boost_and_nothing_else(shop: Shop) -> None:
    def scores() -> dict[tuple[str, str], float]:
        return {
            (question, each["path"]): each["relevance_score"]
            for question in QUESTIONS
            for each in ask(
                shop.client, "semantic_search", query=question, limit=50, min_relevance_score=0, **shop.sample
            )["results"]
        }

    def promote(paths: set[str], level: str) -> None:
        for path in paths:
            ask(shop.client, "update_promotion_level", document_path=path, promotion_level=level, **shop.sample)

    paths = {path for _, path in scores()}
    assert len(paths) >= 8
    promote(paths, "standard")
    standard = scores()
    for level, boost in (("important", 0.10), ("critical", 0.15)):
        promote(paths, level)
        promoted = scores()
        assert promoted.keys() == standard.keys()
        wrong = {key: promoted[key] for key in standard if abs(promoted[key] - min(1.0, standard[key] + boost)) > 2e-4}
        assert wrong == {}


def test_an_explicit_minimum_applies_everywhere(shop: Shop) -> None:
    name = "rag_context_search"
    tenant = {"project": "own", "branch": shop.own["branch"], "pathHash": shop.own["path_hash"]}
    before = ask(shop.client, "semantic_search", query=name, **shop.own)["results"]
    least = sorted(each["relevance_score"] for each in before)[-2]
    listed = ask(shop.client, "semantic_search", query=name, min_relevance_score=least, **shop.own)["results"]
    reported = ask(shop.client, "rag_query", query=name, min_relevance_score=least, **shop.own)["sources"]
    plain = ask(shop.client, "rag_context_search", query=name, minScore=least, limit=20, **tenant)["results"]
    for score in [each["relevance_score"] for each in (*listed, *reported)] + [each["score"] for each in plain]:
        assert score >= least - 1e-4
    assert 0 < len(listed) < len(before)
    assert ask(shop.client, "rag_query", query=name, min_relevance_score=1, **shop.own)["sources"] == []
    shown = command(
        "project", "search", name, "--project", "own", "--min-score", "1", data_dir=shop.data_dir, **shop.settings
    )
    assert "is about this" in shown.stdout, shown.stderr


def test_links_of_every_kind_are_followed_and_other_texts_are_read(shop: Shop) -> None:
    root = shop.home / "links"
    docs = root / "docs"
    texts = {
        "start.md": "# Zeppelins\n\nSee [[Mooring mast]], [hangars](hangars), [the crew](crew/) and "
        '<a href="ballast.rst">ballast</a>.\n',
        "notes/Mooring mast.md": "# Mast\n\nTies.\n",
        "hangars.md": "# Hangars\n\nHouses.\n",
        "crew/README.md": "# Crew\n\nPeople.\n",
        "ballast.rst": "Ballast\n=======\n\nWater in bags, called quobblewater.\n",
        "valves.adoc": "= Valves\n\nThe frobnivalve lets gas out.\n",
        "log.txt": "The snargleflight of May went well.\n",
    }
    for path, text in texts.items():
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text(text)
    (root / ".rag-context").mkdir()
    (root / ".rag-context" / "config.json").write_text('{"project_name": "links"}')
    named = activate(shop.client, root)
    reply = ask(
        shop.client,
        "rag_query",
        query="zeppelins, see the mooring mast, the hangars, the crew and ballast",
        max_sources=1,
        **named,
    )
    assert [each["path"] for each in reply["sources"]] == ["start.md"]
    assert [each["path"] for each in reply["linked_docs"]] == [
        "notes/Mooring mast.md",
        "hangars.md",
        "crew/README.md",
        "ballast.rst",
    ]
    for word, path in (("quobblewater", "ballast.rst"), ("frobnivalve", "valves.adoc"), ("snargleflight", "log.txt")):
        found = ask(shop.client, "semantic_search", query=word, limit=1, **named)["results"]
        assert [each["path"] for each in found] == [path]


def test_over_mcp_a_context_is_sent_once_as_text(shop: Shop) -> None:
    call = {"name": "rag_query", "arguments": {"query": f"valve code {valve_code(2)}", **shop.handbooks}}
    for address in ("/mcp?tools=projects", "/mcp?tools=projects&structured=true"):
        reply = shop.client.post(
            address,
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"},
        )
        assert reply.status_code == 200, reply.text
        assert reply.text.count("## Retrieved Context (By Relevance)") == 1
        result = reply.json()["result"]
        sentence = f"The valve code {valve_code(2)} is reset by the night shift."
        assert sentence in "".join(each["text"] for each in result["content"])
    assert "context" not in result["structuredContent"]
    assert result["structuredContent"]["sources"][0]["path"] == "handbook-2.md"
