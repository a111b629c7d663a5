"""Counts of documents by kind, agent, session, tag and day, and of passages by origin; and what a filter missed.

They are kept: counting 100 000 documents takes most of a second. Documents that changed since are counted again behind
the answer: it is at most one answer behind.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from cachetools import LRUCache

from rag_context.api.stored_documents import MOST_DAYS, MOST_VALUES, Facets, SessionCount
from rag_context.domain.documents import EPOCH, DocumentGroup, Listing, Origin, TenantState, moment
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline

KEPT = 64
"""Filters whose counts are kept."""

AT_ONCE_DOCUMENTS = 5_000
"""So many documents are counted in a few milliseconds: the answer waits for them, and is never behind."""


@dataclass(frozen=True, slots=True)
class _Counting:
    state: TenantState
    began: float
    task: "asyncio.Task[Facets]"

    @property
    def has_failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)


class FacetCounts:
    """The counts of the latest filters."""

    def __init__(
        self, documents: DocumentStore, at_once: int = AT_ONCE_DOCUMENTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._documents = documents
        self._at_once = at_once
        self._clock = clock
        self._counts: LRUCache[Filter, _Counting] = LRUCache(KEPT)

    async def of(self, where: Filter, *, age_s: float = 0.0) -> Facets:
        """The counts of what a filter lets through; of many documents they may be `age_s` seconds old.

        Raises: BackendError.
        """
        state = await self._documents.tenant_state(where.tenant)
        known = self._counts.get(where)
        if known is None or known.has_failed:
            return await asyncio.shield(self._begin(where, state))
        is_large, now = state.documents > self._at_once, self._clock()
        # Of many, one count at a time: calls that come every second would begin the next before the last has ended.
        if known.state == state or (is_large and (not known.task.done() or now - known.began < age_s)):
            return await asyncio.shield(known.task)
        counting = self._begin(where, state)
        return await asyncio.shield(known.task if is_large else counting)

    def _begin(self, where: Filter, state: TenantState) -> "asyncio.Task[Facets]":
        counting = asyncio.create_task(self._count(where), name="count documents")
        self._counts[where] = _Counting(state, self._clock(), counting)
        return counting

    async def _count(self, where: Filter) -> Facets:
        groups, origins = await self._documents.groups(where), await self._documents.origins(where)
        return counted_facets(groups, origins)


@dataclass(slots=True)
class _Session:
    count: int = 0
    last_us: int = 0
    agents: set[str] = field(default_factory=set)
    content_types: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)


def counted_facets(groups: Iterable[DocumentGroup], origins: Mapping[Origin, int]) -> Facets:
    kinds: Counter[str] = Counter()
    agents: Counter[str] = Counter()
    tags: Counter[str] = Counter()
    days: Counter[int] = Counter()
    sessions: dict[str, _Session] = {}
    for group in groups:
        session = sessions.setdefault(group.session_id, _Session())
        session.count += group.count
        session.last_us = max(session.last_us, group.last_us)
        session.content_types.add(group.content_type)
        session.tags.update(group.tags)
        kinds[group.content_type] += group.count
        days[group.day] += group.count
        if group.agent:
            agents[group.agent] += group.count
            session.agents.add(group.agent)
        for tag in group.tags:
            tags[tag] += group.count
    latest = sorted(sessions.items(), key=lambda item: (-item[1].last_us, item[0]))
    return Facets(
        total=kinds.total(),
        content_types=dict(kinds.most_common(MOST_VALUES)),
        agents=dict(agents.most_common(MOST_VALUES)),
        tags=dict(tags.most_common(MOST_VALUES)),
        origins={origin.value: origins[origin] for origin in Origin if origin in origins},
        days={_day(day): days[day] for day in sorted(days, reverse=True)[:MOST_DAYS]},
        session_count=len(sessions),
        sessions=[
            SessionCount(
                session_id=name,
                count=session.count,
                last=moment(session.last_us),
                agents=sorted(session.agents),
                content_types=sorted(session.content_types),
                tags=sorted(session.tags),
            )
            for name, session in latest[:MOST_VALUES]
        ],
    )


def _day(day: int) -> str:
    return (EPOCH + timedelta(days=day)).date().isoformat()


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
            unknown = [each for each in narrowed if not await documents.listing(each.where, limit=1)]
            newest = await documents.listing(Filter(where.tenant), limit=NEWEST) if unknown else []
    except BackendError:
        return None
    return " ".join(_sentence(each.name, each.value, newest) for each in unknown) or None


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """One value of a filter, and the filter of it alone."""

    name: str
    value: str
    where: Filter


def _narrowed(where: Filter) -> Iterator[_Narrowed]:
    tenant, prefix = where.tenant, where.source_prefix
    for name, value in where.equal():
        alone: dict[str, Any] = {name: value}
        yield _Narrowed(name, value, replace(Filter(tenant), **alone))
    if prefix:
        yield _Narrowed("source", f"{prefix}*", Filter(tenant, source_prefix=prefix))
    for agent in where.agents:
        yield _Narrowed("agent", agent, Filter(tenant, agents=(agent,)))
    for tag in where.tags:
        yield _Narrowed("tag", tag, Filter(tenant, tags=(tag,)))


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
