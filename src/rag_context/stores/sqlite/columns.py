"""The fields of every vector's chunk that filters and results need, as small integers beside the matrix."""

import json
from array import array
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.search import ChunkRef, Filter
from rag_context.stores.sqlite.blocks import Rows
from rag_context.stores.sqlite.filters import microseconds, tenant_values

K = TypeVar("K", bound=Hashable)
Mask = NDArray[np.bool_]


class StoredVector(NamedTuple):
    """A vector and its chunk, as they are read from the file."""

    chunk: str
    document: str
    position: int
    project: str
    branch: str
    path_hash: str
    content_type: str
    session_id: str
    source: str
    category: str | None
    game: str | None
    tags: str
    thread: str | None
    timestamp: int
    vector: bytes


class Codes(Generic[K]):
    """Numbers distinct values in the order of their first occurrence."""

    def __init__(self) -> None:
        self._codes: dict[K, int] = {}
        self.values: list[K] = []

    def __len__(self) -> int:
        return len(self.values)

    def known(self, value: K) -> int | None:
        """The number of `value`; None if it never occurred."""
        return self._codes.get(value)

    def number(self, value: K) -> int:
        """The number of `value`, a new one if it never occurred."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
            self._came(value, code)
        return code

    def _came(self, value: K, code: int) -> None:
        """Called for the first occurrence of a value."""


class SourceCodes(Codes[str]):
    """Sources, sorted too, so that a prefix is a slice."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[str] = []
        self._order = array("i")

    def starting_with(self, prefix: str) -> NDArray[np.int32]:
        """The numbers of the sources that start with `prefix`."""
        start = bisect_left(self._sorted, prefix)
        end = bisect_left(self._sorted, True, lo=start, key=lambda source: not source.startswith(prefix))
        return np.array(self._order[start:end], dtype=np.int32)

    def _came(self, value: str, code: int) -> None:
        place = bisect_left(self._sorted, value)
        self._sorted.insert(place, value)
        self._order.insert(place, code)


