"""Entries of collections that were dropped, emptied or replaced: removed in the background, little by little.

A transaction that discards a collection's entries only notes their key, so that it takes effect at once at every size.
"""

import asyncio
import logging
from collections.abc import Sequence

from rag_context.errors import BackendError
from rag_context.stores.postgres.connection import Connection, Database

REMOVED_AT_ONCE = 5_000
"""Entries that one transaction removes."""

logger = logging.getLogger(__name__)


class DiscardedEntries:
    """Removes what `discard` has noted, whichever server noted it.

    Args:
        database: where the collections are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_due = True
        self._removing: asyncio.Task[None] | None = None

    def remove_soon(self) -> None:
        """Remove all of them in the background, those that are noted meanwhile too."""
        self._is_due = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove(), name="remove discarded entries")

    def remove_of_earlier_process(self) -> None:
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
            while self._is_due:
                self._is_due = False
                while await self._database.write(_remove_some):
                    pass
        except BackendError as error:
            logger.info("rows of dropped collections are removed later: %s", error)


async def discard(connection: Connection, key: int) -> None:
    """Note that the entries with this key belong to no collection any more."""
    await connection.execute("INSERT INTO rag_context.discarded_collections VALUES ($1)", key)


async def remove_entries(connection: Connection, key: int, ids: Sequence[object]) -> int:
    """Remove entries by their ids as they are stored; returns how many there were."""
    removed = await connection.execute(
        "DELETE FROM rag_context.entries WHERE collection = $1 AND id = ANY ($2)", key, list(ids)
    )
    return int(removed.split()[-1])


async def _remove_some(connection: Connection) -> bool:
    """Remove some discarded entries; False once none are left that no other server removes."""
    key = await connection.fetchval("SELECT key FROM rag_context.discarded_collections LIMIT 1 FOR UPDATE SKIP LOCKED")
    if key is None:
        return False
    rows = await connection.fetch(
        "SELECT id FROM rag_context.entries WHERE collection = $1 LIMIT $2", key, REMOVED_AT_ONCE
    )
    await remove_entries(connection, key, [id_ for (id_,) in rows])
    if len(rows) < REMOVED_AT_ONCE:
        await connection.execute("DELETE FROM rag_context.discarded_collections WHERE key = $1", key)
    return True
