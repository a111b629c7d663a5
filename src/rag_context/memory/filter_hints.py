"""Why a filter lets nothing through: values that no document of the tenant has, with those that are nearly the same."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from rag_context.domain.documents import Listing
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline

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
