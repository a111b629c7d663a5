"""Copies a collection from one provider to another: page by page, repeatable, and compared at the end.

Both sides are read side by side in the order of their ids. So it is known exactly what is missing, left over or
different, and no more of either is held than a page, and the ids of what is still to be copied.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import TypeAlias

import numpy as np

from rag_context.collections.labels import writable
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, ConflictError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection as Described
from rag_context.ports.provider import Entry, Provider

_PAGE = 5000
"""Entries that are listed by one call."""

_BATCH = 500
"""Entries that are read, or written, with their vectors by one call."""

_TOLERANCE = 1e-5
"""By which two numbers of one vector may differ: some stores normalise vectors anew."""

_EXAMPLES = 3

Row: TypeAlias = tuple[Entry, Vector]


@dataclass(frozen=True, slots=True)
class Located:
    """A collection of a provider."""

    provider: Provider
    name: str


class OnDifference(StrEnum):
    """What happens to a target that holds something else than a part of the source."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
    """It becomes what the source is; what it held beside that is removed."""


class Stage(StrEnum):
    """What a copy is at."""

    COMPARE = "compare"
    COPY = "copy"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """With how many of the source's documents a stage is done."""

    stage: Stage
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy came to. `digest` is the SHA-256 of all ids, texts and metadata, which both sides have in common."""

    documents: int
    copied: int
    skipped: int
    """Those that were there already."""
    removed: int
    digest: str


Progress: TypeAlias = Callable[[CopyProgress], None]


async def copy_collection(
    source: Located,
    target: Located,
    *,
    on_difference: OnDifference = OnDifference.REFUSE,
    progress: Progress = lambda _: None,
) -> CopyReport:
    """Copy a collection with its documents, vectors, metadata and labels, and see that both are the same in the end.

    A target that is new, empty, or holds a part of the source is filled; so a repeat copies only what is missing.

    Args:
        source: what is copied; it should not change meanwhile.
        target: where to; made where it is not there.
        on_difference: what happens to a target that holds something else.
        progress: is told how far it is, after every batch.

    Raises:
        InvalidInputError: source and target are one collection.
        NotFoundError: there is no such source.
        ConflictError: the target holds something else, and `on_difference` is to refuse; nothing was changed.
        BackendDataError: they are not the same in the end, because one of them was changed meanwhile.
        BackendError: one of them failed; the same call again goes on from there.
    """
    if source.provider is target.provider and source.name == target.name:
        raise InvalidInputError(f"The collection '{source.name}' cannot be copied onto itself")
    original = await source.provider.collection(source.name)
    if original is None:
        raise NotFoundError(f"Collection '{source.name}' not found")
    before = await _prepare(original, source, target, on_difference, _Meter(Stage.COMPARE, original.count, progress))
    for id_ in before.extra:
        await target.provider.delete(target.name, id_)
    wanted = None if before.blank else frozenset((*before.missing, *before.changed))
    copied = await _fill(source, target, wanted, _Meter(Stage.COPY, original.count, progress))
    after = await _compare(source, target, _Meter(Stage.VERIFY, original.count, progress))
    differences = " and ".join(_told(after.missing, after.changed, after.extra))
    if differences:
        raise BackendDataError("collections", f"After the copy, '{target.name}' {differences}: copy again.")
    return CopyReport(after.same, copied, before.same, before.dropped + len(before.extra), after.digest)


@dataclass(slots=True)
class _Comparison:
    """What a target lacks of a source, has otherwise, and has beside."""

    missing: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    same: int = 0
    digest: str = ""
    dropped: int = 0
    """Documents of a target that had to be made anew."""
    blank: bool = False
    """The target has nothing, so that nothing was compared: all is lacking."""


class _Meter:
    """Counts the documents that a stage is done with, and tells it batch by batch."""

    def __init__(self, stage: Stage, total: int, progress: Progress) -> None:
        self._stage = stage
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        self._progress(CopyProgress(self._stage, self._done, max(self._total, self._done)))


async def _prepare(
    original: Described, source: Located, target: Located, on_difference: OnDifference, meter: _Meter
) -> _Comparison:
    """Make the target, or make it fit, and say what of the source it already has.

    Raises:
        ConflictError: it would have to be changed, and must not be.
    """
    there = await target.provider.collection(target.name)
    dropped = 0
    if there is not None:
        writable(there)
        found = await _compare(source, target, meter) if there.count else _Comparison(blank=True)
        conflicts = [*_conflicts(original, there), *_told([], found.changed, found.extra)]
        if conflicts and on_difference is OnDifference.REFUSE:
            said = " and ".join(conflicts)
            raise ConflictError(f"The collection '{target.name}' {said}: overwrite it, or name another for the copy")
        if not _other_labels(original, there) and not _other_dimension(original, there):
            if _canonical(there.metadata) != _canonical(original.metadata):
                await target.provider.replace_metadata(target.name, original.metadata)
            return found
        await target.provider.drop(target.name)
        dropped = there.count
    made = Described(target.name, original.metadata, original.embedding_provider, original.embedding_model)
    if not await target.provider.create(made):
        raise ConflictError(f"The collection '{target.name}' was made by somebody else meanwhile: copy again")
    return _Comparison(blank=True, dropped=dropped)


def _conflicts(original: Described, there: Described) -> list[str]:
    """What of a collection, beside its documents, would be lost. What was never said is no loss while it is empty."""
    found: list[str] = []
    if _other_labels(original, there) and (there.count or there.embedding_provider or there.embedding_model):
        found.append("has another embedding provider or model")
    if _other_dimension(original, there):
        found.append(f"is bound to dimension {there.dimension}, not {original.dimension}")
    if _canonical(there.metadata) != _canonical(original.metadata) and (there.count or there.metadata):
        found.append("has other metadata")
    return found


def _other_labels(one: Described, other: Described) -> bool:
    return (one.embedding_provider, one.embedding_model) != (other.embedding_provider, other.embedding_model)


def _other_dimension(original: Described, there: Described) -> bool:
    return original.dimension is not None and there.dimension not in (None, original.dimension)


def _told(missing: Sequence[str], changed: Sequence[str], extra: Sequence[str]) -> list[str]:
    """Differences in words, with examples."""
    return [
        said.format(_counted(ids))
        for said, ids in (
            ("lacks {}", missing),
            ("holds another version of {}", changed),
            ("holds {} that the source does not", extra),
        )
        if ids
    ]


def _counted(ids: Sequence[str]) -> str:
    examples = ", ".join(map(repr, ids[:_EXAMPLES]))
    return f"{len(ids)} document{'s' * (len(ids) != 1)} ({examples}{', ...' * (len(ids) > _EXAMPLES)})"


async def _fill(source: Located, target: Located, wanted: Collection[str] | None, meter: _Meter) -> int:
    """Copy the wanted documents, or all. Returns how many."""
    copied = 0
    async for rows in _rows(source):
        chosen = rows if wanted is None else [row for row in rows if row[0].id in wanted]
        if chosen:
            vectors = np.stack([vector for _, vector in chosen])
            await target.provider.upsert(target.name, [entry for entry, _ in chosen], vectors)
        copied += len(chosen)
        meter.add(len(rows))
    return copied


async def _compare(source: Located, target: Located, meter: _Meter) -> _Comparison:
    """Read both sides, in step."""
    found = _Comparison()
    digest = sha256()
    ahead = _Ahead(_rows(target))
    async for rows in _rows(source):
        for row in rows:
            id_ = row[0].id
            digest.update(_canonical([id_, row[0].text, dict(row[0].metadata)]).encode())
            found.extra += await ahead.before(id_)
            there = await ahead.take(id_)
            if there is None:
                found.missing.append(id_)
            elif _same(row, there):
                found.same += 1
            else:
                found.changed.append(id_)
        meter.add(len(rows))
    found.extra += await ahead.before(None)
    found.digest = digest.hexdigest()
    return found


class _Ahead:
    """Reads rows in the order of their ids, one ahead."""

    def __init__(self, batches: AsyncIterator[list[Row]]) -> None:
        self._batches = batches
        self._rows: list[Row] = []
        """Those that were read and not taken, the next one last."""

    async def before(self, id_: str | None) -> list[str]:
        """Skip all rows before an id, or all there are; returns their ids."""
        skipped: list[str] = []
        while (row := await self._next()) is not None and (id_ is None or row[0].id < id_):
            skipped.append(self._rows.pop()[0].id)
        return skipped

    async def take(self, id_: str) -> Row | None:
        """The row of this id, if it is the next one."""
        row = await self._next()
        return self._rows.pop() if row is not None and row[0].id == id_ else None

    async def _next(self) -> Row | None:
        while not self._rows:
            batch = await anext(self._batches, None)
            if batch is None:
                return None
            self._rows = batch[::-1]
        return self._rows[-1]


async def _rows(located: Located) -> AsyncIterator[list[Row]]:
    """All entries with their vectors, by id, in batches; one that goes away meanwhile is left out."""
    offset = 0
    while True:
        page = await located.provider.entries(located.name, EVERYTHING, limit=_PAGE, offset=offset)
        for start in range(0, len(page.entries), _BATCH):
            entries = page.entries[start : start + _BATCH]
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
    """JSON of which equal values have one, and others another: 1 is not 1.0, and true not 1."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=dict)
