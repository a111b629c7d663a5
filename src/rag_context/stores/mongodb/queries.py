"""`Filter` as a MongoDB query, and the indexes that such queries use.

Every value of a query is a string or a date, never an operator. MongoDB keeps milliseconds of a time, so the rest of a
microsecond stands in a field of its own. An index is created if none with the same keys exists under any name.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from bson import ObjectId
from pymongo import IndexModel
from pymongo.errors import OperationFailure

from rag_context.domain.documents import DEFAULT_TENANT, EPOCH, Cursor, Tenant, microseconds
from rag_context.domain.search import Filter
from rag_context.errors import BackendRejectedError
from rag_context.stores.mongodb.mongo import COMPONENT, Collection, Mongo, is_code
from rag_context.stores.server_stores import ended, log_failure

_MILLISECOND = timedelta(milliseconds=1)

Query: TypeAlias = dict[str, Any]

_OBJECT_ID = re.compile("[0-9a-f]{24}")

_LAST = "\U0010ffff"

_BEFORE_SURROGATES = "\ud7ff"

_AFTER_SURROGATES = "\ue000"


UP, DOWN = 1, -1
TEXT_INDEX = "content_text_index"
TEXT_WEIGHTS = {"content": 10, "metadata.tags": 5}

_TEXT_MODEL = IndexModel(
    [(path, "text") for path in TEXT_WEIGHTS], name=TEXT_INDEX, weights=TEXT_WEIGHTS, default_language="english"
)
_NAMESPACE_NOT_FOUND = 26
_CONFLICTS = (85, 86)


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A required index, and its name if it is created."""

    name: str
    key: tuple[tuple[str, int], ...]


DOCUMENTS = (
    IndexSpec("session_timestamp_idx", (("sessionId", UP), ("timestamp", DOWN))),
    IndexSpec("tags_idx", (("metadata.tags", UP),)),
    IndexSpec("category_idx", (("metadata.category", UP),)),
    IndexSpec("content_type_timestamp_idx", (("contentType", UP), ("timestamp", DOWN))),
    IndexSpec("decision_id_idx", (("metadata.decisionId", UP),)),
    IndexSpec("game_idx", (("metadata.game", UP),)),
    IndexSpec("chunk_id_idx", (("chunks.chunkId", UP),)),
    IndexSpec("source_idx", (("source", UP), ("tenant", UP))),
    IndexSpec("tenant_timestamp_idx", (("tenant", UP), ("timestamp", DOWN), ("timestampMicros", DOWN), ("_id", UP))),
    IndexSpec("timestamp_idx", (("timestamp", DOWN),)),
    IndexSpec("occurred_idx", (("occurredAt", DOWN), ("timestamp", DOWN), ("tenant", UP))),
    IndexSpec("thread_sequence_idx", (("thread", UP), ("tenant", UP), ("sequence", UP))),
    IndexSpec("similarity_idx", (("similarityBands", UP), ("tenant", UP))),
    IndexSpec("status_idx", (("status", UP), ("sequence", UP), ("chunkCount", UP), ("termCount", UP))),
)
"""The last one counts documents by status without reading any document."""

CHUNKS = (
    IndexSpec("terms_idx", (("terms", UP), ("tenant", UP), ("length", UP))),
    IndexSpec("repeated_idx", (("repeated", UP), ("tenant", UP), ("length", UP))),
    IndexSpec("chunk_id_idx", (("chunkId", UP),)),
)
"""The first two lead from a term to the chunks that hold it, the shortest first."""

METRICS = (
    IndexSpec("timestamp_idx", (("timestamp", DOWN),)),
    IndexSpec("agent_timestamp_idx", (("agent", UP), ("timestamp", DOWN))),
    IndexSpec("fallback_timestamp_idx", (("fallback", UP), ("timestamp", DOWN))),
)
ERRORS = (IndexSpec("timestamp_idx", (("timestamp", DOWN),)),)

logger = logging.getLogger(__name__)


def split_time(at: datetime) -> tuple[datetime, int]:
    """A time in whole milliseconds, as it is stored, and the microseconds beyond them, 0..999."""
    milliseconds, rest = divmod(microseconds(at), 1000)
    return EPOCH + milliseconds * _MILLISECOND, rest


