"""The journal over tables of SQL, and the moves of documents that it records: once, for SQLite and for PostgreSQL.

Statements have numbered parameters (`$1`) and braces in which each database puts its own words (`{key}`). What runs in
one transaction is a coroutine over its `JournalTables`; that of the embedded file never waits (`completed`).
"""

import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from rag_context.domain import journal
from rag_context.domain.documents import DEFAULT_TENANT, Shelf, Tenant, microseconds, moment, utc_now
from rag_context.errors import ForgottenError
from rag_context.ports.writing import Version

T = TypeVar("T")

_LINKS = """
SELECT d.id, d.content_hash, t.project, t.branch, t.path_hash, d.source, d.timestamp, s.id,
       d.superseded_reason, d.shelved_at, d.expires_at, d.pinned
FROM {schema}documents AS d {join} {schema}tenants AS t ON t.key = d.tenant
LEFT JOIN {schema}documents AS s ON s.{key} = d.superseded_by
"""

_BY_ID = f"{_LINKS} WHERE d.id {{among_1}}"

_TENANT = "(SELECT key FROM {schema}tenants WHERE project = $1 AND branch = $2 AND path_hash = $3)"

_CHAIN = f"""
WITH RECURSIVE chain (number) AS (
    SELECT {{key}} FROM {{schema}}documents WHERE id = $4
    UNION
    SELECT CASE WHEN d.{{key}} = c.number THEN d.superseded_by ELSE d.{{key}} END
    FROM chain AS c JOIN {{schema}}documents AS d ON d.{{key}} = c.number OR d.superseded_by = c.number
    WHERE d.superseded_by IS NOT NULL AND d.tenant = {_TENANT}
)
{_LINKS} WHERE d.{{key}} IN (SELECT number FROM chain) ORDER BY d.timestamp, d.{{key}}
"""  # noqa: S608

_EARLIER = f"""
WITH RECURSIVE earlier (number) AS (
    SELECT {{key}} FROM {{schema}}documents WHERE id {{among_1}}
    UNION
    SELECT d.{{key}} FROM earlier AS e JOIN {{schema}}documents AS d ON d.superseded_by = e.number
    WHERE d.tenant IN (SELECT key FROM {{schema}}tenants WHERE path_hash LIKE '{Shelf.SUPERSEDED}:%')
)
{_LINKS} WHERE d.{{key}} IN (SELECT number FROM earlier) ORDER BY d.{{key}}
"""  # noqa: S608

_ENTRIES = """
SELECT j.seq, j.at, j.actor, j.action, t.project, t.branch, t.path_hash, j.moves, j.reason, j.undoes
FROM {schema}journal AS j JOIN {schema}tenants AS t ON t.key = j.tenant
"""

_OF_PROJECT = """
SELECT 1 FROM {schema}documents
WHERE tenant IN (SELECT key FROM {schema}tenants WHERE project = $1 AND branch = $2) LIMIT 1
"""
"""On any shelf: what is in the trash may come back."""

_RENAME = "UPDATE {schema}journal SET tenant = $2 WHERE tenant = $1"

_NOTE = """
INSERT INTO {schema}journal (at, actor, action, tenant, moves, reason, undoes) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

_EXPIRES = """
UPDATE {schema}documents
SET expires_at = coalesce(CAST($2 AS bigint), expires_at), pinned = coalesce(CAST($3 AS boolean), pinned) WHERE id = $1
"""

_SUPERSEDED = """
UPDATE {schema}documents AS d
SET superseded_by = (SELECT {key} FROM {schema}documents WHERE id = $2), shelved_at = coalesce((
    SELECT coalesce(s.occurred_at, s.timestamp) FROM {schema}documents AS s
    WHERE s.id = $2 AND coalesce(s.occurred_at, s.timestamp) > coalesce(d.occurred_at, d.timestamp)
), d.shelved_at)
WHERE d.id = $1
"""
"""It was current until the newer one was said, which may be long before both were stored."""

_FORGET = """
INSERT INTO {schema}tombstones VALUES ($1, $2, $3)
ON CONFLICT (identity) DO UPDATE SET content = excluded.content, at = excluded.at
"""

_HAVE = "SELECT seq FROM {schema}journal WHERE at = $1 AND actor = $2 AND action = $3 AND moves = $4"

_TAKE_OVER = """
UPDATE {schema}documents SET pinned = pinned OR $2, expires_at = coalesce(expires_at, CAST($3 AS bigint)),
    shelved_at = coalesce(shelved_at, CAST($4 AS bigint)), superseded_reason = coalesce(superseded_reason, $5),
    superseded_by = coalesce(superseded_by, (SELECT {key} FROM {schema}documents WHERE id = $6))
