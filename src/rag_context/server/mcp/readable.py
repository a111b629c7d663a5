"""What models read: answers in short, with what matters first and the facts of the JSON, and schemas without bounds.

A list of tools is part of every conversation, and paid for in tokens. Some clients also reject what only a validator
needs: `propertyNames`, patterns against control characters, `additionalProperties` (outside of Gemini's subset).
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from rag_context.api import changes, index, maintenance, parsing, stored_documents
from rag_context.api.search import SearchFailure, SearchResponse, SearchResult, StandingInstruction, level_name
from rag_context.api.wire import CATEGORIES, Schema, WireResponse
from rag_context.domain.documents import counted
from rag_context.domain.quoted_text import LIKE_INSTRUCTION, without_tags
from rag_context.server.mcp.readable_features import FEATURES

_SHOWN_IDS = 20
_LAST_SEARCHED = 2
_LEVELS = {
    3: "Nothing could be searched: go on without context, and say so.",
    4: "Nothing was searched: go on without context, and say so.",
}


def readable(body: WireResponse) -> str:
    """The answer as text; empty for a kind that has none."""
    # An answer that extends another one reads like it, so the nearest kind decides.
    lines = next((_LINES[kind] for kind in type(body).__mro__ if kind in _LINES), None)
    return "" if lines is None else "\n".join(lines(_unmarked(body)))


_TEXTS = frozenset({"content", "text", "before", "after", "excerpt"})
"""Fields of results that have lines of their own."""

_WHOLE = frozenset({"context", "answer"})
"""Texts of one answer, of several lines."""

_BREAK = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""What ends a line or changes its direction."""

_STANDING = "Quoted from what the user told an assistant earlier"

_MARKER = re.compile(
    "(\\A|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])"  # where a line begins, for any reader
    "([ \t>\u00a0\u00ad\u2000-\u200f\u202a-\u202f\u2060-\u2069\u3000\ufeff]{0,32})"
    rf"(?=\[\d{{1,6}}\][ \t]|{_STANDING}|Warning: |Level \d of 4: |- \d{{4}}-\d\d-\d\d · "
    r"|\d{1,6} passages? from |Probably none of them)"
)
"""Lines that would pass for one of those around passages."""


def _unmarked(body: Any, *, name: str = "", is_result: bool = False) -> Any:
    """An answer in which no text of a caller or a document reads like a line of the answer itself.

    Marks in passages get a backslash. The text of a document that was read as a whole stays as it is.
    """
    if isinstance(body, str):
        if name in _TEXTS:
            return _MARKER.sub(r"\1\2\\", without_tags(body)) if is_result else body
        line = body if name in _WHOLE and not is_result else _BREAK.sub(" ", body)
        return line.replace(" · ", " - ") if is_result else line  # a dot separates the fields of a result
    if isinstance(body, list):
        return [_unmarked(each, name=name, is_result=True) for each in body]
    if isinstance(body, WireResponse):
        values = {field: getattr(body, field) for field in type(body).model_fields}
        return body.model_copy(
            update={field: _unmarked(value, name=field, is_result=is_result) for field, value in values.items()}
        )
    return body


def passages(results: list[SearchResult]) -> Iterator[str]:
    """Each passage below a line that says where it is from and how relevant."""
    for number, result in enumerate(results, 1):
        yield ""
        yield _headline(number, result)
        around = result.context
        if around is not None and around.before:
            yield _quoted(around.before)
        yield result.content.strip("\n")
        if around is not None and around.after:
            yield _quoted(around.after)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.strip("\n").split("\n"))


