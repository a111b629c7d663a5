"""The memory as it exists for a key with bounds: the same use cases over ports that know nothing else.

A service for a key is made of these ports (`Service.bound_to`), so that no use case can forget the bounds: what a port
does not say here cannot be called. Every operation declares its reach, and one that declares none is rejected. Of
projects and collections whole ones exist or not, and the stores keep their statistics apart already. Of the agents'
memory a key may have a part, in which scores must not betray the rest: words are weighed by how many passages of the
part hold them, and how often or in how long a text is left out, because stores compare that with all passages. A word
that is in more than `MOST_HITS` of them has no weight. Answers are not cached, and vectors of queries apart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from cachetools import LRUCache

from rag_context import errors
from rag_context.api.collection_operations import ConverseRequest, ListCollectionsRequest
from rag_context.api.collections import CollectionsResponse
from rag_context.api.handlers import CallContext, Handler
from rag_context.api.operations import Access, Operation, Reach
from rag_context.api.operations.memory import FORGET
from rag_context.api.wire import WireResponse
from rag_context.collections.provider_connections import CollectionRef
from rag_context.domain.callers import Bounds, cached_apart
from rag_context.domain.documents import Cursor, Document, Listing, Missing, Shelf, Stored, Tenant, TenantState
from rag_context.domain.journal import Cause, Change, Entry, Link, Selection
from rag_context.domain.reports import FieldCounts
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, VectorHit
from rag_context.domain.text import inverse_document_frequency, query_terms
from rag_context.domain.vectors import Vector
from rag_context.ingest.submissions import Receipt, Submission
from rag_context.memory import accesses
from rag_context.ports.reading import DocumentStore, IndexVectors, KeywordIndex
from rag_context.ports.writing import Journal
from rag_context.search.retrievers import Backends

MOST_HITS = 5_000
MOST_WORDS = 24
"""Of a query; each is searched by itself."""

MOST_COUNTED = 10_000
"""Documents of a key's part that answers count."""

QUERIES = 64
"""Whose words are remembered while the index does not change."""

MOST_SELECTED = 10_000

_IDS = ("document_id", "id")
_NAMES = ("name", "project", "project_name")
"""Fields that say what a call is about. Sources and tags may hold what was deleted since."""
_LOOKS = ("status_only", "dry_run")
"""Fields by which a call changes nothing."""


class _Documents:
    """`DocumentStore` of a key: those methods that its use cases call."""

    def __init__(self, inner: DocumentStore, bounds: Bounds) -> None:
        self._inner = inner
        self._bounds = bounds
        # Of documents that were found within the bounds; what they return is theirs alone.
        self.passages, self.chunks, self.retrievals = inner.passages, inner.chunks, inner.retrievals
        # Whether a count is still right, of which the key sees its own part only.
        self.ping, self.has_all_vectors = inner.ping, inner.has_all_vectors

    @property
    def version(self) -> int:
        return self._inner.version

    async def get(self, document_id: str) -> Document | None:
        found = await self._inner.get(document_id)
        return found if found is not None and self._bounds.admits(found.tenant, found.metadata.tags) else None

    async def stored(self, document_id: str) -> Stored | None:
        return await self._inner.stored(document_id) if await self.get(document_id) is not None else None

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        """Those within the bounds: the messages around one may be another agent's."""
        found = await self._inner.neighbours(chunk_ids)
        near = {ref.id for each in found.values() for ref in each if ref is not None}
        passages = await self._inner.passages([*{*chunk_ids, *near}])

        def is_in(id_: str) -> bool:
            passage = passages.get(id_)
            return passage is not None and self._bounds.admits(Tenant(), passage.metadata.tags)

        def kept(ref: ChunkRef | None) -> ChunkRef | None:
            return ref if ref is not None and is_in(ref.id) else None

        # Of a project, whose documents have no such tags, all are.
        return {id_: Neighbours(*map(kept, near)) if is_in(id_) else near for id_, near in found.items()}

    async def matching(self, where: Filter, limit: int) -> list[str]:
        narrowed = self._bounds.narrowed(where)
        return [] if narrowed is None else await self._inner.matching(narrowed, limit)

    async def listing(self, where: Filter, *, limit: int, after: Cursor | None = None) -> list[Listing]:
        narrowed = self._bounds.narrowed(where)
        return [] if narrowed is None else await self._inner.listing(narrowed, limit=limit, after=after)

    async def field_counts(self, where: Filter, most: int) -> FieldCounts:
        narrowed = self._bounds.narrowed(where)
        return FieldCounts({}) if narrowed is None else await self._inner.field_counts(narrowed, most)

    async def missing_vectors(self, where: Filter) -> Missing:
        narrowed = self._bounds.narrowed(where)
        return Missing() if narrowed is None else await self._inner.missing_vectors(narrowed)

    async def tenants(self) -> list[Tenant]:
        return [each for each in await self._inner.tenants() if self._bounds.has(each)]

    async def tenant_state(self, tenant: Tenant) -> TenantState:
        if self._bounds.has(tenant) and not self._bounds.is_part_of(tenant):
            return await self._inner.tenant_state(tenant)
        return TenantState(str(self.version), len(await self.matching(Filter(tenant), MOST_COUNTED)))


