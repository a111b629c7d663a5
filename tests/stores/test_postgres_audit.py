"""What can be untrue of an index in PostgreSQL is found, named, and repaired where that is possible."""

import numpy as np
import pytest

from rag_context.domain.documents import Counts
from rag_context.domain.reports import IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.memory.index_maintenance import document_issues
from rag_context.ports.writing import Version
from rag_context.stores.postgres import PostgresStore
from tests.servers.postgres_fixtures import database, postgres, server, template
from tests.stores.builders import axis, ids
from tests.stores.test_mongodb_audit import DRAFT, sound

__all__ = ["database", "postgres", "server", "template"]

QUICK, FULL = Thoroughness
MODEL = EmbeddingModel("mini", 16, "f00d", 254, Calibration(12.1, -4.01))


@pytest.fixture
async def index(postgres: PostgresStore) -> PostgresStore:
    """A sound index of one document in two chunks."""
    await postgres.documents.adopt_model(MODEL)
    document, chunks = sound()
    await postgres.documents.write(Version(document, chunks, np.stack([axis(0), axis(1)]), MODEL.fingerprint))
    return postgres


async def examined(store: PostgresStore, thoroughness: Thoroughness = FULL) -> IntegrityReport:
    return await store.auditor.examine(document_issues, thoroughness)


async def kinds(store: PostgresStore) -> set[IssueKind]:
    return {issue.kind for issue in (await examined(store)).issues}


@pytest.mark.parametrize("thoroughness", Thoroughness)
async def test_a_sound_index_has_no_issues(index: PostgresStore, thoroughness: Thoroughness) -> None:
    found = await examined(index, thoroughness)
    assert found.issues == ()
    assert (found.counts, found.compared_terms) == (Counts(1, 0, 2, 2), 2)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("UPDATE rag_context.state SET chunks = chunks + 5, documents = documents - 1", IssueKind.WRONG_COUNTERS),
        ("UPDATE rag_context.chunks SET session_id = 'another'", IssueKind.WRONG_TAGS),
        ("UPDATE rag_context.chunks SET terms = terms[1:1], counts = counts[1:1]", IssueKind.STALE_TERMS),
        ("UPDATE rag_context.chunks SET length = 99", IssueKind.STALE_TERMS),
    ],
)
async def test_what_the_store_derives_is_found_and_made_again(
    index: PostgresStore, damage: str, kind: IssueKind
) -> None:
    await index.database.fetch(damage)
    version = index.documents.version
    assert kind in await kinds(index)
    await index.auditor.repair({kind})
    assert await kinds(index) == set()
    assert index.documents.version > version, "cached answers are dropped"
    assert await index.documents.counts() == Counts(1, 0, 2, 2)
    assert len(await index.texts.search("wolf", limit=5, where=Filter(session_id="s"))) == 1


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("DELETE FROM rag_context.vectors_0 WHERE chunk = 1", IssueKind.MISSING_VECTORS),
        (f"UPDATE rag_context.vectors_0 SET embedding = '{[2.0] + [0.0] * 15}' WHERE chunk = 1", IssueKind.BAD_VECTORS),
        ("UPDATE rag_context.vectors_0 SET embedding = '[1,0]' WHERE chunk = 1", IssueKind.BAD_VECTORS),
        ("UPDATE rag_context.state SET model = '{}'", IssueKind.NO_MODEL),
        ("UPDATE rag_context.state SET model = NULL", IssueKind.NO_MODEL),
    ],
)
async def test_a_document_without_valid_vectors_becomes_pending(
    index: PostgresStore, damage: str, kind: IssueKind
) -> None:
    await index.database.fetch(damage)
    assert kind in await kinds(index)
    await index.auditor.repair({kind, IssueKind.WRONG_COUNTERS})
    assert await kinds(index) <= {IssueKind.WRONG_COUNTERS}
    document, _ = sound()
    assert await index.documents.pending(10) == [document.id]
    await index.documents.adopt_model(MODEL)
    assert await index.documents.attach(document.id, document.content_hash, np.stack([axis(2), axis(3)]), "f00d")
    assert len(ids(await index.vectors.search(axis(2), limit=5, where=Filter()))) == 2
    assert await kinds(index) == set()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("UPDATE rag_context.documents SET content = content || '!'", IssueKind.CHANGED_CONTENT),
        ("UPDATE rag_context.documents SET extra = 'no JSON'", IssueKind.LOST_CONTENT),
    ],
)
async def test_changed_content_is_named_and_replaced_by_indexing_its_source_again(
    index: PostgresStore, damage: str, kind: IssueKind
) -> None:
    document, chunks = sound()
    await index.database.fetch(damage)
    found = await examined(index)
    assert kind in {issue.kind for issue in found.issues}
    assert found.damaged == (document.id,)
    await index.auditor.invalidate(found.damaged)
    stored = await index.documents.stored(document.id)
    assert stored is not None
    assert stored.content_hash == ""
    await index.documents.write(Version(document, chunks, np.stack([axis(0), axis(1)]), MODEL.fingerprint))
    assert await kinds(index) == set()


async def test_chunks_that_do_not_cover_their_document_are_broken(index: PostgresStore) -> None:
    await index.database.fetch("UPDATE rag_context.passages SET text = 'another text' WHERE chunk = 1")
    found = await examined(index)
    assert IssueKind.BROKEN_CHUNKS in {issue.kind for issue in found.issues}
    assert found.broken == (sound()[0].id,)
    assert DRAFT.content == sound()[0].content
