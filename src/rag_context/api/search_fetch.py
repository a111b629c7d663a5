"""Two tools with the names and shapes that ChatGPT and deep-research clients call: search, and fetch by id.

The contract is OpenAI's (developers.openai.com/api/docs/mcp): both answer with one JSON text.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from rag_context.api.search import QUERY_CHARS
from rag_context.api.stored_documents import DocumentId
from rag_context.api.wire import PRESENT_PATTERN, Identifier, ReturnedMetadata, WireRequest, WireResponse

Url = Annotated[str, Field(description="Where the document is from, for citations")]


class FindRequest(WireRequest):
    """A question."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"agent"})

    query: Annotated[
        str, Field(min_length=1, max_length=QUERY_CHARS, pattern=PRESENT_PATTERN, description="What to look for")
    ]
    agent: Annotated[Identifier | None, Field(description="Name of the agent, for statistics")] = None


class FoundDocument(WireResponse):
    """A document, with its best passage."""

    id: str
    title: str
    url: Url
    text: Annotated[str, Field(description="The passage that answers best")]


class FindResponse(WireResponse):
    """The documents that answer the question, best first."""

    is_json_text: ClassVar[bool] = True

    results: list[FoundDocument]
    warning: Annotated[str | None, Field(description="What is missing from the answer; absent: nothing")] = None


class FetchRequest(WireRequest):
    """Which document."""

    id: DocumentId


class FetchResponse(WireResponse):
    """The whole document."""

    is_json_text: ClassVar[bool] = True

    id: str
    title: str
    text: str
    url: Url
    metadata: ReturnedMetadata
