"""The fields of documents that filters and results need, as small integers: a filter is evaluated in some passes."""

import json
import logging
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from dataclasses import field as column
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.documents import FILTERED, Origin, microseconds
from rag_context.domain.reports import DAY_US, DocumentGroup, FieldCounts
from rag_context.domain.search import Filter
from rag_context.stores.sqlite.memory.vector_scan import Mask, Rows

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

STATED = (*FILTERED, "agent")
"""The fields of metadata that a document has in a column of its own."""


class DocumentFields(NamedTuple):
    """A document as it is read from the file."""

    key: int
    id: str
    project: str
    branch: str
    path_hash: str
    content_type: str
    session_id: str
    source: str
    tags: str
    thread: str | None
    shelved_at: int | None = None
    occurred_at: int = 0
    origin: str | None = None
    stated: tuple[str | None, ...] = (None,) * len(STATED)
    """The values of `STATED`."""

    @classmethod
    def read(cls, row: Sequence[Any]) -> "DocumentFields":
        """The document of a row of these columns, the values of `STATED` last."""
        return cls._make((*row[:13], tuple(row[13:])))


class StoredChunk(NamedTuple):
    """A chunk as it is read from the file. `document` is the key of its document, `length` its number of terms."""

    key: int
    id: str
    document: int
    position: int
    length: int
    terms: bytes
    occurred_at: int
    speaker: str | None = None
    standing: int = 0
    origin: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the numbers are numbers; a damaged chunk is left out, and found by `rag-context check`."""
        return type(self.position) is int and type(self.length) is int and type(self.occurred_at) is int


class StoredVector(NamedTuple):
    """A vector as it is read from the file; `chunk` is the key of its chunk, `seq` the vector's own."""

    chunk: int
    vector: bytes
    seq: int


class Codes(Generic[K]):
    """Numbers distinct values in the order of their first occurrence."""

    def __init__(self) -> None:
        self._codes: dict[K, int] = {}
        self.values: list[K] = []

    def __len__(self) -> int:
        return len(self.values)

    def find(self, value: K) -> int | None:
        return self._codes.get(value)

    def number(self, value: K) -> int:
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
        start = bisect_left(self._sorted, prefix)
        # Sorted, the sources with this prefix are one run: the key is False within it and True behind it.
        end = bisect_left(self._sorted, True, lo=start, key=lambda source: not source.startswith(prefix))
        return np.array(self._order[start:end], dtype=np.int32)

    def _came(self, value: str, code: int) -> None:
        # Inserting moves the pointers behind it, which is far cheaper than sorting the strings again.
        rank = bisect_left(self._sorted, value)
        self._sorted.insert(rank, value)
        self._order.insert(rank, code)


class TagLists(Codes[str]):
    """Whole tag lists (as JSON), and in which of them each tag stands."""

    def __init__(self) -> None:
        super().__init__()
        self._codes_by_tag: dict[str, set[int]] = {}

    def with_all(self, tags: Sequence[str]) -> NDArray[np.int32]:
        codes = [self._codes_by_tag.get(tag, set()) for tag in tags]
        return np.array(sorted(set.intersection(*codes)), dtype=np.int32)

    def with_any(self, tags: Sequence[str]) -> NDArray[np.int32]:
        return np.array(sorted(set().union(*(self._codes_by_tag.get(tag, set()) for tag in tags))), dtype=np.int32)

    def _came(self, value: str, code: int) -> None:
        for tag in json.loads(value):
            self._codes_by_tag.setdefault(tag, set()).add(code)


_TENANT, _TYPE, _SESSION, _SOURCE, _TAGS, _CONVERSATION, _FIRST_STATED = range(7)
_COLUMN_OF = {"content_type": _TYPE, "session_id": _SESSION, "source": _SOURCE}
_COLUMN_OF |= {name: column for column, name in enumerate(STATED, _FIRST_STATED)}
"""The columns that filters compare by equality, by their names."""
_AGENT = _COLUMN_OF["agent"]

_FIRST_CAPACITY = 256

ORIGINS = {origin: place for place, origin in enumerate(Origin)}


