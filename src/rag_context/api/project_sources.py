"""Project documents as answers name them, and what each part of a search did."""

from datetime import date
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api.search import LegStatus
from rag_context.api.wire import Count, Milliseconds, PlainResponse, Score

Level = Literal["standard", "important", "critical"]
NullableText = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
NullableDate = Annotated[date | None, WithJsonSchema({"type": ["string", "null"], "format": "date"})]


NullableLine = Annotated[int | None, WithJsonSchema({"type": ["integer", "null"]})]


class Quoted(PlainResponse):
    """A document with the passage that it was found by, else its beginning; null where neither was read."""

    path: Annotated[str, Field(description="Path relative to the docs folder")]
    title: str
    document_id: str
    heading: Annotated[NullableText, Field(description="Headings that the passage stands under")] = None
    start_line: Annotated[NullableLine, Field(description="Its first line in the file, from 1")] = None
    end_line: Annotated[NullableLine, Field(description="Its last line")] = None
    snippet: Annotated[NullableText, Field(description="Its text, or the beginning of it")] = None
    excerpt: Annotated[bool, Field(description="Whether the context shows parts of the document only")] = False


class Source(Quoted):
    """A document that an answer rests on."""

    summary: Annotated[NullableText, Field(description="What the document says of itself")] = None
    char_count: Count
    relevance_score: Annotated[
        Score, Field(description="Relevance with the boost of its promotion level; 0: not found")
    ]
    doc_type: str
    date: NullableDate = None
    promotion_level: Level
    superseded_by: Annotated[list[str], Field(description="Paths of the documents that replace it")]


class LinkedDoc(Quoted):
    """A document that was reached by a link."""

    char_count: Count
    linked_from: Annotated[str, Field(description="Path of the document whose link led here")]
    link_depth: Annotated[int, Field(ge=1, description="How many links it is away")]


class Leg(PlainResponse):
    """What one part of the search did."""

    status: LegStatus
    latency_ms: Milliseconds
    detail: NullableText = None