class _Vectors:
    def __init__(self, inner: IndexVectors, bounds: Bounds) -> None:
        self._inner = inner
        self._bounds = bounds
        self.score, self.passages, self.vectors, self.ping = inner.score, inner.passages, inner.vectors, inner.ping

    @property
    def made_by(self) -> str | None:
        return self._inner.made_by

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        narrowed = self._bounds.narrowed(where)
        return [] if narrowed is None else await self._inner.search(vector, limit=limit, where=narrowed)


class _Texts:
    """`KeywordIndex` of a key, whose scores of a part of the memory follow from that part alone."""

    def __init__(self, inner: KeywordIndex, documents: DocumentStore, bounds: Bounds) -> None:
        self._inner = inner
        self._documents = documents
        self._bounds = bounds
        self._weighed: LRUCache[tuple[str, Tenant, int], Mapping[str, KeywordHit]] = LRUCache(QUERIES)

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        narrowed = self._bounds.narrowed(where)
        if narrowed is None:
            return []
        if not self._bounds.is_part_of(where.tenant):
            return await self._inner.search(query, limit=limit, where=narrowed)
        found, weighed = await self._by_word(query, narrowed), await self._of(query, where.tenant)
        hits = [weighed[id_] for id_ in {id_ for chunks in found for id_ in chunks} if id_ in weighed]
        return sorted(hits, key=lambda hit: (-hit.bm25, hit.chunk.id))[:limit]

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        if not self._bounds.is_part_of(tenant):
            return await self._inner.score(query, chunks, tenant=tenant)
        hits = await self._of(query, tenant)
        return {chunk.id: hits[chunk.id] for chunk in chunks if chunk.id in hits}

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        if not self._bounds.is_part_of(tenant):
            return await self._inner.conversations(query, threads, tenant=tenant)
        return {}  # others take part in them

    async def _of(self, query: str, tenant: Tenant) -> Mapping[str, KeywordHit]:
        """The passages of the key's part that hold words of a query, by their ids."""
        key = query, tenant, self._documents.version
        known = self._weighed.get(key)
        if known is None:
            whole = self._bounds.narrowed(Filter(tenant))
            found = [] if whole is None else await self._by_word(query, whole)
            known = self._weighed[key] = _weighed(found)
        return known

    async def _by_word(self, query: str, where: Filter) -> list[dict[str, ChunkRef]]:
        """The chunks that hold each word of a query; none where they are too many."""
        words = [word for word in dict.fromkeys(query.split()) if query_terms(word)][:MOST_WORDS]
        found = await asyncio.gather(*(self._inner.search(word, limit=MOST_HITS + 1, where=where) for word in words))
        return [{hit.chunk.id: hit.chunk for hit in hits} if len(hits) <= MOST_HITS else {} for hits in found]


def _weighed(found: Sequence[Mapping[str, ChunkRef]]) -> Mapping[str, KeywordHit]:
    """Scores by the words that each chunk holds: one is worth more the fewer of the chunks have it."""
    chunks = {id_: chunk for hits in found for id_, chunk in hits.items()}
    weights = [inverse_document_frequency(len(chunks), len(hits)) for hits in found]
    scores = dict.fromkeys(chunks, 0.0)
    for hits, weight in zip(found, weights, strict=True):
        for id_ in hits:
            scores[id_] += weight
    total = sum(weights) or 1.0
    return {id_: KeywordHit(chunks[id_], score, min(score / total, 1.0)) for id_, score in scores.items()}


class _Journal:
    """`Journal` of a key: of documents within its bounds, and without the numbers of entries, which count all."""

    def __init__(self, inner: Journal, documents: _Documents) -> None:
        self._inner = inner
        self._documents = documents
        self.sizes = inner.sizes

    async def links(self, document_ids: Collection[str]) -> dict[str, Link]:
        found = await self._inner.links(document_ids)
        return {link.place.id: link for link in await self._visible(found.values())}

    async def chain(self, document_id: str, tenant: Tenant) -> list[Link]:
        return await self._visible(await self._inner.chain(document_id, tenant))

    async def selected(
        self, tenant: Tenant, selection: Selection, shelves: Collection[Shelf | None], limit: int
    ) -> list[Link]:
        return (await self._visible(await self._inner.selected(tenant, selection, shelves, MOST_SELECTED)))[:limit]

    async def make(self, change: Change) -> Entry:
        return replace(await self._inner.make(change), sequence=0)

    async def _visible(self, links: Collection[Link]) -> list[Link]:
        found = [link for link in links if await self._documents.get(link.place.id) is not None]
        return [await self._without_others(link) for link in found]

    async def _without_others(self, link: Link) -> Link:
        """The link without the document that took its place, and the reason, where that is out of bounds."""
        later = link.place.superseded_by
        if later is None or await self._documents.get(later) is not None:
            return link
        return replace(link, place=replace(link.place, superseded_by=None), reason=None)


