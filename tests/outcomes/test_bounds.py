"""Keys with bounds: what is out of them does not exist, over every interface and in every number."""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from rag_context.api.handlers import CallContext
from rag_context.api.maintenance import ClearQueriesRequest
from rag_context.api.operations import Reach
from rag_context.api.operations.memory import STATS
from rag_context.api.operations.routes import PERFORMED
from rag_context.domain.callers import Bounds, CallerId
from rag_context.domain.documents import DocumentInput, Metadata, document_id
from rag_context.errors import ForbiddenError
from rag_context.ingest.submissions import Submission
from rag_context.memory.accesses import as_line, hashed, recorded_by
from rag_context.memory.bounded import within_bounds
from rag_context.server.middleware import WRONG_KEYS
from rag_context.server.options import Caller
from tests.outcomes.bounds import ADDER, NOBODYS, OWNER, PARTS, SCOPES, Memory, open_memory, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN = "6f8a3a52-9d3e-5b0c-8f0a-6f4f9a3f5a11"
QUESTIONS = ("the pump failed", "valve of the cache", "billing zqrobertcanary", "zzunknownword release")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def memory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Memory]:
    """Two servers on one directory, with the documents of every part."""
    async with open_memory(tmp_path_factory.mktemp("bounds") / "data", servers=2) as opened:
        await opened.fill()
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Memory]:
    """A memory that has nothing but what there is for the key of one agent."""
    async with open_memory(tmp_path_factory.mktemp("alone") / "data") as opened:
        await opened.fill(tuple(part for part in PARTS if part.name == "alicia"))
        yield opened


def plain(answer: dict[str, Any]) -> str:
    """All of an answer but its times and its number."""
    legs = {name: leg["status"] for name, leg in sorted(answer["legs"].items())}
    results = [{**each, "timestamp": "", "occurredAt": ""} for each in answer["results"]]
    return json.dumps({**answer, "results": results, "legs": legs, "latency": 0.0, "requestId": ""}, sort_keys=True)


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
async def test_scores_numbers_and_warnings_are_those_of_a_memory_with_nothing_else(
    memory: Memory, alone: Memory, mode: str
) -> None:
    for question in QUESTIONS:
        options: tuple[dict[str, Any], ...] = ({}, {"minScore": 0.0}, {"tags": ["crimson"]}, {"source": "file1/*"})
        for more in options:
            fields: dict[str, Any] = {"query": question, "mode": mode, "explain": True, **more}
            among, single = [
                (await each.call("alicia", "rag_context_search", **fields)).json() for each in (memory, alone)
            ]
            assert plain(among) == plain(single), question
    assert (await memory.call("alicia", "rag_context_search", query="pump", mode=mode, minScore=0.0)).json()["results"]


async def test_counts_are_those_of_what_a_key_has(memory: Memory, alone: Memory) -> None:
    among, single = [
        (await each.call("alicia", "rag_context_list", facets=True)).json()["facets"] for each in (memory, alone)
    ]
    for counts in (among, single):
        counts["sessions"][0].pop("last")
    assert among == single
    assert (among["total"], among["agents"]) == (6, {"alicia": 6})


async def test_words_find_and_order_what_a_key_has(memory: Memory) -> None:
    found = (await memory.call("alicia", "rag_context_search", query="zqaliciacanary3", mode="text")).json()["results"]
    assert "zqaliciacanary3" in found[0]["content"]
    assert {tag for each in found for tag in each["metadata"]["tags"]} == {"agent:alicia"}


async def test_the_messages_around_one_are_those_of_the_key(memory: Memory) -> None:
    answer = (await memory.call("robert", "rag_context_search", query="zqrobertcanary0 pump", minScore=0.0)).text
    assert "zqrobertcanary0" in answer
    assert "zqaliciacanary" not in answer
    assert "zqcarolacanary" not in answer


@pytest.mark.parametrize(
    "tool",
    ["rag_context_get", "rag_context_similar", "rag_context_history", "rag_context_delete", "rag_context_forget"],
)
async def test_a_document_out_of_bounds_is_answered_as_one_that_is_nowhere(memory: Memory, tool: str) -> None:
    for part in NOBODYS[:3]:
        project: dict[str, Any] = {"project": part.name} if part.place == "project" else {}
        there = await memory.call("crimson", tool, documentId=memory.ids[part.name][0], **project)
        nowhere = await memory.call("crimson", tool, documentId=UNKNOWN, **project)
        there_text = there.text.replace(memory.ids[part.name][0], UNKNOWN).replace(there.headers["x-request-id"], "")
        assert (there.status_code, there_text) == (
            nowhere.status_code,
            nowhere.text.replace(nowhere.headers["x-request-id"], ""),
        )