class DocumentColumns:
    """One row per document. A document that is written again keeps its row; its owner drops all rows to forget some."""

    def __init__(self) -> None:
        self._codes: list[Codes[Any]] = [Codes() for _ in range(_FIRST_STATED + len(STATED))]
        self._codes[_SOURCE] = self._sources = SourceCodes()
        self._codes[_TAGS] = self._tags = TagLists()
        self._numbers = np.empty((len(self._codes), _FIRST_CAPACITY), dtype=np.int32)
        self._keys = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._shelved = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._times = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._origins = np.empty(_FIRST_CAPACITY, dtype=np.int8)
        self._rows: dict[int, int] = {}
        self._ids: list[str] = []
        self._by_id: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, documents: Sequence[DocumentFields]) -> None:
        """Add documents, or replace the fields of those that are there; damaged ones are left out."""
        documents = [document for document in documents if self._is_readable(document)]
        if not documents:
            return
        rows: list[int] = []
        for document in documents:
            row = self._rows.get(document.key)
            if row is None:
                # Rows are never removed one by one: chunks refer to documents by row.
                row = self._rows[document.key] = len(self._ids)
                self._ids.append(document.id)
            else:  # the file gives the key of a deleted document to another one
                self._by_id.pop(self._ids[row], None)
                self._ids[row] = document.id
            self._by_id[document.id] = row
            rows.append(row)
        capacity = self._numbers.shape[1]
        if len(self._ids) > capacity:
            # At least doubled, so that copying stays linear over all appends.
            more = max(capacity, len(self._ids) - capacity)
            self._numbers = np.pad(self._numbers, ((0, 0), (0, more)))
            for column_ in ("_keys", "_shelved", "_times", "_origins"):
                setattr(self, column_, np.pad(getattr(self, column_), (0, more)))
        at = np.array(rows, dtype=np.intp)
        for field, values in enumerate(zip(*map(_by_column, documents), strict=True)):
            number = self._codes[field].number
            self._numbers[field, at] = [number(value) for value in values]
        self._keys[at] = [d.key for d in documents]
        self._shelved[at] = [d.shelved_at or 0 for d in documents]
        self._times[at] = [d.occurred_at for d in documents]
        self._origins[at] = [ORIGINS[Origin.stored(d.origin)] for d in documents]

    def _is_readable(self, document: DocumentFields) -> bool:
        """Whether the fields are what filters can compare."""
        are_kinds = set(map(type, document[1:8])) == {str} and type(document.occurred_at) is int
        if are_kinds and (self._tags.find(document.tags) is not None or _are_tags(document.tags)):
            return True
        logger.warning("the document %s is damaged and left out; run `rag-context check`", document.id)
        return False

    def row(self, key: int) -> int | None:
        """The row of the document with this key; None if it is unknown, or damaged."""
        return self._rows.get(key)

    def id(self, row: int) -> str:
        return self._ids[row]

    def content_type(self, row: int) -> str:
        kind: str = self._codes[_TYPE].values[self._numbers[_TYPE, row]]
        return kind

    def thread(self, row: int) -> str | None:
        """The conversation of the document in a row, by the name it has within its tenant."""
        _, thread = self._codes[_CONVERSATION].values[self._numbers[_CONVERSATION, row]]
        return None if thread is None else str(thread)

    def tenants(self) -> NDArray[np.int32]:
        """`(n,)`, a number for the tenant of every document."""
        return self._numbers[_TENANT, : len(self._ids)]

    def tenant(self, number: int) -> tuple[str, str, str]:
        names: tuple[str, str, str] = self._codes[_TENANT].values[number]
        return names

    def of_type(self, content_type: str) -> Mask:
        code = self._codes[_TYPE].find(content_type)
        mask: Mask = self._numbers[_TYPE, : len(self._ids)] == (-1 if code is None else code)
        return mask

    def keys(self) -> NDArray[np.int64]:
        """`(n,)`, the key of every document in the file: of two that were stored, the later has the higher."""
        return self._keys[: len(self._ids)]

    def order(self, members: Mask) -> NDArray[np.int64]:
        """`(n,)`, the places of the documents in `members`, `(n,)`, by when they were said, then by their keys."""
        rows, places = np.flatnonzero(members), np.zeros(len(members), dtype=np.int64)
        places[rows[np.lexsort((self._keys[rows], self._times[rows]))]] = np.arange(len(rows))
        return places

    def conversations(self) -> NDArray[np.int32]:
        """`(n,)`, a number for the conversation of every document; it means nothing for those without a thread."""
        return self._numbers[_CONVERSATION, : len(self._ids)]

    def conversation(self, tenant: tuple[str, str, str], thread: str) -> int | None:
        """The number of a conversation of a tenant; None if it is unknown."""
        return self._codes[_CONVERSATION].find((tenant, thread))

    def in_conversations(self, numbers: Sequence[int]) -> Mask:
        """`(n,)`, which documents belong to one of these conversations."""
        return self._among(_CONVERSATION, np.array(numbers, dtype=np.int32))

    def matching(self, where: Filter) -> Mask | None:
        """`(n,)`, which documents `where` lets through; None if it lets all through. Times are those of chunks."""
        size = len(self._ids)
        masks: list[Mask] = []
        named = ((_COLUMN_OF[name], value) for name, value in where.equal())
        for field, sought in ((_TENANT, where.tenant.names), *named):
            number = self._codes[field].find(sought)
            if number is None:
                return np.zeros(size, dtype=np.bool_)
            # With one value in the whole column, such as the only tenant, all rows match: no pass is needed.
            if len(self._codes[field]) > 1:
                masks.append(self._numbers[field, :size] == number)
        if where.source_prefix:
            masks.append(self._among(_SOURCE, self._sources.starting_with(where.source_prefix)))
        if where.agents:
            agents = self._codes[_AGENT]
            numbers = [number for agent in where.agents if (number := agents.find(agent)) is not None]
            masks.append(self._among(_AGENT, np.array(numbers, dtype=np.int32)))
        if where.tags:
            masks.append(self._among(_TAGS, self._tags.with_all(where.tags)))
        masks += [self._among(_TAGS, self._tags.with_any(group)) for group in where.any_tags]
        without = [self._by_id[id_] for id_ in where.without_documents if id_ in self._by_id]
        if without:
            masks.append(np.ones(size, dtype=np.bool_))
            masks[-1][without] = False
        if where.superseded_after is not None:
            masks.append(self._shelved[:size] > microseconds(where.superseded_after))
        return np.logical_and.reduce(masks) if masks else None

    def counted(self, where: Filter, present: Mask, most: int) -> tuple[FieldCounts, Mask]:
        """`ports.DocumentStore.field_counts` of those `present`, `(n,)`, without origins; and which these are."""
        size = len(self._ids)
        masks = [present, *_passing(where, self._times, self._origins, size)]
        matching = self.matching(where)
        passing = np.logical_and.reduce(masks if matching is None else [*masks, matching])
        numbers, times = self._numbers[:, :size][:, passing], self._times[:size][passing]
        counts = FieldCounts({}, self._counts(numbers, _TYPE), self._counts(numbers, _AGENT))
        del counts.agents[None], counts.agents[""]  # type: ignore[index]
        for stored, count in self._counts(numbers, _TAGS).items():
            counts.tags.update(dict.fromkeys(json.loads(stored), count))
        days, of_days = np.unique(times // DAY_US, return_counts=True)
        counts.days.update(dict(zip(days.tolist(), of_days.tolist(), strict=True)))
        # The last time of each session; those as late as the last one that is requested may be many.
        last = np.full(len(self._codes[_SESSION]), np.iinfo(np.int64).min)
        np.maximum.at(last, numbers[_SESSION], times)
        known = np.unique(numbers[_SESSION])
        counts.sessions = len(known)
        if len(known) > most:
            known = known[last[known] >= np.partition(last[known], -most)[-most]]
        in_latest = np.zeros(len(last), dtype=np.bool_)
        in_latest[known] = True
        fields = [_SESSION, _TYPE, _AGENT, _TAGS]
        alike = Counter(zip(*numbers[fields][:, in_latest[numbers[_SESSION]]].tolist(), strict=True))
        sessions, kinds, agents, tags = (self._codes[field].values for field in fields)
        groups = [
            DocumentGroup(
                kinds[kind], agents[agent], sessions[name], tuple(json.loads(tags[own])), 0, count, int(last[name])
            )
            for (name, kind, agent, own), count in alike.items()
        ]
        counts.latest = FieldCounts.of(groups, {}, most).latest
        return counts, passing

    def _counts(self, numbers: NDArray[np.int32], field: int) -> Counter[Any]:
        counts = np.bincount(numbers[field])
        values = self._codes[field].values
        return Counter({values[number]: int(counts[number]) for number in np.flatnonzero(counts).tolist()})

    def only(self, rows: NDArray[np.intp]) -> "DocumentColumns":
        """A copy with `rows` alone, in this order."""
        # Numbered again, which forgets the values that only deleted documents had.
        copy = DocumentColumns()
        copy.put([self._stored(row) for row in rows.tolist()])
        return copy

    def _stored(self, row: int) -> DocumentFields:
        numbers = self._numbers[:, row].tolist()
        tenant, kind, session, source, tags, (_, thread), *stated = (
            codes.values[number] for codes, number in zip(self._codes, numbers, strict=True)
        )
        key, shelved_at, at = (int(numbers[row]) for numbers in (self._keys, self._shelved, self._times))
        origin = tuple(Origin)[self._origins[row]].value
        described = (*tenant, kind, session, source, tags, thread, shelved_at, at, origin)
        return DocumentFields._make((key, self._ids[row], *described, tuple(stated)))

    def _among(self, field: int, numbers: NDArray[np.int32]) -> Mask:
        # A table of all numbers and one gather: the cost does not depend on how many of them are allowed, such as the
        # thousands of sources below a prefix.
        allowed = np.zeros(len(self._codes[field]), dtype=np.bool_)
        allowed[numbers] = True
        mask: Mask = allowed[self._numbers[field, : len(self._ids)]]
        return mask


def _by_column(document: DocumentFields) -> tuple[Hashable, ...]:
    """The values of a document in the order of the columns."""
    tenant = (document.project, document.branch, document.path_hash)
    described = (document.content_type, document.session_id, document.source, document.tags)
    return tenant, *described, (tenant, document.thread), *document.stated


@dataclass(slots=True)
class ChunkColumns:
    """Numbers of each chunk, by row, with room for more."""

    keys: NDArray[np.int64] = column(default_factory=lambda: np.empty(0, dtype=np.int64))
    seqs: NDArray[np.int64] = column(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The vectors' keys."""
    documents: NDArray[np.int32] = column(default_factory=lambda: np.empty(0, dtype=np.int32))
    positions: NDArray[np.int32] = column(default_factory=lambda: np.empty(0, dtype=np.int32))
    lengths: NDArray[np.int32] = column(default_factory=lambda: np.empty(0, dtype=np.int32))
    times: NDArray[np.int64] = column(default_factory=lambda: np.empty(0, dtype=np.int64))
    """When it was said or written, in microseconds."""
    speakers: NDArray[np.int32] = column(default_factory=lambda: np.empty(0, dtype=np.int32))
    """The numbers of those who said it."""
    standing: Mask = column(default_factory=lambda: np.empty(0, dtype=np.bool_))
    origins: NDArray[np.int8] = column(default_factory=lambda: np.empty(0, dtype=np.int8))
    """The places of their origins among all, from the most trusted one."""
    live: Mask = column(default_factory=lambda: np.empty(0, dtype=np.bool_))
    embedded: Mask = column(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def reserve(self, rows: int) -> None:
        """Make room for so many rows."""
        if rows > len(self.keys):
            more = max(rows - len(self.keys), len(self.keys), _FIRST_CAPACITY)
            for name in self.__slots__:
                setattr(self, name, np.pad(getattr(self, name), (0, more)))

    def passing(self, where: Filter, size: int) -> list[Mask]:
        """`(size,)` each, which of the first rows pass what `where` says of chunks; empty where it says nothing."""
        standing = [self.standing[:size]] if where.standing else []
        return [*_passing(where, self.times, self.origins, size), *standing]

    def only(self, rows: Rows) -> "ChunkColumns":
        """A copy with `rows` alone, in this order."""
        return ChunkColumns(*(getattr(self, name)[rows] for name in self.__slots__))


def _passing(where: Filter, times: NDArray[np.int64], origins: NDArray[np.int8], size: int) -> list[Mask]:
    """`(size,)` each, what of these times and origins a filter lets through; empty where it says nothing of them."""
    since = [] if where.since is None else [times[:size] >= microseconds(where.since)]
    until = [] if where.until is None else [times[:size] < microseconds(where.until)]
    named = [np.isin(origins[:size], [ORIGINS[each] for each in where.origins])] if where.origins else []
    return [*since, *until, *named]


def _are_tags(stored: str) -> bool:
    try:
        tags = json.loads(stored)
    except (TypeError, ValueError):
        return False
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def turns_around(
    rows: Rows, documents: DocumentColumns, document_of: NDArray[np.int32], positions: NDArray[np.int32], live: Mask
) -> tuple[Rows, Rows]:
    """The last chunk of the turn before, and the first of the turn after, of `rows` `(m,)` in conversations.

    Turns follow each other by their times, those of one time in the order in which their documents were stored first.
    Document, position and whether it is live are given of every chunk, `(n,)`. Returns two arrays `(m,)` of rows, -1
    where there is none.
    """
    conversations = documents.conversations()
    conversation_of = conversations[document_of[rows]]
    members = documents.in_conversations(np.unique(conversation_of).tolist())
    keys = documents.order(members)
    chunks = np.flatnonzero(members[document_of] & live[: len(document_of)])
    owners = document_of[chunks]
    # By conversation, then turn, then position: a conversation is one run, and so is each of its turns.
    order = np.lexsort((positions[chunks], keys[owners], conversations[owners]))
    chunks, owners = chunks[order], owners[order]
    starts = np.searchsorted(conversations[owners], conversation_of, "left")
    ends = np.searchsorted(conversations[owners], conversation_of, "right")
    before, after = np.full(len(rows), -1, dtype=np.intp), np.full(len(rows), -1, dtype=np.intp)
    for number, row in enumerate(rows.tolist()):
        start, end = int(starts[number]), int(ends[number])
        key, turns = keys[document_of[row]], keys[owners[start:end]]
        # The whole turn of the row is passed over, not the row alone: its own chunks are no neighbours here.
        first, last = np.searchsorted(turns, key, "left"), np.searchsorted(turns, key, "right")
        if first > 0:
            before[number] = chunks[start + first - 1]
        if last < end - start:
            after[number] = chunks[start + last]
    return before, after
