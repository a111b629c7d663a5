"""Retrieval from a project's documents: by relevance, with what they link to, and as one context for a model.

Every operation answers within its deadline and says how: what could not be had is left out and named in the
label's warnings, whichever part failed.
"""

import asyncio

from rag_context.domain.documents import Tenant
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError, InvalidInputError
from rag_context.projects.assembly import Entry, Section
from rag_context.projects.boosting import best_first
from rag_context.projects.finding import Known, Unlisted, query_for
from rag_context.projects.records import (
    CriticalInclusion,
    RagContext,
    RetrievalOptions,
    RetrievalResult,
    RetrievalResultWithLinks,
)
from rag_context.projects.run import RetrievalDependencies, Run
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer

__all__ = ["CATALOGUE_LOST", "RetrievalDependencies", "RetrievalService"]

CATALOGUE_LOST = "The list of the project's documents could not be read: {}"


class RetrievalService:
    """Relevant documents, with what they link to, and as one context: of one tenant.

    Each takes a question in words, or a vector of the index's model, `(dim,) float32`; words are searched for on both
    legs, a vector on its own. Another tenant's documents are filtered away in the store.

    Args:
        works: what it works with.
        tenant: whose documents.
    """

    def __init__(self, works: RetrievalDependencies, tenant: Tenant) -> None:
        self._works = works
        self._tenant = tenant

    async def list_relevant_documents(self, query: str | Vector, options: RetrievalOptions) -> RetrievalResult:
        """The documents that answer best, without their texts.

        Raises:
            InvalidInputError: the question is blank, or the vector is none of the index's model.
        """
        run = await self._begin(query, options)
        found = await run.find()
        best = best_first(found.matches)[: options.max_results]
        return RetrievalResult(
            documents=tuple(run.matched(match) for match in best),
            total_matches=len(found.matches),
            label=run.label(found.answer),
        )

    async def retrieve_relevant_documents(self, query: str | Vector, options: RetrievalOptions) -> RetrievalResult:
        """The same, whole. Raises: InvalidInputError."""
        run = await self._begin(query, options)
        found = await run.find()
        best = best_first(found.matches)[: options.max_results]
        return RetrievalResult(
            documents=await run.whole(best), total_matches=len(found.matches), label=run.label(found.answer)
        )

    async def retrieve_with_linked_docs(
        self, query: str | Vector, options: RetrievalOptions
    ) -> RetrievalResultWithLinks:
        """The same, and the documents that they link to. Raises: InvalidInputError."""
        run = await self._begin(query, options)
        found = await run.find()
        best = best_first(found.matches)[: options.max_results]
        links, documents = await asyncio.gather(run.links([match.document for match in best]), run.whole(best))
        return RetrievalResultWithLinks(
            documents=documents,
            total_matches=len(found.matches),
            linked_documents=await run.linked(links),
            label=run.label(found.answer),
        )

    async def assemble_context(self, query: str | Vector, options: RetrievalOptions) -> RagContext:
        """Critical, relevant and linked documents as one text of at most `options.max_tokens`.

        A document that does not fit its share stands there by its best parts.

        Raises:
            InvalidInputError: the question is blank, or the vector is none of the index's model.
        """
        run = await self._begin(query, options)
        front = {document.path: document for document in run.in_front()}
        found = await run.find(aside=front)
        ordered = best_first(found.matches)
        relevant = [match for match in ordered if match.document.path not in front][: options.max_results]
        first = [match for match in ordered if match.document.path in front]
        others = [front[path] for path in front.keys() - {match.document.path for match in first}]
        if options.include_critical is CriticalInclusion.RELEVANT:
            others = []
        others.sort(key=lambda document: document.path)
        sources = [match.document for match in (*relevant, *first)]
        links, critical, rest, documents = await asyncio.gather(
            run.links(sources, {document.path for document in others}),
            run.candidates(first),
            run.unmatched(others),
            run.candidates(relevant),
        )
        entries = [
            *(Entry(Section.CRITICAL, document) for document in (*critical, *rest)),
            *(Entry(Section.RELEVANT, document) for document in documents),
            *(Entry(Section.LINKED, document) for document in await run.linked(links)),
        ]
        assembled = await run.assembled(entries, {match.document.path: match for match in (*first, *relevant)})
        return RagContext(
            critical_documents=assembled.critical,
            relevant_documents=assembled.relevant,
            linked_documents=assembled.linked,
            formatted_context=assembled.text,
            total_char_count=len(assembled.text),
            tokens=assembled.tokens,
            omitted=assembled.omitted,
            total_matches=len(found.matches),
            label=run.label(found.answer),
        )

    async def _begin(self, question: str | Vector, options: RetrievalOptions) -> Run:
        deadline = Deadline.after(self._works.deadline_s, self._works.clock)
        query = query_for(question, options, self._tenant)
        if query is not None and query.vector is not None:
            self._check_dimension(query.vector)
        warnings: list[str] = []
        if query is None:
            answer: Answer | None = None
            catalogue = await self._catalogue(deadline, warnings)
        else:
            answer, catalogue = await asyncio.gather(self._works.ask(query), self._catalogue(deadline, warnings))
        return Run(self._works, options, deadline, catalogue, query, answer, warnings)

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