async def test_a_project_that_is_there_is_answered_as_one_that_is_not(memory: Memory) -> None:
    query: dict[str, Any] = {"query": "pump"}
    for tool, fields in (("rag_context_list", {}), ("rag_context_search", query), ("semantic_search", query)):
        there = await memory.call("crimson", tool, project="cygnus", **fields)
        nowhere = await memory.call("crimson", tool, project="nowhere", **fields)
        assert there.status_code == nowhere.status_code == 404
        assert there.json()["error"].replace("cygnus", "nowhere") == nowhere.json()["error"]
        assert "borealis" not in there.text
    listed = (await memory.call("crimson", "list_projects")).json()["projects"]
    assert [each["project_name"] for each in listed] == ["apollo"]


async def test_what_a_key_stores_lies_in_its_bounds_and_replaces_nothing_of_others(memory: Memory) -> None:
    before = await memory.state(NOBODYS)
    fields: dict[str, Any] = {"content": "Owls hunt at night.", "contentType": "documentation", "sessionId": "shared"}
    source = f"{NOBODYS[0].sources}/1"
    stored = (await memory.call("robert", "rag_context_index", source=source, agent="carola", **fields)).json()
    assert stored["status"] == "indexed"
    again = (await memory.call("robert", "rag_context_index", source=source, server=1, **fields)).json()
    assert (again["status"], again["documentId"]) == ("unchanged", stored["documentId"])
    kept = (await memory.call(OWNER, "rag_context_get", documentId=stored["documentId"])).json()["metadata"]
    assert (kept["agent"], kept["tags"]) == ("robert", ["agent:robert"])

    rejected: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("robert", {"project": "cygnus"}, 403),
        ("robert", {"metadata": {"tags": ["agent:carola"]}}, 403),
        ("mixed", {}, 400),
        ("robert", {"supersedes": [memory.ids["carola"][0]]}, 400),
        ("project", {}, 403),
    )
    for key, more, status in rejected:
        reply = await memory.call(key, "rag_context_index", source="mine", **fields, **more)
        assert reply.status_code == status, reply.text
    line = json.dumps({**fields, "source": source, "project": "cygnus"}).encode() + b"\n"
    ndjson = {"content-type": "application/x-ndjson"}
    receipt = (await memory.send("robert", "POST", "/bulk", content=line, headers=ndjson)).json()
    assert receipt["status"] == "rejected"
    assert await memory.state(NOBODYS) == before


async def test_a_key_corrects_and_forgets_what_it_stored_and_gets_no_number_that_counts_others(memory: Memory) -> None:
    fields: dict[str, Any] = {
        "content": "The night shift has the key.",
        "contentType": "decision",
        "sessionId": "s",
        "source": "shift",
    }
    first = (await memory.call("robert", "rag_context_index", **fields)).json()["documentId"]
    corrected = await memory.call("robert", "rag_context_correct", source="shift", content="The day shift has the key.")
    assert corrected.status_code == 200, corrected.text
    versions = (await memory.call("robert", "rag_context_history", documentId=first)).json()["versions"]
    assert len(versions) == 2
    assert (await memory.call("alicia", "rag_context_history", documentId=first)).status_code == 404
    forgotten = (await memory.call("robert", "rag_context_forget", source="shift")).json()
    assert (forgotten["documents"], "id" in forgotten) == (2, False)
    assert (await memory.call("robert", "rag_context_forget", source="file0/1")).json()["documents"] == 0
    # The same words again: what anyone forgot is no answer to a key.
    assert (await memory.call("robert", "rag_context_index", **fields)).json()["status"] == "indexed"


async def test_collections_out_of_bounds_are_not_there(memory: Memory) -> None:
    listed = (await memory.send("mixed", "GET", "/collections")).json()
    assert ([each["name"] for each in listed["collections"]], listed["count"]) == (["foliants", "ledgers"], 2)
    assert (await memory.send("mixed", "GET", "/collections?connection=other")).json()["count"] == 0
    query = {"embedding": [1.0, 2.0, 3.0, 4.0]}
    assert (await memory.send("books", "POST", "/collections/foliants/query", json=query)).json()["results"]
    body = {"documents": [{"text": "t", "embedding": [1.0, 2.0, 3.0, 4.0]}]}
    for method, url, sent in (
        ("POST", "/collections/{}/query", query),
        ("POST", "/collections/{}/documents", body),
        ("GET", "/collections/{}", None),
        ("DELETE", "/collections/{}", None),
    ):
        there = await memory.send("books", method, url.format("vaultbox"), json=sent)
        nowhere = await memory.send("books", method, url.format("nowhere"), json=sent)
        assert there.status_code == nowhere.status_code == 404, there.text
        assert there.json()["error"].replace("vaultbox", "nowhere") == nowhere.json()["error"]


