"""What an examination of the index says."""

from typing import Annotated

from pydantic import Field

from rag_context.api.wire import Count, WireResponse


class FlawReport(WireResponse):
    """One kind of flaw."""

    kind: str
    says: Annotated[str, Field(description="What is wrong")]
    count: Count
    examples: Annotated[list[str], Field(description="A few places, ids where there are some")]
    repair: Annotated[str, Field(description="What a repair does about it")]
    mendable: Annotated[bool, Field(description="Whether a repair can mend it")]


class CheckResponse(WireResponse):
    """The index as it was found, or as a repair left it."""

    sound: bool
    thoroughness: Annotated[str, Field(description="quick or full")]
    documents: Count
    pending: Count
    chunks: Count
    vectors: Count
    compared_terms: Annotated[
        Count, Field(description="Chunks whose terms were compared; fewer than `chunks` where a sample was taken")
    ]
    flaws: list[FlawReport]
    mended: Annotated[list[FlawReport] | None, Field(description="What a repair mended; absent without one")] = None