def first_not_before(at: int) -> datetime:
    """The earliest whole millisecond at or after `at` microseconds after 1970."""
    return EPOCH + -(-at // 1000) * _MILLISECOND


def key_of(document_id: str) -> str | ObjectId:
    """The `_id` of a document: ours is the id itself, that of another program's document an ObjectId."""
    return ObjectId(document_id) if _OBJECT_ID.fullmatch(document_id) else document_id


def tenant_of(tenant: Tenant) -> dict[str, str] | None:
    """The field `tenant`; nothing for the default tenant, to whom documents without the field belong."""
    if tenant == DEFAULT_TENANT:
        return None
    return {"project": tenant.project, "branch": tenant.branch, "pathHash": tenant.path_hash}


def condition(where: Filter, document: str = "_id") -> Query:
    """`where` as a query; the id of a document stands in the field `document`."""
    parts: list[Query] = [{"tenant": tenant_of(where.tenant)}]
    parts += [
        {field: value}
        for field, value in (
            ("contentType", where.content_type),
            ("sessionId", where.session_id),
            ("metadata.category", where.category),
            ("metadata.game", where.game),
            ("source", where.source),
        )
        if value is not None
    ]
    if where.source_prefix:
        parts.append({"source": _starting_with(where.source_prefix)})
    if where.tags:
        parts.append({"metadata.tags": {"$all": list(where.tags)}})
    parts += [{"metadata.tags": {"$in": list(group)}} for group in where.any_tags]
    if where.without_documents:
        parts.append({document: {"$nin": [key_of(id_) for id_ in where.without_documents]}})
    if where.since is not None:
        parts.append(_occurred(_not_before, where.since))
    if where.until is not None:
        parts.append(_occurred(_before, where.until))
    return {"$and": parts} if len(parts) > 1 else parts[0]


def after_cursor(cursor: Cursor) -> Query:
    """The query for the documents after the cursor in a list by time and id, newest first."""
    milliseconds, rest = split_time(cursor.timestamp)
    later_id: list[Query] = [{"_id": {"$gt": key_of(cursor.id)}}]
    if isinstance(key_of(cursor.id), str):
        later_id.append({"_id": {"$type": "objectId"}})  # a comparison sees its own type only; these sort last
    same = {"timestamp": milliseconds, "timestampMicros": rest or {"$in": [0, None]}, "$or": later_id}
    return {"$or": [_before(cursor.timestamp, "timestamp"), same]}


def _occurred(bound: Callable[[datetime, str], Query], at: datetime) -> Query:
    """Records of earlier versions and other programs have no event time; their `timestamp` counts instead."""
    return {"$or": [bound(at, "occurredAt"), {"occurredAt": None, **bound(at, "timestamp")}]}


def _not_before(at: datetime, field: str) -> Query:
    milliseconds, rest = split_time(at)
    if rest == 0:
        return {field: {"$gte": milliseconds}}
    return {"$or": [{field: {"$gt": milliseconds}}, {field: milliseconds, f"{field}Micros": {"$gte": rest}}]}


def _before(at: datetime, field: str) -> Query:
    milliseconds, rest = split_time(at)
    if rest == 0:
        return {field: {"$lt": milliseconds}}
    # `$not` also passes records without the field: those of earlier versions, whose rest is 0.
    same = {field: milliseconds, f"{field}Micros": {"$not": {"$gte": rest}}}
    return {"$or": [{field: {"$lt": milliseconds}}, same]}


def _starting_with(prefix: str) -> Query:
    """A range instead of a pattern: strings are compared byte by byte, and no character of a range is special."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return {"$gte": prefix}
    following = _AFTER_SURROGATES if stem[-1] == _BEFORE_SURROGATES else chr(ord(stem[-1]) + 1)
    return {"$gte": prefix, "$lt": stem[:-1] + following}


class Indexes:
    """Creates missing indexes, with one task at a time."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._making: asyncio.Task[None] | None = None
        self._failed: dict[str, str] = {}

    @property
    def missing(self) -> str:
        """The indexes that could not be made, each with the reason; "" if none is missing."""
        return "; ".join(f"index {name} is missing: {reason}" for name, reason in self._failed.items())

    async def ensure(self) -> None:
        """Create missing indexes; waits for a task that is under way.

        Raises:
            BackendError: the server is unavailable, or rejected an index.
        """
        await asyncio.shield(self._task())

    def ensure_soon(self) -> None:
        """As `ensure`, in the background; failures are logged."""
        self._task()

    async def close(self) -> None:
        """Cancel the task."""
        if self._making is not None:
            await ended(self._making)

    async def text_index(self) -> bool:
        """Whether the text index exists with the right options. Raises: BackendError."""
        async with self._mongo.reached():
            return any(_is_our_text_index(index) for index in await _present(self._mongo.documents))

    async def replace_text_index(self) -> None:
        """Create the text index again, in place of any other one. Raises: BackendError."""
        async with self._mongo.reached():
            for index in await _present(self._mongo.documents):
                if _is_text(index):
                    await self._mongo.documents.drop_index(index["name"])
        await self.ensure()

    def _task(self) -> "asyncio.Task[None]":
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="mongodb indexes")
            self._making.add_done_callback(log_failure("indexes could not be made", logging.WARNING))
        return self._making

    async def _make(self) -> None:
        mongo = self._mongo
        failed: dict[str, str] = {}
        for collection, required in (
            (mongo.documents, [*_models(DOCUMENTS), _TEXT_MODEL]),
            (mongo.chunks, _models(CHUNKS)),
            (mongo.metrics, _models(METRICS)),
            (mongo.errors, _models(ERRORS)),
        ):
            failed |= await self._complete(collection, required)
        for name, reason in failed.items():
            if self._failed.get(name) != reason:
                logger.warning("index %s cannot be made: %s", name, reason)
        self._failed = failed

    async def _complete(self, collection: Collection, required: Sequence[IndexModel]) -> dict[str, str]:
        """Create the missing indexes of a collection one by one, so that a failure does not stop the others."""
        async with self._mongo.reached():
            present = await _present(collection)
        failed: dict[str, str] = {}
        for model in required:
            if not _is_among(present, model):
                try:
                    await self._create(collection, model)
                except BackendRejectedError as error:
                    failed[f"{collection.name}.{model.document['name']}"] = str(error)
        return failed

    async def _create(self, collection: Collection, model: IndexModel) -> None:
        """Raises: BackendRejectedError with the reason, or BackendError if the server is unavailable."""
        name = model.document["name"]
        async with self._mongo.reached():
            try:
                await collection.create_indexes([model])
            except OperationFailure as error:
                if not is_code(error, *_CONFLICTS):
                    raise
                if _is_among(await _present(collection), model):
                    return  # another process was faster
                raise BackendRejectedError(
                    COMPONENT,
                    f"another index has its name (code {error.code}); drop or rename the other one",
                ) from error
        logger.info("made index %s of %s", name, collection.name)


async def _present(collection: Collection) -> list[Mapping[str, Any]]:
    try:
        return [index async for index in await collection.list_indexes()]
    except OperationFailure as error:
        if not is_code(error, _NAMESPACE_NOT_FOUND):
            raise
        return []


def _models(required: Sequence[IndexSpec]) -> list[IndexModel]:
    return [IndexModel(list(each.key), name=each.name) for each in required]


def _is_among(present: Sequence[Mapping[str, Any]], model: IndexModel) -> bool:
    """Whether an index with these keys is there, under any name; one text index, which is all there can be, will do."""
    if _is_text(model.document):
        return any(_is_text(index) for index in present)
    required = list(model.document["key"].items())
    return any(list(index["key"].items()) == required for index in present)


def _is_text(index: Mapping[str, Any]) -> bool:
    return "text" in index["key"].values()


def _is_our_text_index(index: Mapping[str, Any]) -> bool:
    weights = {path: int(weight) for path, weight in index.get("weights", {}).items()}
    return _is_text(index) and weights == TEXT_WEIGHTS and index.get("default_language") == "english"