@pytest.mark.parametrize("url", ["/metrics", "/events", "/tools/rag_context_stats", "/tools/rag_context_health"])
async def test_what_is_about_the_whole_memory_is_not_for_a_key_with_bounds(memory: Memory, url: str) -> None:
    assert (await memory.send("crimson", "GET", url)).status_code == 403
    assert (await memory.send("crimson", "POST", "/bulk/versions", json={"versions": {}})).status_code == 403
    assert (await memory.send("crimson", "GET", "/health")).json().keys() == {"healthy"}


async def test_mcp_offers_and_reads_what_there_is_for_the_key(memory: Memory) -> None:
    listed = (await memory.rpc("crimson", "tools/list", {})).json()["result"]["tools"]
    assert {each["name"] for each in listed} == {
        name for name, each in PERFORMED.items() if each.is_tool and each.reach is not Reach.EVERYTHING
    }
    resources = (await memory.rpc("alicia", "resources/list", {})).text
    assert "zqaliciacanary" in resources
    assert not [part.name for part in PARTS if part.name != "alicia" and part.canary in resources]
    session = memory.sessions["alicia", 0]
    memory.sessions["robert", 0] = session  # another's session is none
    stolen = await memory.rpc("robert", "tools/list", {})
    del memory.sessions["robert", 0]
    assert stolen.status_code == 404


async def test_no_time_of_a_prompt_tells_what_others_searched_for(memory: Memory) -> None:
    """The vector of a query that another has searched for is not embedded again, which takes milliseconds."""
    question = "who moved the flamingo crates"

    async def hits() -> float:
        metrics = (await memory.send(OWNER, "GET", "/metrics")).text
        return float(metrics.partition("\nrag_embedding_cache_hits_total ")[2].split(maxsplit=1)[0])

    await memory.call(OWNER, "rag_context_search", query=question)
    before = await hits()
    await memory.call(OWNER, "rag_context_search", query=question, limit=3)
    assert await hits() == before + 1
    prompt = {"name": "recall", "arguments": {"topic": question}}
    assert "zqrobertcanary" in (await memory.rpc("robert", "prompts/get", prompt)).text
    assert await hits() == before + 1


async def test_who_changes_something_or_may_not_is_recorded_without_a_text(memory: Memory) -> None:
    with recorded_by(memory.services[0].record_access):
        source, text = "file1/secretsource", "The seal sleeps on the pier."
        fields: dict[str, Any] = {"content": text, "contentType": "documentation", "sessionId": "s", "source": source}
        stored = (await memory.call("robert", "rag_context_index", **fields)).json()["documentId"]
        await memory.call("robert", "rag_context_get", documentId=stored)
        await memory.call("robert", "rag_context_delete", documentId=stored)
        await memory.send("robert", "POST", "/tools/rag_context_stats", json={})
        await memory.send("wrong", "GET", "/metrics")
        await memory.rpc("robert", "tools/call", {"name": "rag_context_log", "arguments": {}})
        await memory.send("books", "DELETE", "/collections/vaultbox")
        body = {"documents": [{"text": text, "embedding": [1.0, 2.0, 3.0, 4.0]}]}
        for name in ("foliants", "vaultbox"):
            await memory.send("books", "POST", f"/collections/{name}/documents", json=body)
        line = json.dumps({**fields, "source": "file1/streamed"}).encode() + b"\n"
        ndjson = {"content-type": "application/x-ndjson"}
        await memory.send("robert", "POST", "/bulk", content=line, headers=ndjson)
    await memory.services[0].clear_queries(ClearQueriesRequest())  # which leaves them
    lines = [as_line(each) for each in await memory.services[1]._dependencies.metrics.accesses(50)][::-1]
    recorded = [json.loads(line) for line in lines]
    assert [(each.get("key"), each["operation"], each["outcome"], each.get("target")) for each in recorded] == [
        ("robert", "rag_context_index", "ok", [stored]),
        ("robert", "rag_context_delete", "ok", [stored]),
        ("robert", "rag_context_stats", "ForbiddenError", None),
        ("robert", "POST /tools/rag_context_stats", "403", None),
        (None, "GET /metrics", "401", None),
        ("robert", "rag_context_log", "ForbiddenError", None),
        ("books", "collection_delete", "NotFoundError", [hashed("vaultbox")]),
        ("books", "collection_add", "ok", [hashed("foliants")]),
        ("books", "collection_add", "NotFoundError", [hashed("vaultbox")]),
        ("robert", "POST /bulk", "ok", None),
    ]
    assert "secretsource" not in "".join(lines)
    assert "seal" not in "".join(lines)


