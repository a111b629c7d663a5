"""The journal of the embedded file, and the moves of documents that it records. Each function runs in one savepoint."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from rag_context.domain.documents import Shelf, Tenant, chunk_ids, microseconds, moment
from rag_context.domain.journal import (
    Action,
    Cause,
    Change,
    Entry,
    Held,
    Link,
    Location,
    Move,
    Selection,
    action_of,
    as_json,
    content_key,
    from_json,
    location_of,
    require_locations,
    room_for,
    shelved_id,
    with_ids,
)
from rag_context.errors import ForgottenError
from rag_context.ports.writing import Version
from rag_context.stores.sqlite import changes
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.filters import TENANT, tenant_values

_LINKS = """
SELECT d.key, d.id, d.content_hash, t.project, t.branch, t.path_hash, d.source, d.timestamp, s.id,
       d.superseded_reason, d.shelved_at, d.expires_at, d.pinned
FROM documents AS d CROSS JOIN tenants AS t ON t.key = d.tenant LEFT JOIN documents AS s ON s.key = d.superseded_by
"""

_BY_ID = f"{_LINKS} WHERE d.id IN (SELECT value FROM json_each(?))"  # noqa: S608

_CHAIN = f"""
WITH RECURSIVE chain (key) AS (
    SELECT key FROM documents WHERE id = ?
    UNION
    SELECT CASE WHEN d.key = c.key THEN d.superseded_by ELSE d.key END
    FROM chain AS c JOIN documents AS d ON d.key = c.key OR d.superseded_by = c.key
    WHERE d.superseded_by IS NOT NULL AND d.tenant = {TENANT}
)
{_LINKS} WHERE d.key IN (SELECT key FROM chain) ORDER BY d.timestamp, d.key
"""  # noqa: S608

_EARLIER = f"""
WITH RECURSIVE earlier (key) AS (
    SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?))
    UNION
    SELECT d.key FROM earlier AS e JOIN documents AS d ON d.superseded_by = e.key
    WHERE d.tenant IN (SELECT key FROM tenants WHERE path_hash LIKE '{Shelf.SUPERSEDED}:%')
)
{_LINKS} WHERE d.key IN (SELECT key FROM earlier) ORDER BY d.key
"""  # noqa: S608

_SELECTED: Mapping[str, str] = {
    "document_id": "d.id = ?",
    "source": "d.source = ?",
    "session_id": "d.session_id = ?",
    "agent": "d.agent = ?",
    "tag": "EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag = ?)",
    "contains": "EXISTS (SELECT 1 FROM contents AS n WHERE n.document = d.key AND instr(casefold(n.content), ?) > 0)",
}

_HELD = """
WITH chosen AS (SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?))),
     parts AS (SELECT key FROM chunks WHERE document IN (SELECT key FROM chosen))
SELECT (SELECT count(*) FROM chosen), (SELECT count(*) FROM parts),
       (SELECT count(*) FROM vectors WHERE chunk IN (SELECT key FROM parts)),
       (SELECT count(*) FROM retrievals WHERE document IN (SELECT key FROM chosen))
       + (SELECT count(*) FROM document_tags WHERE document IN (SELECT key FROM chosen))
       + (SELECT count(*) FROM next_vectors WHERE chunk IN (SELECT key FROM parts))
"""

_CHUNK_IDS = "SELECT id FROM chunks WHERE document = ? ORDER BY position"

_CONTENT = "SELECT n.content FROM documents AS d CROSS JOIN contents AS n ON n.document = d.key WHERE d.id = ?"

_PARTS = """
SELECT c.position, c.start, c."end", c.start_line, c.end_line, c.heading, c.length, c.occurred_at, c.speaker,
       c.standing, c.origin, p.text, p.context, p.terms, v.vector