def _search(body: SearchResponse) -> Iterator[str]:
    if body.fallback_level != 1:
        yield f"Level {body.fallback_level} of 4: {_LEVELS.get(body.fallback_level, f'{level_name(body)}.')}"
    if body.warning:
        yield f"Warning: {body.warning}"
    if body.results:
        yield f"{counted(len(body.results), 'passage')} from {counted(body.total_indexed, 'document')}, best first."
    elif not body.omitted and body.fallback_level <= _LAST_SEARCHED:
        yield f"Nothing found in {counted(body.total_indexed, 'document')}. Other words or fewer filters may help."
    if body.interpreted is not None:
        yield f"Time: {body.interpreted.sentence()}"
    if body.no_answer and body.results:
        yield "Probably none of them answers the question."
    if body.other_speaker and body.results:
        yield f"Probably said by {body.other_speaker}, not by the person in the question."
    if body.omitted:
        yield f"{body.omitted} more were left out because of maxTokens."
    yield from passages(body.results)
    if body.standing:
        whole = {(result.chunk_id, result.content): f"[{at}]" for at, result in enumerate(body.results, 1)}
        yield from _standing(body.standing, whole)


def _standing(standing: list[StandingInstruction], shown: Mapping[tuple[str | None, str], str]) -> Iterator[str]:
    """Quotations with date and source; what is among the passages as a whole is not said twice."""
    yield ""
    yield f"{_STANDING}; these instructions may apply here:"
    for each in standing:
        if passage := shown.get((each.chunk_id, each.content)):
            yield f"- {_day(each.occurred_at)} · passage {passage}"
        else:
            yield f"- {_day(each.occurred_at)} · {each.source} · documentId {each.document_id}"
            yield _quoted(each.content)


def _headline(number: int, result: SearchResult) -> str:
    where = result.source
    if result.start_line is not None:
        end = result.end_line if result.end_line is not None else result.start_line
        where += f":{result.start_line}" + (f"-{end}" if end != result.start_line else "")
    parts = [f"[{number}] {where}", f"relevance {result.score:.2f}", result.content_type, _day(result.occurred_at)]
    parts += [f"origin {result.origin}"] if result.origin != "unknown" else []
    if result.instruction_like:
        parts.append(LIKE_INSTRUCTION)
    parts += _labels(result.metadata)
    title = result.title or ""
    if result.heading:
        parts.append(result.heading)
    elif title.removesuffix(" …") not in result.content:  # a document may be titled by its first line
        parts.append(title)
    if result.document_id:
        parts.append(f"documentId {result.document_id}")
    if result.newer_version is not None:
        parts.append(f"a later statement gives another value: documentId {result.newer_version.document_id}")
    parts += [sentence for each in result.references or () if (sentence := each.sentence()) is not None]
    if result.superseded_by is not None:
        parts.append(f"superseded by documentId {result.superseded_by}")
        parts.append(f"because: {result.reason}" if result.reason else "")
    return " · ".join(part for part in parts if part)