def bounded_backends(backends: Backends, bounds: Bounds) -> Backends:
    """The ports of a search that know nothing out of bounds; each part is read by itself."""
    documents = cast("DocumentStore", _Documents(backends.documents, bounds))
    return replace(
        backends,
        documents=documents,
        vectors=_Vectors(backends.vectors, bounds),
        texts=_Texts(backends.texts, documents, bounds),
        candidates=None,
        keyword_candidates=None,
    )


def bounded_journal(journal: Journal, backends: Backends) -> Journal:
    """The journal over the documents of `bounded_backends`."""
    return cast("Journal", _Journal(journal, cast("_Documents", backends.documents)))


async def stamped(
    documents: DocumentStore, bounds: Bounds, given: Submission | errors.RagContextError, has_journal: bool
) -> Submission | errors.RagContextError:
    """A document as a key with bounds stores it, or why it may not; `documents` are those of the key."""
    if isinstance(given, errors.RagContextError):
        return given
    for id_ in given.revision.supersedes:
        if await documents.get(id_) is None:
            message = f"There is no document {id_} to supersede"
            return errors.InvalidInputError(message, [errors.FieldError("supersedes", message)])
    try:
        document = bounds.stamped(given.document)
    except errors.RagContextError as error:
        return error
    # What others forgot is stored again: to reject it would tell that they had it.
    return Submission(document, (), given.defer_vectors, replace(given.revision, is_forced=has_journal))


async def known_to_key(documents: DocumentStore, result: Receipt | Exception) -> Receipt | Exception:
    """A result that names no document out of bounds; `documents` are those of the key."""
    if isinstance(result, errors.ConflictError):
        return errors.ConflictError("It was corrected already, or changed meanwhile; nothing was stored")
    if not isinstance(result, Receipt) or not result.duplicates_of:
        return result
    known = [id_ for id_ in result.duplicates_of if await documents.get(id_) is not None]
    return replace(result, duplicates_of=tuple(known))


def within_bounds(
    operation: Operation[Any, Any], run: Handler, performers: Callable[[Bounds], Mapping[str, Handler]]
) -> Handler:
    """What performs an operation within its caller's bounds, and records it; `performers` are for documents."""

    async def kept_within(request: Any, context: CallContext) -> WireResponse:
        bounds = context.caller.bounds
        if bounds is None:
            return await run(request, context)
        with cached_apart(bounds):
            match operation.reach:
                case Reach.DOCUMENTS:
                    return await performers(bounds)[operation.name](request, context)
                case Reach.PROJECT:  # `ProjectResolver` and `list_projects` ask the caller
                    return await run(request, context)
                case Reach.COLLECTIONS:
                    return await _of_collections(bounds, request, lambda: run(request, context))
        raise errors.ForbiddenError(
            f"{operation.name} is about the whole memory, and this API key is bound to parts of it"
        )

    async def audited(request: Any, context: CallContext) -> WireResponse:
        outcome, response = "ok", None
        try:
            return (response := await kept_within(request, context))
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            changes = operation.access is not Access.READ and not any(getattr(request, each, False) for each in _LOOKS)
            if changes or outcome == errors.ForbiddenError.__name__:
                # To forget, an agent is named whose documents go, and its name with them.
                agent = None if operation.name == FORGET.name else getattr(request, "agent", None)
                client = agent or Cause.now().by
                ids = dict.fromkeys((*_stated(request, _IDS), *_stated(response, _IDS)))
                target = [*ids, *map(accesses.hashed, _stated(request, _NAMES))]
                accesses.record(operation.name, outcome, key=context.caller.key, client=client, target=target)

    return audited


def _stated(request: Any, fields: Sequence[str]) -> list[str]:
    return [value for value in (getattr(request, name, None) for name in fields) if isinstance(value, str)]


async def _of_collections(bounds: Bounds, request: Any, run: Callable[[], Awaitable[WireResponse]]) -> WireResponse:
    if isinstance(request, ConverseRequest):
        require_collections(bounds, *map(_ref, request.collections))
    elif not isinstance(request, ListCollectionsRequest):
        require_collections(bounds, CollectionRef(request.name, request.connection))
    if not isinstance(request, ListCollectionsRequest):
        return await run()
    allowed = set(map(_ref, bounds.collections))
    if all(ref.connection != request.connection for ref in allowed):
        return CollectionsResponse(collections=[], count=0)
    response = cast("CollectionsResponse", await run())
    listed = [each for each in response.collections if CollectionRef(each.name, each.connection) in allowed]
    return response.model_copy(update={"collections": listed, "count": len(listed)})


def require_collections(bounds: Bounds | None, *refs: CollectionRef) -> None:
    """Check that collections are within bounds. Raises: NotFoundError, as where there is none of that name."""
    for ref in refs:
        if bounds is not None and ref not in map(_ref, bounds.collections):
            raise errors.NotFoundError(f"Collection '{ref.name}' not found")


def _ref(text: str) -> CollectionRef:
    connection, colon, name = text.partition(":")
    return CollectionRef(name, connection) if colon else CollectionRef(text)
