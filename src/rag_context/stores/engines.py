"""What providers of collections share: names and sizes of writes that an engine accepts, health, discarded rows.

And the shapes in which other programs keep a document beside its vector: those of the usual libraries.
"""

import asyncio
import json
import logging
import re
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar

from rag_context.domain.documents import Json, Status
from rag_context.errors import BackendError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection, Entry, ProviderHealth

_PLAIN = re.compile(r"[a-z0-9]|[a-z0-9][a-z0-9_-]{0,98}[a-z0-9]")
_OTHER = re.compile(r"[^a-z0-9]+")

_RECORDED = ("name", "metadata", "embedding_provider", "embedding_model", "dimension")

_READABLE = 40
"""Characters of a name that is kept beside its digest."""

_DIGITS = 32
"""Hexadecimal ones: 128 bits of SHA-256."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SHOWN = 60
"""Characters of an id that a message repeats."""

FLOAT_CHARS = 22
"""Characters that one float of a vector takes as JSON, at most."""

OPERATION_BYTES = 16 * 1024 * 1024
"""Of one operation, which is all or nothing: half of the default limit of the strictest engine."""

CALLS_AT_ONCE = 8

TEXT_KEYS = ("document", "page_content", "text", "content", "body", "chunk", "passage")
"""Where the text stands, the first that is there: Qdrant's own clients, LangChain, and what most others call it."""

_METADATA_KEYS = ("metadata", "meta")

_NODE = "_node_content"
"""LlamaIndex keeps a node as JSON, its text among much else."""


def engine_name(prefix: str, name: str) -> str:
    """The name by which an engine knows a collection; `prefix` has no dot.

    Lower-case letters, digits, dots, dashes and underscores only, because some engines make folders of names on disks
    that ignore case. A name of only these is kept; any other keeps its readable part, before a
    digest of the whole name.
    """
    if _PLAIN.fullmatch(name):
        return f"{prefix}.{name}"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    readable = _OTHER.sub("-", plain)[:_READABLE].strip("-") or "x"
    return f"{prefix}.{readable}.{sha256(name.encode()).hexdigest()[:_DIGITS]}"


def operations(items: Sequence[T], size_of: Callable[[T], int], most: int | None = None) -> Iterator[Sequence[T]]:
    """Items in order, in as few groups as their sizes (in bytes) and the largest number allow."""
    start = size = 0
    for end, item in enumerate(items):
        more = size_of(item)
        # One item alone may be larger than the limit: the engine decides on it.
        if end > start and (size + more > OPERATION_BYTES or end - start == most):
            yield items[start:end]
            start, size = end, 0
        size += more
    if start < len(items):
        yield items[start:]


async def few_at_once(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of calls, in order; not all of them are sent at the same time, which would delay those of others."""
    limit = asyncio.Semaphore(CALLS_AT_ONCE)

    async def limited(call: Awaitable[T]) -> T:
        async with limit:
            return await call

    return await asyncio.gather(*map(limited, calls))


def recorded(collection: Collection) -> dict[str, Any]:
    """What the registry of an engine keeps of a collection. Stored data hangs on these names."""
    created = collection.created.isoformat() if collection.created else None
    return {name: getattr(collection, name) for name in _RECORDED} | {"created": created}


def collection_from(record: Mapping[str, Any]) -> Collection:
    """As it was `recorded`. Raises: KeyError, TypeError, ValueError."""
    created = record.get("created")
    labels = record.get("embedding_provider"), record.get("embedding_model")
    dated = datetime.fromisoformat(created) if created else None
    return Collection(record["name"], record["metadata"], *labels, dimension=record.get("dimension"), created=dated)


def check_dimension(name: str, bound: int | None, dimension: int) -> None:
    """Check that a vector has the dimension of a collection, if that has one yet. Raises: InvalidInputError."""
    if bound not in (None, dimension):
        raise InvalidInputError(f"Collection '{name}' holds vectors of {bound} dimensions, not of {dimension}")


def check_distinct(entries: Sequence[Entry]) -> None:
    """Check that no id is given twice: engines keep either of the two, or reject both. Raises: InvalidInputError."""
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise InvalidInputError(f"The id {entry.id[:_SHOWN]!r} is given twice.")
        seen.add(entry.id)


def read_fields(payload: Mapping[str, Any], text: str | None = None) -> tuple[str, dict[str, Json]]:
    """The text and the metadata of a document that another program stored."""
    rest = dict(payload)
    if not text:
        key = next((key for key in TEXT_KEYS if isinstance(rest.get(key), str) and rest[key]), None)
        text = rest.pop(key) if key is not None else _of_node(rest.get(_NODE))
    rest.pop(_NODE, None)
    for key in _METADATA_KEYS:
        if len(rest) == 1 and isinstance(rest.get(key), Mapping):
            return text, dict(rest[key])
    return text, rest


def _of_node(node: object) -> str:
    try:
        found = json.loads(node)["text"] if isinstance(node, str) else ""
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def metadata_text(metadata: Mapping[str, Json]) -> str:
    """JSON that reads back as exactly this."""
    return json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)


def unknown_collection(name: str) -> NotFoundError:
    return NotFoundError(f"Collection '{name}' not found")


async def timed_health(count: Callable[[], Awaitable[tuple[int, int | None]]]) -> ProviderHealth:
    """The health of an engine; `count` returns the number of collections, and their size if it can be known."""
    checked, started = datetime.now(UTC), time.perf_counter()
    number, size, error = None, None, None
    try:
        number, size = await count()
    except BackendError as failure:
        error = str(failure)
    latency_ms = (time.perf_counter() - started) * 1000
    status = Status.HEALTHY if error is None else Status.UNAVAILABLE
    return ProviderHealth(status, checked, latency_ms, error, number, size)


class DiscardedRows:
    """Removes rows of dropped, emptied or replaced collections, until `remove_some` returns False: none is left."""

    def __init__(self, remove_some: Callable[[], Awaitable[bool]]) -> None:
        self._remove_some = remove_some
        self._is_due = True
        self._removing: asyncio.Task[None] | None = None

    def remove_soon(self) -> None:
        """Remove all of them, those that are discarded meanwhile too."""
        self._is_due = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove(), name="remove discarded rows")

    def remove_leftovers(self) -> None:
        """Remove what an earlier process has left, once."""
        if self._removing is None:
            self.remove_soon()

    async def close(self) -> None:
        """Stop removing; the next start continues."""
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait({self._removing})

    async def _remove(self) -> None:
        try:
            # Again if rows were discarded meanwhile: `remove_soon` starts no second task beside this one.
            while self._is_due:
                self._is_due = False
                # Small transactions: other writers wait for them, and a long one keeps dead rows from being vacuumed.
                while await self._remove_some():
                    pass
        except BackendError as error:
            logger.info("rows of dropped collections are removed later: %s", error)
