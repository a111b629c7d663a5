"""Searching collections within a conversation."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rag_context.api.collections import NAME_PATTERN, ReturnedJson
from rag_context.api.wire import (
    NAME_CHARS,
    PLAIN_PATTERN,
    PRESENT_PATTERN,
    Count,
    Otherwise,
    Sentences,
    WireRequest,
    WireResponse,
    whole,
)

MESSAGE_CHARS = 10_000
MAX_COLLECTIONS = 50
MAX_TOP_K = 100
DEFAULT_TOP_K = 5


class ConverseRequest(WireRequest):
    """A message, the topic that the conversation has reached, and where to look."""

    sentences: ClassVar[Mapping[str, Sentences]] = {
        "user_message": Sentences("Message cannot be empty", f"Message too long (max {MESSAGE_CHARS} characters)"),
        "collections": Sentences("Collections required"),
    }

    user_message: Annotated[
        str,
        Field(min_length=1, max_length=MESSAGE_CHARS, pattern=PRESENT_PATTERN, description="The user's last message"),
    ]
    current_topic: Annotated[
        str | None,
        Field(
            max_length=MESSAGE_CHARS,
            pattern=PLAIN_PATTERN,
            description="Topic of the conversation so far; absent or blank: this is the first message",
        ),
    ] = None
    collections: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=NAME_CHARS + 65, pattern=NAME_PATTERN)]],
        Field(
            min_length=1,
            max_length=MAX_COLLECTIONS,
            description="Names of collections; one of another connection is written connection:name",
        ),
    ]
    top_k: Annotated[
        int,
        Field(ge=1, le=MAX_TOP_K, description="Maximum number of documents, of all collections together"),
        BeforeValidator(whole),
        Otherwise(DEFAULT_TOP_K),
    ] = DEFAULT_TOP_K


class ConverseResult(WireResponse):
    """A document and how near it is."""

    collection: str
    connection: str
    id: str
    text: str
    metadata: ReturnedJson
    score: Annotated[float, Field(ge=-1, le=1, description="Cosine to the query; higher is nearer")]


class OmittedCollection(WireResponse):
    """A collection that could not be searched."""

    collection: str
    connection: str
    error: str


class ConverseResponse(WireResponse):
    """What was found, and by which text."""

    results: Annotated[list[ConverseResult], Field(description="The nearest first, of all collections")]
    query: Annotated[str, Field(description="The text that was embedded")]
    strategy: Literal["first message (raw query)", "follow-up (contextualized topic)"]
    embeddings: Annotated[Count, Field(description="Number of embeddings: one per connection and model")]
    cache_hits: Annotated[Count, Field(description="Number of times such an embedding was reused")]
    omitted: Annotated[
        list[OmittedCollection], Field(description="Collections that could not be searched, with the reason")
    ]
