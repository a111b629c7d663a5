"""The list of a project's documents, without their texts: read from the store once, then only what changed.

Links are followed from document to document, breadth first, and each document is visited once.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePosixPath

from cachetools import LRUCache

from rag_context.domain.documents import Cursor, Tenant
from rag_context.domain.provenance import text_start
from rag_context.domain.search import Filter
from rag_context.errors import FieldError
from rag_context.ports.reading import DocumentStore
from rag_context.projects.links import link_candidates, links, reference_candidates, spellings, wiki_name
from rag_context.projects.project_documents import project_document, text_digest
from rag_context.projects.records import DocumentNotFoundError, ProjectDocument, PromotionLevel

PAGE = 500
MAX_DOCUMENTS = 1_000_000
FEW = 20
"""Up to so many changed documents are read one by one; for more of them, the whole list is read."""

SIMILAR = 3
"""Paths that an error suggests for one that does not exist."""

REMEMBERED_TENANTS = 64
REMEMBERED_LINKS = 200_000
"""Links kept in memory, of all documents together."""


@dataclass(frozen=True, slots=True)
class _Entry:
    content_hash: str
    document: ProjectDocument


class _LinkReader:
    """Reads the links of stored documents, with a cache by document version."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._cache: LRUCache[tuple[str, str], tuple[str, ...]] = LRUCache(REMEMBERED_LINKS, getsizeof=_weight)
        self._reading: dict[tuple[str, str], asyncio.Task[tuple[str, ...]]] = {}

    async def of(self, document_id: str, content_hash: str) -> tuple[str, ...]:
        """The link targets as written; () if the document does not exist. Raises: BackendError.

        If a caller is cancelled, the reading continues, and the next call finds the links in the cache.
        """
        key = document_id, content_hash
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(document_id), name="read links")
            reading.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(reading)

    async def _read(self, document_id: str) -> tuple[str, ...]:
        document = await self._documents.get(document_id)
        if document is None:
            return ()
        found = await asyncio.to_thread(links, document.content[text_start(document.content) :])
        self._cache[(document_id, document.content_hash)] = found
        return found

    def _end(self, key: tuple[str, str], done: "asyncio.Task[tuple[str, ...]]") -> None:
        self._reading.pop(key, None)
        if not done.cancelled():
            done.exception()  # marks it as retrieved: asyncio logs it otherwise if no caller waits any more


