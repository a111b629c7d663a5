"""Documents and chunks as tables of SQL have them: what reads them, once for SQLite and for PostgreSQL.

Statements are written as those of `stores.sql_journal`. Rows are read by position. `find_origins` is what documents of
earlier versions get when their tables are brought up to date.
"""

import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from rag_context.domain import documents
from rag_context.domain.documents import CHAT, TEXT_FIELDS, Chunk, Document, Origin, Retrievals, Stored, Tenant, moment
from rag_context.domain.provenance import earlier_origin, origins
from rag_context.domain.reports import DAY_US, DocumentGroup, FieldCounts, Period, Periods
from rag_context.domain.search import Filter, Passage
from rag_context.domain.text import are_similar, signed, unsigned
from rag_context.errors import BackendDataError

P = ParamSpec("P")
T = TypeVar("T")

Row: TypeAlias = Any

PENDING = "pending"
INDEXED = "indexed"

CHUNK_WIDTH = 14
CHUNK = """c.id, d.id, c.position, p.text, c.{start}, c.{end}, c.start_line, c.end_line, c.heading, p.context,
{chunk_time}, c.speaker, coalesce(c.origin, d.origin), c.standing"""

_DOCUMENT_WIDTH = 11
DESCRIBED = "d.content_type, d.session_id, d.source, d.title, d.timestamp, " + ", ".join(
    f"d.{name}" for name in (*TEXT_FIELDS, "tags", "extra")
)

DOCUMENTS = f"""
SELECT d.id, t.project, t.branch, t.path_hash, {{content}}, d.content_hash, {{time}}, d.thread, d.similarity_hash,
       d.message_times, d.origin, {DESCRIBED}
FROM {{schema}}documents AS d {{join}} {{schema}}tenants AS t ON t.key = d.tenant {{contents}}
"""  # noqa: S608  (column lists of our own)

OF_CHUNKS = """
FROM {schema}documents AS d {join} {schema}chunks AS c ON c.document = d.{document}
{join} {schema}passages AS p ON p.chunk = c.key
"""

_PASSAGES = f"""
SELECT {CHUNK}, {DESCRIBED}
FROM {{schema}}chunks AS c {{join}} {{schema}}passages AS p ON p.chunk = c.key
{{join}} {{schema}}documents AS d ON d.{{document}} = c.document WHERE c.id {{among_1}}
"""  # noqa: S608

_STATES = """
SELECT d.id, d.content_hash, d.status, {time}, d.origin,
       (SELECT t.path_hash FROM {schema}tenants AS t WHERE t.key = d.tenant), {chunk_ids}
FROM {schema}documents AS d
"""

_BANDS = ("similarity_hash & 65535", *(f"(similarity_hash >> {16 * band}) & 65535" for band in (1, 2, 3)))
_SIMILAR = " UNION ".join(
    f"""SELECT id, similarity_hash FROM {{schema}}documents
        WHERE tenant = (SELECT key FROM {{schema}}tenants WHERE project = $1 AND branch = $2 AND path_hash = $3)
        AND similarity_hash <> 0 AND {band} = ({band.replace("similarity_hash", "CAST($4 AS bigint)")})
        AND id <> $5 {{and_similar_to_4}}"""  # noqa: S608
    for band in _BANDS
)

_BOUND = "(SELECT {}({}) FROM {{schema}}documents AS d WHERE d.tenant = t.key) AS {}"
_BOUNDS = [
    _BOUND.format(bound, of, name)
    for of, names in (("{time}", ("first", "last")), ("d.timestamp", ("indexed_first", "indexed_last")))
    for bound, name in zip(("min", "max"), names, strict=True)
]
_PERIODS = f"""
SELECT min(first), max(last), min(indexed_first), max(indexed_last)
FROM (SELECT {", ".join(_BOUNDS)} FROM {{schema}}tenants AS t) AS bounds
"""  # noqa: S608
"""One bound each, and by tenant: each is read off the end of an index."""

_TENANTS = """
SELECT t.project, t.branch, t.path_hash FROM {schema}tenants AS t
WHERE EXISTS (SELECT 1 FROM {schema}documents AS d WHERE d.tenant = t.key) ORDER BY t.key
"""

_RETRIEVALS = """
SELECT r.query_count, r.last_retrieved
FROM {schema}documents AS d {join} {schema}retrievals AS r ON r.document = d.{document} WHERE d.id = $1
"""

logger = logging.getLogger(__name__)


class Parameters:
    """The values of a statement, numbered as they come."""

    def __init__(self, *values: object) -> None:
        self.values: list[object] = list(values)

    def add(self, value: object) -> str:
        """Add a value; returns its placeholder in the statement."""
        self.values.append(value)
        return f"${len(self.values)}"


