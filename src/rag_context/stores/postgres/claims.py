"""Which server completes which pending document: the one whose session holds the document's lock."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rag_context.errors import BackendError
from rag_context.stores.postgres.connection import ANSWER_S, Connection, Database
from rag_context.stores.postgres.faults import translated
from rag_context.stores.postgres.records import stored

# Another key than that of those who write a document: they do not wait until it is embedded.
_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended($1, 1))"
_RELEASE = "SELECT pg_advisory_unlock(hashtextextended($1, 1))"

logger = logging.getLogger(__name__)


class Claims:
    """`PendingClaims` of one database: locks of one session, which the server releases when the session ends.

    A claim only saves work: the vectors of a document are the same from every server. Where there can be no
    session (behind PgBouncer, or where the server accepts no more), every claim is granted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Connection | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def claimed(self, document_id: str) -> AsyncIterator[bool]:
        """Claim a document for the block; False where another server has it."""
        if not self._database.has_sessions:
            yield True
        elif await self._ask(_CLAIM, document_id):
            try:
                yield True
            finally:
                await self._ask(_RELEASE, document_id)
        else:
            yield False

    async def close(self) -> None:
        """End the session, and with it all claims."""
        session, self._session = self._session, None
        if session is not None:
            session.terminate()

    async def _ask(self, statement: str, document_id: str) -> bool:
        """The server's answer; True if it is unavailable."""
        async with self._turn:
            try:
                if self._session is None:
                    self._session = await self._database.session()
                with translated(self._database.place):
                    answer: bool = await self._session.fetchval(statement, stored(document_id), timeout=ANSWER_S)
            except BackendError as error:
                logger.debug("document %s is completed without a claim: %s", document_id, error)
                await self.close()
                return True
            except asyncio.CancelledError:  # the lock may have been granted, and nothing would release it
                await self.close()
                raise
            return answer