FROM chunks AS c CROSS JOIN passages AS p ON p.chunk = c.key LEFT JOIN vectors AS v ON v.chunk = c.key
WHERE c.document = ? ORDER BY c.position
"""

_ENTRIES = """
SELECT j.seq, j.at, j.actor, j.action, t.project, t.branch, t.path_hash, j.moves, j.reason, j.undoes
FROM journal AS j CROSS JOIN tenants AS t ON t.key = j.tenant
"""


class SqliteJournal:
    """`Journal` over the embedded file. Every method raises `BackendError` where it cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def links(self, document_ids: Collection[str]) -> dict[str, Link]:
        return await self._database.read(partial(read_links, list(document_ids)))

    async def chain(self, document_id: str, tenant: Tenant) -> list[Link]:
        return await self._database.read(partial(_read_chain, document_id, tenant))

    async def entries(self, tenant: Tenant, *, before: int | None, limit: int) -> list[Entry]:
        return await self._database.read(partial(_read_entries, tenant, before, limit))

    async def entry(self, sequence: int) -> Entry | None:
        return await self._database.read(partial(_read_entry, sequence))

    async def make(self, change: Change) -> Entry:
        return await self._database.write(partial(_make, change))

    async def selected(
        self, tenant: Tenant, selection: Selection, shelves: Collection[Shelf | None], limit: int
    ) -> list[Link]:
        return await self._database.read(partial(_read_selected, tenant, selection, shelves, limit))

    async def held(self, document_ids: Sequence[str]) -> Held:
        return await self._database.read(
            lambda file: Held(*file.execute(_HELD, (json.dumps(list(document_ids)),)).fetchone())
        )

    async def forgotten(self, documents: Mapping[str, str | None]) -> set[str]:
        return await self._database.read(partial(_read_forgotten, documents))

    async def due(
        self, now: datetime, kept_since: Mapping[str, datetime], trashed_before: datetime, limit: int
    ) -> list[Link]:
        return await self._database.read(partial(_read_due, now, kept_since, trashed_before, limit))


def write_recorded(
    version: Version, analysed: Sequence[list[str]], cause: Cause, connection: sqlite3.Connection
) -> bool:
    """As `changes.write_document`, with an entry. What the document supersedes goes to its shelf first.

    Raises:
        ForgottenError: it was forgotten.
        ConflictError, InvalidInputError: what it supersedes cannot be superseded.
    """
    document, revision = version.document, version.revision
    links = read_links([document.id, *revision.supersedes], connection)
    now = links.get(document.id)
    if document.tenant.shelf is not None or (now is not None and not now.changes_with(document, revision)):
        return changes.write_document(version, analysed, connection)
    _require_not_forgotten(version, connection)
    room, replaced = room_for(document, revision, links)
    moves = [*_relocate(room, document.tenant, connection), Move(replaced, location_of(document))]
    has_vectors = changes.write_document(version, analysed, connection)
    change = Change(action_of(revision, moves[-1]), document.tenant, moves, cause.by, cause.at, revision.reason)
    key = _key_of(document.id, connection)
    for move in moves[:-1]:
        if move.after is not None and move.after.superseded_by == document.id:
            _settle(_key_of(move.after.id, connection), move.after, change, connection)
    if revision.expires_at is not None or revision.pinned is not None:
        expires_at = None if revision.expires_at is None else microseconds(revision.expires_at)
        connection.execute(
            "UPDATE documents SET expires_at = ifnull(?, expires_at), pinned = ifnull(?, pinned) WHERE key = ?",
            (expires_at, revision.pinned, key),
        )
    _note(change, connection)
    return has_vectors


def delete_recorded(document_id: str, cause: Cause, connection: sqlite3.Connection) -> bool:
    """As `changes.delete_document`, with an entry."""
    link = read_links([document_id], connection).get(document_id)
    if link is not None:
        _note(Change(Action.DELETE, link.tenant.visible, [Move(link.place, None)], cause.by, cause.at), connection)
    return changes.delete_document(document_id, connection)


def read_links(document_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Link]:
    """What is stored of these documents, by id."""
    return _links(_BY_ID, (json.dumps(document_ids),), connection)


def _note(change: Change, connection: sqlite3.Connection) -> Entry:
    moves, tenant = (
        json.dumps(as_json(change.moves), separators=(",", ":")),
        changes.tenant_key(change.tenant, connection),
    )
    row = (microseconds(change.at), change.by, change.action, tenant, moves, change.reason, change.undoes)
    cursor = connection.execute(
        "INSERT INTO journal (at, actor, action, tenant, moves, reason, undoes) VALUES (?, ?, ?, ?, ?, ?, ?)", row
    )
    return change.noted(cursor.lastrowid or 0)


def _make(change: Change, connection: sqlite3.Connection) -> Entry:
    """Make a change with its entry. Raises: ConflictError (a document is not where it was; nothing changed)."""
    ids = [move.before.id for move in change.moves if move.before is not None]
    require_locations(change.moves, {id_: link.place for id_, link in read_links(ids, connection).items()})
    for move in change.moves:
        if move.forgets:
            _mark_forgotten(move, change, connection)
    moves = _relocate(change.moves, change.tenant, connection, change)
    for move in moves:
        if move.after is None and move.before is not None:
            changes.delete_document(move.before.id, connection)
    if change.action is Action.PURGE:
        _drop_reasons({place.id for move in moves if (place := move.before) is not None}, connection)
    return _note(replace(change, moves=moves), connection)