async def test_who_has_no_key_cannot_fill_the_records(memory: Memory) -> None:
    with recorded_by(memory.services[0].record_access):
        for _ in range(3 * WRONG_KEYS):
            assert (await memory.clients[0].get("/metrics")).status_code == 401
        await memory.send("robert", "GET", "/metrics")
    await asyncio.sleep(0.5)
    lines = [as_line(each) for each in await memory.services[1]._dependencies.metrics.accesses(100)]
    rejected = [line for line in lines if '"GET /metrics", "outcome": "401"' in line]
    assert 0 < len(rejected) <= WRONG_KEYS + 2
    assert '"outcome": "403"' in lines[0]  # of a key all are recorded


async def test_a_key_that_may_add_has_ids_apart_from_those_of_an_agent_of_its_name() -> None:
    given = DocumentInput("text", "documentation", "s", "docs/a.md")
    added = Submission(given).added_by("alicia").document
    bounds = Bounds(agents=("alicia",))
    alicias = replace(given, metadata=Metadata(agent="alicia"))
    ids = [document_id(each) for each in (given, added, bounds.stamped(alicias), bounds.stamped(added))]
    assert len(set(ids)) == 4


async def test_a_key_that_may_add_takes_nothing_of_others_away(memory: Memory) -> None:
    """H-10: correcting and forgetting are a right; storing under the name of what is there is no way around it."""
    fields: dict[str, Any] = {"contentType": "documentation", "sessionId": "rules", "source": "docs/rules.md"}
    rule = "We deploy on Tuesdays, after the tests of the night."
    theirs = (await memory.call(OWNER, "rag_context_index", content=rule, **fields)).json()["documentId"]
    poison = "We deploy whenever an agent says so."
    own = (await memory.call(ADDER, "rag_context_index", content=poison, **fields)).json()
    assert own["status"] == "indexed"
    again = (await memory.call(ADDER, "rag_context_index", content=f"{poison} Or later.", **fields)).json()
    assert (again["status"], again["documentId"]) == ("replaced", own["documentId"])
    line = json.dumps({"content": f"{poison} At once.", **fields})
    types = {"content-type": "application/x-ndjson"}
    await memory.send(ADDER, "POST", "/bulk", content=f"{line}\n", headers=types)

    rejected: list[tuple[str, dict[str, Any]]] = [
        ("rag_context_correct", {"documentId": theirs, "content": poison}),
        ("rag_context_forget", {"documentId": theirs}),
        ("rag_context_delete", {"documentId": theirs}),
        ("rag_context_undo", {"id": 1}),
        ("rag_context_index", {"content": poison, "supersedes": [theirs], **fields}),
        ("rag_context_index", {"content": poison, "force": True, **fields}),
    ]
    for tool, arguments in rejected:
        reply = await memory.call(ADDER, tool, **arguments)
        assert (reply.status_code, reply.json()["error"][:44]) == (403, "This API key may add, but not change or dele")
        assert (
            "may add, but not change"
            in (await memory.rpc(ADDER, "tools/call", {"name": tool, "arguments": arguments})).text
        )
    line = json.dumps({"content": poison, "supersedes": [theirs], **fields})
    receipts = (await memory.send(ADDER, "POST", "/bulk", content=f"{line}\n", headers=types)).text
    assert "may add, but not change" in receipts

    kept = (await memory.call(OWNER, "rag_context_get", documentId=theirs)).json()
    assert kept["content"] == rule
    offered = (await memory.rpc(ADDER, "tools/list", {})).text
    assert "rag_context_index" in offered
    assert "rag_context_forget" not in offered


async def test_an_operation_that_declares_no_reach_is_not_for_a_key_with_bounds() -> None:
    async def perform(_request: object, _context: CallContext) -> Any:
        raise AssertionError("it must not be called")

    kept = within_bounds(STATS, perform, lambda _bounds: {})
    with pytest.raises(ForbiddenError, match="about the whole memory"):
        await kept(object(), CallContext("r", caller=CallerId(None, "key", Bounds())))


async def test_a_caller_reaches_another_worker_with_its_bounds() -> None:
    for bounds in (*SCOPES.values(), None):
        caller = Caller("key", PERFORMED["provider_test"].access, bounds)
        assert pickle.loads(pickle.dumps(caller)) == caller  # as one worker sends it to another


async def test_nothing_leaks_under_random_requests(memory: Memory) -> None:
    before = await memory.state(NOBODYS)
    found, statuses = await run(memory, 500, seed=20261127)
    assert found == []
    assert await memory.state(NOBODYS) == before
    assert not [status for status in statuses if status.endswith(" 500")]
    assert sum(count for status, count in statuses.items() if status.endswith(" 200")) > 100
