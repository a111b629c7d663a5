"""Retrieval from a project's documents: by relevance, with linked documents, and as one context for a model.

Every operation answers within its deadline. If a component fails, the results that depend on it are left out, and the
label's warnings say so.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from rag_context.domain.documents import Tenant, end_of, utc_now
from rag_context.domain.vectors import EmbeddingModel, Vector
from rag_context.errors import BackendError, InvalidInputError
from rag_context.ports.reading import DocumentStore
from rag_context.projects import finding, records
from rag_context.projects.assembly import ContextEntry, ContextSection, Renderer, may_fit
from rag_context.projects.document_lists import DocumentList, DocumentLists, Link, follow
from rag_context.projects.excerpts import Excerpts, Text, opening_quote, quote_of, text_of
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer, Level, Query

LINKS_LOST = "Not every link could be followed: {}"
PASSAGES_ONLY = "Only the passages that were found are shown, because the document could not be read: {}"
UNREAD = "Left out, because it could not be read: {}"
LIST_UNREADABLE = "The list of the project's documents could not be read: {}"


@dataclass(frozen=True, slots=True)
class RetrievalDependencies:
    """The dependencies of retrieval, shared by all projects: a retrieval applies its deadline to the guarded stores."""

    search: finding.Search
    documents: DocumentStore
    document_lists: DocumentLists
    renderer: Renderer
    model: Callable[[], EmbeddingModel]
    deadline_s: float
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = utc_now


@dataclass(slots=True)
class Run:
    dependencies: RetrievalDependencies
    options: records.RetrievalOptions
    deadline: Deadline
    lookup: DocumentList
    query: Query | None
    answer: Answer | None
    warnings: list[str]
    texts: dict[str, Text] = field(default_factory=dict)

    async def find(self, aside: Collection[str] = ()) -> finding.FoundDocuments:
        """Find the relevant documents; those `aside` are in the context anyway and do not count as results."""
        if self.query is None or self.answer is None:
            return finding.FoundDocuments((), Answer((), Level.PRIMARY, {}, 0))
        return await finding.find(
            self.dependencies.search,
            self.query,
            self.options,
            self.deadline,
            first=self.answer,
            lookup=self.lookup,
            aside=aside,
        )

    def critical(self) -> list[records.ProjectDocument]:
        """The critical documents that every context of these options begins with."""
        options = self.options
        if options.include_critical is records.CriticalInclusion.NEVER or not finding.lets_through(
            options, records.PromotionLevel.CRITICAL
        ):
            return []
        return [
            document
            for document in self.lookup.critical()
            if (not options.doc_types or document.doc_type in options.doc_types) and self._is_covered(document)
        ]

    async def links(self, sources: Sequence[records.ProjectDocument], passed: Collection[str] = ()) -> list[Link]:
        """The documents that `sources` link to, as far as half of the remaining time allows to find them."""
        options = self.options
        half = self.deadline.sooner(self.deadline.remaining_s / 2.0)
        if options.max_link_depth <= 0 or options.max_linked_docs <= 0:
            return []
        return await follow(
            sources,
            partial(self._targets, half),
            passed=passed,
            max_depth=options.max_link_depth,
            max_count=options.max_linked_docs,
        )

    def matched(self, match: finding.Match) -> records.RetrievedDocument:
        """The record of a found document, without its text."""
        return replace(
            self._record(match.document, ""),
            raw_relevance_score=match.raw,
            boosted_relevance_score=match.boosted,
            quote=quote_of(match.passages[0]) if match.passages else None,
        )

    async def with_texts(self, matches: Sequence[finding.Match]) -> tuple[records.RetrievedDocument, ...]:
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

    async def unmatched(
        self, listed: Sequence[records.ProjectDocument], found: Answer
    ) -> tuple[records.RetrievedDocument, ...]:
        """Critical documents that are not in the answer `found`, with their texts and their relevance."""
        texts, matches = await asyncio.gather(self._read(listed), self._scored(listed, found))
        unmatched = []
        for document, text in self._readable(listed, texts):
            record = self._record(document, text.body)
            if (match := matches.get(document.id)) is not None:
                record = replace(record, raw_relevance_score=match.raw, boosted_relevance_score=match.boosted)
            unmatched.append(record)
        return tuple(unmatched)

    async def _scored(self, listed: Sequence[records.ProjectDocument], found: Answer) -> dict[str, finding.Match]:
        """Critical documents that the answer has no place for, or that are below the threshold, by id."""
        if not listed or self.query is None or found.level is not Level.PRIMARY:
            return {}
        matches = await finding.find_critical(
            self.dependencies.search, self.query, self.options, self.deadline, self.lookup
        )
        return {match.document.id: match for match in matches}

    async def linked(self, links: Sequence[Link]) -> tuple[records.LinkedDocument, ...]:
        """The documents that links lead to, with their texts."""
        by_path = {link.document.path: link for link in links}
        listed = [link.document for link in links]
        texts = await self._read(listed)
        linked = []
        for document, text in self._readable(listed, texts):
            link, record = by_path[document.path], self._record(document, text.body)
            fields = {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
            linked.append(records.LinkedDocument(**fields, linked_from=link.linked_from, link_depth=link.depth))
        return tuple(linked)

    async def candidates(self, matches: Sequence[finding.Match]) -> list[records.RetrievedDocument]:
        """Found documents for a context, with the texts of those that may fit it as a whole."""
        small = [match.document for match in matches if may_fit(match.document.char_count, self.options.max_tokens)]
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

    async def assembled(self, entries: Sequence[ContextEntry], matches: Sequence[finding.Match]) -> records.RagContext:
        dependencies = self.dependencies
        excerpts = Excerpts(dependencies.documents, dependencies.renderer, self.deadline, self.texts)
        return await excerpts.assembled(
            entries, {match.document.path: match.passages for match in matches}, self.options.max_tokens, self._warn
        )

    def label(self, answer: Answer) -> records.Label:
        warnings = [answer.warning] if answer.warning is not None else []
        windows = self.query.windows if self.query is not None else ()
        return records.Label(answer.level, answer.legs, answer.breaker_open, (*warnings, *self.warnings), windows)

    async def _targets(
        self, deadline: Deadline, document: records.ProjectDocument
    ) -> Sequence[records.ProjectDocument]:
        targets = list(self.lookup.related(document)) if self.options.follow_related_docs else []
        try:
            targets += await deadline.bound("documents", self.lookup.links(document))
        except BackendError:
            self._warn(LINKS_LOST, document.path)
        return [target for target in targets if self._is_covered(target)]

    def _is_covered(self, document: records.ProjectDocument) -> bool:
        return self.options.include_superseded or not self.lookup.superseded_by(document.path)

    async def _read(self, listed: Iterable[records.ProjectDocument]) -> dict[str, Text | BackendError | None]:
        """The text of each document by id, without front matter; None if it was deleted meanwhile."""
        ids = [document.id for document in listed]
        found = dict(zip(ids, await asyncio.gather(*map(self._text, ids)), strict=True))
        self.texts.update({id_: text for id_, text in found.items() if isinstance(text, Text)})
        return found

    async def _text(self, document_id: str) -> Text | BackendError | None:
        try:
            # An error is a value here: the other documents are shown without the one that cannot be read.
            with self.deadline.applied():
                document = await self.dependencies.documents.get(document_id)
        except BackendError as error:
            return error
        return None if document is None else text_of(document.content)

    def _readable(
        self, listed: Sequence[records.ProjectDocument], texts: Mapping[str, Text | BackendError | None]
    ) -> Iterator[tuple[records.ProjectDocument, Text]]:
        for document in listed:
            text = texts[document.id]
            if isinstance(text, BackendError):
                self._warn(UNREAD, document.path)
            elif text is not None:
                yield document, text

    def _record(self, document: records.ProjectDocument, content: str) -> records.RetrievedDocument:
        text = self.texts.get(document.id)
        return records.RetrievedDocument(
            path=document.path,
            title=document.title,
            content=content,
            char_count=len(content) if content else document.char_count,
            doc_type=document.doc_type,
            promotion_level=document.promotion_level,
            summary=document.summary,
            date=document.date,
            document_id=document.id,
            superseded_by=self.lookup.superseded_by(document.path),
            line_count=document.line_count,
            quote=opening_quote(text.body, text.first_line) if text is not None and content else None,
        )

    def _warn(self, sentence: str, path: str) -> None:
        warning = sentence.format(path)
        if warning not in self.warnings:
            self.warnings.append(warning)


class RetrievalService:
    """Retrieves documents of one tenant, by a text (hybrid search) or a vector of the index's model, `(dim,) float32`.

    Every method raises InvalidInputError if the question is blank, or the vector is not one of the index's model.
    """

    def __init__(self, dependencies: RetrievalDependencies, tenant: Tenant) -> None:
        self._dependencies = dependencies
        self._tenant = tenant

    async def list_relevant_documents(
        self, query: str | Vector, options: records.RetrievalOptions
    ) -> records.RetrievalResult:
        """The most relevant documents, without their texts."""
        run = await self._begin(query, options)
        found = await run.find()
        best = found.matches[: options.max_results]
        return records.RetrievalResult(
            documents=tuple(run.matched(match) for match in best),
            total_matches=len(found.matches),
            label=run.label(found.answer),
        )

    async def retrieve_relevant_documents(
        self, query: str | Vector, options: records.RetrievalOptions
    ) -> records.RetrievalResult:
        """The most relevant documents, with their texts."""
        run = await self._begin(query, options)
        found = await run.find()
        best = found.matches[: options.max_results]
        return records.RetrievalResult(
            documents=await run.with_texts(best), total_matches=len(found.matches), label=run.label(found.answer)
        )

    async def retrieve_with_linked_docs(
        self, query: str | Vector, options: records.RetrievalOptions
    ) -> records.RetrievalResultWithLinks:
        """The most relevant documents and the documents that they link to, with texts."""
        run = await self._begin(query, options)
        found = await run.find()
        best = found.matches[: options.max_results]
        links, documents = await asyncio.gather(run.links([match.document for match in best]), run.with_texts(best))
        return records.RetrievalResultWithLinks(
            documents=documents,
            total_matches=len(found.matches),
            linked_documents=await run.linked(links),
            label=run.label(found.answer),
        )

    async def assemble_context(self, query: str | Vector, options: records.RetrievalOptions) -> records.RagContext:
        """Critical, relevant and linked documents, whole or by their best parts, in at most `options.max_tokens`."""
        run = await self._begin(query, options)
        front = {document.path: document for document in run.critical()}
        found = await run.find(aside=front)
        relevant = [match for match in found.matches if match.document.path not in front][: options.max_results]
        # Critical documents that the search found too have scores and passages.
        first = [match for match in found.matches if match.document.path in front]
        others = [front[path] for path in front.keys() - {match.document.path for match in first}]
        if options.include_critical is records.CriticalInclusion.RELEVANT:
            others = []
        others.sort(key=lambda document: document.path)
        sources = [match.document for match in (*relevant, *first)]
        # Links pass through the critical documents that were not found: these are in the context anyway.
        links, critical, rest, documents = await asyncio.gather(
            run.links(sources, {document.path for document in others}),
            run.candidates(first),
            run.unmatched(others, found.answer),
            run.candidates(relevant),
        )
        entries = [
            *(ContextEntry(ContextSection.CRITICAL, document) for document in (*critical, *rest)),
            *(ContextEntry(ContextSection.RELEVANT, document) for document in documents),
            *(ContextEntry(ContextSection.LINKED, document) for document in await run.linked(links)),
        ]
        context = await run.assembled(entries, (*first, *relevant))
        return replace(context, total_matches=len(found.matches), label=run.label(found.answer))

    async def _begin(self, question: str | Vector, options: records.RetrievalOptions) -> Run:
        deadline = Deadline.after(self._dependencies.deadline_s, self._dependencies.clock)
        query = finding.query_for(question, options, self._tenant, self._dependencies.now())
        if query is not None and query.vector is not None:
            self._check_dimension(query.vector)
        warnings: list[str] = []
        if query is None:
            answer: Answer | None = None
            lookup = await self._lookup(options, deadline, warnings)
        else:
            # At the same time: a retrieval takes as long as the slower of the two.
            lookup_read = self._lookup(options, deadline, warnings)
            answer, lookup = await asyncio.gather(self._dependencies.search(query), lookup_read)
        return Run(self._dependencies, options, deadline, lookup, query, answer, warnings)

    async def _lookup(self, options: records.RetrievalOptions, deadline: Deadline, warnings: list[str]) -> DocumentList:
        dependencies = self._dependencies
        try:
            # Half of the time: without the list, what the search finds can still be rendered in the other half.
            with deadline.sooner(deadline.remaining_s / 2.0).applied():
                until = end_of(None, options.as_of)
                if until is not None:
                    return await dependencies.document_lists.before(self._tenant, until)
                return await dependencies.document_lists.of(self._tenant)
        except BackendError as error:
            warnings.append(LIST_UNREADABLE.format(error))
            return dependencies.document_lists.empty(self._tenant)

    def _check_dimension(self, vector: Vector) -> None:
        try:
            # Without the model nothing can be compared, and the search says itself that it is not available.
            model = self._dependencies.model()
        except BackendError:
            return
        if len(vector) != model.dimension:
            raise InvalidInputError(
                f"The query vector has {len(vector)} numbers, those of {model.name} have {model.dimension}"
            )