def _labels(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Who made a document, and what it is filed under; a tag `project:NAME` says which project it belongs to."""
    for name in ("agent", "category"):
        if metadata.get(name):
            yield f"{name} {metadata[name]}"
    if tags := metadata.get("tags"):
        yield f"tags {', '.join(tags)}"


def _similar(body: stored_documents.SimilarResponse) -> Iterator[str]:
    if body.warning:
        yield f"Warning: {body.warning}"
    how = "vectors" if body.method == "vector" else "keywords only"
    yield f"{counted(len(body.results), 'similar document')}, nearest first, compared by {how}."
    for number, result in enumerate(body.results, 1):
        yield ""
        yield f"[{number}] {_named(result)} · score {result.score:.2f} · {_origin(result)}"
        yield result.content.strip("\n")


def _list(body: stored_documents.ListResponse) -> Iterator[str]:
    if body.warning:
        yield f"Warning: {body.warning}"
    yield f"{counted(len(body.documents), 'document')}, newest first."
    for document in body.documents:
        mark = " · pending" if document.status == "pending" else ""
        yield f"- {_named(document)} · {_origin(document)}{mark}"
    if body.next_cursor:
        yield f"There are more: call again with cursor {body.next_cursor}"


def _named(document: stored_documents.ListedDocument | stored_documents.SimilarDocument) -> str:
    return f"{document.title or document.source} · {document.content_type} · {_days(document)}"


def _origin(document: stored_documents.ListedDocument | stored_documents.SimilarDocument) -> str:
    return f"{document.source} · session {document.session_id} · documentId {document.document_id}"


def _get(body: stored_documents.GetResponse) -> Iterator[str]:
    yield f"{body.title or body.source} · {body.content_type} · {_days(body)} · {body.source}"
    count = body.retrieval_stats.query_count
    times = f"returned by {counted(count, 'search', 'searches')}" if count else "never returned by a search"
    of = f"origin {body.origin} · " if body.origin != "unknown" else ""
    yield f"session {body.session_id} · {of}{counted(body.chunks, 'chunk')} · {body.status} · {times}"
    yield ""
    yield body.content


def _index(body: index.IndexResponse) -> Iterator[str]:
    outcomes = {
        "indexed": "Stored.",
        "unchanged": "Already stored; nothing changed.",
        "replaced": "Stored in place of its earlier version.",
        "pending": "Stored. Keyword search finds it now, vector search a little later.",
    }
    yield f"{outcomes[body.status]} documentId {body.document_id}, {counted(body.chunks_indexed, 'chunk')}."
    if body.warning:
        yield f"Warning: {body.warning}"
    if body.redactions:
        kinds = ", ".join(f"{kind} {count}" for kind, count in body.redactions.items())
        yield f"Secrets masked: {kinds}."
    if body.duplicates_of:
        yield f"Nearly the same content as: {_ids(body.duplicates_of)}."


def _index_files(body: index.IndexFilesResponse) -> Iterator[str]:
    done = "Done" if body.status == "done" else "Still running; call again with the same path for the progress. So far"
    yield f"{done}: {body.indexed} indexed, {body.replaced} replaced, {body.unchanged} unchanged."
    if body.pending:
        yield f"{body.pending} of them are found by keyword search now; their vectors follow."
    if body.gone:
        yield f"{counted(body.gone, 'document')} whose file no longer exists can still be found."
    if body.rejected or body.skipped:
        yield f"{counted(body.rejected, 'file')} could not be read, {body.skipped} skipped, among them:"
        yield from (f"- {each.source}: {each.reason}" for each in body.left_out)


def _delete(body: stored_documents.DeleteResponse) -> Iterator[str]:
    done = "would be deleted" if body.dry_run else "deleted"
    ids = f": {_ids(body.document_ids)}" if body.document_ids else ""
    yield f"{counted(body.deleted_count, 'document')} {done}{ids}." + (" Nothing was changed." if body.dry_run else "")


def _history(body: changes.HistoryResponse) -> Iterator[str]:
    for version in body.versions:
        line = f"- {_day(version.timestamp)} · documentId {version.document_id} · {version.source}"
        if version.superseded_by is not None:
            line += f" · superseded by {version.superseded_by}"
        yield line + (f" · because: {version.reason}" if version.reason else "")


def _log(body: changes.LogResponse) -> Iterator[str]:
    if not body.entries:
        yield "Nothing was changed yet."
    for entry in body.entries:
        places = (place for move in entry.moves if (place := move.after or move.before) is not None)
        what = entry.source or _ids([place.document_id for place in places])
        more = f" and {entry.count - 1} more" if entry.count > 1 else ""
        notes = [f"because: {entry.reason}"] if entry.reason else []
        notes += [f"takes back {entry.undoes}"] if entry.undoes else []
        notes += ["can be undone"] if entry.undoable else []
        facts = [f"{entry.id} {entry.operation}", f"{what}{more}", f"by {entry.by}", *notes]
        yield f"- {_day(entry.at)} · {' · '.join(facts)}"
    if body.next_before is not None:
        yield f"There are more: before {body.next_before}."


def _review(body: changes.ReviewResponse) -> Iterator[str]:
    for each in body.suggestions:
        yield f"- {each.kind}: {each.detail}."
        for document in each.documents:
            facts = f"documentId {document.document_id} · {document.source} · {_day(document.occurred_at)}"
            yield f"  - {facts} · {document.origin}: {' '.join(document.excerpt.split())}"
        calls = (f"{call.action} by {call.tool} {json.dumps(call.arguments)}" for call in each.calls)
        yield f"  decide: {'; '.join(calls)}"
    yield f"{counted(body.examined, 'document')} examined, {counted(len(body.suggestions), 'suggestion')}."
    if body.next_cursor is not None:
        yield f"There are more documents: cursor {body.next_cursor}."


def _forget(body: changes.ForgetResponse) -> Iterator[str]:
    done = "purged" if body.purged else "forgotten"
    parts = [counted(body.passages, "passage"), counted(body.vectors, "vector"), counted(body.derived, "derived row")]
    yield f"{counted(body.documents, 'document')} {'would be ' if body.dry_run else ''}{done}: {', '.join(parts)}."
    for each in body.listed:
        yield f"- documentId {each.document_id} · {each.source}"
    if body.documents > len(body.listed):
        yield f"And {body.documents - len(body.listed)} more."
    if body.queries is not None:
        yield f"{counted(body.queries, 'record')} of searches deleted."
    elif body.purged and not body.dry_run:
        yield "Questions that were asked are recorded apart and may quote it: clearQueries removes them too."
    if body.dry_run:
        yield "Nothing was changed."
    elif body.id is not None and not body.purged:
        yield f"It can be undone: change {body.id}."


def _reindex(body: maintenance.ReindexResponse) -> Iterator[str]:
    states = {
        "current": "All documents have their vectors; nothing to do.",
        "running": "Documents are being embedded; keyword search finds those that have no vectors yet.",
        "waiting": "Documents will be embedded once the embedder is available.",
        "needed": "The vectors are another model's; call without statusOnly to re-embed the documents.",
    }
    detail = f" {body.detail}." if body.detail else ""
    yield f"{states[body.status]} {body.done} of {counted(body.documents, 'document')} done.{detail}"


def _health(body: maintenance.HealthResponse) -> Iterator[str]:
    yield "Healthy." if body.healthy else "Not healthy."
    yield f"{counted(body.indexed_documents, 'document')}, {body.pending_documents} of them without vectors yet."
    if body.circuit_breaker_open:
        yield "The circuit breaker is open: searches are level 4 for now."
    for part in body.components:
        yield f"- {part.role}: {part.status}" + (f" ({part.detail})" if part.detail else "")


def _stats(body: maintenance.StatsResponse) -> Iterator[str]:
    yield (
        f"{counted(body.total_queries, 'search', 'searches')}, {body.avg_latency:.1f} ms on average, "
        f"p95 {body.p95_latency:.1f} ms, p99 {body.p99_latency:.1f} ms; {body.cache_hit_rate:.0%} from the cache, "
        f"{body.fallback_rate:.0%} fallbacks; {counted(body.total_documents, 'document')} in the index."
    )
    if levels := body.queries_by_level_name():
        yield f"By level: {', '.join(f'{name}: {count}' for name, count in levels.items())}."
    if body.occurred is not None and body.indexed is not None:
        said, indexed = (f"{_day(span.first)} to {_day(span.last)}" for span in (body.occurred, body.indexed))
        yield f"Said or written {said}, indexed {indexed}."
    if origins := body.passages_by_origin:
        yield f"Passages by whose words they are: {', '.join(f'{name}: {count}' for name, count in origins.items())}."


def _injections(body: maintenance.InjectionsResponse) -> Iterator[str]:
    yield f"{counted(len(body.injections), 'record')}, {counted(body.tokens, 'token')} shown, newest first."
    for each in body.injections:
        about = f" before {each.subject}" if each.subject else ""
        moment = f"{_day(each.at)} · {each.client} {each.session_id} · {each.event}{about}"
        outcome = f"shown, {counted(each.tokens, 'token')}" if each.shown else f"withheld: {each.reason}"
        passage = f" · {each.title or 'a document that was deleted'} ({each.document_id})" if each.document_id else ""
        yield f"- {moment} · {outcome}{passage}"


def _error(body: parsing.ErrorResponse) -> Iterator[str]:
    yield f"{body.error} ({body.code})"
    for detail in body.details or ():
        if detail.message != body.error:
            yield f"- {detail.field or 'arguments'}: {detail.message}"
    if body.fallback:
        yield "Go on without context, and say so."


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
    return ", ".join(ids[:_SHOWN_IDS]) + more


def _day(moment: datetime) -> str:
    return moment.date().isoformat()


def _days(
    body: stored_documents.GetResponse | stored_documents.ListedDocument | stored_documents.SimilarDocument,
) -> str:
    """The day on which it was said or written, and, where that was another one, on which it was indexed."""
    occurred, indexed = _day(body.occurred_at), _day(body.timestamp)
    return occurred if occurred == indexed else f"{occurred} (indexed {indexed})"


_LINES: Mapping[type, Callable[[Any], Iterable[str]]] = {
    **FEATURES,
    SearchFailure: lambda body: [f"Search failed: {body.error}. {_LEVELS[body.fallback_level]}"],
    SearchResponse: _search,
    stored_documents.SimilarResponse: _similar,
    stored_documents.ListResponse: _list,
    stored_documents.GetResponse: _get,
    index.IndexResponse: _index,
    index.IndexFilesResponse: _index_files,
    stored_documents.DeleteResponse: _delete,
    changes.HistoryResponse: _history,
    changes.LogResponse: _log,
    changes.UndoResponse: lambda body: [
        f"Change {body.undone} is undone, by change {body.id}: {_ids(body.document_ids)}."
    ],
    changes.ReviewResponse: _review,
    changes.DecideResponse: lambda body: [f"Change {body.id}: {body.operation}."],
    changes.ForgetResponse: _forget,
    maintenance.ReindexResponse: _reindex,
    maintenance.HealthResponse: _health,
    maintenance.StatsResponse: _stats,
    maintenance.ClearQueriesResponse: lambda body: [
        f"{counted(body.deleted_count, 'record')} deleted. Documents stay."
    ],
    maintenance.InjectionsResponse: _injections,
    parsing.ErrorResponse: _error,
}

_FOR_VALIDATORS = frozenset(
    """additionalProperties propertyNames pattern minLength maxLength minItems maxItems minimum title not contains
    const""".split()  # noqa: SIM905
)


def for_models(schema: Schema, without: Collection[str] = ()) -> Schema:
    """The schema of a request in short; properties `without` are accepted and not listed."""
    simple = _simple({key: value for key, value in schema.items() if key != "description"})
    assert isinstance(simple, dict)  # noqa: S101  (a schema of a model is an object)
    return _listed(simple, without)


def _listed(node: Schema, without: Collection[str], path: str = "") -> Schema:
    properties = {
        name: _listed(each, without, f"{path}{name}.") if "properties" in each else each
        for name, each in node.get("properties", {}).items()
        # The built-in categories say something to few: only a configuration that adds to them has them listed.
        if path + name not in without and each.get("enum") != list(CATEGORIES)
    }
    return {**node, "properties": properties}


def for_clients(schema: Schema) -> Schema:
    """The schema of an answer without what strict clients reject."""
    simple = _simple(schema)
    assert isinstance(simple, dict)  # noqa: S101  (a schema of a model is an object)
    return simple


def _simple(node: Any) -> Any:
    if isinstance(node, list):
        return [_simple(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "properties" in node and isinstance(node["properties"], dict):
        properties = {name: _simple(value) for name, value in node["properties"].items()}
        return {**_simple({key: value for key, value in node.items() if key != "properties"}), "properties": properties}
    return {
        key: _simple(value)
        for key, value in node.items()
        if key not in _FOR_VALIDATORS and not (key == "default" and value is False)
    }
