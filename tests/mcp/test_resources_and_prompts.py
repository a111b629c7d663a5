"""Documents as resources, and the prompts."""

from datetime import timedelta

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, TextContent, TextResourceContents

from rag_context.api.operations import Access
from rag_context.api.toolsets import Toolset
from rag_context.errors import BackendUnavailableError
from rag_context.server.mcp.protocol import PAGE, PREFIX
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness

from .mcp_client import connected


@pytest.fixture
async def harness() -> ServiceHarness:
    """A service whose model is bound to its empty index."""
    made = ServiceHarness()
    await made.bound.bind()
    return made


async def test_documents_are_listed_newest_first_and_page_by_page(harness: ServiceHarness) -> None:
    """P-1."""
    async with connected(harness.service) as client:
        for number in range(PAGE + 1):
            harness.now += timedelta(seconds=1)
            await harness.index(f"# Fox {number}\n\nText.", source=f"fox/{number}")
        first = await client.list_resources()
        assert [resource.name for resource in first.resources][:2] == [f"Fox {PAGE}", f"Fox {PAGE - 1}"]
        assert first.resources[0].mime_type == "text/markdown"
        last = await client.list_resources(cursor=first.next_cursor)
        assert [resource.name for resource in last.resources] == ["Fox 0"]
        assert last.next_cursor is None


async def test_a_listed_document_can_be_read(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        await harness.index("Red foxes. ü\n", source="a b/ü.md")
        (resource,) = (await client.list_resources()).resources
        (contents,) = (await client.read_resource(resource.uri)).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "Red foxes. ü\n"
        assert contents.uri == resource.uri


async def test_the_template_says_how_a_document_is_named(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        (template,) = (await client.list_resource_templates()).resource_templates
        receipt = await harness.index("Red foxes.")
        read = await client.read_resource(template.uri_template.replace("{id}", receipt.document_id))
        assert isinstance(read.contents[0], TextResourceContents)
        assert read.contents[0].text == "Red foxes."


@pytest.mark.parametrize(
    "uri",
    [
        PREFIX,
        PREFIX + "d9",
        PREFIX + "%00",
        PREFIX + "%ff",
        PREFIX + "../documents/x",
        PREFIX + "x" * 5000,
        "file:///etc/passwd",
        "rag-context://other/d1",
    ],
)
async def test_what_is_not_a_document_is_not_found(harness: ServiceHarness, uri: str) -> None:
    """X-3."""
    async with connected(harness.service) as client:
        with pytest.raises(MCPError, match="Resource not found") as caught:
            await client.read_resource(uri)
        assert caught.value.error.code == INVALID_PARAMS


async def test_older_revisions_have_a_code_of_their_own_for_it(harness: ServiceHarness) -> None:
    async with connected(harness.service, mode="legacy") as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(PREFIX + "d9")
    assert caught.value.error.code == -32002


async def test_documents_of_a_project_are_not_among_them(harness: ServiceHarness) -> None:
    """Q-2."""
    async with connected(harness.service) as client:
        theirs = await harness.index("Red foxes.", project="theirs")
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError):
            await client.read_resource(PREFIX + theirs.document_id)


@pytest.mark.parametrize("ask", ["list_tools", "list_resources", "list_resource_templates", "list_prompts"])
async def test_a_cursor_that_was_made_up_is_rejected(harness: ServiceHarness, ask: str) -> None:
    async with connected(harness.service) as client:
        with pytest.raises(MCPError) as caught:
            await getattr(client, ask)(cursor="made up")
        assert caught.value.error.code == INVALID_PARAMS


async def test_a_dead_store_is_an_error_without_internals(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        harness.documents.fault = Fault(BackendUnavailableError("documents", "at secret.host"))
        with pytest.raises(MCPError) as caught:
            await client.list_resources()
        assert (caught.value.error.code, caught.value.error.message) == (INTERNAL_ERROR, "Database unavailable")


async def test_recall_returns_what_is_stored(harness: ServiceHarness) -> None:
    """P-1."""
    async with connected(harness.service) as client:
        await harness.index("Red foxes hunt mice.", source="foxes.md")
        (message,) = (await client.get_prompt("recall", {"topic": "red foxes {x}"})).messages
        assert isinstance(message.content, TextContent)
        assert "What does our shared memory know about this: red foxes {x}" in message.content.text
        assert "foxes.md:1" in message.content.text
        assert "Red foxes hunt mice." in message.content.text


async def test_remember_says_how_to_keep_something(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        (message,) = (await client.get_prompt("remember", {"text": "We chose {PostgreSQL}."})).messages
        assert isinstance(message.content, TextContent)
        assert "contentType decision" in message.content.text
        assert "We chose {PostgreSQL}." in message.content.text
        (message,) = (await client.get_prompt("remember", {"text": "a", "kind": "chat"})).messages
        assert isinstance(message.content, TextContent)
        assert "contentType chat" in message.content.text


async def test_prompts_are_listed_with_their_arguments(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        required = {
            name: [argument.name for argument in prompt.arguments or () if argument.required]
            for name, prompt in prompts.items()
        }
        assert required == {"recall": ["topic"], "remember": ["text"]}


async def test_prompts_that_need_other_tools_are_not_offered(harness: ServiceHarness) -> None:
    async with connected(harness.service, toolsets=frozenset({Toolset.PROJECTS})) as client:
        assert (await client.list_prompts()).prompts == []
        with pytest.raises(MCPError, match="Unknown prompt: recall"):
            await client.get_prompt("recall", {"topic": "a"})
    async with connected(harness.service, Access.READ) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["recall"]
        with pytest.raises(MCPError, match="Unknown prompt: remember; known are recall"):
            await client.get_prompt("remember", {"text": "a"})


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("forget", {}, "Unknown prompt: forget"),
        ("recall", {}, "needs the argument 'topic'"),
        ("recall", {"topic": "  "}, "needs the argument 'topic'"),
        ("recall", {"topic": "a", "subject": "b"}, "has no argument 'subject'"),
        ("recall", {"topic": "x" * 1001}, "Query too long"),
        ("remember", {"text": "a", "kind": "poem"}, "contentType must be one of 'chat', 'decision'"),
        ("remember", {"text": "x" * 100_001}, "Content too large"),
    ],
)
async def test_a_prompt_that_cannot_be_filled_in_is_rejected(
    harness: ServiceHarness, name: str, arguments: dict[str, str], sentence: str
) -> None:
    async with connected(harness.service) as client:
        with pytest.raises(MCPError, match=sentence) as caught:
            await client.get_prompt(name, arguments)
        assert caught.value.error.code == INVALID_PARAMS