class DocumentList:
    """The documents of one tenant at one moment. Immutable; lookups need no I/O, except `links` at first use."""

    def __init__(self, tenant: Tenant, entries: Mapping[str, _Entry], reader: _LinkReader) -> None:
        self.tenant = tenant
        self.entries = entries
        self._reader = reader
        self._targets: LRUCache[str, tuple[ProjectDocument, ...]] = LRUCache(REMEMBERED_LINKS, getsizeof=_weight)

    @cached_property
    def documents(self) -> tuple[ProjectDocument, ...]:
        return tuple(sorted((entry.document for entry in self.entries.values()), key=lambda document: document.path))

    def by_path(self, path: str) -> ProjectDocument | None:
        return self._by_path.get(path)

    def named(self, requested: str) -> ProjectDocument:
        """The document with a path relative to the docs folder or the root, or absolute. Raises: ProjectError."""
        folder = self.documents[0].docs_folder if self.documents else ""
        for path in (spelt for candidate in _requested(requested, folder) for spelt in spellings(candidate)):
            if (document := self.by_path(path)) is not None:
                return document
        paths = [document.path for document in self.documents]
        same_name = [path for path in paths if PurePosixPath(path).name == PurePosixPath(requested).name]
        near = (same_name or get_close_matches(requested, paths, SIMILAR))[:SIMILAR]
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        message = f"The project has no document {requested!r}{hint}"
        raise DocumentNotFoundError(message, [FieldError("path", "No such document")])

    def by_id(self, document_id: str) -> ProjectDocument | None:
        entry = self.entries.get(document_id)
        return None if entry is None else entry.document

    def by_text(self, digest: str) -> ProjectDocument | None:
        return self._by_text.get(digest)

    def critical(self) -> tuple[ProjectDocument, ...]:
        """The critical documents by path, superseded ones included."""
        return tuple(each for each in self.documents if each.promotion_level is PromotionLevel.CRITICAL)

    def superseded_by(self, path: str) -> tuple[str, ...]:
        """Paths of the documents that replace this one; () if it is current, as all of a circle are."""
        return self._superseded.get(path, ())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        return Counter(document.doc_type for document in self.documents)

    def related(self, document: ProjectDocument) -> tuple[ProjectDocument, ...]:
        """The existing documents that the front matter lists as `related_docs`, in its order, itself excluded."""
        return self._existing(document, (_reference(path, document) for path in document.related))

    async def links(self, document: ProjectDocument) -> tuple[ProjectDocument, ...]:
        """The existing documents that the text links to, in reading order, itself excluded. Raises: BackendError."""
        entry = self.entries.get(document.id)
        if entry is None:
            return ()
        targets = self._targets.get(document.id)
        if targets is None:
            hrefs = await self._reader.of(document.id, entry.content_hash)
            targets = await asyncio.to_thread(self._resolved, document, hrefs) if hrefs else ()
            self._targets[document.id] = targets
        return targets

    def _resolved(self, document: ProjectDocument, hrefs: Sequence[str]) -> tuple[ProjectDocument, ...]:
        """The targets of links. A large document has thousands, so this runs in a thread, once per list."""
        folder = PurePosixPath(document.docs_folder).name
        return self._existing(document, (self._candidates(href, document.path, folder) for href in hrefs))

    def _candidates(self, href: str, path: str, folder: str) -> tuple[str, ...]:
        """The possible targets of a link; a wiki link may name a document in any folder, if the name is unique."""
        name = wiki_name(href)
        if name is None:
            return tuple(spelt for path in link_candidates(href, path, folder) for spelt in spellings(path))
        places = reference_candidates(name, path, folder)
        named = self._by_name.get(PurePosixPath(name).stem.casefold(), ()) if "/" not in name else ()
        return (*(spelt for path in places for spelt in spellings(path)), *(named if len(named) == 1 else ()))

    def _existing(
        self, document: ProjectDocument, candidates: Iterable[tuple[str, ...]]
    ) -> tuple[ProjectDocument, ...]:
        """The first existing document of each group of candidates."""
        found: dict[str, ProjectDocument] = {}
        for group in candidates:
            target = next((self._by_path[path] for path in group if path in self._by_path), None)
            if target is not None and target.id != document.id:
                found.setdefault(target.id, target)
        return tuple(found.values())

    @cached_property
    def _by_path(self) -> Mapping[str, ProjectDocument]:
        return {document.path: document for document in self.documents}

    @cached_property
    def _by_text(self) -> Mapping[str, ProjectDocument]:
        return {text_digest(document.revision): document for document in self.documents if document.revision}

    @cached_property
    def _by_name(self) -> Mapping[str, tuple[str, ...]]:
        """Paths by file name without suffix, and by title."""
        found: dict[str, dict[str, None]] = {}
        for document in self.documents:
            for name in (PurePosixPath(document.path).stem, document.title):
                found.setdefault(name.casefold(), {})[document.path] = None
        return {name: tuple(paths) for name, paths in found.items()}

    @cached_property
    def _superseded(self) -> Mapping[str, tuple[str, ...]]:
        replaces = {
            document.path: [
                older.path
                for older in self._existing(document, (_reference(path, document) for path in document.supersedes))
            ]
            for document in self.documents
            if document.supersedes
        }
        found: dict[str, list[str]] = {}
        for newer, olders in replaces.items():
            for older in olders:
                if newer not in _reached(older, replaces):
                    found.setdefault(older, []).append(newer)
        return {path: tuple(newer) for path, newer in found.items()}


