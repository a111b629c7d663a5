"""The MongoDB store as a whole: one client, its ports, and the task that maintains the index."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rag_context.stores.mongodb.audit import MongoAuditor
from rag_context.stores.mongodb.connection import connect
from rag_context.stores.mongodb.documents import MongoDocuments
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.metrics import MongoMetrics
from rag_context.stores.mongodb.revisions import Revisions
from rag_context.stores.mongodb.state import IndexState
from rag_context.stores.mongodb.tasks import ended
from rag_context.stores.mongodb.texts import MongoTexts
from rag_context.stores.mongodb.watch import Watch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MongoStore:
    """The ports of one database. `documents` is the document store, its writer and the model registry."""

    documents: MongoDocuments
    texts: MongoTexts
    metrics: MongoMetrics
    auditor: MongoAuditor


@asynccontextmanager
async def open_mongodb(
    uri: str, *, documents: str = "C0N7EXT", metrics: str = "R4G_M37R1C5"
) -> AsyncIterator[MongoStore]:
    """Open the database of `uri` (P4NTH30N if it names none); missing indexes are created in the background.

    An unreachable server is not an error here: the ports raise `BackendError` until it is available.

    Args:
        uri: the server's address, with user, password, database and the driver's options.
        documents: the collection of documents; their chunks are kept in `{documents}_chunks`, a record
            of their state in `{documents}_state`.
        metrics: the collection of search records.

    Raises:
        ConfigurationError: the address is invalid.
    """
    mongo = connect(uri, documents=documents, metrics=metrics)
    state = IndexState(mongo)
    indexes = Indexes(mongo)
    revisions = Revisions(mongo, state)
    document_store = MongoDocuments(mongo, state, indexes, revisions)
    watching = asyncio.create_task(Watch(mongo, state, indexes, revisions).run(time.monotonic), name="mongodb watch")
    watching.add_done_callback(_log_crash)
    try:
        yield MongoStore(
            document_store,
            MongoTexts(mongo, state, indexes),
            MongoMetrics(mongo),
            MongoAuditor(mongo, state, indexes, revisions),
        )
    finally:
        await ended(watching)
        await revisions.close()
        await state.close()
        await document_store.close()
        await indexes.close()
        await mongo.close()


def _log_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("background task %s crashed", task.get_name(), exc_info=error)
