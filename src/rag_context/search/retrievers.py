"""The two legs of a search: by vector and by words. Each runs as a task, reports on itself, and ends in time."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from rag_context.domain.embedding_model import Calibration
from rag_context.domain.search import Filter, KeywordHit, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError, BackendRejectedError, BackendStartingError, BackendTimeoutError
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore, KeywordIndex, VectorStore
from rag_context.resilience.breaker import BreakerOpenError
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search.query import Answer, LegReport, LegStatus, Query
from rag_context.search.ranking import spread

POOL_FLOOR = 40
POOL_PER_RESULT = 3
"""How many candidates each leg brings; on the open collections a hundred give the same first ten."""


PER_DOCUMENT_FACTOR = 2
"""Candidates of one document for each of its passages that may be returned."""

ENOUGH = 2
"""A pool is wide enough with one in so many of the documents that may be returned: the best ones are among them."""

FURTHER_LOOKS = 2
"""How often a leg looks again, past the documents that fill its pool."""

Hit = TypeVar("Hit", bound=VectorHit | KeywordHit)


def pool_per_document(query: Query) -> int | None:
    """How many candidates one document may have; None: as many as there are."""
    return None if query.per_document is None else PER_DOCUMENT_FACTOR * query.per_document


@dataclass(frozen=True, slots=True)
class VectorFinds:
    """What the vector leg found, with the query's own vector for exact scores of other chunks."""

    vector: Vector
    hits: Sequence[VectorHit]
    calibration: Calibration
    made_by: str | None = None
    """Fingerprint of the model that made the query's vector; None where the caller brought it."""


@dataclass(frozen=True, slots=True)
class Backends:
    """The ports a search reads from, each with the dependency that guards it."""

    embedder: Embedder
    vectors: VectorStore
    texts: KeywordIndex
    documents: DocumentStore
    embedding: Dependency
    vector_store: Dependency
    document_store: Dependency
    vectors_made_by: Callable[[], str | None] = lambda: None
    """Fingerprint of the model of the vectors that answer now; None while it is not known."""

    def require_same_model(self, finds: VectorFinds) -> None:
        """Refuse what was found where another model's vectors have taken the place of those that were to be asked.

        Raises:
            BackendRejectedError: they have.
        """
        if finds.made_by is not None and self.vectors_made_by() not in (None, finds.made_by):
            raise BackendRejectedError("vectors", "The vectors were just exchanged for those of another model.")


