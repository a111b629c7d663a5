"""Answers about project documents and collections as a model reads them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rag_context.api import collection_operations, project_queries, search
from rag_context.api import collections as wire
from rag_context.api import projects as models
from rag_context.api.wire import WireResponse
from rag_context.domain.documents import counted

_LEVELS = {
    3: "Nothing could be searched: the documents here do not depend on the question. Say so.",
    4: "Nothing was searched: the documents here do not depend on the question. Say so.",
}
_SHOWN = 20
_LAST_SEARCHED = 2


def _activated(body: models.ActivateProjectResponse) -> Iterator[str]:
    yield f"Active: {_whose(body)}, {counted(body.total_docs, 'document')}."
    types = [f"{each.name} {each.doc_count}" for each in body.doc_types if each.doc_count]
    if types:
        yield f"Types: {', '.join(types)}."
    yield f"activation: {body.activation}"
    yield from _bounded(body.warnings)


def _queried(body: project_queries.RagQueryResponse) -> Iterator[str]:
    yield from _label(body)
    if body.answer is not None:
        yield body.answer
        yield ""
    if body.answer_note is not None and (body.answer is not None or not body.context):
        yield body.answer_note
    if body.omitted:
        yield f"Left out because of max_tokens: {', '.join(body.omitted_docs)}."
    elif not body.context and body.fallback_level <= _LAST_SEARCHED:
        yield f"No document of {_whose(body)} answers this. Other words, or a lower min_relevance_score, may help."
    if not body.context:
        return
    yield f"From {_whose(body)}; {body.token_count} tokens."
    yield ""
    yield body.context


def _searched(body: project_queries.SemanticSearchResponse) -> Iterator[str]:
    yield from _label(body)
    if body.results:
        yield f"{counted(len(body.results), 'document')} of {_whose(body)}, the most relevant first."
    elif body.fallback_level <= _LAST_SEARCHED:
        yield f"No document of {_whose(body)} is about this. Other words, or a lower min_relevance_score, may help."
    for number, result in enumerate(body.results, 1):
        yield f"[{number}] {_source(result)}"
        if result.summary:
            yield f"    {result.summary}"
        if result.snippet:
            under = f"{result.heading} · " if result.heading else ""
            yield f"    {under}lines {result.start_line}-{result.end_line}: {' '.join(result.snippet.split())}"


def _read(body: models.ReadDocumentResponse) -> Iterator[str]:
    old = f" It is superseded by {', '.join(body.superseded_by)}." if body.superseded_by else ""
    yield f"{body.path} of {_whose(body)}, lines {body.start_line}-{body.end_line} of {body.total_lines}.{old}"
    if body.truncated:
        yield f"Read on from line {body.end_line + 1}."
    yield ""
    yield body.content


def _indexed(body: models.IndexDocumentResponse) -> Iterator[str]:
    later = "" if body.status == "indexed" else " Keyword search finds it now, vector search a little later."
    yield f"Indexed {body.path} of {_whose(body)}.{later}"
    yield from _bounded(body.warnings)


def _doc_types(body: models.ListDocTypesResponse) -> Iterator[str]:
    yield f"{_whose(body)} has {counted(body.total_docs, 'document')}."
    for each in body.doc_types:
        folder = f" in {each.folder}/" if each.folder else ""
        yield f"- {each.name} ({each.doc_count}{folder}): {each.description}"


def _deleted(body: models.DeleteDocumentsResponse) -> Iterator[str]:
    done = "would be removed (none was)" if body.dry_run else "removed from the index"
    yield f"{counted(body.deleted_count, 'document')} with {body.deleted_chunks} chunks {done}; the files stay."


def _listed(body: models.ListProjectsResponse) -> Iterator[str]:
    yield f"{len(body.projects)} projects are stored."
    for each in body.projects:
        path = f" · {each.path}" if each.path is not None else ""
        used = f" · last used {each.last_used.date().isoformat()}" if each.last_used is not None else ""
        warnings = "".join(f" · {warning}" for warning in each.warnings)
        yield f"- {_whose(each)}: {counted(each.documents, 'document')}{path}{used}{warnings}"


def _label(body: project_queries.LabelledResponse) -> Iterator[str]:
    if body.fallback:
        yield f"Level {body.fallback_level} of 4: {_LEVELS.get(body.fallback_level, f'{search.level_name(body)}.')}"
    yield from _bounded(body.warnings)
    if body.interpreted is not None:
        yield f"Time: {body.interpreted.sentence()}"


def _source(source: project_queries.Source) -> str:
    day = f" · {source.date.isoformat()}" if source.date is not None else ""
    level = f" · {source.promotion_level}" if source.promotion_level != "standard" else ""
    old = f" · superseded by {', '.join(source.superseded_by)}" if source.superseded_by else ""
    return (
        f"{source.title} · {source.path} · {source.doc_type}{day}{level} · relevance {source.relevance_score:.2f}{old}"
    )


def _bounded(warnings: list[str]) -> Iterator[str]:
    yield from (f"Warning: {warning}" for warning in warnings[:_SHOWN])
    if len(warnings) > _SHOWN:
        yield f"and {len(warnings) - _SHOWN} more warnings"


def _whose(body: models.ProjectResponse) -> str:
    return f"project {body.project_name} (branch {body.branch_name}, {body.path_hash})"


def _collections(body: wire.CollectionsResponse) -> Iterator[str]:
    for one in body.collections:
        yield f"{one.name} ({one.count} documents{', read only' if one.read_only else ''})"
    if not body.collections:
        yield "No collections."


def _deleted_matching(body: wire.DeletedMatchingResponse) -> Iterator[str]:
    done = "would be deleted" if body.status == "preview" else "deleted"
    yield f"{body.count_deleted} documents {done}: {', '.join(body.ids)}"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _found(body: wire.QueryResponse) -> Iterator[str]:
    yield f"{len(body.results)} documents, best first." if body.results else "Nothing found."
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] id {result.id} · score {result.score:.2f}"
        yield result.text.strip("\n")


def _documents(body: wire.DocumentsResponse) -> Iterator[str]:
    yield f"{body.count} of {body.total} documents."
    for document in body.documents:
        yield ""
        yield f"id {document.id} · {_compact(document.metadata)}"
        yield document.text.strip("\n")


def _conversed(body: collection_operations.ConverseResponse) -> Iterator[str]:
    count = len(body.results)
    yield f"{count} document{'' if count == 1 else 's'} for {body.query!r} ({body.strategy}), nearest first."
    for omitted in body.omitted:
        yield f"Not searched: {omitted.collection} on connection {omitted.connection}: {omitted.error}"
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] {result.collection} · id {result.id} · score {result.score:.2f}"
        yield result.text.strip("\n")


FEATURES: Mapping[type[WireResponse], Callable[[Any], Iterable[str]]] = {
    models.ActivateProjectResponse: _activated,
    project_queries.RagQueryResponse: _queried,
    project_queries.SemanticSearchResponse: _searched,
    models.ReadDocumentResponse: _read,
    models.IndexDocumentResponse: _indexed,
    models.ListDocTypesResponse: _doc_types,
    models.UpdatePromotionLevelResponse: lambda body: [
        f"{body.document_path} of {_whose(body)} is {body.new_level} now; it was {body.previous_level}."
    ],
    models.DeleteDocumentsResponse: _deleted,
    models.ListProjectsResponse: _listed,
    collection_operations.ConverseResponse: _conversed,
    wire.QueryResponse: _found,
    wire.DocumentsResponse: _documents,
    wire.CollectionsResponse: _collections,
    wire.CollectionResponse: lambda body: [f"{body.name}: {body.count} documents. {_compact(body.metadata)}"],
    wire.AddedDocumentsResponse: lambda body: [f"{body.count} documents stored: {', '.join(body.ids)}"],
    wire.DeletedMatchingResponse: _deleted_matching,
    wire.DroppedCollectionResponse: lambda body: [f"Collection {body.collection} deleted."],
    wire.MetadataResponse: lambda body: [f"Metadata of {body.collection}: {_compact(body.metadata)}"],
    wire.UpdatedDocumentResponse: lambda body: [f"Metadata of document {body.id}: {_compact(body.metadata)}"],
    wire.ValuesResponse: lambda body: [f"{body.count} values of {body.field}: {_compact(body.values)}"],
}
"""The lines of each answer."""
