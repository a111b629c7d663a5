"""One call to a store that has it all gives what several calls to several stores give, to the last bit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_context.domain.documents import Metadata, Origin
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendUnavailableError
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.models import Embedder
from rag_context.ports.reading import CandidateRequest, CandidateSource, Shortlist, Snapshot, completed
from rag_context.ports.writing import Version
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import TEXT_MISSING, WARNINGS, SearchChain
from rag_context.search.query import Answer, Level, Mode, Query
from rag_context.search.question_rules import with_windows
from rag_context.search.retrievers import Backends
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.stores.postgres.candidates import PostgresCandidates
from rag_context.stores.postgres.connection import PostgresDatabase
from rag_context.stores.postgres.driver import Plan
from rag_context.stores.postgres.keywords import PostgresTexts
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from rag_context.testing import FakeEmbedder
from tests.search.moved import MovedEmbedder
from tests.servers.postgres import execute
from tests.servers.postgres_fixtures import database, server, template
from tests.stores.builders import axis, chunks_of, document

WORDS = "valve pump reactor pressure bar opens closes nine seven retry timeout".split()  # noqa: SIM905
SPEAKERS = ("User", "Assistant", "Mara Berg", None)
QUERIES = (
    "valve opens at nine bar", "retry timeout", "pump", "nothing that is there", "the", "my valve opens at nine bar",
    "What did mara say of the valve?", "Mara and the pressure",
)  # fmt: skip


__all__ = ["database", "server", "template"]

Store = SqliteStore | PostgresStore


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """The file of an embedded store, or the address of a PostgreSQL database."""
    return tmp_path / "rag-context.db" if request.param == "sqlite" else str(request.getfixturevalue("database"))


@pytest.fixture
async def store(place: Path | str) -> AsyncIterator[Store]:
    """Conversations, code and prose, some of it without vectors."""
    async with open_database(place) if isinstance(place, Path) else open_postgres(place) as opened:
        await fill(opened, FakeEmbedder())
        yield opened


async def fill(store: Store, embedder: FakeEmbedder) -> None:
    rng = np.random.default_rng(2)
    for number in range(120):
        kind = ("chat", "code", "documentation")[number % 3]
        texts = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(rng.integers(1, 5))]
        if number % 9 == 0:
            texts[-1] = f"Always {texts[-1]}"
        each = document(
            f"{number}",
            "\n".join(texts),
            content_type=kind,
            source=f"{number % 7}.md",
            metadata=Metadata(tags=("red",) if number % 4 else ()),
            thread=f"talk {number % 5}" if kind == "chat" else None,
            occurred_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=2 * number),
            origin=Origin.OWNER if kind == "chat" else Origin.DOCUMENT,
        )
        vectors = None if number % 11 == 0 else await embedder.embed_documents(texts)
        speakers = [SPEAKERS[(number + place) % 4] if kind == "chat" else None for place in range(len(texts))]
        await store.documents.write(Version(each, chunks_of(each, *texts, speakers=speakers), vectors))


def keyword_candidates(store: Store) -> CandidateSource:
    return store.keyword_candidates if isinstance(store, SqliteStore) else store.candidates


def chain(store: Store, *, one_call: bool, deadline_s: float = 10.0, embedder: Embedder | None = None) -> SearchChain:
    embedder = embedder or FakeEmbedder()
    sources = Backends(
        embedder=embedder,
        vectors=store.vectors,
        texts=store.texts,
        documents=store.documents,
        embedding=Dependency("embedder", embedder.ping),
        vector_store=Dependency("vectors", store.vectors.ping),
        document_store=Dependency("documents", store.documents.ping),
        candidates=store.candidates if one_call else None,
        keyword_candidates=keyword_candidates(store) if one_call else None,
    )
    return SearchChain(sources, Breaker("search", threshold=5, cooldown=constant_cooldown(60.0)), deadline_s=deadline_s)


async def test_vectors_moved_by_a_constant_direction_rank_as_before(place: Path | str, tmp_path: Path) -> None:
    async def ranks(store: Store, far: float, *, one_call: bool) -> list[list[str]]:
        return await ranked(store, MovedEmbedder(far), one_call=one_call)

    async with open_database(tmp_path / "before.db") as store:
        await fill(store, MovedEmbedder(0.0))
        before = await ranks(store, 0.0, one_call=True)
    async with open_database(place) if isinstance(place, Path) else open_postgres(place) as moved:
        await fill(moved, MovedEmbedder(1.5))
        for way in (True, False):
            assert await ranks(moved, 1.5, one_call=way) == before
    assert all(before)


async def ranked(store: Store, embedder: Embedder, *, one_call: bool) -> list[list[str]]:
    searched = chain(store, one_call=one_call, embedder=embedder)
    answers = [await searched.search(Query(text, limit=20)) for text in QUERIES if text != "the"]
    return [[result.passage.chunk.id for result in answer.results] for answer in answers]


async def test_an_unmeasured_model_ranks_alike_wherever_its_unrelated_cosines_are(
    place: Path | str, tmp_path: Path
) -> None:
    async def bound(store: Store, far: float) -> BoundEmbedder:
        embedder = MovedEmbedder.unmeasured(far)
        await fill(store, embedder)
        made = BoundEmbedder(embedder, store.documents)
        await made.bind()
        return made

    async with open_database(tmp_path / "before.db") as store:
        before = await ranked(store, await bound(store, 0.5), one_call=True)
    async with open_database(place) if isinstance(place, Path) else open_postgres(place) as moved:
        embedder = await bound(moved, 1.5)
        calibration = embedder.model.calibration
        assert calibration.sampled
        # Unrelated texts have a cosine of .69 under it: `far**2 / (1 + far**2)`.
        assert calibration.unrelated_cosine == pytest.approx(0.69, abs=0.03)
        for way in (True, False):
            assert await ranked(moved, embedder, one_call=way) == before
        kept = await moved.documents.recorded_model()
        assert kept is not None
        assert kept.calibration == calibration
    async with open_database(tmp_path / "empty.db") as empty:
        alone = BoundEmbedder(MovedEmbedder.unmeasured(1.5), empty.documents)
        await alone.bind()
        assert alone.model.calibration == calibration, "no text of any tenant counts"


def without_times(answer: Answer) -> Answer:
    legs = {name: replace(report, latency_ms=0.0) for name, report in sorted(answer.legs.items())}
    return replace(answer, legs=legs)


async def test_both_ways_give_the_same_answers(store: Store) -> None:
    whole, several = chain(store, one_call=True), chain(store, one_call=False)
    filters = (Filter(), Filter(content_type="chat"), Filter(tags=("red",), source_prefix="3"), Filter(game="nowhere"))
    for text, mode, where in product(QUERIES, Mode, filters):
        for query in (
            Query(text, where=where, mode=mode),
            Query(text, limit=20, where=where, mode=mode, min_score=0.0, per_document=1),
        ):
            answer = without_times(await whole.search(query))
            assert answer == without_times(await several.search(query)), query
            may_apply = mode is Mode.HYBRID and text == "pump" and where in (Filter(), Filter(content_type="chat"))
            assert answer.standing or not may_apply


async def test_both_ways_rank_by_a_time_alike(store: Store) -> None:
    whole, several = chain(store, one_call=True), chain(store, one_call=False)
    asked = datetime(2026, 5, 13, tzinfo=UTC)
    for text in ("pump last week", "which valve opens in February", "retry timeout since 10 April 2026"):
        for query in (Query(text), Query(text, limit=20, min_score=0.0, per_document=1)):
            dated = with_windows(query, asked)
            answer = without_times(await whole.search(dated))
            assert answer == without_times(await several.search(dated))
            assert answer.results[0].ranked.by_time > 0.0
            assert set(answer.legs) == {"embedding", "vector", "text"}


async def test_a_vector_that_the_caller_brings_needs_no_text(store: Store) -> None:
    vector = await FakeEmbedder().embed_query("valve")
    query = Query("", vector=vector, min_score=0.0)
    answers = [without_times(await chain(store, one_call=way).search(query)) for way in (True, False)]
    assert answers[0] == answers[1]
    assert answers[0].results


async def test_an_index_of_another_dimension_still_answers_by_keywords(store: Store) -> None:
    query = Query("valve", vector=axis(0))
    answers = [without_times(await chain(store, one_call=way).search(query)) for way in (True, False)]
    assert answers[0] == answers[1]
    assert (answers[0].level, answers[0].legs["vector"].status.value) == (Level.TEXT, "failed")


async def test_a_store_that_fails_in_the_one_call_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_args: object) -> None:
        raise BackendUnavailableError("documents", "gone")

    broken = chain(store, one_call=True)
    monkeypatch.setattr(store.candidates, "read", fails)
    monkeypatch.setattr(keyword_candidates(store), "read", fails)
    answer = await broken.search(Query("valve"))
    assert answer.level is Level.EMPTY
    assert answer.legs["vector"].status.value == "failed"


async def test_without_a_model_keyword_search_answers_both_ways(store: Store) -> None:
    class Broken(FakeEmbedder):
        async def embed_query(self, text: str) -> Vector:
            raise BackendUnavailableError("embedder", "gone")

    query = Query("valve opens at nine bar")
    answers = [
        without_times(await chain(store, one_call=way, embedder=Broken()).search(query)) for way in (True, False)
    ]
    assert answers[0] == answers[1]
    assert (answers[0].level, answers[0].warning) == (Level.TEXT, WARNINGS[Level.TEXT])
    assert answers[0].results


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_hybrid_search_is_one_statement(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the background sends is not counted, nor what is read once: the state, and how rare the terms are."""
    sent: list[str] = []
    is_counted: ContextVar[bool] = ContextVar("is_counted", default=False)
    run = PostgresDatabase._run

    async def counted(self: PostgresDatabase, work: Callable[[Any], Awaitable[Any]], plan: Plan) -> Any:
        return await run(self, (lambda connection: work(Noted(connection, sent))) if is_counted.get() else work, plan)

    monkeypatch.setattr(PostgresDatabase, "_run", counted)
    one, several = chain(store, one_call=True), chain(store, one_call=False)
    is_counted.set(True)
    asked = "my valve opens at nine bar"
    for mode, most in ((Mode.HYBRID, 1), (Mode.VECTOR, 1), (Mode.TEXT, 2)):
        query = Query(asked, min_score=0.0, mode=mode)
        await one.search(query)
        sent.clear()
        answer = await one.search(query)
        assert len(answer.results) == 5
        assert len(sent) <= most, sent
    sent.clear()
    await several.search(Query("valve opens at nine bar", min_score=0.0))
    assert len(sent) > 4, "the count can fail"


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_late_call_is_given_up_for_its_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_args: object, **_named: object) -> None:
        await asyncio.sleep(60.0)

    query = Query("valve opens at nine bar", min_score=0.0)
    several = without_times(await chain(store, one_call=False).search(query))
    monkeypatch.setattr(PostgresCandidates, "read", never)
    assert without_times(await chain(store, one_call=True, deadline_s=4.0).search(query)) == several
    monkeypatch.setattr(PostgresTexts, "search", never)
    answers = [await chain(store, one_call=way, deadline_s=4.0).search(query) for way in (True, False)]
    assert without_times(answers[0]) == without_times(answers[1])
    assert answers[0].results
    assert TEXT_MISSING in (answers[0].warning or "")
    monkeypatch.setattr(PostgresCandidates, "prepare", never)
    late = await chain(store, one_call=True, deadline_s=4.0).search(query)
    assert without_times(late) == without_times(answers[1])


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_what_is_deleted_between_two_statements_is_left_out(store: Store, place: str) -> None:
    """The first statement fetches the passage of the best chunk only; the others are read next, and one is gone."""
    query = Query("valve opens at nine bar")
    shortlist = Shortlist(1, None, 0.5, 0.8, 0.0)
    runs: list[set[str]] = []

    def work(snapshot: Snapshot) -> tuple[str, set[str]]:
        found = [hit.chunk.id for hit in snapshot.keyword_hits(query.text, 40, query.where)]
        if not runs:
            execute(place, f"DELETE FROM rag_context.chunks WHERE id = '{found[-1]}'")
        runs.append(set(found))
        snapshot.scores(query.text, None, ["no such chunk"], query.where.tenant)
        return found[-1], set(snapshot.passages(found))

    request = CandidateRequest(query.text, None, 40, shortlist, query.where, None)
    gone, passages = await keyword_candidates(store).read(lambda: request, work)
    assert len(runs) == 3
    assert passages == runs[0] - {gone}


class Noted:
    """A connection whose statements are noted."""

    def __init__(self, connection: Any, sent: list[str]) -> None:
        self._connection = connection
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if name == "transaction":
            self._sent += ["BEGIN", "COMMIT"]
        if name not in {"fetch", "fetchrow", "fetchval", "execute"}:
            return found

        def noted(statement: str, *args: object, **named: object) -> Any:
            self._sent.append(statement)
            return found(statement, *args, **named)

        return noted


def test_a_coroutine_that_waits_is_not_run_without_a_loop() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="must not wait"):
        completed(waits())
