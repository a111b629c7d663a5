"""Suggestions: what in a memory probably needs a decision, by rules. A call examines some documents, newest first.

What reads like an instruction to a model, or is of unknown origin, never begins a suggestion, and no text
begins one by which it would take the place of a more trusted one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta

from rag_context.api import changes as api
from rag_context.api.handlers import CallContext, performs
from rag_context.api.operations import memory
from rag_context.api.stored_documents import read_cursor, write_cursor
from rag_context.domain.documents import CODE, Chunk, Cursor, Document, Origin, Shelf, Tenant
from rag_context.domain.journal import Action, Cause, Change, Link, Location, Move
from rag_context.domain.quoted_text import reads_like_instruction
from rag_context.domain.search import Filter, Passage
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ingest.indexer import STORE_S
from rag_context.memory.changing import FILES, Changes
from rag_context.memory.mappers import tenant_of
from rag_context.projects.project_requests import TenantResolver
from rag_context.references.repositories import Cited, Repositories
from rag_context.search import newer, retrievers, rules

REVIEW_S = 2.0
"""A call examines no further document after this."""

AT_ONCE = 50
SHORT = 4
"""Documents of more chunks say too much to be set against each other as one statement."""

NEAREST = 8
UNUSED = timedelta(days=365)
SOON = timedelta(days=7)
MOST_KEPT = 10_000
"""Of the decisions to keep, so many are remembered, the latest."""


@dataclass
class _Examination:
    tenant: Tenant
    here: str | None
    now: datetime
    kept: set[tuple[str, tuple[tuple[str, str], ...]]]
    suggestions: list[api.Suggestion] = field(default_factory=list)


@dataclass(eq=False)
class Review:
    changes: Changes
    backends: retrievers.Backends
    tenants: TenantResolver
    repositories: Repositories | None
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime]

    def __post_init__(self) -> None:
        guarded = self.backends.guarded(STORE_S)
        self._documents, self._vectors = guarded.documents, guarded.vectors

    @performs(memory.REVIEW)
    async def review(self, request: api.ReviewRequest, context: CallContext) -> api.ReviewResponse:
        """Examine documents until there are enough suggestions or no time. Raises: InvalidInputError, BackendError."""
        tenant = tenant_of(await self.tenants.resolved(request))
        after = None if request.cursor is None else read_cursor(request.cursor)
        entries = await self.changes.journal.entries(tenant, before=None, limit=MOST_KEPT, action=Action.KEEP)
        examination = _Examination(tenant, context.project, self.now(), set())
        for entry in entries:
            places = tuple((move.before.id, move.before.content_hash) for move in entry.moves if move.before)
            examination.kept.add((entry.reason or "", places))
        ends, examined = self.clock() + REVIEW_S, 0
        while True:
            page = await self._documents.listing(Filter(tenant), limit=AT_ONCE, after=after)
            links = await self.changes.links([listed.id for listed in page])
            for listed in page:
                if listed.id in links:
                    await self._examine(links[listed.id], examination)
                examined, after = examined + 1, Cursor(listed.timestamp, listed.id)
                if len(examination.suggestions) >= request.limit or self.clock() > ends:
                    break
            else:
                if len(page) == AT_ONCE:
                    continue
                after = None
            break
        return api.ReviewResponse(
            suggestions=examination.suggestions,
            examined=examined,
            next_cursor=None if after is None else write_cursor(after),
        )

    @performs(memory.DECIDE)
    async def decide(self, request: api.DecideRequest) -> api.DecideResponse:
        """Take a decision. Raises: NotFoundError, InvalidInputError (it does not fit), ConflictError (changed)."""
        tenant = tenant_of(await self.tenants.resolved(request))
        ids = list(dict.fromkeys(request.document_ids))
        links = await self.changes.links(ids)
        for id_ in ids:
            if id_ not in links or links[id_].tenant != tenant:
                raise NotFoundError(f"Document {id_} not found")
        places = [links[id_].place for id_ in ids]
        moves, reason = [Move(place, place) for place in places], request.reason
        match request.decision:
            case "merge":
                message = FILES if tenant.has_files else "A merge needs two documents" if len(ids) < 2 else None
                if message is not None:
                    raise InvalidInputError(message, [FieldError("decision", message)])
                old = places[1]
                moves = [Move(old, Location(old.id, old.content_hash, Shelf.SUPERSEDED, ids[0]))]
                action = Action.CORRECT
            case "keep":
                action, reason = Action.KEEP, request.kind
            case "pin":
                action = Action.PIN
        cause = Cause.now()
        pins = action is Action.PIN
        entry = await self.changes.journal.make(Change(action, tenant, moves, cause.by, cause.at, reason, pins=pins))
        operation = "correct" if request.decision == "merge" else request.decision
        return api.DecideResponse(id=entry.sequence, operation=operation)

    async def _examine(self, link: Link, examination: _Examination) -> None:
        document = await self._documents.get(link.place.id)
        if document is None or document.content_type == CODE or document.origin is Origin.UNKNOWN:
            return
        if reads_like_instruction(document.content):
            return
        chunks = await self._documents.chunks(document.id)
        now = examination.now
        if link.expires_at is not None and not link.is_pinned and link.expires_at <= now + SOON:
            detail = f"It expires on {link.expires_at:%Y-%m-%d}"
            self._suggest(examination, "expiring", detail, [(link, _shown(document))])
        if document.timestamp < now - UNUSED:
            last = (await self._documents.retrievals(document.id)).last
            if last is None or last < now - UNUSED:
                detail = "No search has found it for a year"
                self._suggest(examination, "neverFound", detail, [(link, _shown(document))])
        await self._check_references(link, document, examination)
        if len(chunks) <= SHORT:
            await self._compare(link, document, chunks, examination)

    async def _check_references(self, link: Link, document: Document, examination: _Examination) -> None:
        if self.repositories is None:
            return
        cited = Cited(document.content, document.occurred_at.timestamp(), document.metadata.tags)
        checked = await self.repositories.check([cited], examination.here)
        found = [] if checked is None else [each for each in checked.references[0] if each.status in {"stale", "moved"}]
        if found:
            parts = [f"{each.text} {f'is now {each.now}' if each.now else 'no longer exists'}" for each in found]
            self._suggest(examination, "staleReference", "; ".join(parts), [(link, _shown(document))])

    async def _compare(
        self, link: Link, document: Document, chunks: Sequence[Chunk], examination: _Examination
    ) -> None:
        """Set a document against the earlier ones that are nearly the same, or whose statements are near to its own."""
        origins = tuple(Origin)
        earlier = Filter(examination.tenant, origins=origins[origins.index(document.origin) :])  # trusted no more
        (copies,) = await self._documents.similar([document])
        for id_ in copies[:NEAREST]:
            other = await self._documents.get(id_)
            if other is None or other.origin not in earlier.origins:
                continue
            if (other.occurred_at, other.id) < (document.occurred_at, document.id):
                detail, shown = "Both say nearly the same", (_shown(document), _shown(other))
                await self._suggest_pair(examination, "duplicate", detail, link, *shown)
        vectors = await self._vectors.vectors([chunk.id for chunk in chunks])
        for chunk in chunks:
            vector = vectors.get(chunk.id)
            hits = [] if vector is None else await self._vectors.search(vector, limit=NEAREST, where=earlier)
            near = [hit.chunk for hit in hits if hit.cosine >= rules.NEWER_STATEMENT_COSINE]
            near = [ref for ref in near if ref.document_id not in {document.id, *copies}]
            passages = await self._documents.passages([ref.id for ref in near])
            for passage in passages.values():
                if passage.content_type == CODE or passage.occurred_at >= chunk.occurred_at:
                    continue
                sentences = newer.contradiction(chunk.text, passage.chunk.text)
                stored = None if sentences is None else await self._documents.stored(passage.document_id)
                if sentences is not None and stored is not None and len(stored.chunk_ids) <= SHORT:
                    detail = "A later statement gives another value"
                    shown = _described(document, sentences[0]), _described(passage, sentences[1])
                    await self._suggest_pair(examination, "newerValue", detail, link, *shown)

    async def _suggest_pair(
        self,
        examination: _Examination,
        kind: api.Kind,
        detail: str,
        link: Link,
        later: api.SuggestedDocument,
        earlier: api.SuggestedDocument,
    ) -> None:
        other = (await self.changes.links([earlier.document_id])).get(earlier.document_id)
        if other is not None:
            self._suggest(examination, kind, detail, [(link, later), (other, earlier)])

    def _suggest(
        self,
        examination: _Examination,
        kind: api.Kind,
        detail: str,
        documents: Sequence[tuple[Link, api.SuggestedDocument]],
    ) -> None:
        """Add a suggestion, unless it was decided to keep these versions, or there is one about both already."""
        places = tuple((link.place.id, link.place.content_hash) for link, _ in documents)
        if (kind, places) in examination.kept:
            return
        examination.kept.add((kind, places))
        calls = list(_calls(kind, [id_ for id_, _ in places], examination.tenant))
        shown = [document for _, document in documents]
        examination.suggestions.append(api.Suggestion(kind=kind, detail=detail, documents=shown, calls=calls))


def _calls(kind: api.Kind, ids: Sequence[str], tenant: Tenant) -> Iterator[api.SuggestedCall]:
    names = {"project": tenant.project, "branch": tenant.branch, "pathHash": tenant.path_hash}
    of_tenant = {name: value for name, value in names.items() if value}
    decided = {"kind": kind, "documentIds": list(ids), **of_tenant}
    last = {"documentId": ids[-1], **of_tenant}
    if not tenant.has_files:
        yield api.SuggestedCall(action="correct", tool=memory.CORRECT.name, arguments=last)
        if len(ids) > 1:
            yield api.SuggestedCall(action="merge", tool=memory.DECIDE.name, arguments={**decided, "decision": "merge"})
    if kind == "expiring":
        yield api.SuggestedCall(action="pin", tool=memory.DECIDE.name, arguments={**decided, "decision": "pin"})
    yield api.SuggestedCall(action="forget", tool=memory.FORGET.name, arguments=last)
    yield api.SuggestedCall(action="keep", tool=memory.DECIDE.name, arguments={**decided, "decision": "keep"})


def _shown(document: Document) -> api.SuggestedDocument:
    return _described(document, document.content)


def _described(described: Document | Passage, text: str) -> api.SuggestedDocument:
    origin = described.chunk.origin if isinstance(described, Passage) else described.origin
    return api.SuggestedDocument(
        document_id=described.document_id if isinstance(described, Passage) else described.id,
        title=described.title,
        source=described.source,
        occurred_at=described.occurred_at,
        origin=origin.value,
        excerpt=text[: api.EXCERPT_CHARS],
    )
