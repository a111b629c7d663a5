"""The state of one retrieval: finds documents, follows their links, reads their texts, and assembles a context.

Every step respects the deadline; the label's warnings say what failed.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from rag_context.domain.documents import Tenant
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.errors import BackendError
from rag_context.ingest.chunking.prose import front_matter
from rag_context.ports.reading import DocumentStore
from rag_context.projects.assembly import Assembled, Entry, Section, Slot, allocate, assemble, distinct
from rag_context.projects.boosting import Match
from rag_context.projects.excerpts import Excerpts, Rendered, opening, opening_quote, quote_of
from rag_context.projects.finding import Ask, DocumentLookup, Found, find, lets_through
from rag_context.projects.links import Link, follow
from rag_context.projects.records import (
    CriticalInclusion,
    Label,
    LinkedDocument,
    ProjectDocument,
    PromotionLevel,
    RetrievalOptions,
    RetrievedDocument,
)
from rag_context.projects.rendering import Renderer
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search.query import Answer, Level, Query

RENDER_S = 0.1
"""The least time for rendering the found documents, even when the deadline is over."""

MAX_CHARS_PER_TOKEN = 5
"""A document with more characters per token of the budget than this cannot fit it, whatever its text."""

LINKS_LOST = "Not every link could be followed: {}"
PASSAGES_ONLY = "Only the passages that were found are shown, because the document could not be read: {}"
UNREADY = "Only parts are shown, because the document could not be rendered in time: {}"
UNREAD = "Left out, because it could not be read: {}"


class LookupSource(Protocol):
    """Looks up the documents of every tenant."""

    async def of(self, tenant: Tenant) -> DocumentLookup:
        """The documents as the index is now. Raises: BackendError."""
        ...


@dataclass(frozen=True, slots=True)
class RetrievalDependencies:
    """The dependencies of retrieval, shared by all projects.

    `ask` answers searches at the best level that works, well before `deadline_s` (seconds) is over.
    """

    ask: Ask
    documents: DocumentStore
    document_store: Dependency
    document_lists: LookupSource
    renderer: Renderer
    model: Callable[[], EmbeddingModel]
    deadline_s: float
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Text:
    """A document's text without its front matter, and its first line in the file."""

    body: str
    first_line: int


