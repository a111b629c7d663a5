"""The request and the response about what agents were shown unasked, and what was withheld from them."""

from typing import Annotated, Literal

from pydantic import Field

from rag_context.api.wire import WHOLE, Count, Flag, Identifier, Otherwise, UtcTime, WireRequest, WireResponse

MAX_INJECTIONS = 500
DEFAULT_INJECTIONS = 50


class InjectionsRequest(WireRequest):
    """Of which session, and how many."""

    session_id: Annotated[
        Identifier | None, Field(description="Session of the agent's client; absent: those of all sessions")
    ] = None
    limit: Annotated[
        int,
        Field(ge=1, le=MAX_INJECTIONS, description="Maximum number of records, the latest"),
        WHOLE,
        Otherwise(DEFAULT_INJECTIONS),
    ] = DEFAULT_INJECTIONS
    shown_only: Annotated[Flag, Field(description="Leave out what was withheld")] = False


class InjectedPassage(WireResponse):
    """A passage that was shown to an agent unasked, or withheld."""

    at: UtcTime
    session_id: str
    client: str
    event: Annotated[Literal["session-start", "prompt", "action"], Field(description="The moment of the session")]
    project: Annotated[str, Field(description="Tag of the project that the agent worked in")]
    subject: Annotated[str | None, Field(description="The file or the command, before an action")] = None
    shown: bool
    reason: Annotated[str | None, Field(description="Why it was withheld")] = None
    tokens: Annotated[Count, Field(description="What it cost; 0 if it was withheld")]
    scores: Annotated[
        dict[str, float], Field(description="What it was judged by: relevance, share of the terms, ranks")
    ]
    document_id: Annotated[str | None, Field(description="Absent where no passage was found at all")] = None
    title: Annotated[str | None, Field(description="Absent where the document was deleted since")] = None
    source: str | None = None
    content: Annotated[str | None, Field(description="The passage, as it is stored now")] = None


class InjectionsResponse(WireResponse):
    """The records, newest first."""

    injections: list[InjectedPassage]
    tokens: Annotated[Count, Field(description="Tokens that these records cost in all")]
