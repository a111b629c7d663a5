"""Checks the index in one snapshot while it is in use."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rag_context.domain.documents import Chunk, Counts, Span
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.integrity import IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.errors import BackendDataError
from rag_context.ports.maintenance import DocumentCheck
from rag_context.stores.sqlite.filters import moment
from rag_context.stores.sqlite.memory.terms import packed
from rag_context.stores.sqlite.passages import lenient, read_chunks, read_document
from rag_context.stores.sqlite.registry import read_model
from rag_context.stores.sqlite.statistics import SLOT_US
from rag_context.text.analysis import terms

EXAMPLES = 5
"""Examples that are listed for each kind of issue."""

COMPARED = 20_000
"""Chunks of a larger index whose terms are compared in a quick examination, evenly spread."""

NORM_TOLERANCE = 1e-3
"""How far a stored vector's length may be from 1; float32 rounding of 384 squares is a thousand times less."""

DAMAGED = frozenset({IssueKind.LOST_CONTENT, IssueKind.CHANGED_CONTENT})
"""Issues that only indexing the source of a document again repairs."""

_BATCH = 1024

RECOUNTED = """
SELECT (SELECT count(*) FROM documents),
       (SELECT count(*) FROM documents WHERE status = 'pending'),
       (SELECT count(*) FROM chunks),
       (SELECT count(*) FROM vectors),
       (SELECT ifnull(sum(length), 0) FROM chunks)
"""

ORPHANS = {
    "vectors": "chunk NOT IN (SELECT c.key FROM chunks AS c JOIN documents AS d ON d.key = c.document)",
    "passages": "chunk NOT IN (SELECT c.key FROM chunks AS c JOIN documents AS d ON d.key = c.document)",
    "chunks": "document NOT IN (SELECT key FROM documents)",
    "contents": "document NOT IN (SELECT key FROM documents)",
    "document_tags": "document NOT IN (SELECT key FROM documents)",
    "retrievals": "document NOT IN (SELECT key FROM documents)",
}
"""Orphaned rows, by table; children before their parents."""

INCOMPLETE = """
status = 'indexed' AND EXISTS (
    SELECT 1 FROM chunks AS c WHERE c.document = documents.key
    AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.chunk = c.key)
)
"""
"""Indexed documents without all their vectors."""

WRONGLY_TAGGED = """
EXISTS (
    SELECT value FROM json_each(CASE WHEN json_valid(documents.tags) THEN documents.tags ELSE '[]' END)
    EXCEPT SELECT tag FROM document_tags AS g WHERE g.document = documents.key
) OR EXISTS (
    SELECT tag FROM document_tags AS g WHERE g.document = documents.key
    EXCEPT SELECT value FROM json_each(CASE WHEN json_valid(documents.tags) THEN documents.tags ELSE '[]' END)
)
"""
"""Documents whose rows for filtering by tag differ from their tags."""