class DocumentTables(Protocol):
    """The tables of one index."""

    @property
    def component(self) -> str: ...

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        """All rows. Raises: BackendError, UnicodeError (a row has a text that cannot be read)."""
        ...

    async def fetchrow(self, statement: str, *values: object) -> Row | None:
        """One row that an index leads to."""
        ...

    def condition(self, where: Filter, parameters: Parameters) -> str:
        """What a filter says of `documents AS d`."""
        ...


class _Reader(Protocol):
    async def _read(self, work: Callable[[DocumentTables], Coroutine[Any, Any, T]]) -> T: ...


def _reads(
    work: Callable[Concatenate[DocumentTables, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Reader, P], Coroutine[Any, Any, T]]:
    """A function over tables as a method of what reads them."""

    @wraps(work)
    async def read(self: _Reader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda tables: work(tables, *args, **kwargs))

    return read


async def read_passages(tables: DocumentTables, chunk_ids: Sequence[str]) -> dict[str, Passage]:
    if not chunk_ids:
        return {}
    try:
        return passages_of(await tables.fetch(_PASSAGES, list(chunk_ids)))
    except UnicodeError:
        if len(chunk_ids) > 1:  # those that can be read are found one by one
            return {id_: found for each in chunk_ids for id_, found in (await read_passages(tables, [each])).items()}
    _log_damaged(chunk_ids[0])
    return {}


async def read_document(tables: DocumentTables, document_id: str) -> Document | None:
    with _readable(document_id, tables.component):
        row = await tables.fetchrow(f"{DOCUMENTS} WHERE d.id = $1", document_id)
    return None if row is None else document_from(row, tables.component)


async def read_chunks(tables: DocumentTables, document_id: str) -> list[Chunk]:
    with _readable(document_id, tables.component):
        rows = await tables.fetch(f"SELECT {CHUNK} {OF_CHUNKS} WHERE d.id = $1 ORDER BY c.position", document_id)
        return [chunk_from(row) for row in rows]


async def _read_states(tables: DocumentTables, document_ids: Sequence[str]) -> dict[str, Stored]:
    return _states_of(await tables.fetch(f"{_STATES} WHERE d.id {{among_1}}", list(document_ids)))


async def _read_inventory(tables: DocumentTables, after: str, limit: int) -> dict[str, Stored]:
    return _states_of(await tables.fetch(f"{_STATES} WHERE d.id > $1 ORDER BY d.id LIMIT $2", after, limit))


async def _read_pending(tables: DocumentTables, limit: int) -> list[str]:
    statement = "SELECT id FROM {schema}documents WHERE status = 'pending' ORDER BY {key} LIMIT $1"
    return [id_ for (id_,) in await tables.fetch(statement, limit)]


async def _read_matching(tables: DocumentTables, where: Filter, limit: int) -> list[str]:
    parameters = Parameters(limit)
    statement = f"""SELECT d.id FROM {{schema}}documents AS d WHERE {tables.condition(where, parameters)}
                    ORDER BY d.{{key}} LIMIT $1"""  # noqa: S608  (values are bound)
    return [id_ for (id_,) in await tables.fetch(statement, *parameters.values)]


async def _read_similar(tables: DocumentTables, given: Sequence[Document]) -> list[list[str]]:
    found: list[list[str]] = []
    for document in given:
        bits = document.similarity_hash
        values = (*document.tenant.names, signed(bits), document.id)
        rows = await tables.fetch(_SIMILAR, *values) if bits else ()
        found.append(sorted(id_ for id_, other in rows if are_similar(bits, other)))
    return found


async def _read_listing(
    tables: DocumentTables, where: Filter, *, limit: int, after: documents.Cursor | None = None
) -> list[documents.Listing]:
    parameters = Parameters(limit)
    clauses = tables.condition(where, parameters)
    if after is not None:
        at, id_ = parameters.add(documents.microseconds(after.timestamp)), parameters.add(after.id)
        clauses += f" AND d.timestamp <= {at} AND (d.timestamp < {at} OR d.id > {id_})"
    statement = f"""SELECT d.id, {{time}}, d.status, d.origin, {DESCRIBED} FROM {{schema}}documents AS d WHERE {clauses}
                    ORDER BY d.timestamp DESC, d.id LIMIT $1"""  # noqa: S608
    listings: list[documents.Listing] = []
    for id_, occurred_at, status, origin, *described in await tables.fetch(statement, *parameters.values):
        with _readable(id_, tables.component):
            kind = {"indexed": status == INDEXED, "origin": Origin.stored(origin)}
            listings.append(documents.Listing(id=id_, occurred_at=moment(occurred_at), **kind, **_described(described)))
    return listings


async def _read_groups(tables: DocumentTables, where: Filter) -> list[DocumentGroup]:
    parameters = Parameters()
    # Division truncates: a day before 1970 is one less.
    day = f"({{time}} - CASE WHEN {{time}} < 0 THEN {DAY_US - 1} ELSE 0 END) / {DAY_US}"
    statement = f"""SELECT d.content_type, d.agent, d.session_id, d.tags, {day}, count(*), max({{time}})
                    FROM {{schema}}documents AS d WHERE {tables.condition(where, parameters)}
                    GROUP BY 1, 2, 3, 4, 5"""  # noqa: S608
    rows = await tables.fetch(statement, *parameters.values)
    return [DocumentGroup(kind, agent, session, _tags(tags), *rest) for kind, agent, session, tags, *rest in rows]


async def _read_origins(tables: DocumentTables, where: Filter) -> dict[Origin, int]:
    parameters = Parameters()
    statement = f"""SELECT coalesce(c.origin, d.origin), count(*)
                    FROM {{schema}}documents AS d {{join}} {{schema}}chunks AS c ON c.document = d.{{document}}
                    WHERE {tables.condition(where, parameters)} GROUP BY 1"""  # noqa: S608
    return documents.origins_of(await tables.fetch(statement, *parameters.values))


async def _read_field_counts(tables: DocumentTables, where: Filter, most: int) -> FieldCounts:
    return FieldCounts.of(await _read_groups(tables, where), await _read_origins(tables, where), most)


async def _read_content_hashes(tables: DocumentTables, document_ids: Sequence[str]) -> dict[str, str]:
    statement = "SELECT id, content_hash FROM {schema}documents WHERE id {among_1}"
    return dict(await tables.fetch(statement, list(document_ids)))


async def _read_tenants(tables: DocumentTables) -> list[Tenant]:
    return [Tenant(*row) for row in await tables.fetch(_TENANTS)]


async def _read_retrievals(tables: DocumentTables, document_id: str) -> Retrievals:
    row = await tables.fetchrow(_RETRIEVALS, document_id)
    return Retrievals() if row is None else Retrievals(row[0], moment(row[1]))


async def _read_periods(tables: DocumentTables) -> Periods | None:
    row = await tables.fetchrow(_PERIODS)
    if row is None or row[0] is None:
        return None
    first, last, indexed_first, indexed_last = map(moment, row)
    return Periods(Period(first, last), Period(indexed_first, indexed_last))


class SqlDocuments:
    """The part of `DocumentStore` that only reads tables."""

    passages = _reads(read_passages)
    get = _reads(read_document)
    chunks = _reads(read_chunks)
    states = _reads(_read_states)
    inventory = _reads(_read_inventory)
    pending = _reads(_read_pending)
    matching = _reads(_read_matching)
    similar = _reads(_read_similar)
    listing = _reads(_read_listing)
    field_counts = _reads(_read_field_counts)
    content_hashes = _reads(_read_content_hashes)
    tenants = _reads(_read_tenants)
    retrievals = _reads(_read_retrievals)
    periods = _reads(_read_periods)

    async def stored(self, document_id: str) -> Stored | None:
        return (await self.states([document_id])).get(document_id)

    async def _read(self, work: Callable[[DocumentTables], Coroutine[Any, Any, T]]) -> T:
        raise NotImplementedError


def document_row(document: Document, tenant: int, status: str) -> dict[str, Any]:
    """A row of `documents` by column, without its content and what the database numbers; the id comes first."""
    metadata = document.metadata
    return {
        "id": document.id,
        "tenant": tenant,
        "content_type": document.content_type,
        "session_id": document.session_id,
        "source": document.source,
        "title": document.title,
        "content_hash": document.content_hash,
        "timestamp": documents.microseconds(document.timestamp),
        "occurred_at": documents.microseconds(document.occurred_at),
        "message_times": documents.packed_times(document.message_times),
        **{name: getattr(metadata, name) for name in TEXT_FIELDS},
        "tags": list(metadata.tags),
        "extra": dict(metadata.extra),
        "thread": document.thread,
        "similarity_hash": signed(document.similarity_hash),
        "status": status,
        "origin": document.origin.value,
    }


_DAMAGE = (TypeError, ValueError, OverflowError)


@contextmanager
def _readable(document_id: str, component: str) -> Iterator[None]:
    """Read a document's rows inside the block. Raises: BackendDataError (the rows have invalid values)."""
    try:
        yield
    except _DAMAGE:
        message = f"The stored document {document_id!r} is damaged; run `rag-context check`."
        raise BackendDataError(component, message) from None  # the cause may contain stored data


def document_from(row: Row, component: str) -> Document:
    """The document of a row of `DOCUMENTS`. Raises: BackendDataError."""
    with _readable(row[0], component):
        id_, project, branch, path_hash, content, content_hash, *rest = row[:_DOCUMENT_WIDTH]
        occurred_at, thread, similarity, message_times, origin = rest
        return Document(
            id=id_,
            tenant=Tenant(project, branch, path_hash),
            content=content,
            content_hash=content_hash,
            occurred_at=moment(occurred_at),
            thread=thread,
            similarity_hash=unsigned(similarity),
            message_times=documents.unpacked_times(message_times),
            origin=Origin.stored(origin),
            **_described(row[_DOCUMENT_WIDTH:]),
        )


def passages_of(rows: Iterable[Row]) -> dict[str, Passage]:
    """The passages of rows with the columns `CHUNK` and `DESCRIBED`, by chunk id; damaged ones are left out."""
    found: dict[str, Passage] = {}
    for row in rows:
        try:
            found[row[0]] = Passage(chunk_from(row), row[1], **_described(row[CHUNK_WIDTH:]))
        except _DAMAGE:
            _log_damaged(row[0])
    return found


def _log_damaged(chunk_id: str) -> None:
    logger.warning("the passage %s is damaged and left out; run `rag-context check`", chunk_id)


def chunk_from(row: Row) -> Chunk:
    """The chunk of a row that begins with `CHUNK`. Raises: TypeError or ValueError where it is damaged."""
    id_, document, position, text, start, end, start_line, end_line, heading, context, *said = row[:CHUNK_WIDTH]
    at, speaker, origin, standing = said
    return Chunk(
        id_,
        document,
        int(position),
        text,
        documents.Span(int(start), int(end), int(start_line), int(end_line), heading),
        context,
        occurred_at=moment(at),
        speaker=speaker,
        origin=Origin.stored(origin),
        is_standing=bool(standing),
    )


def _described(row: Row) -> dict[str, Any]:
    kind, session, source, title, at, *texts, tags, extra = row
    others = {} if extra == "{}" else dict(json.loads(extra))  # as of most documents
    metadata = documents.Metadata(tags=_tags(tags), extra=others, **dict(zip(TEXT_FIELDS, texts, strict=True)))
    named = {"content_type": kind, "session_id": session, "source": source, "title": title}
    return {**named, "timestamp": moment(at), "metadata": metadata}


def _tags(stored: Any) -> tuple[str, ...]:
    """From a list, or from the JSON of one."""
    return () if stored == "[]" else tuple(stored if isinstance(stored, list) else json.loads(stored))


def _states_of(rows: Iterable[Row]) -> dict[str, Stored]:
    return {
        id_: Stored(
            content_hash,
            status == INDEXED,
            _tags(chunk_ids),
            moment(int(occurred_at)),
            Origin.stored(origin),
            Tenant(path_hash=path_hash).shelf,
        )
        for id_, content_hash, status, occurred_at, origin, path_hash, chunk_ids in rows
    }


_CONTENT = "SELECT {content} FROM {schema}documents AS d {contents} WHERE d.{key} = $1"

_CHUNKS = """
SELECT c.key, c.{start}, c.{end}, c.speaker
FROM {schema}documents AS d {join} {schema}chunks AS c ON c.document = d.{document}
WHERE d.{key} = $1 ORDER BY c.position
"""

_SPEAKERS = f"""
SELECT DISTINCT c.document, c.speaker
FROM {{schema}}documents AS d {{join}} {{schema}}chunks AS c ON c.document = d.{{document}}
WHERE d.content_type = '{CHAT}' AND c.speaker IS NOT NULL
"""  # noqa: S608


class UpgradedTables(DocumentTables, Protocol):
    """The tables inside the transaction that brings them up to date."""

    async def execute(self, statement: str, *values: object) -> None: ...


async def find_origins(tables: UpgradedTables) -> None:
    """Give documents, and the chunks of the owner's conversations, an origin; mark the owner's instructions."""
    speakers: dict[object, set[str]] = {}
    for document, speaker in await tables.fetch(_SPEAKERS):
        speakers.setdefault(document, set()).add(speaker)
    keys: dict[Origin, list[int]] = {}
    statement = "SELECT {key}, {document}, content_type, session_id, source, thread FROM {schema}documents"
    for key, document, kind, session, source, thread in await tables.fetch(statement):
        origin = earlier_origin(kind, session, source, thread, speakers.get(document, set()))
        keys.setdefault(origin, []).append(key)
    for origin, of_origin in keys.items():
        await tables.execute("UPDATE {schema}documents SET origin = $1 WHERE {key} {among_2}", origin.value, of_origin)
    for key in keys.get(Origin.OWNER, ()):
        ((content,),) = await tables.fetch(_CONTENT, key)
        chunks = await tables.fetch(_CHUNKS, key)
        said = origins(content, CHAT, Origin.OWNER, [tuple(place) for _, *place in chunks])
        for (chunk, *_), (whose, is_standing) in zip(chunks, said, strict=True):
            marked = "UPDATE {schema}chunks SET origin = $2, standing = $3 WHERE key = $1"
            await tables.execute(marked, chunk, whose.value, is_standing)