def _relocate(
    moves: Sequence[Move], tenant: Tenant, connection: sqlite3.Connection, change: Change | None = None
) -> tuple[Move, ...]:
    """Give documents their ids and their shelves, in this order; returns the moves with the ids that were given."""
    keys = {move.before.id: _key_of(move.before.id, connection) for move in moves if move.before is not None}
    ids: dict[int, str] = {}
    moved: list[tuple[int, Location]] = []
    for number, move in enumerate(moves):
        before, after = move.before, move.after
        if before is None or after is None:
            continue
        key = keys[before.id]
        if not after.id:
            ids[number] = shelved_id(before.id, before.content_hash, key)
        place = replace(after, id=ids.get(number, after.id))
        _move_rows(key, before.id, place.id, changes.tenant_key(tenant.on(place.shelf), connection), connection)
        moved.append((key, place))
    if change is not None:
        for key, place in moved:
            _settle(key, place, change, connection)
    return with_ids(moves, ids)


def _settle(key: int, place: Location, change: Change, connection: sqlite3.Connection) -> None:
    """Note since when a document is on its shelf, and for which other one; after all have their ids."""
    at = None if place.shelf is None else microseconds(change.at)
    connection.execute(
        "UPDATE documents SET shelved_at = ?, pinned = max(pinned, ?) WHERE key = ?", (at, change.pins, key)
    )
    if place.superseded_by is not None:
        # It was current until the newer one was said, which may be long before both were stored.
        connection.execute(
            """UPDATE documents
               SET superseded_by = (SELECT key FROM documents WHERE id = :by), shelved_at = ifnull(
                   (SELECT s.occurred_at FROM documents AS s
                    WHERE s.id = :by AND s.occurred_at > documents.occurred_at), shelved_at)
               WHERE key = :key""",
            {"by": place.superseded_by, "key": key},
        )
        if change.undoes is None:  # else the reason is there, since it was superseded first
            connection.execute("UPDATE documents SET superseded_reason = ? WHERE key = ?", (change.reason, key))


def _move_rows(key: int, old_id: str, new_id: str, tenant: int, connection: sqlite3.Connection) -> None:
    """Give a document another id or tenant. Its chunks get keys of their own, by which indexes in memory follow."""
    connection.execute("UPDATE documents SET id = ?, tenant = ? WHERE key = ?", (new_id, tenant, key))
    parts = connection.execute(_PARTS, (key,)).fetchall()
    if new_id == old_id:
        ids = [id_ for (id_,) in connection.execute(_CHUNK_IDS, (key,))]
    else:
        ids = chunk_ids(new_id, [(context, text) for *_, text, context, _terms, _vector in parts])
    changes.remove_chunks(key, connection)
    first = changes.next_chunk_key(connection)
    rows = list(enumerate(zip(ids, parts, strict=True), first))
    connection.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(chunk, id_, key, *part[:11]) for chunk, (id_, part) in rows],
    )
    connection.executemany(
        "INSERT INTO passages (chunk, text, context, terms) VALUES (?, ?, ?, ?)",
        [(chunk, *part[11:14]) for chunk, (_, part) in rows],
    )
    changes.put_vectors([(chunk, part[14]) for chunk, (_, part) in rows if part[14] is not None], connection)


def _mark_forgotten(move: Move, change: Change, connection: sqlite3.Connection) -> None:
    """Leave a tombstone of what goes to the trash or for good, or take it away from what comes back."""
    if move.before is None or move.before.shelf is Shelf.TRASH:
        if move.after is not None:
            connection.execute("DELETE FROM tombstones WHERE identity = ?", (move.after.id,))
        return
    (content,) = connection.execute(_CONTENT, (move.before.id,)).fetchone()
    row = (move.before.id, content_key(change.tenant, content), microseconds(change.at))
    connection.execute("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)", row)


def _require_not_forgotten(version: Version, connection: sqlite3.Connection) -> None:
    """Reject what was forgotten, or with `is_forced` take its tombstone away. Raises: ForgottenError."""
    document = version.document
    if connection.execute("SELECT 1 FROM tombstones LIMIT 1").fetchone() is None:
        return
    values = (document.id, content_key(document.tenant, document.content))
    if version.revision.is_forced:
        connection.execute("DELETE FROM tombstones WHERE identity = ? OR content = ?", values)
    elif connection.execute("SELECT 1 FROM tombstones WHERE identity = ? OR content = ?", values).fetchone():
        raise ForgottenError(document.id)


def _drop_reasons(document_ids: Collection[str], connection: sqlite3.Connection) -> None:
    """Remove what people wrote from the entries about documents that are gone for good."""
    for sequence, moves in connection.execute("SELECT seq, moves FROM journal WHERE reason IS NOT NULL").fetchall():
        places = (place for move in from_json(json.loads(moves)) for place in (move.before, move.after))
        if any(place is not None and place.id in document_ids for place in places):
            connection.execute("UPDATE journal SET reason = NULL WHERE seq = ?", (sequence,))


