"""Tenants do not touch each other, on any store: whatever others store, answers to one stay the same to the byte."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import DEFAULT_TENANT, Tenant
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Vector
from rag_context.ports.writing import VectorRebuilder, Version
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.query import Answer, Mode, Query, ResultCache, encoded
from rag_context.search.retrievers import Backends
from rag_context.testing import FakeEmbedder
from tests.stores.builders import Stores, chunks_of, document
from tests.stores.opened import PAIRS

PROJECT = Tenant("shop", "main", "aa")
OTHERS = (Tenant("shop", "dev", "aa"), Tenant("shop", "main", "bb"), Tenant("zoo", "main", "aa"))
NAMES = [f"{tenant} {number}" for tenant in (DEFAULT_TENANT, PROJECT, *OTHERS) for number in range(4)]
WORDS = ("wolf", "sheep", "dragon", "ERR-4107", "retry", "the", "日本語")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
contents = st.lists(texts, min_size=1, max_size=3)


@pytest.fixture(params=["sqlite", "postgres", "mongodb", *PAIRS, "memory"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Memory:
    """What a service has over a store: a chain, and a cache of its answers."""

    def __init__(self, store: Stores) -> None:
        self._store = store
        self._embedder = FakeEmbedder()
        self._rebuilder: VectorRebuilder | None = getattr(store, "rebuilder", None)
        self._sources = Backends(
            embedder=self._embedder,
            vectors=store.vectors,  # type: ignore[arg-type]  # with what no test of stores needs: who made them
            texts=store.texts,
            documents=store.documents,
            embedding=Dependency("embedder", self._embedder.ping),
            vector_store=Dependency("vectors", store.vectors.ping),
            document_store=Dependency("documents", store.documents.ping),
            candidates=getattr(store, "candidates", None),
        )
        self._begin()

    def _begin(self) -> None:
        breaker = Breaker("search", threshold=5, cooldown=constant_cooldown(60.0))
        self._chain = SearchChain(self._sources, breaker, deadline_s=30.0)
        self._cache = ResultCache(100, 300.0, monotonic)

    async def vector(self, text: str) -> Vector:
        return await self._embedder.embed_query(text)

    async def put(self, name: str, parts: Sequence[str], tenant: Tenant, *, pending: bool = False) -> None:
        await self._store.documents.write(await self._version(name, parts, tenant, pending=pending))

    async def delete(self, name: str) -> None:
        await self._store.documents.delete(document(name).id)

    async def rechunk(self, name: str, parts: Sequence[str]) -> None:
        """Cut a document in another way, if there is one."""
        stored = await self._store.documents.get(document(name).id)
        if stored is not None:
            vectors = await self._embedder.embed_documents(parts)
            await self._store.documents.rechunk(Version(stored, chunks_of(stored, *parts), vectors))

    async def reindex(self, *, completely: bool) -> None:
        """Begin to embed all documents again, or go on with it, up to the half or to the end."""
        rebuilder, model = self._rebuilder, self._embedder.model
        if rebuilder is None:
            return
        if await rebuilder.under_way() is None:
            await rebuilder.begin(model)
        ids = await rebuilder.missing("", 100)
        for id_ in ids if completely else ids[: len(ids) // 2]:
            stored = await self._store.documents.get(id_)
            assert stored is not None
            texts = [chunk.text for chunk in await self._store.documents.chunks(id_)]
            vectors = await self._embedder.embed_documents(texts)
            await rebuilder.add(id_, stored.content_hash, vectors, model.fingerprint)
        if completely:
            assert await rebuilder.switch(model.fingerprint, ())

    async def forget(self) -> None:
        """Delete all documents, and what a run has made; begin with a chain that has counted nothing yet.

        How many vectors are missing is counted again after a while only, and a count may be of documents that are gone.
        """
        if self._rebuilder is not None and await self._rebuilder.under_way() is not None:
            await self._rebuilder.abandon()
        for name in NAMES:
            await self.delete(name)
        self._begin()

    async def asked(self, query: Query) -> bytes:
        """All of the answer but how long it took, without the cache."""
        return plain(await self._chain.search(query))

    async def asked_through_the_cache(self, query: Query) -> bytes:
        return plain(
            await self._cache.answered(
                query, lambda: self._chain.state_of(query.where.tenant), lambda: self._chain.search(query)
            )
        )

    async def _version(self, name: str, parts: Sequence[str], tenant: Tenant, *, pending: bool) -> Version:
        kind = kind_of(name)
        thread = "talk" if kind == "chat" else None  # that of another tenant has the same name
        written = document(name, "\n".join(parts), tenant=tenant, content_type=kind, thread=thread)
        chunks = chunks_of(written, *parts)
        vectors = None if pending else await self._embedder.embed_documents(parts)
        return Version(written, chunks, vectors)


def kind_of(name: str) -> str:
    return ("documentation", "chat", "code", "decision")[NAMES.index(name) % 4]


def plain(answer: Answer) -> bytes:
    # Those that end at the same time are in either order.
    legs = {name: replace(leg, latency_ms=0.0) for name, leg in sorted(answer.legs.items())}
    return encoded(replace(answer, legs=legs))


@dataclass(frozen=True)
class Act:
    """Something that happens to a document of another tenant, or to the whole index."""

    kind: str
    name: str
    tenant: Tenant
    parts: Sequence[str]

    @property
    def is_of_the_index(self) -> bool:
        return "reindex" in self.kind

    async def on(self, memory: Memory) -> None:
        match self.kind:
            case "put" | "pending":
                await memory.put(self.name, self.parts, self.tenant, pending=self.kind == "pending")
            case "delete":
                await memory.delete(self.name)
            case "rechunk":
                await memory.rechunk(self.name, self.parts)
            case _:
                await memory.reindex(completely=self.kind == "reindex")


KINDS = ("put", "put", "pending", "delete", "rechunk", "half of a reindex", "reindex")
tenants = st.sampled_from(OTHERS)
acts = st.builds(
    lambda kind, tenant, number, parts: Act(kind, f"{tenant} {number}", tenant, parts),
    st.sampled_from(KINDS),
    tenants,
    st.integers(0, 3),
    contents,
)


@pytest.fixture
async def memory(store: Stores) -> Memory:
    made = Memory(store)
    await store.documents.adopt_model(FakeEmbedder().model)
    return made


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tenant=st.sampled_from((DEFAULT_TENANT, PROJECT)),
    own=st.lists(contents, min_size=1, max_size=4),
    pending=st.integers(0, 3),
    others=st.lists(acts, min_size=1, max_size=6),
    questions=st.lists(texts, min_size=1, max_size=2),
)
async def test_answers_to_one_tenant_stay_the_same_to_the_byte_whatever_others_do(
    memory: Memory,
    tenant: Tenant,
    own: Sequence[Sequence[str]],
    pending: int,
    others: Sequence[Act],
    questions: Sequence[str],
) -> None:
    await memory.forget()
    for number, parts in enumerate(own):
        # A reindexing would embed it too, and change the answers.
        waits = number == pending and not any(act.is_of_the_index for act in others)
        await memory.put(f"{tenant} {number}", parts, tenant, pending=waits)
    queries = [Query(text, where=Filter(tenant), mode=mode) for text, mode in product(questions, Mode)]
    alone = [await memory.asked(query) for query in queries]
    for query in queries:
        await memory.asked_through_the_cache(query)
    cached = [await memory.asked_through_the_cache(query) for query in queries]
    is_cached = True
    for act in others:
        await act.on(memory)
        assert [await memory.asked(query) for query in queries] == alone, act
        is_cached = is_cached and not act.is_of_the_index  # which empties the cache of every tenant
        if is_cached:
            assert [await memory.asked_through_the_cache(query) for query in queries] == cached, act


async def test_a_word_that_only_another_tenant_has_is_as_good_as_an_unknown_one(memory: Memory) -> None:
    for number, text in enumerate(("the wolf sleeps", "a sheep and a wolf", "a dragon", "nothing")):
        await memory.put(f"{PROJECT} {number}", [text], PROJECT)
        await memory.put(f"{OTHERS[0]} {number}", ["zugzwang and a wolf", "zugzwang"], OTHERS[0])
    vector = await memory.vector("wolf")
    for mode in Mode:
        of_another, of_none = [
            await memory.asked(Query(f"wolf {word}", where=Filter(PROJECT), mode=mode, vector=vector))
            for word in ("zugzwang", "quixotry")
        ]
        assert of_another == of_none


async def test_an_answer_counts_the_documents_of_its_tenant(memory: Memory, store: Stores) -> None:
    async def counted(tenant: Tenant) -> int:
        return (await store.documents.tenant_state(tenant)).documents

    for number in range(3):
        await memory.put(f"{PROJECT} {number}", ["a wolf"], PROJECT, pending=number == 2)
    await memory.put(f"{OTHERS[0]} 0", ["a wolf"], OTHERS[0])
    assert [await counted(each) for each in (PROJECT, OTHERS[0], OTHERS[1])] == [3, 1, 0]
    await memory.put(f"{PROJECT} 0", ["a wolf", "two wolves"], PROJECT)
    await memory.delete(f"{PROJECT} 1")
    await memory.delete(f"{OTHERS[0]} 0")
    assert [await counted(each) for each in (PROJECT, OTHERS[0], OTHERS[1])] == [2, 0, 0]


async def test_a_tenants_stamp_changes_with_its_own_documents_only(memory: Memory, store: Stores) -> None:
    async def stamp() -> str:
        return (await store.documents.tenant_state(PROJECT)).stamp

    stamps = [await stamp()]
    await memory.put(f"{OTHERS[0]} 0", ["a wolf"], OTHERS[0])
    await memory.delete(f"{OTHERS[0]} 0")
    await memory.delete(f"{OTHERS[0]} 1")
    assert await stamp() == stamps[0]
    for text, pending in (("a wolf", True), ("a wolf", False), ("a sheep", False)):
        await memory.put(f"{PROJECT} 0", [text], PROJECT, pending=pending)
        stamps.append(await stamp())
    await memory.delete(f"{PROJECT} 0")
    stamps.append(await stamp())
    # Without documents it may be again as it was before its first one.
    assert len(set(stamps[1:])) == len(stamps) - 1


async def test_every_level_one_answer_is_one(memory: Memory) -> None:
    """The others compare bytes: this says that they compare answers."""
    await memory.put(f"{PROJECT} 0", ["a wolf"], PROJECT)
    for mode in Mode:
        found = await memory.asked(Query("wolf", where=Filter(PROJECT), mode=mode))
        assert b'"level":1' in found
        assert b"a wolf" in found
