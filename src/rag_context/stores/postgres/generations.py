"""Other vectors beside those in use, and the switch to them: each generation of vectors is a table of its own."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, dataclass

from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild
from rag_context.errors import BackendError
from rag_context.ports.writing import can_switch, no_rebuild, require_shape
from rag_context.stores.postgres import state as index_state
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.driver import COMPONENT
from rag_context.stores.postgres.rows import read_text, stored
from rag_context.stores.postgres.writer import SCHEMA, VECTOR_FIELDS, copy_rows

TOUCH_S = 1.0
"""How often a run records its progress."""

_MISSING_VECTORS = """
EXISTS (
    SELECT 1 FROM rag_context.chunks AS c WHERE c.document = d.id
    AND NOT EXISTS (SELECT 1 FROM rag_context.vectors_{generation} AS n WHERE n.chunk = c.key)
)
"""

_NO_RUN = "UPDATE rag_context.state SET next_generation = NULL, next_model = NULL, next_touched = NULL"

_TABLES = r"""
SELECT substring(c.relname FROM '^vectors_([0-9]{1,9})$')::integer, EXISTS (
    SELECT 1 FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.confrelid = 'rag_context.chunks'::regclass
)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'rag_context' AND c.relkind = 'r' AND c.relname ~ '^vectors_[0-9]{1,9}$'
"""
"""The tables with names of generations, and whether each is ours: those of other programs refer to no chunk."""

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PostgresRebuilder:
    """`VectorRebuilder` within one database; `build_index` makes the index over the vectors of a generation."""

    database: PostgresDatabase
    state: index_state.IndexState
    build_index: Callable[[int], Awaitable[object]]

    async def under_way(self) -> Rebuild | None:
        seen = await self.state.refresh()
        model = index_state.model_of(seen.next_model)
        return None if model is None else Rebuild(model, seen.next_touched or 0.0)

    async def begin(self, model: EmbeddingModel) -> bool:
        async def begun(connection: Connection, change: index_state.PostgresChange) -> bool:
            recorded = await connection.fetchval("SELECT next_model FROM rag_context.state")
            change.is_empty = True
            if index_state.fingerprint_of(recorded) == model.fingerprint:
                return False
            generation = await _new_generation(connection)
            await connection.execute(
                "UPDATE rag_context.state SET next_generation = $1, next_model = $2, next_touched = $3",
                generation,
                json.dumps(asdict(model)),
                time.time(),
            )
            return True

        # Alone: of two servers that begin at once, the second one sees the run of the first.
        has_begun = await self.state.change_alone(begun)
        await self.state.refresh()
        await drop_unused(self.database)
        return has_begun

    async def missing(self, after: str, limit: int) -> list[str]:
        seen = await self._require_run(None)
        is_missing = _MISSING_VECTORS.format(generation=seen.next_generation)
        rows = await self.database.fetch(
            f"SELECT d.id FROM rag_context.documents AS d WHERE d.id > $1 AND {is_missing} ORDER BY d.id LIMIT $2",  # noqa: S608
            stored(after),
            limit,
        )
        return [read_text(id_) for (id_,) in rows]

    async def remaining(self) -> int:
        seen = await self._require_run(None)
        is_missing = _MISSING_VECTORS.format(generation=seen.next_generation)
        row = await self.database.fetchrow(f"SELECT count(*) FROM rag_context.documents AS d WHERE {is_missing}")  # noqa: S608
        return 0 if row is None else int(row[0])

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        async def added(connection: Connection, change: index_state.PostgresChange) -> bool:
            change.is_empty = True  # searches do not use these vectors yet
            generation = await _run_of(connection, made_by)
            rows = await connection.fetch(
                """SELECT c.key FROM rag_context.documents AS d JOIN rag_context.chunks AS c ON c.document = d.id
                   WHERE d.id = $1 AND d.content_hash = $2 ORDER BY c.position FOR KEY SHARE""",
                stored(document_id),
                content_hash,
            )
            if not rows:
                return False
            # KEY SHARE keeps these chunks: a new version of the document waits, and removes the vectors with them.
            require_shape(COMPONENT, vectors, len(rows))
            keys = [key for (key,) in rows]
            table = f"vectors_{generation}"
            await connection.execute(f"DELETE FROM {SCHEMA}.{table} WHERE chunk = ANY ($1)", keys)  # noqa: S608
            await copy_rows(connection, table, VECTOR_FIELDS, zip(keys, vectors, strict=True))
            now = time.time()
            await connection.execute(
                "UPDATE rag_context.state SET next_touched = $1 WHERE next_touched < $2", now, now - TOUCH_S
            )
            return True

        return await self.state.change(added)

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """The index over the new vectors is made before."""
        seen = await self._require_run(made_by)
        if seen.next_generation is not None:
            # Before the switch, which would leave searches without an index while it is built.
            await self.build_index(seen.next_generation)

        async def switched(connection: Connection, change: index_state.PostgresChange) -> bool:
            generation = await _run_of(connection, made_by)
            is_missing = _MISSING_VECTORS.format(generation=generation)
            documents = await connection.fetchval("SELECT count(*) FROM rag_context.documents")
            rows = await connection.fetch(f"SELECT d.id FROM rag_context.documents AS d WHERE {is_missing}")  # noqa: S608
            missing = [id_ for (id_,) in rows]
            if not can_switch([read_text(id_) for id_ in missing], without, documents):
                change.is_empty = True
                return False
            # One row names both: no transaction sees vectors of one model with the record of another.
            await connection.execute("UPDATE rag_context.state SET generation = next_generation, model = next_model")
            await connection.execute(_NO_RUN)
            await _mark(connection, change, missing)
            change.of().vectors += await _difference(connection, change.generation, generation)
            return True

        is_switched = await self.state.change_alone(switched)
        if is_switched:
            await drop_unused(self.database)
        return is_switched

    async def abandon(self) -> None:
        async def abandoned(connection: Connection, change: index_state.PostgresChange) -> None:
            change.is_empty = True
            await connection.execute(_NO_RUN)

        await self.state.change_alone(abandoned)
        await self.state.refresh()
        await drop_unused(self.database)

    async def _require_run(self, made_by: str | None) -> index_state.PostgresSnapshot:
        """The state while a run, of the model `made_by` if one is given, is under way. Raises: BackendRejectedError."""
        seen = await self.state.refresh()
        recorded = index_state.fingerprint_of(seen.next_model)
        if recorded is None or made_by not in (None, recorded):
            raise no_rebuild(COMPONENT)
        return seen


async def drop_all_vectors(connection: Connection, change: index_state.PostgresChange) -> int:
    """Begin an empty generation without a model; every document becomes pending. Returns how many documents there are.

    The tables of the other generations are dropped later, so that searches under way still find them.
    """
    generation = await _new_generation(connection)
    change.of().vectors += await _difference(connection, change.generation, generation)
    await connection.execute("UPDATE rag_context.state SET generation = $1, model = NULL", generation)
    await connection.execute(_NO_RUN)
    marked = await connection.execute("UPDATE rag_context.documents SET status = 'pending' WHERE status <> 'pending'")
    change.of().pending += int(marked.split()[-1])
    return int(await connection.fetchval("SELECT count(*) FROM rag_context.documents"))


async def drop_unused(database: PostgresDatabase) -> None:
    """Drop the vectors of generations that are neither in use nor being made, unless a reader is in the way now."""

    async def dropped(connection: Connection) -> None:
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        # No generation begins, and none is switched to, between the two questions.
        await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", index_state.WRITERS)
        row = await connection.fetchrow("SELECT generation, next_generation FROM rag_context.state")
        for number, is_ours in await connection.fetch(_TABLES):
            # A reader that holds it makes this wait 100 ms; a later round drops it.
            if is_ours and number not in tuple(row):
                await connection.execute(f"DROP TABLE rag_context.vectors_{number}")

    try:
        await database.write(dropped)
    except BackendError as error:
        logger.info("unused vectors are dropped later: %s", error)


async def _new_generation(connection: Connection) -> int:
    """Create the table of a new generation, after all that exist; returns its number."""
    used = await connection.fetchrow("SELECT generation, next_generation FROM rag_context.state")
    existing = [number for number, _ in await connection.fetch(_TABLES)]
    generation: int = max(*existing, used[0], used[1] or 0) + 1
    await connection.execute(
        f"""CREATE TABLE rag_context.vectors_{generation} (
            chunk bigint PRIMARY KEY REFERENCES rag_context.chunks (key) ON DELETE CASCADE,
            embedding vector NOT NULL)"""
    )
    return generation


async def _run_of(connection: Connection, made_by: str) -> int:
    row = await connection.fetchrow("SELECT next_model, next_generation FROM rag_context.state")
    if index_state.fingerprint_of(row["next_model"]) != made_by:
        raise no_rebuild(COMPONENT)
    return int(row["next_generation"])


async def _mark(connection: Connection, change: index_state.PostgresChange, missing: Collection[str]) -> None:
    """Make these documents pending, and all others indexed."""
    before = await connection.fetchval("SELECT count(*) FROM rag_context.documents WHERE status = 'pending'")
    # Only those that change: each update writes another copy of the row.
    await connection.execute(
        """UPDATE rag_context.documents SET status = CASE WHEN id = ANY ($1) THEN 'pending' ELSE 'indexed' END
           WHERE (status = 'pending') <> (id = ANY ($1))""",
        list(missing),
    )
    change.of().pending += len(missing) - before


async def _difference(connection: Connection, old: int, new: int) -> int:
    """How many vectors more a generation has than another."""
    counts = [f"(SELECT count(*) FROM rag_context.vectors_{number})" for number in (new, old)]  # noqa: S608
    return int(await connection.fetchval(f"SELECT {' - '.join(counts)}"))