class Legs:
    """The tasks of one search. Use as a context manager: what still runs at the end is cancelled.

    Args:
        sources: the ports.
        query: what is asked.
        deadline: when both legs must be done, so that time is left to put an answer together.
        clock: monotonic seconds, for the reports.
    """

    def __init__(
        self,
        sources: Backends,
        query: Query,
        deadline: Deadline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reports: dict[str, LegReport] = {}
        self._sources = sources
        self._query = query
        self._deadline = deadline
        self._clock = clock
        self._pool = max(POOL_FLOOR, POOL_PER_RESULT * query.limit)
        self._vector: asyncio.Task[VectorFinds] | None = None
        self._text: asyncio.Task[Sequence[KeywordHit]] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self.spare: asyncio.Task[Answer] | None = None
        """The lower level's answer, on its way already."""

    def __enter__(self) -> "Legs":
        return self

    def __exit__(self, *_exc: object) -> None:
        for timer in self._timers:
            timer.cancel()
        for task in (self._vector, self._text, self.spare):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None and not task.cancelled():
                task.exception()  # seen, so that asyncio does not complain of a failure nobody asked about

    def start_vector(self) -> "asyncio.Task[VectorFinds]":
        """The vector leg, started once."""
        if self._vector is None:
            self._vector = asyncio.create_task(self._walk_vector())
        return self._vector

    def start_text(self) -> "asyncio.Task[Sequence[KeywordHit]]":
        """The text leg, started once: half of level 1, and all of level 2."""
        if self._text is None:
            self._text = asyncio.create_task(self._walk_text())
        return self._text

    def while_vector_is_late(self, after_s: float, work: Callable[[], object]) -> None:
        """Do `work` so many seconds from now, if the vector leg is still out by then."""

        def late() -> None:
            if self._vector is not None and not self._vector.done():
                work()

        self._timers.append(asyncio.get_running_loop().call_later(after_s, late))

    def keep_spare(self, answer: Coroutine[None, None, Answer]) -> None:
        """Have the lower level's answer made ready beside the vector leg."""
        self.spare = asyncio.create_task(answer)

    @property
    def text_failed(self) -> bool:
        """Whether the text leg is known to have no answer."""
        report = self.reports.get("text")
        return report is not None and report.status is not LegStatus.OK

    async def _walk_vector(self) -> VectorFinds:
        sources, query = self._sources, self._query
        vector, made_by = (query.vector, None) if query.vector is not None else await self._embedded()
        with self._reported("vector"):
            hits = await self._spread(
                lambda where: sources.vector_store.call(
                    lambda: sources.vectors.search(vector, limit=self._pool, where=where), self._deadline
                )
            )
        finds = VectorFinds(vector, hits, sources.embedder.model.calibration, made_by)
        sources.require_same_model(finds)
        return finds

    async def _embedded(self) -> tuple[Vector, str]:
        """The query's vector, and the fingerprint of the model that made it."""
        embedder, text = self._sources.embedder, self._query.text

        async def embedded() -> tuple[Vector, str]:
            made_by = embedder.model.fingerprint  # before: a model that is exchanged meanwhile is found out
            return await embedder.embed_query(text), made_by

        with self._reported("embedding"):
            return await self._sources.embedding.call(embedded, self._deadline)

    async def _walk_text(self) -> Sequence[KeywordHit]:
        with self._reported("text"):
            return await self._spread(
                lambda where: self._sources.document_store.call(
                    lambda: self._sources.texts.search(self._query.text, limit=self._pool, where=where), self._deadline
                )
            )

    async def _spread(self, look: Callable[[Filter], Awaitable[Sequence[Hit]]]) -> Sequence[Hit]:
        """What a store finds; where a few documents fill the pool, what it finds beside them too.

        Raw scores of two looks compare, so the union is what one look with a limit per document would bring.
        """
        query = self._query
        hits: list[Hit] = list(await look(query.where))
        found = len(hits)
        most = pool_per_document(query)
        if query.per_document is None or most is None:
            return hits
        for _ in range(FURTHER_LOOKS):
            counts = Counter(hit.chunk.document_id for hit in hits)
            crowding = tuple(document for document, count in counts.items() if count >= most)
            is_wide = ENOUGH * len(counts) * query.per_document >= query.limit
            if found < self._pool or not crowding or is_wide:
                break
            try:
                further: Sequence[Hit] = await look(replace(query.where, without_documents=crowding))
            except BackendError:  # what was found stands
                break
            found = len(further)
            hits = _united(hits, further)
        return list(spread(hits, lambda hit: hit.chunk.document_id, most))

    @contextmanager
    def _reported(self, part: str) -> Iterator[None]:
        started = self._clock()
        status, detail = LegStatus.OK, None
        try:
            yield
        except BackendError as error:
            status, detail = status_of(error), str(error)
            raise
        except asyncio.CancelledError:
            status, detail = LegStatus.TIMEOUT, "not finished in time"
            raise
        finally:
            self.reports[part] = LegReport(status, (self._clock() - started) * 1000.0, detail)


def _united(hits: Sequence[Hit], further: Sequence[Hit]) -> list[Hit]:
    """Every chunk once."""
    known = {hit.chunk.id for hit in hits}
    return [*hits, *(hit for hit in further if hit.chunk.id not in known)]


def status_of(error: BackendError) -> LegStatus:
    """How a failure is reported."""
    match error:
        case BreakerOpenError():
            return LegStatus.OPEN
        case BackendStartingError():
            return LegStatus.LOADING
        case BackendTimeoutError():
            return LegStatus.TIMEOUT
        case _:
            return LegStatus.FAILED
