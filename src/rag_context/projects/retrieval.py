"""Retrieval from a project's documents: by relevance, with what they link to, and as one context for a model.

Every operation answers within its deadline and says how: what could not be had is left out and named in the
label's warnings, whichever part failed.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from rag_context.errors import BackendError, InvalidInputError
from rag_context.indexing.markdown import front_matter
from rag_context.ports import DocumentStore
from rag_context.projects.assembly import assemble
from rag_context.projects.boosting import Match, by_relevance, chosen
from rag_context.projects.finding import Ask, Found, Known, Unlisted, find, first_limit, lets_through, query_for
from rag_context.projects.records import (
    CriticalInclusion,
    Label,
    LinkedDocument,
    ProjectDocument,
    PromotionLevel,
    RagContext,
    RetrievalOptions,
    RetrievalResult,
    RetrievalResultWithLinks,
    RetrievedDocument,
)
from rag_context.projects.rendering import Renderer
from rag_context.projects.traversal import Link, follow
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search.query import Answer, Level, Query
from rag_context.types import EmbeddingModel, Tenant, Vector

Record = TypeVar("Record", bound=RetrievedDocument)

RENDER_S = 0.1
"""What documents that were found may take to be made ready, however late it is."""

CATALOGUE_LOST = "The list of the project's documents could not be read: {}"
LINKS_LOST = "Not every link could be followed: {}"
PASSAGES_ONLY = "Shown by the passages that were found, for the whole document could not be read: {}"
UNREADY = "Left out, for it is too large to be made ready in time: {}"
UNREAD = "Left out, for it could not be read: {}"


class CatalogueSource(Protocol):
    """Knows the documents of every tenant."""

    async def of(self, tenant: Tenant) -> Known:
        """The documents as the index is now. Raises: BackendError."""
        ...


@dataclass(frozen=True, slots=True)
class Works:
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


class RetrievalService:
    """Relevant documents, with what they link to, and as one context: of one tenant.

    Each takes a question in words, or a vector of the index's model, `(dim,) float32`; words are searched for on both
    legs, a vector on its own. Another tenant's documents are filtered away in the store.

    Args:
        works: what it works with.
        tenant: whose documents.
    """

    def __init__(self, works: Works, tenant: Tenant) -> None:
        self._works = works
        self._tenant = tenant

    async def retrieve_relevant_documents(self, query: str | Vector, options: RetrievalOptions) -> RetrievalResult:
        """The documents that answer best, whole.

        Raises:
            InvalidInputError: the question is blank, or the vector is none of the index's model.
        """
        run = await self._begin(query, options)
        found = await run.find()
        best = chosen(found.matches, options.max_results)
        return RetrievalResult(
            documents=await run.matched(best), total_matches=len(found.matches), label=run.label(found.answer)
        )

    async def retrieve_with_linked_docs(
        self, query: str | Vector, options: RetrievalOptions
    ) -> RetrievalResultWithLinks:
        """The same, and the documents that they link to. Raises: InvalidInputError."""
        run = await self._begin(query, options)
        found = await run.find()
        best = chosen(found.matches, options.max_results)
        links, documents = await asyncio.gather(run.links([match.document for match in best]), run.matched(best))
        return RetrievalResultWithLinks(
            documents=documents,
            total_matches=len(found.matches),
            linked_documents=await run.linked(links),
            label=run.label(found.answer),
        )

    async def assemble_context(self, query: str | Vector, options: RetrievalOptions) -> RagContext:
        """Critical, relevant and linked documents as one text of at most `options.max_tokens`.

        Raises:
            InvalidInputError: the question is blank, or the vector is none of the index's model.
        """
        run = await self._begin(query, options)
        front = run.in_front()
        found = await run.find(aside={document.path for document in front})
        standing = {document.path for document in front}
        relevant = chosen(
            [match for match in found.matches if match.document.path not in standing], options.max_results
        )
        matched = {match.document.path: match for match in by_relevance(found.matches)}
        if options.include_critical is CriticalInclusion.RELEVANT:
            front = [document for document in front if document.path in matched]
        first = [matched[path] for path in matched if path in {document.path for document in front}]
        others = [document for document in front if document.path not in matched]
        sources = [match.document for match in (*relevant, *first)]
        links, critical, rest, documents = await asyncio.gather(
            run.links(sources, {document.path for document in others}),
            run.matched(first),
            run.unmatched(others),
            run.matched(relevant),
        )
        linked = await run.linked(links)
        await run.render([document.content for document in (*critical, *rest, *documents, *linked)])
        assembled = assemble(
            run.ready((*critical, *rest)),
            run.ready(documents),
            run.ready(linked),
            render=self._works.renderer.render,
            count=self._works.renderer.count,
            max_tokens=options.max_tokens,
        )
        return RagContext(
            critical_documents=assembled.critical,
            relevant_documents=assembled.relevant,
            linked_documents=assembled.linked,
            formatted_context=assembled.text,
            total_char_count=sum(
                document.char_count for document in (*assembled.critical, *assembled.relevant, *assembled.linked)
            ),
            tokens=assembled.tokens,
            omitted=assembled.omitted,
            total_matches=len(found.matches),
            label=run.label(found.answer),
        )

    async def _begin(self, question: str | Vector, options: RetrievalOptions) -> "_Run":
        deadline = Deadline.after(self._works.deadline_s, self._works.clock)
        query = query_for(question, options, self._tenant)
        if query is not None and query.vector is not None:
            self._check_dimension(query.vector)
        warnings: list[str] = []
        if query is None:
            answer: Answer | None = None
            catalogue = await self._catalogue(deadline, warnings)
        else:
            query = replace(query, limit=first_limit(options))
            answer, catalogue = await asyncio.gather(self._works.ask(query), self._catalogue(deadline, warnings))
        return _Run(self._works, options, deadline, catalogue, query, answer, warnings)

    async def _catalogue(self, deadline: Deadline, warnings: list[str]) -> Known:
        works = self._works
        half = deadline.sooner(deadline.remaining_s / 2.0)
        try:
            return await works.document_store.call(lambda: works.catalogues.of(self._tenant), half)
        except BackendError as error:
            warnings.append(CATALOGUE_LOST.format(error))
            return Unlisted()

    def _check_dimension(self, vector: Vector) -> None:
        try:
            model = self._works.model()
        except BackendError:
            return
        if len(vector) != model.dimension:
            raise InvalidInputError(
                f"The query vector has {len(vector)} numbers, those of {model.name} have {model.dimension}"
            )


class _Run:
    """One question on its way."""

    def __init__(
        self,
        works: Works,
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

    async def matched(self, matches: Sequence[Match]) -> tuple[RetrievedDocument, ...]:
        """Found documents with their texts; one that cannot be read is shown by what was found of it."""
        texts = await self._texts([match.document for match in matches])
        documents = []
        for match in matches:
            text = texts[match.document.id]
            if isinstance(text, BackendError):
                self._warn(PASSAGES_ONLY, match.document.path)
                text = "\n\n".join(match.passages)
            if text is not None:
                record = self._record(match.document, text)
                documents.append(replace(record, raw_relevance_score=match.raw, boosted_relevance_score=match.boosted))
        return tuple(documents)

    async def unmatched(self, listed: Sequence[ProjectDocument]) -> tuple[RetrievedDocument, ...]:
        """Documents that stand there whatever was asked, with their texts."""
        texts = await self._texts(listed)
        return tuple(self._record(document, text) for document, text in self._readable(listed, texts))

    async def linked(self, links: Sequence[Link]) -> tuple[LinkedDocument, ...]:
        """The documents that links lead to, with their texts."""
        by_path = {link.document.path: link for link in links}
        listed = [link.document for link in links]
        texts = await self._texts(listed)
        return tuple(
            self._link_record(by_path[document.path], text) for document, text in self._readable(listed, texts)
        )

    async def render(self, contents: Sequence[str]) -> None:
        """Make contents ready for a context, as many as can be in time."""
        renderer = self._works.renderer
        missing = [content for content in contents if not renderer.knows(content)]
        if not missing:
            return
        with suppress(TimeoutError):  # the thread goes on, and the next question finds them ready
            async with asyncio.timeout(max(self._deadline.remaining_s, RENDER_S)):
                await asyncio.to_thread(lambda: [renderer.render(content) for content in missing])

    def ready(self, documents: Sequence[Record]) -> list[Record]:
        """The documents that are ready for a context; the others are named."""
        found = []
        for document in documents:
            if self._works.renderer.knows(document.content):
                found.append(document)
            else:
                self._warn(UNREADY, document.path)
        return found

    def label(self, answer: Answer) -> Label:
        """How the answer was obtained."""
        warnings = [answer.warning] if answer.warning is not None else []
        return Label(answer.level, answer.legs, answer.breaker_open, (*warnings, *self._warnings))

    async def _targets(self, deadline: Deadline, document: ProjectDocument) -> Sequence[ProjectDocument]:
        targets = list(self._catalogue.related(document)) if self._options.follow_related_docs else []
        try:
            targets += await deadline.bound("documents", self._catalogue.links(document))
        except BackendError:
            self._warn(LINKS_LOST, document.path)
        return [target for target in targets if self._holds(target)]

    def _holds(self, document: ProjectDocument) -> bool:
        return self._options.include_superseded or not self._catalogue.superseded_by(document.path)

    async def _texts(self, listed: Iterable[ProjectDocument]) -> dict[str, str | BackendError | None]:
        """Text of each document by id, front matter off; None where it is gone by now."""
        ids = [document.id for document in listed]
        return dict(zip(ids, await asyncio.gather(*map(self._text, ids)), strict=True))

    async def _text(self, document_id: str) -> str | BackendError | None:
        works = self._works
        try:
            document = await works.document_store.call(lambda: works.documents.get(document_id), self._deadline)
        except BackendError as error:
            return error
        return None if document is None else body_of(document.content)

    def _readable(
        self, listed: Sequence[ProjectDocument], texts: dict[str, str | BackendError | None]
    ) -> Iterable[tuple[ProjectDocument, str]]:
        for document in listed:
            text = texts[document.id]
            if isinstance(text, BackendError):
                self._warn(UNREAD, document.path)
            elif text is not None:
                yield document, text

    def _record(self, document: ProjectDocument, text: str) -> RetrievedDocument:
        return RetrievedDocument(
            path=document.path,
            title=document.title,
            content=text,
            char_count=len(text),
            doc_type=document.doc_type,
            promotion_level=document.promotion_level,
            summary=document.summary,
            date=document.date,
            document_id=document.id,
            superseded_by=self._catalogue.superseded_by(document.path),
        )

    def _link_record(self, link: Link, text: str) -> LinkedDocument:
        document = link.document
        return LinkedDocument(
            path=document.path,
            title=document.title,
            content=text,
            char_count=len(text),
            doc_type=document.doc_type,
            promotion_level=document.promotion_level,
            summary=document.summary,
            date=document.date,
            document_id=document.id,
            superseded_by=self._catalogue.superseded_by(document.path),
            linked_from=link.linked_from,
            link_depth=link.depth,
        )

    def _warn(self, sentence: str, path: str) -> None:
        warning = sentence.format(path)
        if warning not in self._warnings:
            self._warnings.append(warning)


def body_of(content: str) -> str:
    """A document without its front matter."""
    _, end = front_matter(content)
    line_end = content.find("\n", end)
    return content if not end else content[line_end + 1 :] if line_end >= 0 else ""
