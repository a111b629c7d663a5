"""Taking in files of the machine on which the memory runs."""

from typing import Annotated, Literal

from pydantic import Field

from rag_context.api.wire import PRESENT_PATTERN, SOURCE_CHARS, Count, WireRequest, WireResponse

PATH_CHARS = 4096
MAX_PATTERNS = 64
MAX_TOLD = 20
"""Of files that were left out, so many are named."""


class IndexFilesRequest(WireRequest):
    """A file or folder to take in."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=PATH_CHARS,
            pattern=PRESENT_PATTERN,
            description="File or folder; may begin with ~ or be relative to the working directory",
        ),
    ]
    include: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=SOURCE_CHARS)]] | None,
        Field(max_length=MAX_PATTERNS, description="Patterns of files to index although they look generated: *.lock"),
    ] = None


class LeftOutFile(WireResponse):
    """A file that was not taken."""

    source: str
    reason: str


class IndexFilesResponse(WireResponse):
    """What became of the files so far."""

    status: Annotated[
        Literal["done", "running"],
        Field(description="running: it continues; call again with the same path for the progress"),
    ]
    indexed: Annotated[Count, Field(description="New documents")]
    replaced: Annotated[Count, Field(description="Documents that changed")]
    unchanged: Annotated[Count, Field(description="Unchanged documents")]
    pending: Annotated[Count, Field(description="Of the new and changed ones: stored, their vectors follow")]
    rejected: Annotated[Count, Field(description="Files that should have been read, and could not be")]
    skipped: Annotated[Count, Field(description="Files that are not text, or are generated")]
    gone: Annotated[Count, Field(description="Documents whose file is gone; they are still found")]
    left_out: Annotated[
        list[LeftOutFile], Field(description=f"Up to {MAX_TOLD} of the rejected, then of the skipped, with the reason")
    ]
