"""What collections hold, as a model reads it."""

import json
from collections.abc import Iterator

from rag_context.api.collections import (
    AddedDocumentsResponse,
    CollectionResponse,
    CollectionsResponse,
    DeletedMatchingResponse,
    DocumentsResponse,
    DroppedCollectionResponse,
    MetadataResponse,
    QueryResponse,
    UpdatedDocumentResponse,
    ValuesResponse,
)
from rag_context.api.converse import ConverseResponse
from rag_context.api.wire import WireResponse


def readable_conversation(body: WireResponse) -> str | None:
    """The answer in words; None for another kind of answer."""
    match body:
        case ConverseResponse():
            return "\n".join(_lines(body))
        case QueryResponse():
            return "\n".join(_found(body))
        case DocumentsResponse():
            return "\n".join(_listed(body))
        case CollectionsResponse():
            names = [
                f"{one.name} ({one.count} documents{', read only' if one.read_only else ''})"
                for one in body.collections
            ]
            return "\n".join(names) or "No collections."
        case CollectionResponse():
            return f"{body.name}: {body.count} documents. {_compact(body.metadata)}"
        case AddedDocumentsResponse():
            return f"{body.count} documents stored: {', '.join(body.ids)}"
        case DeletedMatchingResponse():
            done = "would be deleted" if body.status == "preview" else "deleted"
            return f"{body.count_deleted} documents {done}: {', '.join(body.ids)}"
        case DroppedCollectionResponse():
            return f"Collection {body.collection} deleted."
        case MetadataResponse():
            return f"Metadata of {body.collection}: {_compact(body.metadata)}"
        case UpdatedDocumentResponse():
            return f"Metadata of document {body.id}: {_compact(body.metadata)}"
        case ValuesResponse():
            return f"{body.count} values of {body.field}: {_compact(body.values)}"
    return None


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _found(body: QueryResponse) -> Iterator[str]:
    yield f"{len(body.results)} documents, best first." if body.results else "Nothing found."
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] id {result.id} · score {result.score:.2f}"
        yield result.text.strip("\n")


def _listed(body: DocumentsResponse) -> Iterator[str]:
    yield f"{body.count} of {body.total} documents."
    for document in body.documents:
        yield ""
        yield f"id {document.id} · {_compact(document.metadata)}"
        yield document.text.strip("\n")


def _lines(body: ConverseResponse) -> Iterator[str]:
    count = len(body.results)
    yield f"{count} document{'' if count == 1 else 's'} for {body.query!r} ({body.strategy}), nearest first."
    for omitted in body.omitted:
        yield f"Not asked: {omitted.collection} on connection {omitted.connection}: {omitted.error}"
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] {result.collection} · id {result.id} · score {result.score:.2f}"
        yield result.text.strip("\n")