class TagLists(Codes[str]):
    """Whole tag lists (as JSON), and in which of them each tag stands."""

    def __init__(self) -> None:
        super().__init__()
        self._codes_by_tag: dict[str, set[int]] = {}

    def with_all(self, tags: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of the lists that hold every one of `tags`."""
        codes = [self._codes_by_tag.get(tag, set()) for tag in tags]
        return np.array(sorted(set.intersection(*codes)), dtype=np.int32)

    def with_any(self, tags: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of the lists that hold at least one of `tags`."""
        return np.array(sorted(set().union(*(self._codes_by_tag.get(tag, set()) for tag in tags))), dtype=np.int32)

    def _came(self, value: str, code: int) -> None:
        for tag in json.loads(value):
            self._codes_by_tag.setdefault(tag, set()).add(code)


_FIELDS = 10
_TENANT, _TYPE, _SESSION, _SOURCE, _CATEGORY, _GAME, _TAGS, _THREAD, _POSITION, _DOCUMENT = range(_FIELDS)
_FIRST_CAPACITY = 1024


class Columns:
    """One row per vector; rows are added at the end and moved by their owner, who keeps count of them."""

    def __init__(self) -> None:
        self._numbers = np.empty((_FIELDS, _FIRST_CAPACITY), dtype=np.int32)
        self._timestamps = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._size = 0
        self._documents: Codes[str] = Codes()
        self._tenants: Codes[tuple[str, str, str]] = Codes()
        self._texts: dict[int, Codes[str | None]] = {
            field: Codes() for field in (_TYPE, _SESSION, _CATEGORY, _GAME, _THREAD)
        }
        self._sources = SourceCodes()
        self._tags = TagLists()

    def append(self, rows: Sequence[StoredVector]) -> None:
        """Add `rows` at the end."""
        start = self._size
        end = start + len(rows)
        self._reserve(end)
        numbers = self._numbers[:, start:end]
        numbers[_TENANT] = [self._tenants.number((row.project, row.branch, row.path_hash)) for row in rows]
        for field, values in (
            (_TYPE, [row.content_type for row in rows]),
            (_SESSION, [row.session_id for row in rows]),
            (_CATEGORY, [row.category for row in rows]),
            (_GAME, [row.game for row in rows]),
            (_THREAD, [row.thread for row in rows]),
        ):
            number = self._texts[field].number
            numbers[field] = [number(value) for value in values]
        numbers[_SOURCE] = [self._sources.number(row.source) for row in rows]
        numbers[_TAGS] = [self._tags.number(row.tags) for row in rows]
        numbers[_POSITION] = [row.position for row in rows]
        numbers[_DOCUMENT] = [self._documents.number(row.document) for row in rows]
        self._timestamps[start:end] = [row.timestamp for row in rows]
        self._size = end

    def move_last_to(self, row: int) -> None:
        """Remove `row` by moving the last row into its place."""
        last = self._size - 1
        self._numbers[:, row] = self._numbers[:, last]
        self._timestamps[row] = self._timestamps[last]
        self._size = last

    def reference(self, row: int, chunk: str) -> ChunkRef:
        """Row `row` as ranking sees it."""
        numbers = self._numbers[:, row]
        return ChunkRef(
            chunk,
            self._documents.values[numbers[_DOCUMENT]],
            int(numbers[_POSITION]),
            self._texts[_TYPE].values[numbers[_TYPE]] or "",
            self._texts[_THREAD].values[numbers[_THREAD]],
        )

    def matching(self, where: Filter) -> Rows | None:
        """The rows that `where` lets through, ascending; None if it lets all through."""
        size = self._size
        masks: list[Mask] = []
        for codes, field, value in self._equalities(where):
            number = codes.known(value)
            if number is None:
                return np.empty(0, dtype=np.intp)
            if len(codes) > 1:
                masks.append(self._numbers[field, :size] == number)
        if where.source_prefix:
            masks.append(self._among(_SOURCE, len(self._sources), self._sources.starting_with(where.source_prefix)))
        if where.tags:
            masks.append(self._among(_TAGS, len(self._tags), self._tags.with_all(where.tags)))
        masks += [self._among(_TAGS, len(self._tags), self._tags.with_any(group)) for group in where.any_tags]
        for document in where.without_documents:
            if (number := self._documents.known(document)) is not None:
                masks.append(self._numbers[_DOCUMENT, :size] != number)
        if where.since is not None:
            masks.append(self._timestamps[:size] >= microseconds(where.since))
        if where.until is not None:
            masks.append(self._timestamps[:size] < microseconds(where.until))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None

    def _equalities(self, where: Filter) -> list[tuple[Codes[object], int, object]]:
        equal: list[tuple[object, int, object]] = [
            (self._tenants, _TENANT, tenant_values(where.tenant)),
            (self._texts[_TYPE], _TYPE, where.content_type),
            (self._texts[_SESSION], _SESSION, where.session_id),
            (self._texts[_CATEGORY], _CATEGORY, where.category),
            (self._texts[_GAME], _GAME, where.game),
            (self._sources, _SOURCE, where.source),
        ]
        return [(codes, field, value) for codes, field, value in equal if value is not None]  # type: ignore[misc]

    def _among(self, field: int, known: int, numbers: NDArray[np.int32]) -> Mask:
        allowed = np.zeros(known, dtype=np.bool_)
        allowed[numbers] = True
        mask: Mask = allowed[self._numbers[field, : self._size]]
        return mask

    def _reserve(self, rows: int) -> None:
        capacity = len(self._timestamps)
        if rows <= capacity:
            return
        capacity = max(2 * capacity, rows)
        size = self._size
        numbers = np.empty((_FIELDS, capacity), dtype=np.int32)
        numbers[:, :size] = self._numbers[:, :size]
        timestamps = np.empty(capacity, dtype=np.int64)
        timestamps[:size] = self._timestamps[:size]
        self._numbers, self._timestamps = numbers, timestamps
