"""Copies a collection from one provider to another: page by page, repeatable, and compared at the end.

Source and target are read in parallel in the order of their ids. This finds every missing, extra and different
document with one page of each in memory, and the ids of the documents to copy.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import TypeAlias

import numpy as np

from rag_context.collections.labels import BUILT, require_writable
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import slices
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, ConflictError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection as CollectionRecord
from rag_context.ports.provider import Entry, Provider
from rag_context.transfer.mover import outer_join

_PAGE = 5000
"""Entries that are listed by one call."""

_BATCH = 500
"""Entries that are read, or written, with their vectors by one call."""

_TOLERANCE = 1e-5
"""By how much two numbers of one vector may differ: some stores normalise vectors again."""

_EXAMPLES = 3

Row: TypeAlias = tuple[Entry, Vector]


@dataclass(frozen=True, slots=True)
class Located:
    provider: Provider
    name: str


class OnDifference(StrEnum):
    """What happens to a target with documents, metadata or labels that the source does not have."""

    REJECT = "reject"
    OVERWRITE = "overwrite"
    """The target becomes equal to the source; everything else in it is deleted."""


class Stage(StrEnum):
    COMPARE = "compare"
    COPY = "copy"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The number of the source's documents that a stage has processed."""

    stage: Stage
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy. `digest` is the SHA-256 of all ids, texts and metadata, equal for source and target."""

    documents: int
    copied: int
    skipped: int
    """Documents that the target had already."""
    removed: int
    digest: str


OnProgress: TypeAlias = Callable[[CopyProgress], None]


async def copy_collection(
    source: Located,
    target: Located,
    *,
    on_difference: OnDifference = OnDifference.REJECT,
    progress: OnProgress = lambda _: None,
) -> CopyReport:
    """Copy a collection with its documents, vectors, metadata and labels, and check that both are equal in the end.

    A target that is new, empty, or holds a part of the source is completed, so a copy that failed can be repeated. The
    source should not change meanwhile.

    Raises: InvalidInputError (both are one collection), NotFoundError, ConflictError (the target has other contents;
    `on_difference` is REJECT), BackendDataError (they differ in the end), BackendError.
    """
    if source.provider is target.provider and source.name == target.name:
        raise InvalidInputError(f"The collection '{source.name}' cannot be copied onto itself")
    original = await source.provider.collection(source.name)
    if original is None:
        raise NotFoundError(f"Collection '{source.name}' not found")
    before = await _prepare(original, source, target, on_difference, _Meter(Stage.COMPARE, original.count, progress))
    # What only the target has goes first: if the copy fails, the next one finds only documents of the source.
    for id_ in before.extra:
        await target.provider.delete(target.name, id_)
    selected = None if before.blank else frozenset((*before.missing, *before.changed))
    copied = await _fill(source, target, selected, _Meter(Stage.COPY, original.count, progress))
    # Both are read again: what a provider acknowledged need not be what it stored.
    after = await _compare(source, target, _Meter(Stage.VERIFY, original.count, progress))
    differences = " and ".join(_difference_texts(after.missing, after.changed, after.extra))
    if differences:
        raise BackendDataError("collections", f"After the copy, '{target.name}' {differences}: copy again.")
    return CopyReport(after.same, copied, before.same, before.dropped + len(before.extra), after.digest)


async def copy_all(
    source: Provider, target: Provider, on_progress: Callable[[str, CopyProgress], None]
) -> dict[str, CopyReport]:
    """Copy all collections of a provider, as `copy_collection` does and raises; returns a report for each.

    Left out are collections of other programs, and those that a reindexing is building.
    """
    return {
        name: await copy_collection(Located(source, name), Located(target, name), progress=partial(on_progress, name))
        for name in await own_collections(source)
    }


async def own_collections(provider: Provider) -> list[str]:
    found = await provider.collections()
    return [collection.name for collection in found if not collection.foreign and BUILT not in collection.name]


@dataclass(slots=True)
class _Comparison:
    """The ids that are missing in the target, that it has in another version, and that only it has."""

    missing: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    same: int = 0
    digest: str = ""
    dropped: int = 0
    """Documents of a target that had to be created again."""
    blank: bool = False
    """The target is empty: nothing was compared, and all documents are missing."""


class _Meter:
    """Counts the documents that a stage has processed, and reports them batch by batch."""

    def __init__(self, stage: Stage, total: int, progress: OnProgress) -> None:
        self._stage = stage
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        # The source may grow while it is read.
        self._progress(CopyProgress(self._stage, self._done, max(self._total, self._done)))


async def _prepare(
    original: CollectionRecord, source: Located, target: Located, on_difference: OnDifference, meter: _Meter
) -> _Comparison:
    """Create the target or adapt it, and compare it with the source. Raises: ConflictError."""
    existing = await target.provider.collection(target.name)
    dropped = 0
    if existing is not None:
        require_writable(existing)
        found = await _compare(source, target, meter) if existing.count else _Comparison(blank=True)
        conflicts = [*_conflicts(original, existing), *_difference_texts([], found.changed, found.extra)]
        if conflicts and on_difference is OnDifference.REJECT:
            reasons = " and ".join(conflicts)
            raise ConflictError(f"The collection '{target.name}' {reasons}: overwrite it, or name another for the copy")
        if not _other_labels(original, existing) and not _other_dimension(original, existing):
            if _canonical(existing.metadata) != _canonical(original.metadata):
                await target.provider.replace_metadata(target.name, original.metadata)
            return found
        # Labels and dimension of a collection cannot be changed.
        await target.provider.drop(target.name)
        dropped = existing.count
    # Under its own name it is the same collection at another place; under another name it is a new one.
    created = original.created if target.name == source.name else None
    labels = original.embedding_provider, original.embedding_model
    if not await target.provider.create(CollectionRecord(target.name, original.metadata, *labels, created=created)):
        raise ConflictError(f"Another program has created the collection '{target.name}' meanwhile: copy again")
    return _Comparison(blank=True, dropped=dropped)


def _conflicts(original: CollectionRecord, existing: CollectionRecord) -> list[str]:
    """The labels, dimension and metadata that a copy would overwrite; unset ones of an empty collection are none."""
    found: list[str] = []
    if _other_labels(original, existing) and (
        existing.count or existing.embedding_provider or existing.embedding_model
    ):
        found.append("has another embedding provider or model")
    if _other_dimension(original, existing):
        found.append(f"is bound to dimension {existing.dimension}, not {original.dimension}")
    if _canonical(existing.metadata) != _canonical(original.metadata) and (existing.count or existing.metadata):
        found.append("has other metadata")
    return found


def _other_labels(one: CollectionRecord, other: CollectionRecord) -> bool:
    return (one.embedding_provider, one.embedding_model) != (other.embedding_provider, other.embedding_model)


def _other_dimension(original: CollectionRecord, existing: CollectionRecord) -> bool:
    return original.dimension is not None and existing.dimension not in (None, original.dimension)


def _difference_texts(missing: Sequence[str], changed: Sequence[str], extra: Sequence[str]) -> list[str]:
    """The differences as parts of a sentence, with examples."""
    return [
        text.format(_counted(ids))
        for text, ids in (
            ("lacks {}", missing),
            ("holds another version of {}", changed),
            ("holds {} that the source does not", extra),
        )
        if ids
    ]


def _counted(ids: Sequence[str]) -> str:
    examples = ", ".join(map(repr, ids[:_EXAMPLES]))
    return f"{len(ids)} document{'s' * (len(ids) != 1)} ({examples}{', ...' * (len(ids) > _EXAMPLES)})"


async def _fill(source: Located, target: Located, selected: Collection[str] | None, meter: _Meter) -> int:
    """Copy the selected documents, or all if `selected` is None. Returns how many."""
    copied = 0
    async for rows in _rows(source):
        rows_to_copy = rows if selected is None else [row for row in rows if row[0].id in selected]
        if rows_to_copy:
            vectors = np.stack([vector for _, vector in rows_to_copy])
            await target.provider.upsert(target.name, [entry for entry, _ in rows_to_copy], vectors)
        copied += len(rows_to_copy)
        meter.add(len(rows))
    return copied


async def _compare(source: Located, target: Located, meter: _Meter) -> _Comparison:
    """Read source and target in parallel and compare them."""
    found = _Comparison()
    digest = sha256()
    async for id_, row, copy in outer_join(_by_id(source, meter.add), _by_id(target)):
        if row is None:
            found.extra.append(id_)
            continue
        # Of the source alone: in the end both are the same.
        digest.update(_canonical([id_, row[0].text, dict(row[0].metadata)]).encode())
        if copy is None:
            found.missing.append(id_)
        elif _same(row, copy):
            found.same += 1
        else:
            found.changed.append(id_)
    found.digest = digest.hexdigest()
    return found


async def _by_id(located: Located, on_read: Callable[[int], None] = lambda _: None) -> AsyncIterator[tuple[str, Row]]:
    """As `_rows`, each with its id; `on_read` is called with the size of every batch that is used up."""
    async for rows in _rows(located):
        for row in rows:
            yield row[0].id, row
        on_read(len(rows))


async def _rows(located: Located) -> AsyncIterator[list[Row]]:
    """All entries with their vectors, sorted by id, in batches; one that is deleted meanwhile is left out."""
    offset = 0
    while True:
        page = await located.provider.entries(located.name, EVERYTHING, limit=_PAGE, offset=offset)
        for entries in slices(page.entries, _BATCH):
            vectors = await located.provider.vectors(located.name, [entry.id for entry in entries])
            yield [(entry, vectors[entry.id]) for entry in entries if entry.id in vectors]
        offset += _PAGE
        if offset >= page.total:
            return


def _same(one: Row, other: Row) -> bool:
    (entry, vector), (other_entry, other_vector) = one, other
    return (
        entry.text == other_entry.text
        and _canonical(entry.metadata) == _canonical(other_entry.metadata)
        and vector.shape == other_vector.shape
        and bool(np.abs(vector - other_vector).max(initial=0.0) <= _TOLERANCE)
    )


def _canonical(value: object) -> str:
    """JSON text that is the same for equal values only: 1 differs from 1.0, and true from 1."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=dict)
