"""Retrieval from a project's documents: by relevance, with linked documents, and as one context for a model.

Every operation answers within its deadline. If a component fails, the results that depend on it are left out, and the
label's warnings say so.
"""

import asyncio

from rag_context.domain.documents import Tenant
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError, InvalidInputError
from rag_context.projects.assembly import Entry, Section
from rag_context.projects.boosting import best_first
from rag_context.projects.finding import DocumentLookup, EmptyLookup, query_for
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

__all__ = ["LIST_UNREADABLE", "RetrievalDependencies", "RetrievalService"]

LIST_UNREADABLE = "The list of the project's documents could not be read: {}"


class RetrievalService:
    """Retrieves documents of one tenant.

    Every method takes a question as text, for hybrid search, or a vector of the index's model, `(dim,) float32`, for
    vector search. The store filters out the documents of other tenants.

    Args:
        dependencies: its dependencies.
        tenant: the tenant whose documents are retrieved.
    """

    def __init__(self, dependencies: RetrievalDependencies, tenant: Tenant) -> None:
        self._dependencies = dependencies
        self._tenant = tenant

    async def list_relevant_documents(self, query: str | Vector, options: RetrievalOptions) -> RetrievalResult:
        """The most relevant documents, without their texts.

        Raises:
            InvalidInputError: the question is blank, or the vector is not one of the index's model.
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
        """The most relevant documents, with their texts. Raises: InvalidInputError."""
        run = await self._begin(query, options)
        found = await run.find()
        best = best_first(found.matches)[: options.max_results]
        return RetrievalResult(
            documents=await run.whole(best), total_matches=len(found.matches), label=run.label(found.answer)
        )

    async def retrieve_with_linked_docs(
        self, query: str | Vector, options: RetrievalOptions
    ) -> RetrievalResultWithLinks:
        """The most relevant documents and the documents that they link to, with texts. Raises: InvalidInputError."""
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

        A document that is larger than its share is represented by its best parts.

        Raises:
            InvalidInputError: the question is blank, or the vector is not one of the index's model.
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
        deadline = Deadline.after(self._dependencies.deadline_s, self._dependencies.clock)
        query = query_for(question, options, self._tenant)
        if query is not None and query.vector is not None:
            self._check_dimension(query.vector)
        warnings: list[str] = []
        if query is None:
            answer: Answer | None = None
            lookup = await self._lookup(deadline, warnings)
        else:
            answer, lookup = await asyncio.gather(self._dependencies.ask(query), self._lookup(deadline, warnings))
        return Run(self._dependencies, options, deadline, lookup, query, answer, warnings)

    async def _lookup(self, deadline: Deadline, warnings: list[str]) -> DocumentLookup:
        dependencies = self._dependencies
        half = deadline.sooner(deadline.remaining_s / 2.0)
        try:
            return await dependencies.document_store.call(lambda: dependencies.document_lists.of(self._tenant), half)
        except BackendError as error:
            warnings.append(LIST_UNREADABLE.format(error))
            return EmptyLookup()

    def _check_dimension(self, vector: Vector) -> None:
        try:
            model = self._dependencies.model()
        except BackendError:
            return
        if len(vector) != model.dimension:
            raise InvalidInputError(
                f"The query vector has {len(vector)} numbers, those of {model.name} have {model.dimension}"
            )
