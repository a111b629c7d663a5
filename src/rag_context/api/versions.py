"""Asking whether documents are still stored as earlier receipts said, so that they need not be sent again."""

from typing import Annotated

from pydantic import Field

from rag_context.api.wire import IDENTIFIER_CHARS, Identifier, WireRequest, WireResponse

MAX_VERSIONS = 5_000
"""Documents that one question may name; some 110 bytes each."""


class VersionsRequest(WireRequest):
    """Versions of documents, as the receipts named them."""

    versions: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=IDENTIFIER_CHARS)], Identifier],
        Field(max_length=MAX_VERSIONS, description="The contentHash of each document, by documentId"),
    ]


class VersionsResponse(WireResponse):
    """Which of them are not there."""

    missing: Annotated[list[str], Field(description="Documents that are not stored, or not in this version")]
