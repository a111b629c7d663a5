"""The tools of project documents over HTTP: replies, errors, and which project a call is about."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rag_context.domain.callers import CallerId
from rag_context.errors import BackendUnavailableError
from rag_context.testing import Fault
from tests.projects.http_harness import KEYS, HttpHarness, open_http_harness
from tests.projects.sync_harness import configure, write

ASK = "Why do database connections run out?"
LABEL = {"fallback", "fallback_level", "circuit_breaker_open", "warnings", "legs", "latency_ms", "request_id"}
TENANT = {"project_name", "branch_name", "path_hash"}
QUOTED = {"document_id", "heading", "start_line", "end_line", "snippet", "excerpt"}
SOURCE = QUOTED | {
    "path",
    "title",
    "summary",
    "char_count",
    "relevance_score",
    "doc_type",
    "date",
    "promotion_level",
    "superseded_by",
}
DEAD = Fault(BackendUnavailableError("documents", "connection refused"))


@pytest.fixture
async def harness() -> AsyncIterator[HttpHarness]:
    async with open_http_harness() as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with one document of most kinds."""
    root = tmp_path / "shop"
    write(
        root / "docs/problems/pool.md",
        """
        ---
        doc_type: problem
        title: Connection pool exhaustion
        date: 2026-01-15
        summary: Cancelled requests leak connections
        significance: performance
        ---
        # Pool

        Database connections run out. See [the driver](../tools/driver.md).
        """,
    )
    write(root / "docs/tools/driver.md", "# Driver\n\nThe driver of the database.\n")
    write(root / "docs/rules/money.md", "---\npromotion_level: critical\n---\n# Money\n\nNever a float.\n")
    write(root / "vendor/manual.md", "# Manual\n\nDatabase connections of the vendor.\n")
    return configure(root, external_docs={"path": "vendor"})


def other(root: Path, name: str) -> Path:
    """Another project with a document of its own."""
    write(root / name / "docs/only.md", f"# Only\n\nDatabase connections of {name}.\n")
    return configure(root / name, project_name=name)


async def test_activation_says_what_is_active_and_what_there_is(harness: HttpHarness, shop: Path) -> None:
    reply = await harness.call("activate_project", config_path=str(shop))
    assert {key: reply[key] for key in ("status", "project_name", "branch_name", "total_docs")} == {
        "status": "activated",
        "project_name": "shop",
        "branch_name": "main",
        "total_docs": 3,
    }
    assert len(reply["path_hash"]) == 16
    counts = {each["name"]: each["doc_count"] for each in reply["doc_types"]}
    assert counts == {"problem": 1, "insight": 0, "codebase": 0, "tool": 1, "style": 0, "document": 1}
    assert any(warning.startswith("tools/driver.md: front matter") for warning in reply["warnings"]) is False


async def test_a_time_in_the_question_is_reported_and_as_of_hides_what_is_later(
    harness: HttpHarness, shop: Path
) -> None:
    write(
        shop.parent.parent / "docs/problems/old.md",
        "---\ndate: 2024-05-06\n---\n# Old\n\nDatabase connections leaked.\n",
    )
    await harness.call("activate_project", config_path=str(shop))
    for tool in ("semantic_search", "rag_query"):
        reply = await harness.call(tool, query=f"{ASK} in May 2024", min_relevance_score=0)
        assert reply["interpreted"] == {
            "time_range": {"since": "2024-05-01T00:00:00Z", "until": "2024-06-01T00:00:00Z"},
            "phrase": "in May 2024",
            "every_year": None,
        }
        assert "problems/old.md" in {each["path"] for each in reply.get("results", reply.get("sources"))}
        then = await harness.call(tool, query=ASK, min_relevance_score=0, as_of="2024-12-31T00:00:00Z")
        assert [each["path"] for each in then.get("results", then.get("sources"))] == ["problems/old.md"]
        assert "interpreted" not in then