class _Findings:
    """Counts issues and keeps a few examples of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[IssueKind] = Counter()
        self._examples: dict[IssueKind, list[str]] = {}

    def add(self, kind: IssueKind, example: str) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    def issues(self) -> tuple[Issue, ...]:
        return tuple(
            Issue(kind, self._counts[kind], tuple(self._examples[kind])) for kind in IssueKind if kind in self._counts
        )


def examine(check: DocumentCheck, thoroughness: Thoroughness, connection: sqlite3.Connection) -> IntegrityReport:
    """Check all rows for consistency. A damaged file is not examined any further."""
    found = _Findings()
    for row in connection.execute(_integrity(thoroughness)):
        if row[0] != "ok":
            found.add(IssueKind.DAMAGED_FILE, row[0])
    if found.issues():
        return IntegrityReport(Counts(0, 0, 0, 0), 0, found.issues())
    counts = _look_at_counters(connection, found)
    _look_for_orphans(connection, found)
    broken, damaged = _examine_documents(check, connection, found)
    step = max(1, counts.chunks // COMPARED) if thoroughness is Thoroughness.QUICK else 1
    with lenient(connection):
        compared = _look_at_words(step, connection, found)
    _look_at_vectors(connection, found)
    _look_at_sums(connection, found)
    return IntegrityReport(counts, compared, found.issues(), tuple(broken), tuple(damaged))


def find_bad_vectors(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Chunks (key and id) whose vector is of another length than the model's, not finite, or not of norm 1."""
    model = recorded_model(connection)
    size = None if model is None else 4 * model.dimension  # bytes
    rows = connection.execute(
        "SELECT v.chunk, ifnull(c.id, v.chunk), v.vector FROM vectors AS v LEFT JOIN chunks AS c ON c.key = v.chunk"
    )
    while batch := rows.fetchmany(_BATCH):
        size = max(len(batch[0][2]) // 4, 1) * 4 if size is None else size
        fitting = [row for row in batch if len(row[2]) == size]
        yield from ((key, str(id_)) for key, id_, vector in batch if len(vector) != size)
        matrix = np.frombuffer(b"".join([row[2] for row in fitting]), dtype="<f4").reshape(len(fitting), size // 4)
        norms = np.linalg.norm(matrix.astype(np.float64), axis=1)
        for place in np.flatnonzero(~(np.abs(norms - 1.0) <= NORM_TOLERANCE)).tolist():  # a NaN is not close either
            yield fitting[place][0], str(fitting[place][1])


def recorded_model(connection: sqlite3.Connection) -> EmbeddingModel | None:
    """The recorded model; None if none is recorded, or it is invalid."""
    try:
        return read_model(connection)
    except (ValueError, KeyError, TypeError):
        return None


def stored_form(text: str, context: str) -> list[str]:
    """The terms of a passage in their stored form."""
    return terms(Chunk("", "", 0, text, Span(0, 0, 0, 0), context).searchable)


def _integrity(thoroughness: Thoroughness) -> str:
    check = "quick_check" if thoroughness is Thoroughness.QUICK else "integrity_check"
    return f"PRAGMA {check}(100)"


def _look_at_counters(connection: sqlite3.Connection, found: _Findings) -> Counts:
    totals = connection.execute("SELECT documents, pending, chunks, vectors, terms FROM totals").fetchone()
    real = connection.execute(RECOUNTED).fetchone()
    for name, one, other in zip(("documents", "pending", "chunks", "vectors", "terms"), totals, real, strict=True):
        if one != other:
            found.add(IssueKind.WRONG_COUNTERS, f"{name}: {one} recorded, {other} counted")
    return Counts(*real[:4])


def _look_for_orphans(connection: sqlite3.Connection, found: _Findings) -> None:
    for table, lost in ORPHANS.items():
        key = "chunk" if table in ("vectors", "passages") else "key" if table == "chunks" else "document"
        for (number,) in connection.execute(f"SELECT {key} FROM {table} WHERE {lost}"):  # noqa: S608
            found.add(IssueKind.ORPHANS, f"{table} {number}")


def _examine_documents(
    check: DocumentCheck, connection: sqlite3.Connection, found: _Findings
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the ids of those whose chunks are broken, and of those whose content is not what was indexed."""
    broken: list[str] = []
    damaged: list[str] = []
    for kind, condition in ((IssueKind.MISSING_VECTORS, INCOMPLETE), (IssueKind.WRONG_TAGS, WRONGLY_TAGGED)):
        for (id_,) in connection.execute(f"SELECT id FROM documents WHERE {condition}"):  # noqa: S608
            found.add(kind, id_)
    for (id_,) in connection.execute("SELECT id FROM documents WHERE tenant NOT IN (SELECT key FROM tenants)"):
        found.add(IssueKind.WRONG_ID, id_)
    for (id_,) in connection.execute("SELECT id FROM documents WHERE key NOT IN (SELECT document FROM contents)"):
        found.add(IssueKind.LOST_CONTENT, id_)
        damaged.append(id_)
    for key, id_ in connection.execute("SELECT key, id FROM documents ORDER BY key"):
        kinds = _kinds(check, key, id_, connection)
        for kind in kinds:
            found.add(kind, id_)
        if IssueKind.BROKEN_CHUNKS in kinds:
            broken.append(id_)
        if kinds & DAMAGED:
            damaged.append(id_)
    return broken, damaged


def _kinds(check: DocumentCheck, key: int, id_: str, connection: sqlite3.Connection) -> set[IssueKind]:
    """What is wrong with a document and its chunks, as far as they can be read."""
    try:
        document = read_document(id_, connection)
    except BackendDataError:
        return {IssueKind.LOST_CONTENT}
    if document is None:
        return set()
    try:
        chunks = read_chunks(id_, connection)
    except BackendDataError:
        chunks = []  # rechunking repairs them
    return set(check(document, chunks))


def _look_at_words(step: int, connection: sqlite3.Connection, found: _Findings) -> int:
    """Compare the stored terms of each `step`th chunk with the analyser's."""
    compared = 0
    rows = connection.execute(
        """SELECT c.id, c.length, p.text, p.context, p.terms
           FROM passages AS p CROSS JOIN chunks AS c ON c.key = p.chunk WHERE p.chunk % ? = 0""",
        (step,),
    )
    for id_, length, text, context, stored in rows:
        compared += 1
        fresh = stored_form(text, context)
        if packed(fresh) != stored or len(fresh) != length:
            found.add(IssueKind.STALE_TERMS, id_)
    return compared


def _look_at_vectors(connection: sqlite3.Connection, found: _Findings) -> None:
    for _, id_ in find_bad_vectors(connection):
        found.add(IssueKind.BAD_VECTORS, id_)
    unknown = recorded_model(connection) is None
    (recorded,) = connection.execute("SELECT count(*) FROM meta WHERE name = 'model'").fetchone()
    (vectors,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    if unknown and (recorded or vectors):
        found.add(IssueKind.NO_MODEL, f"{vectors} vectors")


def _look_at_sums(connection: sqlite3.Connection, found: _Findings) -> None:
    counted = dict(connection.execute("SELECT timestamp / ? AS slot, count(*) FROM searches GROUP BY slot", (SLOT_US,)))
    totals = dict(connection.execute("SELECT slot, queries FROM search_sums"))
    tallied = dict(
        connection.execute("SELECT slot, sum(queries) FROM search_tallies WHERE kind = 'level' GROUP BY slot")
    )
    for slot in sorted(counted.keys() | totals.keys() | tallied.keys()):
        if not counted.get(slot) == totals.get(slot) == tallied.get(slot):
            found.add(IssueKind.STATISTICS, moment(slot * SLOT_US).isoformat())
