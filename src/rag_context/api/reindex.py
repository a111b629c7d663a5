"""Making the vectors again, beside those that answer."""

from typing import Annotated, Literal

from pydantic import Field

from rag_context.api.wire import Count, Otherwise, WireRequest, WireResponse


class ReindexRequest(WireRequest):
    """Whether to begin, and whether to wait for the end."""

    force: Annotated[
        bool,
        Field(description="Make all vectors anew even where they are already the configured model's"),
        Otherwise(False),
    ] = False
    status_only: Annotated[bool, Field(description="Only say how far it is, and begin nothing"), Otherwise(False)] = (
        False
    )
    wait: Annotated[
        bool,
        Field(description="Answer when it is done, or after five minutes; it runs on by itself either way"),
        Otherwise(False),
    ] = False


class ReindexedCollection(WireResponse):
    """A collection whose vectors another model made."""

    collection: str
    connection: str
    status: Annotated[
        Literal["needed", "running", "done", "failed"],
        Field(description="failed: detail says why; asking again goes on with it"),
    ]
    documents: Count
    done: Annotated[Count, Field(description="Documents that have their new vectors")]
    detail: Annotated[str | None, Field(description="Why it failed")] = None


class ReindexResponse(WireResponse):
    """How far it is."""

    status: Annotated[
        Literal["current", "running", "waiting", "needed"],
        Field(
            description="current: every document has its vectors; running: they are being made, and the old ones "
            "answer where they can; waiting: they will be made once the embedder is there; needed: they are another "
            "model's, and nothing was begun"
        ),
    ]
    documents: Annotated[Count, Field(description="Documents in the index")]
    done: Annotated[Count, Field(description="Documents that have their vectors")]
    pending: Annotated[
        Count,
        Field(description="Documents that wait for theirs; the old vectors answer meanwhile, where there are some"),
    ]
    detail: Annotated[str | None, Field(description="Why it waits, or is needed")] = None
    collections: Annotated[
        list[ReindexedCollection] | None,
        Field(description="Collections that this server embeds and whose vectors were made by another model"),
    ] = None