async def test_a_question_is_answered_with_a_context_and_where_it_is_from(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    reply = await harness.call("rag_query", query=ASK, max_sources=1)
    assert set(reply) == LABEL | TENANT | {
        "answer", "answer_note", "citations", "context", "sources", "linked_docs", "critical_docs", "omitted",
        "omitted_docs", "total_matches", "char_count", "token_count",
    }  # fmt: skip
    assert (reply["answer"], reply["fallback_level"], reply["omitted"]) == (None, 1, 0)
    assert "chat.url" in reply["answer_note"]
    (source,) = reply["sources"]
    assert set(source) == SOURCE
    assert 0 < source.pop("relevance_score") <= 1
    assert {key: value for key, value in source.items() if key not in QUOTED} == {
        "path": "problems/pool.md",
        "title": "Connection pool exhaustion",
        "summary": "Cancelled requests leak connections",
        "char_count": 76,
        "doc_type": "problem",
        "date": "2026-01-15",
        "promotion_level": "standard",
        "superseded_by": [],
    }
    assert [{key: value for key, value in each.items() if key not in QUOTED} for each in reply["linked_docs"]] == [
        {
            "path": "tools/driver.md",
            "title": "Driver",
            "char_count": 38,
            "linked_from": "problems/pool.md",
            "link_depth": 1,
        }
    ]
    assert [(each["path"], each["summary"], each["date"]) for each in reply["critical_docs"]] == [
        ("rules/money.md", None, None)
    ]
    assert reply["context"].startswith("## Critical Context (Always Relevant)\n\n### Money\n")
    assert reply["project_name"] == "shop"


async def test_a_call_says_more_than_the_project_and_the_project_more_than_the_defaults(
    harness: HttpHarness, shop: Path
) -> None:
    configure(shop.parent.parent, link_resolution={"max_depth": 0}, retrieval={"include_critical": False})
    await harness.call("activate_project", config_path=str(shop))
    by_project = await harness.call("rag_query", query=ASK)
    by_call = await harness.call("rag_query", query=ASK, link_depth=1, include_critical=True, max_sources=1)
    assert (by_project["linked_docs"], by_project["critical_docs"]) == ([], [])
    assert [each["path"] for each in by_call["linked_docs"]] == ["tools/driver.md"]
    assert [each["path"] for each in by_call["critical_docs"]] == ["rules/money.md"]


async def test_a_budget_leaves_out_whole_documents_and_says_which(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    whole = await harness.call("rag_query", query=ASK)
    reply = await harness.call("rag_query", query=ASK, max_tokens=whole["token_count"] - 1)
    assert reply["token_count"] < whole["token_count"]
    assert (reply["omitted"], len(reply["omitted_docs"])) == (1, 1)


async def test_a_search_lists_documents_by_relevance(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    reply = await harness.call("semantic_search", query="database connections", min_relevance_score=0.1)
    assert set(reply) == LABEL | TENANT | {"results", "total_matches"}
    assert {frozenset(result) for result in reply["results"]} == {frozenset(SOURCE)}
    assert reply["results"][0]["path"] == "problems/pool.md"
    assert reply["total_matches"] == len(reply["results"])
    critical = await harness.call(
        "semantic_search", query="database connections", min_relevance_score=0, promotion_levels=["critical"], limit=1
    )
    assert [each["path"] for each in critical["results"]] == ["rules/money.md"]


async def test_every_search_says_when_documents_may_be_older_than_their_files(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    (activation,) = harness.projects.activations.of(CallerId(), harness.activation)
    fields: dict[str, Any] = {"query": "database connections", "project": "shop"}
    assert "warning" not in await harness.call("rag_context_search", **fields)
    harness.projects.resuming[activation.tenant] = "it is read again soon"
    older = "The project's documents may be older than its files: it is read again soon"
    assert (await harness.call("rag_context_search", **fields))["warning"] == older
    assert (await harness.call("semantic_search", **fields))["warnings"] == [older]
    assert "warning" not in await harness.call("rag_context_search", query="database connections")


async def test_doc_types_are_reported_with_their_schemas(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    reply = await harness.call("list_doc_types")
    problem = reply["doc_types"][0]
    assert set(problem) == {"name", "description", "folder", "schema", "doc_count", "custom"}
    assert (problem["name"], problem["folder"], problem["doc_count"]) == ("problem", "problems", 1)
    assert "significance" in problem["schema"]["properties"]


async def test_a_document_just_written_is_indexed_and_promoted(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    path = write(shop.parent.parent / "docs/insights/new.md", "# New\n\nConnections are dear.\n")
    indexed = await harness.call("index_document", path="insights/new.md")
    assert {key: indexed[key] for key in ("status", "path", "embedding_dimensions")} == {
        "status": "indexed",
        "path": "insights/new.md",
        "embedding_dimensions": 64,
    }
    promoted = await harness.call(
        "update_promotion_level", document_path="insights/new.md", promotion_level="important"
    )
    assert (promoted["status"], promoted["previous_level"], promoted["new_level"]) == (
        "updated",
        "standard",
        "important",
    )
    assert "promotion_level: important" in path.read_text()
    found = await harness.call("semantic_search", query="dear", promotion_levels=["important"], min_relevance_score=0)
    assert [each["path"] for each in found["results"]] == ["insights/new.md"]


async def test_deleting_may_be_checked_first_and_leaves_the_files(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    preview = await harness.call("delete_documents", project_name="shop", dry_run=True)
    assert (preview["status"], preview["dry_run"], preview["branch_name"]) == ("preview", True, None)
    deleted = await harness.call("delete_documents", project_name="shop")
    assert (deleted["status"], deleted["deleted_count"], deleted["deleted_chunks"]) == (
        "deleted",
        preview["deleted_count"],
        preview["deleted_chunks"],
    )
    assert deleted["deleted_count"] == 4
    assert (shop.parent.parent / "docs/problems/pool.md").exists()
    await harness.call("rag_query", query=ASK, status=409)


async def test_external_documents_are_searched_apart(harness: HttpHarness, shop: Path) -> None:
    activated = await harness.call("activate_project", config_path=str(shop))
    found = await harness.call("search_external_docs", query="database connections", min_relevance_score=0.1)
    asked = await harness.call("rag_query_external", query="database connections")
    assert [each["path"] for each in found["results"]] == ["manual.md"]
    assert [each["path"] for each in asked["sources"]] == ["manual.md"]
    assert (found["external_docs_path"], asked["external_docs_path"]) == ("vendor", "vendor")
    assert asked["critical_docs"] == []
    assert found["path_hash"] == asked["path_hash"] == activated["path_hash"]
    own = await harness.call("semantic_search", query="database connections of the vendor", min_relevance_score=0)
    assert "manual.md" not in {each["path"] for each in own["results"]}


@pytest.mark.parametrize(
    ("tool", "fields", "status", "code"),
    [
        ("rag_query", {"query": ASK, "doc_types": ["nonsense"]}, 400, "INVALID_DOC_TYPE"),
        ("rag_query", {"query": ASK, "project": "nobody"}, 404, "NOT_FOUND"),
        ("rag_query", {"query": ASK, "branch": "main"}, 400, "INVALID_INPUT"),
        ("rag_query", {"query": "", "max_sources": 0}, 400, "INVALID_INPUT"),
        ("index_document", {"path": "../../secret.md"}, 400, "INVALID_INPUT"),
        ("index_document", {"path": "missing.md"}, 404, "DOCUMENT_NOT_FOUND"),
        ("update_promotion_level", {"document_path": "x.md", "promotion_level": "critical"}, 404, "DOCUMENT_NOT_FOUND"),
        ("update_promotion_level", {"document_path": "x.md", "promotion_level": "vital"}, 400, "INVALID_INPUT"),
        (
            "update_promotion_level",
            {"document_path": "vendor/manual.md", "promotion_level": "critical"},
            400,
            "EXTERNAL_DOCS_NOT_PROMOTABLE",
        ),
        ("activate_project", {"config_path": "/etc/passwd"}, 400, "INVALID_INPUT"),
        ("activate_project", {"config_path": "bad\u0000path"}, 400, "INVALID_INPUT"),
        ("delete_documents", {}, 400, "INVALID_INPUT"),
    ],
)
async def test_what_cannot_be_done_is_reported_with_its_code(
    harness: HttpHarness, shop: Path, tool: str, fields: dict[str, Any], status: int, code: str
) -> None:
    await harness.call("activate_project", config_path=str(shop))
    reply = await harness.call(tool, status=status, **fields)
    assert reply["code"] == code
    assert reply["error"]


async def test_external_documents_need_no_promotion(harness: HttpHarness, shop: Path) -> None:
    config = configure(
        shop.parent.parent, external_docs={"path": "vendor"}, retrieval={"min_promotion_level": "important"}
    )
    await harness.call("activate_project", config_path=str(config))
    asked = await harness.call("rag_query_external", query="database connections")
    assert [each["path"] for each in asked["sources"]] == ["manual.md"]
    assert (await harness.call("rag_query", query=ASK, min_relevance_score=0))["sources"] == []


async def test_folders_that_are_not_there_are_reported_by_what_they_are(harness: HttpHarness, shop: Path) -> None:
    configure(shop.parent.parent, docs_path="dosc", external_docs={"path": "vendro"})
    reply = await harness.call("activate_project", config_path=str(shop))
    assert [warning.rpartition(":")[0] for warning in reply["warnings"]] == [
        "docs folder 'dosc': cannot be read",
        "external documents 'vendro': cannot be read",
    ]


async def test_a_file_is_indexed_for_the_branch_that_lies_there(harness: HttpHarness, shop: Path) -> None:
    root = shop.parent.parent
    write(root / ".git/HEAD", "ref: refs/heads/main\n")
    await harness.call("activate_project", config_path=str(shop))
    write(root / ".git/HEAD", "ref: refs/heads/next\n")
    write(root / "docs/new.md", "# New\n")
    on_main = {"path": "new.md", "project": "shop", "branch": "main"}
    rejected = await harness.client.post("/tools/index_document", json=on_main)
    assert rejected.status_code in {400, 409}  # as long as main is followed, and as soon as it is not
    assert (await harness.call("index_document", path="new.md"))["branch_name"] == "next"
    stored = await harness.call("list_doc_types", project="shop", branch="main")
    assert stored["total_docs"] == 3


async def test_an_invalid_configuration_activates_nothing(harness: HttpHarness, shop: Path) -> None:
    configure(shop.parent.parent, project_name="Shop", retrieval={"max_results": 0})
    reply = await harness.call("activate_project", config_path=str(shop), status=400)
    assert reply["code"] == "SCHEMA_VALIDATION_FAILED"
    assert [detail["field"] for detail in reply["details"]] == ["project_name", "retrieval.max_results"]
    assert (await harness.call("list_doc_types", status=409))["code"] == "PROJECT_NOT_ACTIVATED"


async def test_missing_external_documents_are_reported(harness: HttpHarness, tmp_path: Path) -> None:
    await harness.call("activate_project", config_path=str(other(tmp_path, "plain")))
    reply = await harness.call("search_external_docs", query=ASK, status=400)
    assert reply["code"] == "EXTERNAL_DOCS_NOT_CONFIGURED"


async def test_before_anything_is_active_every_tool_names_the_next_step(harness: HttpHarness) -> None:
    for tool, fields in {
        "rag_query": {"query": ASK},
        "semantic_search": {"query": ASK},
        "index_document": {"path": "a.md"},
        "list_doc_types": {},
        "update_promotion_level": {"document_path": "a.md", "promotion_level": "critical"},
        "search_external_docs": {"query": ASK},
        "rag_query_external": {"query": ASK},
    }.items():
        reply = await harness.call(tool, status=409, **fields)
        assert reply["code"] == "PROJECT_NOT_ACTIVATED"
        assert "activate_project" in reply["error"]


async def test_a_dead_store_is_reported_in_the_tools_own_code(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    harness.service_harness.documents.fault = DEAD
    write(shop.parent.parent / "docs/other.md", "# Other\n")
    reply = await harness.call("index_document", path="other.md", status=503)
    assert (reply["code"], reply["fallback"]) == ("DATABASE_ERROR", True)


async def test_without_vectors_and_documents_a_question_is_still_answered(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    harness.service_harness.embedder.fault = DEAD
    by_keywords = await harness.call("rag_query", query=ASK)
    assert (by_keywords["fallback_level"], by_keywords["fallback"]) == (2, True)
    assert by_keywords["sources"][0]["path"] == "problems/pool.md"
    harness.service_harness.documents.fault = DEAD
    assert (await harness.call("rag_query", query=ASK))["fallback_level"] >= 2


async def test_a_search_in_documents_counts_as_a_search(harness: HttpHarness, shop: Path) -> None:
    await harness.call("activate_project", config_path=str(shop))
    await harness.call("rag_query", query=ASK)
    await harness.call("semantic_search", query=ASK)
    harness.service_harness.now += timedelta(seconds=1)
    stats = (await harness.client.get("/tools/rag_context_stats")).json()
    assert stats["totalQueries"] == 2
    assert 'rag_queries_total{agent="project tools",level="1"} 2.0' in (await harness.client.get("/metrics")).text


async def test_without_a_key_a_caller_works_on_the_activation_that_it_passes_on(
    harness: HttpHarness, shop: Path, tmp_path: Path
) -> None:
    await harness.call("activate_project", config_path=str(shop))
    await harness.call("activate_project", config_path=str(other(tmp_path, "wiki")))
    assert (await harness.call("list_doc_types"))["project_name"] == "wiki"
    assert (await harness.client.post("/tools/list_doc_types", json={})).status_code == 409
    named = await harness.call("rag_query", query=ASK, project="shop", branch="main")
    assert (named["project_name"], named["branch_name"]) == ("shop", "main")
    assert "of wiki" not in named["context"]


async def test_every_key_works_on_its_own_project(shop: Path, tmp_path: Path) -> None:
    async with open_http_harness(api_keys=KEYS) as harness:
        await harness.call("activate_project", key="alice", config_path=str(shop))
        await harness.call("activate_project", key="bob", config_path=str(other(tmp_path, "wiki")))
        assert (await harness.call("list_doc_types", key="alice"))["project_name"] == "shop"
        assert (await harness.call("list_doc_types", key="bob"))["project_name"] == "wiki"


async def test_a_key_that_may_only_read_queries_by_name_and_changes_nothing(shop: Path) -> None:
    async with open_http_harness(api_keys=KEYS) as harness:
        await harness.call("activate_project", key="alice", config_path=str(shop))
        for tool, fields in {
            "index_document": {"path": "a.md"},
            "update_promotion_level": {"document_path": "a.md", "promotion_level": "critical"},
            "delete_documents": {"project_name": "shop"},
        }.items():
            assert (await harness.call(tool, key="reader", status=403, **fields))["code"] == "FORBIDDEN"
        assert (await harness.call("rag_query", key="reader", query=ASK, status=409))["code"] == "PROJECT_NOT_ACTIVATED"
        assert (await harness.call("rag_query", key="reader", query=ASK, project="shop"))["sources"]
        await harness.call("activate_project", key="reader", config_path=str(shop))
        assert (await harness.call("rag_query", key="reader", query=ASK))["sources"]
        assert (await harness.call("semantic_search", key="reader", query=ASK, project="shop"))["results"]