WHERE id = $1
"""

_REASONS = f"""
SELECT seq, moves, tenant = {_TENANT} FROM {{schema}}journal WHERE reason IS NOT NULL AND seq > $4 ORDER BY seq LIMIT $5
"""  # noqa: S608

DROP_REASONS = f"""
UPDATE {{schema}}journal SET reason = NULL
WHERE reason IS NOT NULL AND +tenant = {_TENANT} AND replace(moves, $4, '') <> moves
"""  # noqa: S608
"""Of what is said about one version, by the hash of its content.

The plus keeps SQLite from the index by tenant, which reads all entries: few have a reason, and those have an index.
"""

REASONS_AT_ONCE = 500

_ALL_SEQUENCES = 1 << 62


class JournalTables(Protocol):
    """The tables of one index inside one transaction."""

    @property
    def selecting(self) -> Mapping[str, str]:
        """By field of a `Selection` the condition on `documents AS d` whose value is `$4`."""
        ...

    async def fetch(self, statement: str, *values: object) -> Sequence[Any]: ...

    async def execute(self, statement: str, *values: object) -> None: ...

    async def add_entry(self, statement: str, *values: object) -> int:
        """Insert a row of the journal; returns its number."""
        ...

    async def content(self, document_id: str) -> str: ...

    async def tenant_key(self, tenant: Tenant) -> int: ...

    async def take_turns(self, document_ids: Sequence[str]) -> None:
        """Wait for other writers of these documents, until the transaction ends."""
        ...

    async def move(self, number: int, old_id: str, new_id: str, tenant: Tenant) -> None:
        """Give the document of a number another id or tenant, and its chunks with it."""
        ...

    async def delete(self, document_ids: Sequence[str]) -> bool: ...

    async def forget_names(self) -> None:
        """Remove the names of tenants that nothing refers to, unless the database does that by itself."""
        ...


Work = Callable[[JournalTables], Coroutine[Any, Any, T]]


class SqlJournal:
    """`Journal` over one database, but `sizes`. Every method raises `BackendError` where it cannot read or write."""

    async def _read(self, work: Work[T]) -> T:
        """Run work on the tables, in a transaction of its own."""
        raise NotImplementedError

    async def _write(self, work: Work[T]) -> T:
        raise NotImplementedError

    async def links(self, document_ids: Collection[str]) -> dict[str, journal.Link]:
        return await self._read(lambda tables: _links(tables, _BY_ID, list(document_ids)))

    async def chain(self, document_id: str, tenant: Tenant) -> list[journal.Link]:
        values = (*tenant.on(Shelf.SUPERSEDED).names, document_id)
        links = await self._read(lambda tables: _links(tables, _CHAIN, *values))
        return [each for each in links.values() if each.tenant.visible == tenant and each.place.shelf != Shelf.TRASH]

    async def entries(
        self, tenant: Tenant, *, before: int | None, limit: int, action: journal.Action | None = None
    ) -> list[journal.Entry]:
        # The action stands in the text, so that its index is used.
        of_action = "" if action is None else f"AND j.action = '{action.value}'"
        statement = f"""{_ENTRIES} WHERE j.tenant IN (SELECT key FROM {{schema}}tenants
            WHERE (project = $1 AND branch = $2 AND path_hash = $3) OR project = $6)
            AND j.seq < $4 {of_action} ORDER BY j.seq DESC LIMIT $5"""  # noqa: S608
        values = (*tenant.names, before if before is not None else _ALL_SEQUENCES, limit, hidden(tenant).project)
        return list(map(_entry, await self._read(lambda tables: tables.fetch(statement, *values))))

    async def entry(self, sequence: int) -> journal.Entry | None:
        rows = await self._read(lambda tables: tables.fetch(f"{_ENTRIES} WHERE j.seq = $1", sequence))
        return _entry(rows[0]) if rows else None

    async def make(self, change: journal.Change) -> journal.Entry:
        about, last, is_more = list[int](), 0, change.action is journal.Action.PURGE
        while is_more:  # before the transaction, for which other writers wait: they are many, and do not change
            more, seen = await self._read(partial(_reasons, change=change, after=last))
            about, is_more, last = about + more, seen > last, seen
        return await self._write(lambda tables: _make(tables, change, about, last))

    async def selected(
        self, tenant: Tenant, selection: journal.Selection, shelves: Collection[Shelf | None], limit: int
    ) -> list[journal.Link]:
        async def selected(tables: JournalTables) -> dict[str, journal.Link]:
            ((condition, value),) = (
                (condition, value)
                for name, condition in tables.selecting.items()
                if (value := getattr(selection, name)) is not None
            )
            statement = f"""SELECT d.id FROM {{schema}}documents AS d WHERE d.tenant = {_TENANT} AND {condition}
                            ORDER BY d.{{key}} LIMIT $5"""  # noqa: S608
            ids = [
                id_
                for shelf in shelves
                for (id_,) in await tables.fetch(statement, *tenant.on(shelf).names, value, limit)
            ]
            return await _links(tables, _EARLIER, ids)

        links = (await self._read(selected)).values()
        return [link for link in links if link.place.shelf in shelves][:limit]

    async def forgotten(self, documents: Mapping[str, str | None]) -> set[str]:
        return await self._read(lambda tables: forgotten(tables, documents))

    async def tombstones(self, after: str, limit: int) -> list[journal.Tombstone]:
        statement = (
            "SELECT identity, content, at FROM {schema}tombstones WHERE identity > $1 ORDER BY identity LIMIT $2"
        )
        rows = await self._read(lambda tables: tables.fetch(statement, after, limit))
        return [journal.Tombstone(identity, content, moment(at)) for identity, content, at in rows]

    async def recorded(self, after: int, limit: int) -> list[journal.Entry]:
        statement = f"{_ENTRIES} WHERE j.seq > $1 ORDER BY j.seq LIMIT $2"
        return list(map(_entry, await self._read(lambda tables: tables.fetch(statement, after, limit))))

    async def take_over(self, history: journal.History, sequences: dict[int, int]) -> None:
        taken = dict(sequences)
        await self._write(lambda tables: _take_over(tables, history, taken))
        sequences |= taken

    async def due(
        self, now: datetime, kept_since: Mapping[str, datetime], trashed_before: datetime, limit: int
    ) -> list[journal.Link]:
        """Days of a content type are for what agents stored: documents of a project of files last as their files do."""
        trash = f"t.path_hash LIKE '{Shelf.TRASH}:%'"
        # One statement for each, so that each has its index.
        expired = f"{_LINKS} WHERE NOT d.pinned AND d.expires_at <= $2 AND NOT {trash} LIMIT $1"
        aged = f"""{_LINKS} WHERE NOT d.pinned AND d.content_type = $3 AND d.timestamp < $2
                   AND t.path_hash IN ('', '{Shelf.SUPERSEDED}:') LIMIT $1"""
        kept = f"{_LINKS} WHERE d.shelved_at < $2 AND {trash} LIMIT $1"

        async def due(tables: JournalTables) -> list[journal.Link]:
            links = await _links(tables, expired, limit, microseconds(now))
            for kind, since in kept_since.items():
                links |= await _links(tables, aged, limit, microseconds(since), kind)
            trashed = await _links(tables, kept, limit, microseconds(trashed_before))
            return [*list(links.values())[:limit], *trashed.values()]

        return await self._read(due)


async def write_recorded(
    tables: JournalTables, version: Version, cause: journal.Cause, write: Callable[[], Awaitable[T]]
) -> T:
    """Store a document by `write`, with an entry. What it supersedes goes to its shelf first.

    Raises: ForgottenError (it was forgotten), ConflictError, InvalidInputError (what it supersedes cannot be
    superseded).
    """
    document, revision = version.document, version.revision
    ids = [document.id, *revision.supersedes]
    await tables.take_turns(ids)
    links = await _links(tables, _BY_ID, ids)
    now = links.get(document.id)
    if document.tenant.shelf is not None or (now is not None and not now.changes_with(document, revision)):
        return await write()
    await _require_not_forgotten(tables, version)
    room, replaced = journal.room_for(document, revision, links)
    moves = [*await _relocate(tables, room, document.tenant), journal.Move(replaced, journal.location_of(document))]
    written = await write()
    if replaced is not None and replaced.content_hash != document.content_hash:
        await tables.execute(DROP_REASONS, *document.tenant.names, replaced.content_hash)
    action = journal.action_of(revision, moves[-1])
    change = journal.Change(action, document.tenant, moves, cause.by, cause.at, revision.reason)
    for move in moves[:-1]:
        if move.after is not None and move.after.superseded_by == document.id:
            await _settle(tables, move.after, change)
    if revision.expires_at is not None or revision.pinned is not None:
        expires_at = None if revision.expires_at is None else microseconds(revision.expires_at)
        await tables.execute(_EXPIRES, document.id, expires_at, revision.pinned)
    await _note(tables, change)
    return written


async def delete_recorded(tables: JournalTables, document_id: str, cause: journal.Cause) -> bool:
    """Delete a document, with an entry, and what people wrote about its changes."""
    await tables.take_turns([document_id])
    link = (await _links(tables, _BY_ID, [document_id])).get(document_id)
    if link is not None:
        tenant, moves = link.tenant.visible, [journal.Move(link.place, None)]
        await tables.execute(DROP_REASONS, *tenant.names, link.place.content_hash)
        await _note(tables, journal.Change(journal.Action.DELETE, tenant, moves, cause.by, cause.at))
    is_deleted = await tables.delete([document_id])
    if link is not None:
        await _hide_name(tables, link.tenant.visible)
    return is_deleted


def hidden(tenant: Tenant) -> Tenant:
    """What the journal calls a project without documents: who knows its name finds its entries."""
    return Tenant(f"deleted:{sha256(json.dumps(tenant.names).encode()).hexdigest()[:32]}")


async def _hide_name(tables: JournalTables, tenant: Tenant) -> None:
    if tenant == DEFAULT_TENANT or await tables.fetch(_OF_PROJECT, *tenant.names[:2]):
        return
    await tables.execute(_RENAME, await tables.tenant_key(tenant), await tables.tenant_key(hidden(tenant)))
    await tables.forget_names()


def moves_text(moves: Sequence[journal.Move]) -> str:
    """Moves as a row of the journal has them."""
    return json.dumps(journal.as_json(moves), separators=(",", ":"))


async def _note(tables: JournalTables, change: journal.Change) -> journal.Entry:
    tenant, moves = await tables.tenant_key(change.tenant), moves_text(change.moves)
    row = (microseconds(change.at), change.by, change.action.value, tenant, moves, change.reason, change.undoes)
    return change.noted(await tables.add_entry(_NOTE, *row))


async def _make(tables: JournalTables, change: journal.Change, reasons: list[int], last: int) -> journal.Entry:
    """Make a change with its entry; a purge drops the reasons of these entries, and of later ones about its documents.

    Raises: ConflictError (a document is not where it was; nothing changed).
    """
    ids = [move.before.id for move in change.moves if move.before is not None]
    await tables.take_turns([*ids, *(move.after.id for move in change.moves if move.after is not None)])
    links = await _links(tables, _BY_ID, ids)
    journal.require_locations(change.moves, {id_: link.place for id_, link in links.items()})
    if change.moves_nothing:
        await tables.execute("UPDATE {schema}documents SET pinned = pinned OR $2 WHERE id {among_1}", ids, change.pins)
        return await _note(tables, change)
    for move in change.moves:
        if move.forgets:
            await _mark_forgotten(tables, move, change)
    moves = await _relocate(tables, change.moves, change.tenant, change)
    gone = [move.before.id for move in moves if move.after is None and move.before is not None]
    await tables.delete(gone)
    if change.action is journal.Action.PURGE:
        later, _ = await _reasons(tables, change, last)
        await tables.execute("UPDATE {schema}journal SET reason = NULL WHERE seq {among_1}", reasons + later)
    entry = await _note(tables, replace(change, moves=moves))
    if gone:
        await _hide_name(tables, change.tenant)
    return entry


async def _relocate(
    tables: JournalTables, moves: Sequence[journal.Move], tenant: Tenant, change: journal.Change | None = None
) -> tuple[journal.Move, ...]:
    """Give documents their ids and their shelves, in this order; returns the moves with the ids that were given."""
    if not moves:
        return ()
    before_ids = [move.before.id for move in moves if move.before is not None]
    # By number: an id may be that of another document after an earlier move.
    rows = await tables.fetch("SELECT id, {key} FROM {schema}documents WHERE id {among_1}", before_ids)
    numbers: dict[str, int] = dict(rows)
    ids: dict[int, str] = {}
    moved: list[journal.Location] = []
    for number, move in enumerate(moves):
        before, after = move.before, move.after
        if before is None or after is None:
            continue
        if not after.id:
            ids[number] = journal.shelved_id(before.id, before.content_hash, numbers[before.id])
        place = replace(after, id=ids.get(number, after.id))
        await tables.move(numbers[before.id], before.id, place.id, tenant.on(place.shelf))
        moved.append(place)
    if change is not None:
        for place in moved:
            await _settle(tables, place, change)
    return journal.with_ids(moves, ids)


async def _settle(tables: JournalTables, place: journal.Location, change: journal.Change) -> None:
    """Note since when a document is on its shelf, and for which other one; after all have their ids."""
    at = None if place.shelf is None else microseconds(change.at)
    shelved = "UPDATE {schema}documents SET shelved_at = $2, pinned = pinned OR $3 WHERE id = $1"
    await tables.execute(shelved, place.id, at, change.pins)
    if place.superseded_by is not None:
        await tables.execute(_SUPERSEDED, place.id, place.superseded_by)
        if change.undoes is None:  # else the reason is there, since it was superseded first
            because = "UPDATE {schema}documents SET superseded_reason = $2 WHERE id = $1"
            await tables.execute(because, place.id, change.reason)


async def _mark_forgotten(tables: JournalTables, move: journal.Move, change: journal.Change) -> None:
    """Leave a tombstone of what goes to the trash or for good, or take it away from what comes back."""
    if move.before is None or move.before.shelf is Shelf.TRASH:
        if move.after is not None:
            await tables.execute("DELETE FROM {schema}tombstones WHERE identity = $1", move.after.id)
        return
    key = journal.content_key(change.tenant, await tables.content(move.before.id))
    await tables.execute(_FORGET, move.before.id, key, microseconds(change.at))


async def _require_not_forgotten(tables: JournalTables, version: Version) -> None:
    """Reject what was forgotten, or with `is_forced` take its tombstone away. Raises: ForgottenError."""
    document = version.document
    key = journal.content_key(document.tenant, document.content)
    if version.revision.is_forced:
        await tables.execute("DELETE FROM {schema}tombstones WHERE identity = $1 OR content = $2", document.id, key)
    elif await tables.fetch("SELECT 1 FROM {schema}tombstones WHERE identity = $1 OR content = $2", document.id, key):
        raise ForgottenError(document.id)


async def _take_over(tables: JournalTables, history: journal.History, sequences: dict[int, int]) -> None:
    for tombstone in history.tombstones:
        await tables.execute(_FORGET, tombstone.identity, tombstone.content, microseconds(tombstone.at))
    for entry in history.entries:
        at = microseconds(entry.at)
        have = await tables.fetch(_HAVE, at, entry.by, entry.action.value, moves_text(entry.moves))
        change = journal.Change(entry.action, entry.tenant, entry.moves, entry.by, entry.at, entry.reason)
        undone = None if entry.undoes is None else sequences.get(entry.undoes)
        noted = have[0][0] if have else (await _note(tables, replace(change, undoes=undone))).sequence
        sequences[entry.sequence] = noted
    links = {link.place.id: link for link in history.links}
    here = await _links(tables, _BY_ID, list(links))
    for id_, link in links.items():
        place = link.place
        if id_ not in here or (here[id_].place.content_hash, here[id_].place.shelf) != (
            place.content_hash,
            place.shelf,
        ):
            continue
        # Its days in the trash begin again.
        shelved_at = utc_now() if place.shelf is Shelf.TRASH else link.superseded_at
        times = [None if at is None else microseconds(at) for at in (link.expires_at, shelved_at)]
        await tables.execute(_TAKE_OVER, id_, link.is_pinned, *times, link.reason, place.superseded_by)
        if place.shelf is not None:  # indexes in memory follow the chunks
            ((number,),) = await tables.fetch("SELECT {key} FROM {schema}documents WHERE id = $1", id_)
            await tables.move(number, id_, id_, link.tenant)


async def _reasons(tables: JournalTables, change: journal.Change, after: int) -> tuple[list[int], int]:
    """Of the next entries with what people wrote: those about the documents of a change, and the last of all.

    Also those about a document under an earlier id, by the hash of its content.
    """
    gone = {name for move in change.moves if (place := move.before) for name in (place.id, place.content_hash)}
    rows = await tables.fetch(_REASONS, *change.tenant.names, after, REASONS_AT_ONCE)
    about = [
        sequence
        for sequence, stored, is_theirs in rows
        if is_theirs
        and any(
            place is not None and gone & {place.id, place.content_hash}
            for move in _moves(stored)
            for place in (move.before, move.after)
        )
    ]
    return about, rows[-1][0] if rows else after


async def forgotten(tables: JournalTables, documents: Mapping[str, str | None]) -> set[str]:
    """Which of these documents were forgotten: their ids, each with its `content_key`."""
    rows = await tables.fetch(
        "SELECT identity, content FROM {schema}tombstones WHERE identity {among_1} OR content {among_2}",
        list(documents),
        [content for content in documents.values() if content is not None],
    )
    identities, contents = {identity for identity, _ in rows}, {content for _, content in rows} - {None}
    return {id_ for id_, content in documents.items() if id_ in identities or content in contents}


async def _links(tables: JournalTables, statement: str, *values: object) -> dict[str, journal.Link]:
    return {link.place.id: link for link in map(_link, await tables.fetch(statement, *values))}


def _link(row: Sequence[Any]) -> journal.Link:
    id_, content_hash, project, branch, path_hash, source, timestamp, by, reason, at, expires_at, is_pinned = row
    tenant = Tenant(project, branch, path_hash)
    by, reason, at = (by, reason, at) if tenant.shelf is Shelf.SUPERSEDED else (None, None, None)
    return journal.Link(
        journal.Location(id_, content_hash, tenant.shelf, by),
        tenant,
        source,
        moment(timestamp),
        reason,
        None if at is None else moment(at),
        None if expires_at is None else moment(expires_at),
        bool(is_pinned),
    )


def _moves(stored: str) -> tuple[journal.Move, ...]:
    return journal.from_json(json.loads(stored))


def _entry(row: Sequence[Any]) -> journal.Entry:
    sequence, at, by, action, project, branch, path_hash, moves, reason, undoes = row
    tenant = Tenant(project, branch, path_hash)
    return journal.Entry(sequence, moment(at), by, journal.Action(action), tenant, _moves(moves), reason, undoes)