class Run:
    """One retrieval."""

    def __init__(
        self,
        dependencies: RetrievalDependencies,
        options: RetrievalOptions,
        deadline: Deadline,
        lookup: DocumentLookup,
        query: Query | None,
        answer: Answer | None,
        warnings: list[str],
    ) -> None:
        self._dependencies = dependencies
        self._options = options
        self._deadline = deadline
        self._lookup = lookup
        self._query = query
        self._answer = answer
        self._warnings = warnings
        self._texts: dict[str, Text] = {}

    async def find(self, aside: Collection[str] = ()) -> Found:
        """Find the relevant documents; those `aside` are in the context anyway and do not count as results."""
        if self._query is None or self._answer is None:
            return Found((), Answer((), Level.PRIMARY, {}, 0))
        return await find(
            self._dependencies.ask,
            self._query,
            self._options,
            self._deadline,
            first=self._answer,
            lookup=self._lookup,
            aside=aside,
        )

    def in_front(self) -> list[ProjectDocument]:
        """The critical documents that every context of these options begins with."""
        options = self._options
        if options.include_critical is CriticalInclusion.NEVER or not lets_through(options, PromotionLevel.CRITICAL):
            return []
        return [
            document
            for document in self._lookup.critical()
            if (not options.doc_types or document.doc_type in options.doc_types) and self._holds(document)
        ]

    async def links(self, sources: Sequence[ProjectDocument], passed: Collection[str] = ()) -> list[Link]:
        """The documents that `sources` link to, as far as half of the remaining time allows to find them."""
        options = self._options
        half = self._deadline.sooner(self._deadline.remaining_s / 2.0)
        if options.max_link_depth <= 0 or options.max_linked_docs <= 0:
            return []
        return await follow(
            sources,
            partial(self._targets, half),
            passed=passed,
            max_depth=options.max_link_depth,
            max_count=options.max_linked_docs,
        )

    def matched(self, match: Match) -> RetrievedDocument:
        """The record of a found document, without its text."""
        return replace(
            self._record(match.document, ""),
            raw_relevance_score=match.raw,
            boosted_relevance_score=match.boosted,
            quote=quote_of(match.passages[0]) if match.passages else None,
        )

    async def whole(self, matches: Sequence[Match]) -> tuple[RetrievedDocument, ...]:
        """Found documents with their texts; one that cannot be read has the text of its passages."""
        texts = await self._read([match.document for match in matches])
        documents = []
        for match in matches:
            text = texts[match.document.id]
            if isinstance(text, BackendError):
                self._warn(PASSAGES_ONLY, match.document.path)
                chunks = sorted((passage.chunk for passage in match.passages), key=lambda chunk: chunk.position)
                text = Text("\n\n".join(chunk.text for chunk in chunks), 1)
            if text is not None:
                document = self.matched(match)
                documents.append(replace(document, content=text.body, char_count=len(text.body)))
        return tuple(documents)

    async def unmatched(self, listed: Sequence[ProjectDocument]) -> tuple[RetrievedDocument, ...]:
        """Documents that no search found (critical ones), with their texts."""
        texts = await self._read(listed)
        return tuple(self._record(document, text.body) for document, text in self._readable(listed, texts))

    async def linked(self, links: Sequence[Link]) -> tuple[LinkedDocument, ...]:
        """The documents that links lead to, with their texts."""
        by_path = {link.document.path: link for link in links}
        listed = [link.document for link in links]
        texts = await self._read(listed)
        return tuple(
            self._link_record(by_path[document.path], text.body) for document, text in self._readable(listed, texts)
        )

    async def candidates(self, matches: Sequence[Match]) -> list[RetrievedDocument]:
        """Found documents for a context, with the texts of those that may fit it as a whole."""
        small = [match.document for match in matches if self._may_fit(match.document.char_count)]
        texts = await self._read(small)
        documents = []
        for match in matches:
            document = self.matched(match)
            text = texts.get(match.document.id)
            if isinstance(text, BackendError):
                self._warn(PASSAGES_ONLY, document.path)
            elif text is not None:
                document = replace(document, content=text.body, char_count=len(text.body))
            elif match.document.id in texts:
                continue  # it was deleted meanwhile
            documents.append(document)
        return documents

    async def assembled(self, entries: Sequence[Entry], matches: Mapping[str, Match]) -> Assembled:
        """Assemble the context; a document that does not fit as a whole is represented by its best parts."""
        count = self._dependencies.renderer.count
        rendered = await self._rendered(distinct(entries))
        slots = allocate(rendered, count, self._options.max_tokens)
        dependencies, renderer = self._dependencies, self._dependencies.renderer
        excerpts = Excerpts(
            dependencies.documents, dependencies.document_store, renderer.render, renderer.tokenizer, self._deadline
        )
        partly = {slot.entry.document.path: slot for slot in slots if slot.tokens is not None}
        found = {
            path: (matches[path].passages, slot.tokens)
            for path, slot in partly.items()
            if slot.tokens is not None and path in matches and matches[path].passages
        }
        others = [slot for path, slot in partly.items() if path not in found]
        excerpted, opened = await asyncio.gather(excerpts.of(found), asyncio.to_thread(self._opened, others))
        parts = {**excerpted, **opened}
        shown = [
            replace(slot.entry, whole=parts[path]) if (path := slot.entry.document.path) in parts else slot.entry
            for slot in slots
        ]
        return assemble(shown, rendered, count, self._options.max_tokens)

    def label(self, answer: Answer) -> Label:
        """How the results were obtained."""
        warnings = [answer.warning] if answer.warning is not None else []
        return Label(answer.level, answer.legs, answer.breaker_open, (*warnings, *self._warnings))

    def _opened(self, slots: Sequence[Slot]) -> dict[str, Rendered | None]:
        """The beginnings of documents that do not fit as a whole and have no passages in the results."""
        tokenizer = self._dependencies.renderer.tokenizer
        return {
            slot.entry.document.path: opening(text.body, text.first_line, slot.tokens, tokenizer, slot.entry.whole)
            for slot in slots
            if slot.tokens is not None and (text := self._texts.get(slot.entry.document.document_id)) is not None
        }

    async def _rendered(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries with their rendered texts, as many as can be rendered in time."""
        renderer = self._dependencies.renderer
        first = sorted(entries, key=lambda each: each.section is not Section.RELEVANT)
        fitting = [each.document.content for each in first if self._is_there(each.document)]
        missing = [content for content in fitting if renderer.ready(content) is None]
        if missing:
            with suppress(TimeoutError):  # the thread continues, and the next retrieval finds them rendered
                async with asyncio.timeout(max(self._deadline.remaining_s, RENDER_S)):
                    await asyncio.to_thread(lambda: [renderer.render(content) for content in missing])
        found = []
        for entry in entries:
            whole: Rendered | None = None
            if self._is_there(entry.document):
                whole = renderer.ready(entry.document.content)
                if whole is None:
                    self._warn(UNREADY, entry.document.path)
            found.append(replace(entry, whole=whole))
        return found

    def _is_there(self, document: RetrievedDocument) -> bool:
        """Whether a document was read and may fit as a whole."""
        return document.document_id in self._texts and self._may_fit(document.char_count)

    def _may_fit(self, chars: int) -> bool:
        most = self._options.max_tokens
        return most is None or chars <= MAX_CHARS_PER_TOKEN * most

    async def _targets(self, deadline: Deadline, document: ProjectDocument) -> Sequence[ProjectDocument]:
        targets = list(self._lookup.related(document)) if self._options.follow_related_docs else []
        try:
            targets += await deadline.bound("documents", self._lookup.links(document))
        except BackendError:
            self._warn(LINKS_LOST, document.path)
        return [target for target in targets if self._holds(target)]

    def _holds(self, document: ProjectDocument) -> bool:
        return self._options.include_superseded or not self._lookup.superseded_by(document.path)

    async def _read(self, listed: Iterable[ProjectDocument]) -> dict[str, Text | BackendError | None]:
        """The text of each document by id, without front matter; None if it was deleted meanwhile."""
        ids = [document.id for document in listed]
        found = dict(zip(ids, await asyncio.gather(*map(self._text, ids)), strict=True))
        self._texts.update({id_: text for id_, text in found.items() if isinstance(text, Text)})
        return found

    async def _text(self, document_id: str) -> Text | BackendError | None:
        dependencies = self._dependencies
        try:
            document = await dependencies.document_store.call(
                lambda: dependencies.documents.get(document_id), self._deadline
            )
        except BackendError as error:
            return error
        return None if document is None else text_of(document.content)

    def _readable(
        self, listed: Sequence[ProjectDocument], texts: Mapping[str, Text | BackendError | None]
    ) -> Iterator[tuple[ProjectDocument, Text]]:
        for document in listed:
            text = texts[document.id]
            if isinstance(text, BackendError):
                self._warn(UNREAD, document.path)
            elif text is not None:
                yield document, text

    def _record(self, document: ProjectDocument, content: str) -> RetrievedDocument:
        text = self._texts.get(document.id)
        return RetrievedDocument(
            path=document.path,
            title=document.title,
            content=content,
            char_count=len(content) if content else document.char_count,
            doc_type=document.doc_type,
            promotion_level=document.promotion_level,
            summary=document.summary,
            date=document.date,
            document_id=document.id,
            superseded_by=self._lookup.superseded_by(document.path),
            line_count=document.line_count,
            quote=opening_quote(text.body, text.first_line) if text is not None and content else None,
        )

    def _link_record(self, link: Link, content: str) -> LinkedDocument:
        record = self._record(link.document, content)
        fields = {name: getattr(record, name) for name in RetrievedDocument.__dataclass_fields__}
        return LinkedDocument(**fields, linked_from=link.linked_from, link_depth=link.depth)

    def _warn(self, sentence: str, path: str) -> None:
        warning = sentence.format(path)
        if warning not in self._warnings:
            self._warnings.append(warning)


def text_of(content: str) -> Text:
    """The text of a document without its front matter."""
    _, end = front_matter(content)
    line_end = content.find("\n", end)
    start = 0 if not end else line_end + 1 if line_end >= 0 else len(content)
    return Text(content[start:], 1 + content.count("\n", 0, start))
