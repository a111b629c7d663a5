"""Two tools with the names and shapes that ChatGPT and deep-research clients call: search, and fetch by id.

The contract is OpenAI's (developers.openai.com/api/docs/mcp): both answer with one JSON text.
"""

from typing import Annotated, ClassVar

from rag_context.api.search import QUERY_CHARS
from rag_context.api.stored_documents import DocumentId
from rag_context.api.wire import Identifier, ReturnedMetadata, WireRequest, WireResponse, about, present

Url = Annotated[str, about("Where the document is from, for citations")]


class FindRequest(WireRequest):
    """A question."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"agent"})

    query: Annotated[str, present("What to look for", QUERY_CHARS)]
    agent: Annotated[Identifier | None, about("Name of the agent, for statistics")] = None


class FoundDocument(WireResponse):
    """A document, with its best passage."""

    id: str
    title: str
    url: Url
    text: Annotated[str, about("The passage that answers best")]


class FindResponse(WireResponse):
    """The documents that answer the question, best first."""

    is_json_text: ClassVar[bool] = True

    results: list[FoundDocument]
    warning: Annotated[str | None, about("What is missing from the answer; absent: nothing")] = None


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