def _read_chain(document_id: str, tenant: Tenant, connection: sqlite3.Connection) -> list[Link]:
    values = (document_id, *tenant_values(tenant.on(Shelf.SUPERSEDED)))
    links = _links(_CHAIN, values, connection).values()
    return [link for link in links if link.tenant.visible == tenant and link.place.shelf is not Shelf.TRASH]


def _read_selected(
    tenant: Tenant, selection: Selection, shelves: Collection[Shelf | None], limit: int, connection: sqlite3.Connection
) -> list[Link]:
    """What is selected on these shelves, and the earlier versions of it."""
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    ((name, value),) = ((name, value) for name in _SELECTED if (value := getattr(selection, name)) is not None)
    statement = (
        f"SELECT d.id FROM documents AS d WHERE d.tenant = {TENANT} AND {_SELECTED[name]} ORDER BY d.key LIMIT ?"  # noqa: S608
    )
    value = value.casefold() if name == "contains" else value
    ids = [
        id_
        for shelf in shelves
        for (id_,) in connection.execute(statement, (*tenant_values(tenant.on(shelf)), value, limit))
    ]
    links = _links(_EARLIER, (json.dumps(ids),), connection).values()
    return [link for link in links if link.place.shelf in shelves][:limit]


def _read_forgotten(documents: Mapping[str, str | None], connection: sqlite3.Connection) -> set[str]:
    if connection.execute("SELECT 1 FROM tombstones LIMIT 1").fetchone() is None:
        return set()
    statement = "SELECT 1 FROM tombstones WHERE identity = ? OR content = ?"
    return {id_ for id_, content in documents.items() if connection.execute(statement, (id_, content)).fetchone()}


def _read_due(
    now: datetime,
    kept_since: Mapping[str, datetime],
    trashed_before: datetime,
    limit: int,
    connection: sqlite3.Connection,
) -> list[Link]:
    """What has expired, and what was in the trash long enough.

    Days of a content type are for what agents stored: the documents of a project of files last as long as their files.
    """
    conditions = ["d.expires_at <= ?"]
    values: list[Any] = [microseconds(now)]
    for content_type, since in kept_since.items():
        conditions.append(f"(d.content_type = ? AND d.timestamp < ? AND t.path_hash IN ('', '{Shelf.SUPERSEDED}:'))")
        values += [content_type, microseconds(since)]
    trash = f"t.path_hash LIKE '{Shelf.TRASH}:%'"
    expired = f"{_LINKS} WHERE d.pinned = 0 AND ({' OR '.join(conditions)}) AND NOT {trash} LIMIT ?"
    kept = f"{_LINKS} WHERE d.shelved_at < ? AND {trash} LIMIT ?"
    return [
        *_links(expired, (*values, limit), connection).values(),
        *_links(kept, (microseconds(trashed_before), limit), connection).values(),
    ]


def _read_entries(tenant: Tenant, before: int | None, limit: int, connection: sqlite3.Connection) -> list[Entry]:
    statement = f"{_ENTRIES} WHERE j.tenant = {TENANT} AND j.seq < ? ORDER BY j.seq DESC LIMIT ?"
    values = (*tenant_values(tenant), before if before is not None else 1 << 62, limit)
    return [_entry(row) for row in connection.execute(statement, values)]


def _read_entry(sequence: int, connection: sqlite3.Connection) -> Entry | None:
    row = connection.execute(f"{_ENTRIES} WHERE j.seq = ?", (sequence,)).fetchone()
    return None if row is None else _entry(row)


def _entry(row: Sequence[Any]) -> Entry:
    sequence, at, by, action, project, branch, path_hash, moves, reason, undoes = row
    tenant = Tenant(project, branch, path_hash)
    return Entry(sequence, moment(at), by, Action(action), tenant, from_json(json.loads(moves)), reason, undoes)


def _links(statement: str, values: Sequence[Any], connection: sqlite3.Connection) -> dict[str, Link]:
    return {link.place.id: link for link in map(_link, connection.execute(statement, values))}


def _link(row: Sequence[Any]) -> Link:
    _, id_, content_hash, project, branch, path_hash, source, timestamp, by, reason, at, expires_at, is_pinned = row
    tenant = Tenant(project, branch, path_hash)
    is_superseded = tenant.shelf is Shelf.SUPERSEDED
    return Link(
        Location(id_, content_hash, tenant.shelf, by if is_superseded else None),
        tenant,
        source,
        moment(timestamp),
        reason if is_superseded else None,
        moment(at) if is_superseded else None,
        None if expires_at is None else moment(expires_at),
        bool(is_pinned),
    )


def _key_of(document_id: str, connection: sqlite3.Connection) -> int:
    key: int = connection.execute("SELECT key FROM documents WHERE id = ?", (document_id,)).fetchone()[0]
    return key