class DocumentLists:
    """The document lists of all tenants, each as of the present version of the index."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._reader = _LinkReader(documents)
        self._cache: LRUCache[Tenant, tuple[int, DocumentList]] = LRUCache(REMEMBERED_TENANTS)
        # A lock that is dropped while it is held costs a second reading of the list and nothing else.
        self._locks: LRUCache[Tenant, asyncio.Lock] = LRUCache(REMEMBERED_TENANTS)

    async def of(self, tenant: Tenant) -> DocumentList:
        """The document list of a tenant now; empty for an unknown tenant. Raises: BackendError."""
        # One caller reads the list, the others wait for it.
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            # Read first: a write while the list is read raises the version, and the next call reads what changed.
            version = self._documents.version
            cached = self._cache.get(tenant)
            if cached is not None and cached[0] == version:
                return cached[1]
            before = cached[1] if cached is not None else self.empty(tenant)
            document_list = await self._renewed(before)
            self._cache[tenant] = version, document_list
            return document_list

    async def before(self, tenant: Tenant, until: datetime) -> DocumentList:
        """The document list of a tenant without what was written at `until` or later. Raises: BackendError."""
        whole = await self.of(tenant)
        ids = await self._documents.matching(Filter(tenant, until=until), MAX_DOCUMENTS)
        return DocumentList(tenant, {id_: whole.entries[id_] for id_ in ids if id_ in whole.entries}, self._reader)

    def empty(self, tenant: Tenant) -> DocumentList:
        """A list without documents, for when that of a tenant cannot be read."""
        return DocumentList(tenant, {}, self._reader)

    async def _renewed(self, before: DocumentList) -> DocumentList:
        # Ids and hashes are cheap to read; records are read of changed documents only.
        ids = await self._documents.matching(Filter(before.tenant), MAX_DOCUMENTS)
        hashes = await self._documents.content_hashes(ids)
        kept = {id_: entry for id_, entry in before.entries.items() if hashes.get(id_) == entry.content_hash}
        changed = [id_ for id_ in hashes if id_ not in kept]
        if not changed and len(kept) == len(before.entries):
            return before
        read = await (self._one_by_one(changed) if len(changed) <= FEW else self._listed(before.tenant, hashes))
        return DocumentList(before.tenant, {**kept, **read}, self._reader)

    async def _one_by_one(self, ids: Sequence[str]) -> dict[str, _Entry]:
        found = await asyncio.gather(*(self._documents.get(id_) for id_ in ids))
        return {each.id: _Entry(each.content_hash, project_document(each)) for each in found if each is not None}

    async def _listed(self, tenant: Tenant, hashes: Mapping[str, str]) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        after: Cursor | None = None
        while page := await self._documents.listing(Filter(tenant), limit=PAGE, after=after):
            # A document that came or changed after the hashes were read is left to the next call.
            entries |= {each.id: _Entry(hashes[each.id], project_document(each)) for each in page if each.id in hashes}
            after = Cursor(page[-1].timestamp, page[-1].id)
            if len(page) < PAGE:
                break
        return entries


@dataclass(frozen=True, slots=True)
class Link:
    """A document that a link leads to, the document with the link, and the number of steps (from 1)."""

    document: ProjectDocument
    linked_from: str
    depth: int


async def follow(
    sources: Sequence[ProjectDocument],
    targets: Callable[[ProjectDocument], Awaitable[Sequence[ProjectDocument]]],
    *,
    passed: Collection[str] = (),
    max_depth: int,
    max_count: int,
) -> list[Link]:
    """Follow links from the sources: the documents that they lead to, nearest first, in reading order, each once.

    The `passed` paths are not in the result either, but their links are followed.
    """
    found: list[Link] = []
    visited = {document.path for document in sources}
    level = list(sources)
    for depth in range(1, max_depth + 1):
        following: list[ProjectDocument] = []
        for document in level:
            if len(found) >= max_count:
                return found
            for target in await targets(document):
                if target.path in visited:
                    continue
                # Now, and not when its links are read: each document is listed once, by the shortest way to it.
                visited.add(target.path)
                following.append(target)
                if target.path not in passed:
                    found.append(Link(target, document.path, depth))
                    if len(found) >= max_count:
                        return found
        level = following
    return found


def _requested(path: str, folder: str) -> Iterator[str]:
    path = path.replace("\\", "/").strip()
    if folder and path.startswith(f"{folder}/"):
        path = path.removeprefix(f"{folder}/")
    name = PurePosixPath(folder).name
    yield from reference_candidates(path, "", name)
    if name and path.startswith(f"{name}/"):
        yield from reference_candidates(path.removeprefix(f"{name}/"), "", name)


def _reference(path: str, document: ProjectDocument) -> tuple[str, ...]:
    return reference_candidates(path, document.path, PurePosixPath(document.docs_folder).name)


def _reached(start: str, replaces: Mapping[str, Sequence[str]]) -> set[str]:
    """Everything that a document replaces, directly or through others."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for path in replaces.get(waiting.pop(), ()):
            if path not in reached:
                reached.add(path)
                waiting.append(path)
    return reached


def _weight(targets: tuple[object, ...]) -> int:
    return len(targets) + 1
