"""Counts of documents by kind, agent, session, tag and day, and of passages by origin; and what a filter missed.

They are kept, because some stores read a row of each document for them: 100 000 take such a store most of a second.
What changed since is then counted behind the answer, which is at most one answer behind.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from cachetools import LRUCache

from rag_context.api.stored_documents import MOST_DAYS, MOST_VALUES, Facets, SessionCount
from rag_context.domain.documents import EPOCH, Listing, Origin, TenantState, moment
from rag_context.domain.reports import FieldCounts
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline

KEPT = 64
"""Filters whose counts are kept."""

AT_ONCE = (5_000, 0.1)
"""So few documents, and those that took no more seconds, are counted again before the answer: it is never behind."""


@dataclass(slots=True)
class _Counting:
    state: TenantState
    began: float
    task: "asyncio.Task[Facets]"
    took_s: float = 0.0
    """Known once it is done."""


class FacetCounts:
    """The counts of the latest filters."""

    def __init__(
        self,
        documents: DocumentStore,
        at_once: tuple[int, float] = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._at_once = at_once
        self._clock = clock
        self._counts: LRUCache[Filter, _Counting] = LRUCache(KEPT)

    async def of(self, where: Filter, *, age_s: float = 0.0) -> Facets:
        """The counts of what a filter lets through; those that take long may be `age_s` seconds old.

        Raises: BackendError.
        """
        state = await self._documents.tenant_state(where.tenant)
        known = self._counts.get(where)
        if known is None or (known.task.done() and (known.task.cancelled() or known.task.exception() is not None)):
            return await asyncio.shield(self._begin(where, state).task)
        # One count at a time: calls that come every second would begin the next before the last has ended.
        facets = await asyncio.shield(known.task)
        few, briefly_s = self._at_once
        is_slow = state.documents > few and known.took_s > briefly_s
        if known.state == state or (is_slow and self._clock() - known.began < age_s):
            return facets
        latest = self._counts.get(where)
        counting = self._begin(where, state) if latest is None or latest is known else latest
        return facets if is_slow else await asyncio.shield(counting.task)

    def _begin(self, where: Filter, state: TenantState) -> _Counting:
        async def count() -> Facets:
            began = time.perf_counter()
            counts = await self._documents.field_counts(where, MOST_VALUES)
            counting.took_s = time.perf_counter() - began
            return _shown(counts)

        counting = _Counting(state, self._clock(), asyncio.create_task(count(), name="count documents"))
        self._counts[where] = counting
        return counting


def _shown(counts: FieldCounts) -> Facets:
    return Facets(
        total=counts.content_types.total(),
        content_types=dict(counts.content_types.most_common(MOST_VALUES)),
        agents=dict(counts.agents.most_common(MOST_VALUES)),
        tags=dict(counts.tags.most_common(MOST_VALUES)),
        origins={origin.value: counts.origins[origin] for origin in Origin if origin in counts.origins},
        days={
            (EPOCH + timedelta(days=day)).date().isoformat(): counts.days[day]
            for day in sorted(counts.days, reverse=True)[:MOST_DAYS]
        },
        session_count=counts.sessions,
        sessions=[
            SessionCount(
                session_id=session.session_id,
                count=session.count,
                last=moment(session.last_us),
                agents=sorted(session.agents),
                content_types=sorted(session.content_types),
                tags=sorted(session.tags),
            )
            for session in counts.latest
        ],
    )


NEWEST = 1_000
"""Documents that are searched for near values; the fields of all are read."""

NEAR_VALUES = 3
LEAST_RATIO = 0.6
"""The least share of common characters by which two values are near (`difflib`)."""

TIMEOUT_S = 0.3


async def filter_hint(documents: DocumentStore, where: Filter) -> str | None:
    """Which values of a filter no document of its tenant has; None if each has some, or the store is late."""
    narrowed = list(_narrowed(where))
    if not narrowed:
        return None
    try:
        with Deadline.after(TIMEOUT_S, time.monotonic).applied():
            unknown = [(name, value) for name, value, alone in narrowed if not await documents.listing(alone, limit=1)]
            newest = await documents.listing(Filter(where.tenant), limit=NEWEST) if unknown else []
    except BackendError:
        return None
    return " ".join(_sentence(name, value, newest) for name, value in unknown) or None


def _narrowed(where: Filter) -> Iterator[tuple[str, str, Filter]]:
    """Each value of a filter by its name, and the filter of it alone."""
    tenant, prefix = where.tenant, where.source_prefix
    for name, value in where.equal():
        alone: dict[str, Any] = {name: value}
        yield name, value, replace(Filter(tenant), **alone)
    if prefix:
        yield "source", f"{prefix}*", Filter(tenant, source_prefix=prefix)
    for agent in where.agents:
        yield "agent", agent, Filter(tenant, agents=(agent,))
    for tag in where.tags:
        yield "tag", tag, Filter(tenant, tags=(tag,))


def _sentence(name: str, value: str, newest: Iterable[Listing]) -> str:
    wanted = value.casefold().removesuffix("*")
    # A prefix is compared with the beginnings of sources.
    length = len(wanted) + 1 if value.endswith("*") else None
    known: dict[str, str] = {}
    for document in newest:
        for other in _values(name, document):
            known.setdefault(other.casefold()[:length], other)
    found = get_close_matches(wanted, known, NEAR_VALUES, LEAST_RATIO)
    found += [each for each in known if wanted in each and each not in found]
    near = ", ".join(f'"{known[each]}"' for each in found[:NEAR_VALUES])
    return f'No document has the {name.replace("_", " ")} "{value}"' + (f"; near: {near}." if near else ".")


def _values(name: str, document: Listing) -> Iterable[str]:
    if name == "tag":
        return document.metadata.tags
    return filter(None, (getattr(document, name, None) or getattr(document.metadata, name, None),))
