"""Answers of a chat model over real HTTP: their citations are checked, and no failure takes anything away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rag_context.errors import ConfigurationError
from rag_context.openai_server import OpenAIChat
from rag_context.projects.project_questions import INVENTED, UNCITED, checked
from tests.projects.http_harness import HttpHarness, open_http_harness
from tests.projects.sync_harness import configure, write
from tests.servers.embedding_stub import Behaviour, EmbeddingStub, ReceivedRequest, Wire, reply

ASK = "Why do database connections run out?"
LM_STUDIO_NO_MODEL = {"error": "No models loaded. Please load a model in the developer page."}
SAID = "Cancelled requests leak [pool.md]."


class ChatStub(EmbeddingStub):
    """A chat server that answers what a test tells it."""

    def _behaviour(self, request: ReceivedRequest) -> Behaviour:
        assert (request.method, request.path) == ("POST", "/v1/chat/completions")
        return self.script.popleft() if self.script else self.always or said(SAID)


def said(text: object) -> Behaviour:
    """A completion."""
    return reply({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})


@asynccontextmanager
async def asked_hall(root: Path, **chat: Any) -> AsyncIterator[tuple[HttpHarness, ChatStub]]:
    """A harness with a project and a chat model."""
    write(root / "docs/pool.md", "# Pool\n\nDatabase connections run out: cancelled requests leak them.\n")
    stub = ChatStub()
    await stub.start()
    model = OpenAIChat(chat.pop("url", stub.url), model="talker", **chat)
    try:
        async with open_http_harness(model) as harness:
            await harness.call("activate_project", config_path=str(configure(root)))
            yield harness, stub
    finally:
        await model.close()
        await stub.stop()


async def test_an_answer_comes_beside_the_context_with_what_it_cites(tmp_path: Path) -> None:
    async with asked_hall(tmp_path, api_key="secret") as (harness, stub):
        reply = await harness.call("rag_query", query=ASK)
        (request,) = stub.requests
    assert (reply["answer"], reply["citations"], reply["answer_note"]) == (SAID, ["pool.md"], None)
    assert request.headers["authorization"] == "Bearer secret"
    assert request.fields["model"] == "talker"
    system, user = request.fields["messages"]
    assert "square brackets" in system["content"]
    assert reply["context"] in user["content"]
    assert user["content"].endswith(f"Question: {ASK}")


async def test_a_document_that_is_not_in_the_context_is_taken_out_of_the_answer(tmp_path: Path) -> None:
    async with asked_hall(tmp_path) as (harness, stub):
        stub.always = said("Leaks [pool.md; made/up.md]. And more [other.md].")
        reply = await harness.call("rag_query", query=ASK)
    assert (reply["answer"], reply["citations"]) == ("Leaks [pool.md]. And more.", ["pool.md"])
    assert "made/up.md, other.md" in reply["answer_note"]


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (lambda _: Wire(until=asyncio.Event()), "did not answer in time"),
        (lambda _: Wire(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{", drip=b" "), "did not answer in time"),
        (lambda _: Wire(b"nonsense\r\n\r\n", close=True), "cannot be reached"),
        (lambda _: Wire(reset=True), "cannot be reached"),
        (reply({"error": "boom"}, 500), "failed (500)"),
        (reply({"error": "later"}, 429), "accepts no more requests now (429)"),
        (reply({"error": "who"}, 401), "requires a key: set chat.api_key (401)"),
        (reply({"error": "no"}, 404), "has no /chat/completions at this address (404): check chat.url"),
        (reply(LM_STUDIO_NO_MODEL, 400), "has no chat model 'talker' (400): load it there, or set chat.model"),
        (reply({"error": {"message": "Loading model", "code": 503}}, 503), "is still loading its model"),
        (reply({"error": f"the context length is exceeded by {ASK}"}, 400), "a text of this length (400)"),
        (reply({"error": f"bad words: {ASK}"}, 400), "rejected the request (400)"),
        (reply(b"<html>"), "returned no text"),
        (reply({"error": "Unexpected endpoint"}), "has no /chat/completions at this address (200)"),
        (reply({"choices": []}), "returned no text"),
        (said(None), "returned no text"),
        (said("  "), "returned no text"),
    ],
)
async def test_a_failure_costs_the_answer_and_nothing_else(tmp_path: Path, behaviour: Behaviour, sentence: str) -> None:
    async with asked_hall(tmp_path, timeout_s=0.3) as (harness, stub):
        whole = await harness.call("rag_query", query=ASK)
        stub.always = behaviour
        reply = await harness.call("rag_query", query=ASK)
    assert (reply["answer"], reply["citations"]) == (None, [])
    assert sentence in reply["answer_note"]
    for field in ("context", "sources", "critical_docs", "linked_docs", "fallback_level", "warnings"):
        assert reply[field] == whole[field]


async def test_where_nothing_was_found_the_model_is_not_called(tmp_path: Path) -> None:
    async with asked_hall(tmp_path) as (harness, stub):
        reply = await harness.call("rag_query", query="zebra", min_relevance_score=1)
        assert stub.requests == []
    assert (reply["answer"], reply["context"]) == (None, "")
    assert "no document in the context" in reply["answer_note"]


@pytest.mark.parametrize(
    ("text", "answer", "citations", "remarks"),
    [
        ("See [a.md] and [`b/c.md#part`].", None, ("a.md", "b/c.md"), ()),
        ("A [link](a.md) cites too, and so does [b/c.md](../b/c.md#part).", None, ("a.md", "b/c.md"), ()),
        ("One [of the web](https://x.example/a.md) does not.", None, (), (UNCITED,)),
        ("The [words](no.md) stay [no.md](no.md).", "The words stay.", (), (INVENTED.format("no.md"), UNCITED)),
        ("An array[0] and [sic] stay [a.md].", None, ("a.md",), ()),
        ("One [one, two.md].", None, ("one, two.md",), ()),
        ("[no.md]", "", (), (INVENTED.format("no.md"), UNCITED)),
        ("It is the pool (b/c.md), see (a.md, b/c.md#x).", None, ("b/c.md", "a.md"), ()),
        ("So says `a.md`; `x = 1` (by the way) stays.", None, ("a.md",), ()),
        ("So says `no.md`, and (no.md; a.md).", "So says, and (a.md).", ("a.md",), (INVENTED.format("no.md"),)),
        ("[A.MD] is another.", "is another.", (), (INVENTED.format("A.MD"), UNCITED)),
    ],
)
def test_citations_are_compared_with_the_context(
    text: str, answer: str | None, citations: tuple[str, ...], remarks: tuple[str, ...]
) -> None:
    written = checked(text, ["a.md", "b/c.md", "one, two.md"])
    assert (written.answer or "", written.citations, written.remarks) == (
        text if answer is None else answer,
        citations,
        remarks,
    )


@pytest.mark.parametrize("url", ["http://host:port", "ftp://host", "http://"])
def test_an_invalid_address_is_rejected_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"chat\.url"):
        OpenAIChat(url, model="m")


def test_a_key_that_no_header_can_carry_is_rejected_without_being_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"chat\.api_key") as rejected:
        OpenAIChat("http://localhost", model="m", api_key="sech\u00e9 ret")
    assert "sech" not in str(rejected.value)
