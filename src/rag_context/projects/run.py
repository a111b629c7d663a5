"""One question on its way: what it found, where that leads, and how each document is shown.

Every step ends in time; what could not be had is named in the label's warnings.
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
from rag_context.ingest.chunking.markdown import front_matter
from rag_context.ports.reading import DocumentStore
from rag_context.projects.assembly import Assembled, Entry, Place, Section, assemble, distinct, shared_out
from rag_context.projects.boosting import Match
from rag_context.projects.excerpts import Excerpts, Rendered, opening, opening_quote, quote_of
from rag_context.projects.finding import Ask, Found, Known, find, lets_through
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
"""What documents that were found may take to be made ready, however late it is."""

MAX_CHARS_PER_TOKEN = 5
"""A document with more characters than so many for each token of a context does not fit it, whatever it says."""

LINKS_LOST = "Not every link could be followed: {}"
PASSAGES_ONLY = "Shown by the passages that were found, for the whole document could not be read: {}"
UNREADY = "Shown in parts, for the whole document could not be made ready in time: {}"
UNREAD = "Left out, for it could not be read: {}"


class CatalogueSource(Protocol):
    """Knows the documents of every tenant."""

    async def of(self, tenant: Tenant) -> Known:
        """The documents as the index is now. Raises: BackendError."""
        ...


@dataclass(frozen=True, slots=True)
class RetrievalDependencies:
    """What retrieval works with; one for all projects.

    `ask` answers searches at whatever level can be had, well before `deadline_s` (seconds) is over.
    """

    ask: Ask
    documents: DocumentStore
    document_store: Dependency
    catalogues: CatalogueSource
    renderer: Renderer
    model: Callable[[], EmbeddingModel]
    deadline_s: float
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Text:
    """A document's text without its front matter, and the line of the file on which it begins."""

    body: str
    first_line: int


class Run:
    """One question on its way."""

    def __init__(
        self,
        works: RetrievalDependencies,
        options: RetrievalOptions,
        deadline: Deadline,
        catalogue: Known,
        query: Query | None,
        answer: Answer | None,
        warnings: list[str],
    ) -> None:
        self._works = works
        self._options = options
        self._deadline = deadline
        self._catalogue = catalogue
        self._query = query
        self._answer = answer
        self._warnings = warnings
        self._texts: dict[str, Text] = {}

    async def find(self, aside: Collection[str] = ()) -> Found:
        """The documents that were found; those `aside` stand elsewhere and fill no place."""
        if self._query is None or self._answer is None:
            return Found((), Answer((), Level.PRIMARY, {}, 0))
        return await find(
            self._works.ask,
            self._query,
            self._options,
            self._deadline,
            first=self._answer,
            catalogue=self._catalogue,
            aside=aside,
        )

    def in_front(self) -> list[ProjectDocument]:
        """The critical documents that stand in front, as far as that does not depend on the question."""
        options = self._options
        if options.include_critical is CriticalInclusion.NEVER or not lets_through(options, PromotionLevel.CRITICAL):
            return []
        return [
            document
            for document in self._catalogue.critical()
            if (not options.doc_types or document.doc_type in options.doc_types) and self._holds(document)
        ]

    async def links(self, sources: Sequence[ProjectDocument], passed: Collection[str] = ()) -> list[Link]:
        """Where the links of `sources` lead, as far as that is known in time for their texts to be read as well."""
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
        """A found document without its text."""
        return replace(
            self._record(match.document, ""),
            raw_relevance_score=match.raw,
            boosted_relevance_score=match.boosted,
            quote=quote_of(match.passages[0]) if match.passages else None,
        )

    async def whole(self, matches: Sequence[Match]) -> tuple[RetrievedDocument, ...]:
        """Found documents with their texts; one that cannot be read is shown by what was found of it."""
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
        """Documents that stand there whatever was asked, with their texts."""
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
        """Found documents on their way into a context; those that may fit it as a whole are read."""
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
                continue  # it is gone by now
            documents.append(document)
        return documents

    async def assembled(self, entries: Sequence[Entry], matches: Mapping[str, Match]) -> Assembled:
        """The context: whoever does not stand whole in it stands there by its best parts."""
        count = self._works.renderer.count
        everybody = await self._rendered(distinct(entries))
        places = shared_out(everybody, count, self._options.max_tokens)
        works, renderer = self._works, self._works.renderer
        excerpts = Excerpts(works.documents, works.document_store, renderer.render, renderer.tokenizer, self._deadline)
        partly = {place.entry.document.path: place for place in places if place.tokens is not None}
        found = {
            path: (matches[path].passages, place.tokens)
            for path, place in partly.items()
            if place.tokens is not None and path in matches and matches[path].passages
        }
        others = [place for path, place in partly.items() if path not in found]
        excerpted, opened = await asyncio.gather(excerpts.of(found), asyncio.to_thread(self._opened, others))
        parts = {**excerpted, **opened}
        shown = [
            replace(place.entry, whole=parts[path]) if (path := place.entry.document.path) in parts else place.entry
            for place in places
        ]
        return assemble(shown, everybody, count, self._options.max_tokens)

    def label(self, answer: Answer) -> Label:
        """How the answer was obtained."""
        warnings = [answer.warning] if answer.warning is not None else []
        return Label(answer.level, answer.legs, answer.breaker_open, (*warnings, *self._warnings))

    def _opened(self, places: Sequence[Place]) -> dict[str, Rendered | None]:
        """The beginnings of documents that do not fit as a whole and that nothing was found in."""
        tokenizer = self._works.renderer.tokenizer
        return {
            place.entry.document.path: opening(text.body, text.first_line, place.tokens, tokenizer, place.entry.whole)
            for place in places
            if place.tokens is not None and (text := self._texts.get(place.entry.document.document_id)) is not None
        }

    async def _rendered(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries with their texts as they stand in a context, as many as can be had in time."""
        renderer = self._works.renderer
        first = sorted(entries, key=lambda each: each.section is not Section.RELEVANT)
        fitting = [each.document.content for each in first if self._is_there(each.document)]
        missing = [content for content in fitting if renderer.ready(content) is None]
        if missing:
            with suppress(TimeoutError):  # the thread goes on, and the next question finds them ready
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
        targets = list(self._catalogue.related(document)) if self._options.follow_related_docs else []
        try:
            targets += await deadline.bound("documents", self._catalogue.links(document))
        except BackendError:
            self._warn(LINKS_LOST, document.path)
        return [target for target in targets if self._holds(target)]

    def _holds(self, document: ProjectDocument) -> bool:
        return self._options.include_superseded or not self._catalogue.superseded_by(document.path)

    async def _read(self, listed: Iterable[ProjectDocument]) -> dict[str, Text | BackendError | None]:
        """Text of each document by id, front matter off; None where it is gone by now."""
        ids = [document.id for document in listed]
        found = dict(zip(ids, await asyncio.gather(*map(self._text, ids)), strict=True))
        self._texts.update({id_: text for id_, text in found.items() if isinstance(text, Text)})
        return found

    async def _text(self, document_id: str) -> Text | BackendError | None:
        works = self._works
        try:
            document = await works.document_store.call(lambda: works.documents.get(document_id), self._deadline)
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
            superseded_by=self._catalogue.superseded_by(document.path),
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
    """A document's text without its front matter."""
    _, end = front_matter(content)
    line_end = content.find("\n", end)
    start = 0 if not end else line_end + 1 if line_end >= 0 else len(content)
    return Text(content[start:], 1 + content.count("\n", 0, start))
