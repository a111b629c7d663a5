"""The journal in PostgreSQL, and the moves of documents that it records; `stores.sqlite.journal` does the same.

Each function that writes runs inside one transaction, beside other writers; those of one document take turns.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

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
from rag_context.ports.writing import Version, WholeDocument
from rag_context.stores.postgres import writer
from rag_context.stores.postgres.connection import Connection, PostgresDatabase, Row
from rag_context.stores.postgres.rows import PENDING, TENANT, ChunkTerms, read_text, stored, stored_or_none, tenant_from
from rag_context.stores.postgres.state import IndexState, PostgresChange

_LINKS = """
SELECT d.sequence, d.id, d.content_hash, t.project, t.branch, t.path_hash, d.source, d.timestamp,
       s.id AS superseded_by, d.superseded_reason, d.shelved_at, d.expires_at, d.pinned
FROM rag_context.documents AS d JOIN rag_context.tenants AS t ON t.key = d.tenant
LEFT JOIN rag_context.documents AS s ON s.sequence = d.superseded_by
"""

_TENANT = TENANT.format("$1", "$2", "$3")

_CHAIN = f"""
WITH RECURSIVE chain (sequence) AS (
    SELECT sequence FROM rag_context.documents WHERE id = $4
    UNION
    SELECT CASE WHEN d.sequence = c.sequence THEN d.superseded_by ELSE d.sequence END
    FROM chain AS c JOIN rag_context.documents AS d ON d.sequence = c.sequence OR d.superseded_by = c.sequence
    WHERE d.superseded_by IS NOT NULL AND d.tenant = ({_TENANT})
)
{_LINKS} WHERE d.sequence IN (SELECT sequence FROM chain) ORDER BY d.timestamp, d.sequence
"""  # noqa: S608

_EARLIER = f"""
WITH RECURSIVE earlier (sequence) AS (
    SELECT sequence FROM rag_context.documents WHERE id = ANY ($1)
    UNION
    SELECT d.sequence FROM earlier AS e JOIN rag_context.documents AS d ON d.superseded_by = e.sequence
    JOIN rag_context.tenants AS t ON t.key = d.tenant WHERE starts_with(t.path_hash, '{Shelf.SUPERSEDED}:')
)
{_LINKS} WHERE d.sequence IN (SELECT sequence FROM earlier) ORDER BY d.sequence
"""  # noqa: S608

_SELECTED: Mapping[str, str] = {
    "document_id": "d.id = $4",
    "source": "left(d.source, 256) = left($4, 256) AND d.source = $4",
    "session_id": "d.session_id = $4",
    "agent": "d.agent = $4",
    "tag": "d.tags @> ARRAY[$4::text]",
    "contains": "strpos(lower(d.content), lower($4)) > 0",
}

_HELD = """
SELECT count(DISTINCT d.id), count(c.key), count(v.chunk), count(DISTINCT r.document)
FROM rag_context.documents AS d
LEFT JOIN rag_context.chunks AS c ON c.document = d.id
LEFT JOIN rag_context.vectors_{generation} AS v ON v.chunk = c.key
LEFT JOIN rag_context.retrievals AS r ON r.document = d.id
WHERE d.id = ANY ($1)
"""

_PARTS = """
SELECT c.key, c.length, p.text, p.context, EXISTS (
    SELECT 1 FROM rag_context.vectors_{generation} AS v WHERE v.chunk = c.key
) AS has_vector
FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key WHERE c.document = $1
ORDER BY c.position
"""

_ENTRIES = """
SELECT j.seq, j.at, j.actor, j.action, t.project, t.branch, t.path_hash, j.moves, j.reason, j.undoes
FROM rag_context.journal AS j JOIN rag_context.tenants AS t ON t.key = j.tenant
"""

_IS_FORGOTTEN = "SELECT 1 FROM rag_context.tombstones WHERE identity = $1 OR content = $2"


class PostgresJournal:
    """`Journal` over one database. Every method raises `BackendError` where the server fails."""

    def __init__(self, database: PostgresDatabase, state: IndexState) -> None:
        self._database = database
        self._state = state

    async def links(self, document_ids: Collection[str]) -> dict[str, Link]:
        return _links(await self._database.fetch(f"{_LINKS} WHERE d.id = ANY ($1)", list(map(stored, document_ids))))

    async def chain(self, document_id: str, tenant: Tenant) -> list[Link]:
        values = (*_names(tenant.on(Shelf.SUPERSEDED)), stored(document_id))
        links = _links(await self._database.fetch(_CHAIN, *values)).values()
        return [link for link in links if link.tenant.visible == tenant and link.place.shelf is not Shelf.TRASH]

    async def entries(self, tenant: Tenant, *, before: int | None, limit: int) -> list[Entry]:
        statement = f"{_ENTRIES} WHERE j.tenant = ({_TENANT}) AND j.seq < $4 ORDER BY j.seq DESC LIMIT $5"
        bound = before if before is not None else 1 << 62
        return [_entry(row) for row in await self._database.fetch(statement, *_names(tenant), bound, limit)]

    async def entry(self, sequence: int) -> Entry | None:
        row = await self._database.fetchrow(f"{_ENTRIES} WHERE j.seq = $1", sequence)
        return None if row is None else _entry(row)

    async def make(self, change: Change) -> Entry:
        return await self._state.change(lambda connection, counted: _make(connection, counted, change))

    async def selected(
        self, tenant: Tenant, selection: Selection, shelves: Collection[Shelf | None], limit: int
    ) -> list[Link]:
        ((name, value),) = ((name, value) for name in _SELECTED if (value := getattr(selection, name)) is not None)
        statement = f"""SELECT d.id FROM rag_context.documents AS d
                        WHERE d.tenant = ({_TENANT}) AND {_SELECTED[name]} ORDER BY d.sequence LIMIT $5"""  # noqa: S608
        ids = [
            id_
            for shelf in shelves
            for (id_,) in await self._database.fetch(statement, *_names(tenant.on(shelf)), stored(value), limit)
        ]
        links = _links(await self._database.fetch(_EARLIER, ids)).values()
        return [link for link in links if link.place.shelf in shelves][:limit]

    async def held(self, document_ids: Sequence[str]) -> Held:
        generation = (await self._state.current()).generation
        row = await self._database.fetchrow(_HELD.format(generation=generation), list(map(stored, document_ids)))
        return Held() if row is None else Held(*row)

    async def forgotten(self, documents: Mapping[str, str | None]) -> set[str]:
        return await _read_forgotten(self._database.fetch, documents)

    async def due(
        self, now: datetime, kept_since: Mapping[str, datetime], trashed_before: datetime, limit: int
    ) -> list[Link]:
        trash = f"starts_with(t.path_hash, '{Shelf.TRASH}:')"
        expired = f"""{_LINKS} WHERE NOT d.pinned AND NOT {trash} AND (d.expires_at <= $1 OR EXISTS (
                      SELECT 1 FROM unnest($2::text[], $3::bigint[]) AS k (kind, since)
                      WHERE d.content_type = k.kind COLLATE "C" AND d.timestamp < k.since
                      AND t.path_hash IN ('', '{Shelf.SUPERSEDED}:'))) LIMIT $4"""  # noqa: S608
        kept = f"{_LINKS} WHERE d.shelved_at < $1 AND {trash} LIMIT $2"
        since = [microseconds(each) for each in kept_since.values()]
        rows = await self._database.fetch(expired, microseconds(now), list(kept_since), since, limit)
        trashed = await self._database.fetch(kept, microseconds(trashed_before), limit)
        return [*_links(rows).values(), *_links(trashed).values()]


async def write_recorded(
    connection: Connection, counted: PostgresChange, version: Version, words: Sequence[ChunkTerms], cause: Cause
) -> None:
    """As `writer.write_document`, with an entry. What the document supersedes goes to its shelf first.

    Raises:
        ForgottenError: it was forgotten.
        ConflictError, InvalidInputError: what it supersedes cannot be superseded.
    """
    document, revision = version.document, version.revision
    ids = [document.id, *revision.supersedes]
    await writer.take_turns(connection, ids)
    links = await _read_links(connection, ids)
    now = links.get(document.id)
    if document.tenant.shelf is not None or (now is not None and not now.changes_with(document, revision)):
        await writer.write_document(connection, counted, version, words)
        return
    await _require_not_forgotten(connection, version)
    room, replaced = room_for(document, revision, links)
    moves = [*await _relocate(connection, counted, room, document.tenant), Move(replaced, location_of(document))]
    await writer.write_document(connection, counted, version, words)
    change = Change(action_of(revision, moves[-1]), document.tenant, moves, cause.by, cause.at, revision.reason)
    for move in moves[:-1]:
        if move.after is not None and move.after.superseded_by == document.id:
            await _settle(connection, move.after, change)
    if revision.expires_at is not None or revision.pinned is not None:
        expires_at = None if revision.expires_at is None else microseconds(revision.expires_at)
        await connection.execute(
            """UPDATE rag_context.documents
               SET expires_at = coalesce($2::bigint, expires_at), pinned = coalesce($3::boolean, pinned)
               WHERE id = $1""",
            stored(document.id),
            expires_at,
            revision.pinned,
        )
    await _note(connection, change)


async def write_new_recorded(
    connection: Connection,
    counted: PostgresChange,
    documents: Sequence[WholeDocument],
    words: Sequence[Sequence[ChunkTerms]],
    made_by: str | None,
    cause: Cause,
) -> list[str]:
    """As `writer.write_new`, with an entry for each document; without those that were forgotten."""
    keys = {document.id: content_key(document.tenant, document.content) for document, _, _ in documents}
    visible = {document.id: document for document, _, _ in documents if document.tenant.shelf is None}
    forgotten = await _read_forgotten(connection.fetch, {id_: keys[id_] for id_ in visible})
    kept = [each for each in zip(documents, words, strict=True) if each[0][0].id not in forgotten]
    ids = await writer.write_new(connection, counted, [each for each, _ in kept], [each for _, each in kept], made_by)
    rows = []
    for document in (visible[id_] for id_ in ids if id_ in visible):
        tenant = await writer.tenant_key(connection, document.tenant)
        moves = json.dumps(as_json([Move(None, location_of(document))]), separators=(",", ":"))
        rows.append((microseconds(cause.at), stored(cause.by), Action.INDEX.value, tenant, moves))
    await connection.copy_records_to_table(
        "journal", schema_name=writer.SCHEMA, columns=("at", "actor", "action", "tenant", "moves"), records=rows
    )
    return ids


async def delete_recorded(connection: Connection, counted: PostgresChange, document_id: str, cause: Cause) -> bool:
    """As `writer.delete_document`, with an entry."""
    await writer.take_turns(connection, [document_id])
    link = (await _read_links(connection, [document_id])).get(document_id)
    if link is not None:
        moves = [Move(link.place, None)]
        await _note(connection, Change(Action.DELETE, link.tenant.visible, moves, cause.by, cause.at))
    return await writer.delete_document(connection, counted, document_id)


async def _note(connection: Connection, change: Change) -> Entry:
    sequence = await connection.fetchval(
        """INSERT INTO rag_context.journal (at, actor, action, tenant, moves, reason, undoes)
           VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING seq""",
        microseconds(change.at),
        stored(change.by),
        change.action.value,
        await writer.tenant_key(connection, change.tenant),
        json.dumps(as_json(change.moves), separators=(",", ":")),
        stored_or_none(change.reason),
        change.undoes,
    )
    return change.noted(sequence)


async def _make(connection: Connection, counted: PostgresChange, change: Change) -> Entry:
    """Make a change with its entry. Raises: ConflictError (a document is not where it was; nothing changed)."""
    ids = [move.before.id for move in change.moves if move.before is not None]
    await writer.take_turns(connection, [*ids, *(move.after.id for move in change.moves if move.after is not None)])
    require_locations(change.moves, {id_: link.place for id_, link in (await _read_links(connection, ids)).items()})
    for move in change.moves:
        if move.forgets:
            await _mark_forgotten(connection, move, change)
    moves = await _relocate(connection, counted, change.moves, change.tenant, change)
    for move in moves:
        if move.after is None and move.before is not None:
            await writer.delete_document(connection, counted, move.before.id)
    if change.action is Action.PURGE:
        await _drop_reasons(connection, {place.id for move in moves if (place := move.before) is not None})
    return await _note(connection, replace(change, moves=moves))


async def _relocate(
    connection: Connection, counted: PostgresChange, moves: Sequence[Move], tenant: Tenant, change: Change | None = None
) -> tuple[Move, ...]:
    """Give documents their ids and their shelves, in this order; returns the moves with the ids that were given."""
    ids: dict[int, str] = {}
    moved: list[Location] = []
    # By number: an id may be that of another document after an earlier move.
    numbers = dict(
        await connection.fetch(
            "SELECT id, sequence FROM rag_context.documents WHERE id = ANY ($1)",
            [stored(move.before.id) for move in moves if move.before is not None],
        )
    )
    for number, move in enumerate(moves):
        before, after = move.before, move.after
        if before is None or after is None:
            continue
        sequence = numbers[stored(before.id)]
        if not after.id:
            ids[number] = shelved_id(before.id, before.content_hash, sequence)
        place = replace(after, id=ids.get(number, after.id))
        await _move_rows(connection, counted, sequence, place.id, tenant.on(place.shelf))
        moved.append(place)
    if change is not None:
        for place in moved:
            await _settle(connection, place, change)
    return with_ids(moves, ids)


async def _settle(connection: Connection, place: Location, change: Change) -> None:
    """Note since when a document is on its shelf, and for which other one; after all have their ids."""
    at = None if place.shelf is None else microseconds(change.at)
    await connection.execute(
        "UPDATE rag_context.documents SET shelved_at = $2, pinned = pinned OR $3 WHERE id = $1",
        stored(place.id),
        at,
        change.pins,
    )
    if place.superseded_by is not None:
        await connection.execute(
            """UPDATE rag_context.documents AS d
               SET superseded_by = s.sequence, shelved_at = CASE
                   WHEN coalesce(s.occurred_at, s.timestamp) > coalesce(d.occurred_at, d.timestamp)
                   THEN coalesce(s.occurred_at, s.timestamp) ELSE d.shelved_at END
               FROM rag_context.documents AS s WHERE s.id = $2 AND d.id = $1""",
            stored(place.id),
            stored(place.superseded_by),
        )
        if change.undoes is None:  # else the reason is there, since it was superseded first
            await connection.execute(
                "UPDATE rag_context.documents SET superseded_reason = $2 WHERE id = $1",
                stored(place.id),
                stored_or_none(change.reason),
            )


async def _move_rows(
    connection: Connection, counted: PostgresChange, sequence: int, new_id: str, tenant: Tenant
) -> None:
    """Give a document another id or tenant, and its chunks with it."""
    key = await writer.tenant_key(connection, tenant)
    old_id, old_tenant, status = await connection.fetchrow(
        "SELECT id, tenant, status FROM rag_context.documents WHERE sequence = $1", sequence
    )
    await connection.execute(
        "UPDATE rag_context.documents SET id = $2, tenant = $3 WHERE sequence = $1", sequence, stored(new_id), key
    )
    parts = await connection.fetch(_PARTS.format(generation=counted.generation), stored(new_id))
    keys = [part["key"] for part in parts]
    await connection.execute("UPDATE rag_context.chunks SET tenant = $2 WHERE key = ANY ($1)", keys, key)
    if stored(new_id) != old_id:
        texts = [(read_text(part["context"]), read_text(part["text"])) for part in parts]
        await connection.execute(
            """UPDATE rag_context.chunks AS c SET id = n.id
               FROM unnest($1::bigint[], $2::text[]) AS n (key, id) WHERE c.key = n.key""",
            keys,
            chunk_ids(new_id, texts),
        )
    for difference, sign in ((counted.of(old_tenant), -1), (counted.of(key), 1)):
        difference.documents += sign
        difference.pending += sign * (status == PENDING)
        difference.chunks += sign * len(parts)
        difference.turnover += len(parts)
        difference.terms += sign * sum(part["length"] for part in parts)
        difference.vectors += sign * sum(part["has_vector"] for part in parts)


async def _mark_forgotten(connection: Connection, move: Move, change: Change) -> None:
    """Leave a tombstone of what goes to the trash or for good, or take it away from what comes back."""
    if move.before is None or move.before.shelf is Shelf.TRASH:
        if move.after is not None:
            await connection.execute("DELETE FROM rag_context.tombstones WHERE identity = $1", stored(move.after.id))
        return
    content = await connection.fetchval(
        "SELECT content FROM rag_context.documents WHERE id = $1", stored(move.before.id)
    )
    await connection.execute(
        """INSERT INTO rag_context.tombstones VALUES ($1, $2, $3)
           ON CONFLICT (identity) DO UPDATE SET content = excluded.content, at = excluded.at""",
        stored(move.before.id),
        content_key(change.tenant, read_text(content)),
        microseconds(change.at),
    )


async def _require_not_forgotten(connection: Connection, version: Version) -> None:
    """Reject what was forgotten, or with `is_forced` take its tombstone away. Raises: ForgottenError."""
    document = version.document
    values = (stored(document.id), content_key(document.tenant, document.content))
    if version.revision.is_forced:
        await connection.execute("DELETE FROM rag_context.tombstones WHERE identity = $1 OR content = $2", *values)
    elif await connection.fetchval(_IS_FORGOTTEN, *values):
        raise ForgottenError(document.id)


async def _drop_reasons(connection: Connection, document_ids: Collection[str]) -> None:
    """Remove what people wrote from the entries about documents that are gone for good."""
    rows = await connection.fetch("SELECT seq, moves FROM rag_context.journal WHERE reason IS NOT NULL")
    about = [
        sequence
        for sequence, moves in rows
        if any(
            place is not None and place.id in document_ids
            for move in from_json(json.loads(moves))
            for place in (move.before, move.after)
        )
    ]
    await connection.execute("UPDATE rag_context.journal SET reason = NULL WHERE seq = ANY ($1)", about)


async def _read_forgotten(
    fetch: Callable[..., Awaitable[Sequence[Row]]], documents: Mapping[str, str | None]
) -> set[str]:
    rows = await fetch(
        "SELECT identity, content FROM rag_context.tombstones WHERE identity = ANY ($1) OR content = ANY ($2)",
        list(map(stored, documents)),
        [content for content in documents.values() if content is not None],
    )
    identities, contents = {read_text(row["identity"]) for row in rows}, {row["content"] for row in rows} - {None}
    return {id_ for id_, content in documents.items() if id_ in identities or content in contents}


async def _read_links(connection: Connection, document_ids: Sequence[str]) -> dict[str, Link]:
    return _links(await connection.fetch(f"{_LINKS} WHERE d.id = ANY ($1)", list(map(stored, document_ids))))


def _names(tenant: Tenant) -> tuple[str, str, str]:
    return stored(tenant.project), stored(tenant.branch), stored(tenant.path_hash)


def _links(rows: Sequence[Row]) -> dict[str, Link]:
    return {link.place.id: link for link in map(_link, rows)}


def _link(row: Row) -> Link:
    tenant = tenant_from(row)
    is_superseded = tenant.shelf is Shelf.SUPERSEDED
    by, reason, at, expires_at = (
        row[name] for name in ("superseded_by", "superseded_reason", "shelved_at", "expires_at")
    )
    return Link(
        Location(
            read_text(row["id"]),
            row["content_hash"],
            tenant.shelf,
            read_text(by) if is_superseded and by is not None else None,
        ),
        tenant,
        read_text(row["source"]),
        moment(row["timestamp"]),
        read_text(reason) if is_superseded and reason is not None else None,
        moment(at) if is_superseded and at is not None else None,
        None if expires_at is None else moment(expires_at),
        row["pinned"],
    )


def _entry(row: Row) -> Entry:
    return Entry(
        row["seq"],
        moment(row["at"]),
        read_text(row["actor"]),
        Action(row["action"]),
        tenant_from(row),
        from_json(json.loads(row["moves"])),
        None if row["reason"] is None else read_text(row["reason"]),
        row["undoes"],
    )
