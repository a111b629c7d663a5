"""Reads and writes that change nothing and show whether real ones succeed: what health reports ask for.

They wait for a lock only shortly, so that a report says what is in the way instead of that it took too long.
"""

from rag_context.stores.postgres.connection import Connection, Database
from rag_context.stores.postgres.state import BESIDE_OTHERS, WRITERS

FIRST_ROWS = """
SELECT (SELECT min(id) FROM rag_context.documents), (SELECT min(key) FROM rag_context.chunks),
       (SELECT min(chunk) FROM rag_context.passages), (SELECT min(key) FROM rag_context.tenants)
"""

FIRST_VECTOR = "SELECT vector_dims(embedding) FROM rag_context.vectors_{generation} ORDER BY chunk LIMIT 1"

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '400ms'"
"""Three attempts are made within the time of a report."""

_NO_LOCKS = """
LOCK TABLE rag_context.documents, rag_context.chunks, rag_context.passages, rag_context.changes IN ROW EXCLUSIVE MODE
"""

_WRITE = """
INSERT INTO rag_context.trial VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET writes = trial.writes + 1
"""

_TWO_MEBIBYTES = """
CREATE TABLE rag_context.room AS SELECT gen_random_uuid() AS one, gen_random_uuid() AS two
FROM generate_series(1, 32768)
"""


async def read(database: Database, statement: str) -> None:
    """Run a query that reads little. Raises: BackendError (why searches would fail)."""

    async def tried(connection: Connection) -> None:
        await connection.execute(_LOCK_TIMEOUT)
        await connection.execute(statement)

    await database.write(tried)


async def write(database: Database) -> None:
    """Write what changes nothing of the index. Raises: BackendError (why a write would fail).

    After a write that found no room, there has to be some for 2 MiB: less may fit where a document does not.
    """

    async def tried(connection: Connection) -> None:
        await connection.execute(_LOCK_TIMEOUT)
        await connection.execute(BESIDE_OTHERS, WRITERS)
        await connection.execute(_NO_LOCKS)
        await connection.execute(_WRITE)

    if database.lacks_room:
        await database.read(_take_room)
        database.lacks_room = False
    await database.write(tried)


async def _take_room(connection: Connection) -> None:
    """Write 2 MiB, and nothing of it: the file is gone with the transaction."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(_TWO_MEBIBYTES)
    finally:
        await transaction.rollback()
