"""What `adopt` reports of documents that other programs stored."""

from typing import Annotated

from rag_context.api.wire import WireResponse, about


class AdoptedSource(WireResponse):
    """What became of the records of one source; without outcomes it is what would be taken over."""

    source: str
    records: int
    documents: int
    superseded: Annotated[int, about("Records that are earlier versions of a document")]
    covered: Annotated[int, about("Passages of documents that another source has")]
    without_text: int
    outcomes: dict[str, int]
    rejected: int
    reasons: Annotated[dict[str, str], about("By record, why it was rejected; the first ones")]


class AdoptionReceipt(WireResponse):
    """What became of all sources."""

    dry_run: bool
    sources: list[AdoptedSource]
