"""What collections hold for a talk, as a model reads it."""

from collections.abc import Iterator

from rag_context.contract.converse import ConverseResponse
from rag_context.contract.wire import WireResponse


def readable_conversation(body: WireResponse) -> str | None:
    """The answer in words; None for another kind of answer."""
    return "\n".join(_lines(body)) if isinstance(body, ConverseResponse) else None


def _lines(body: ConverseResponse) -> Iterator[str]:
    count = len(body.results)
    yield f"{count} document{'' if count == 1 else 's'} for {body.query!r} ({body.strategy}), nearest first."
    for omitted in body.omitted:
        yield f"Not asked: {omitted.collection} on connection {omitted.connection}: {omitted.error}"
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] {result.collection} · id {result.id} · score {result.score:.2f}"
        yield result.text.strip("\n")
