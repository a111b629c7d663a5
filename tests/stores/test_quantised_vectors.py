"""Vector search by 8-bit integers: the same chunks and the same cosines as multiplying every vector in float32."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.domain.search import Filter
from rag_context.domain.vectors import Matrix, Vector
from rag_context.stores.sqlite.memory import chunk_index
from rag_context.stores.sqlite.memory import vector_scan as module
from rag_context.stores.sqlite.memory.chunk_index import Change, MemoryIndex
from rag_context.stores.sqlite.memory.columns import StoredChunk, StoredVector
from rag_context.stores.sqlite.memory.vector_scan import Rows, Vectors
from tests.stores.test_memory_index import OWNER

DIMENSION = 24
SESSIONS = ("s", "other")
FILTERS = (Filter(), Filter(session_id="s"), Filter(session_id="other"), Filter(session_id="neither"))


@contextmanager
def small_blocks(in_memory: int = 1000) -> Iterator[None]:
    """Blocks of 16 rows, integers from 8 rows on, and no more float32 above some, so that few rows meet every case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ROWS", 16)
        patch.setattr(module, "QUANTISED_FROM", 8)
        patch.setattr(module, "NARROW", 3)
        patch.setattr(module, "AT_ONCE", 4)
        patch.setattr(module, "IN_MEMORY_BYTES", in_memory * DIMENSION * 4)
        patch.setattr(chunk_index, "LEAST_DEAD", 4)
        yield


@dataclass
class Both:
    """An index, and beside it what it holds."""

    rng: np.random.Generator
    index: MemoryIndex = field(default_factory=MemoryIndex)
    sessions: dict[int, str] = field(default_factory=dict)
    vectors: dict[int, Vector] = field(default_factory=dict)
    file: dict[int, Vector] = field(default_factory=dict)
    """Vectors by `seq`; each write has a new one."""
    keys: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def vector(self, kind: str) -> Vector:
        known = list(self.vectors.values())
        direction = self.rng.standard_normal(DIMENSION).astype(np.float32)
        direction /= np.linalg.norm(direction)
        match kind:
            case "zero":
                return np.zeros(DIMENSION, np.float32)
            case "axis":
                direction = np.eye(DIMENSION, dtype=np.float32)[int(self.rng.integers(4))]
            case "copy" if known:
                direction = known[int(self.rng.integers(len(known)))]
            case "close" if known:
                direction = known[int(self.rng.integers(len(known)))] + np.float32(1e-4) * direction
            case "long":
                return direction * np.float32(self.rng.uniform(1.0, 50.0))
            case "tiny":
                return direction * np.float32(1e-12)
        return direction

    def add(self, kind: str) -> None:
        keys = list(itertools.islice(self.keys, int(self.rng.integers(1, 12))))
        rows = {key: self.vector(kind) for key in keys if self.rng.random() < 0.9}
        owners = {key: int(self.rng.integers(2)) for key in keys}
        chunks = [StoredChunk(key, f"{key % 7}-{key}", owners[key], key, 0, b"", 0) for key in keys]
        documents = [OWNER._replace(key=key, id=name, session_id=name) for key, name in enumerate(SESSIONS)]
        self.index.apply(Change(documents=documents, chunks=chunks, vectors=self.stored(rows)))
        self.sessions.update({key: SESSIONS[owner] for key, owner in owners.items()})
        self.vectors.update(rows)

    def change(self, kind: str) -> None:
        rows = {key: self.vector(kind) for key in self.some()}
        self.index.apply(Change(vectors=self.stored(rows)))
        self.vectors.update(rows)

    def delete(self, _kind: str) -> None:
        keys = self.some()
        self.index.apply(Change(deleted=keys))
        for key in keys:
            self.sessions.pop(key)
            self.vectors.pop(key, None)

    def clear(self, _kind: str) -> None:
        keys = self.some()
        self.index.apply(Change(without_vector=keys))
        for key in keys:
            self.vectors.pop(key, None)

    def stored(self, rows: dict[int, Vector]) -> list[StoredVector]:
        written = [
            StoredVector(key, row.tobytes(), len(self.file) + place) for place, (key, row) in enumerate(rows.items())
        ]
        self.file.update({each.seq: rows[each.chunk] for each in written})
        return written

    def read(self, seqs: Sequence[int]) -> Matrix:
        return np.stack([self.file[seq] for seq in seqs])

    def some(self) -> list[int]:
        return [key for key in self.sessions if self.rng.random() < 0.2]

    def expected(self, query: Vector, limit: int, where: Filter) -> list[tuple[str, float]]:
        keys = [key for key in self.vectors if where.session_id in (None, self.sessions[key])]
        rows = np.array([self.vectors[key] for key in keys], dtype=np.float32).reshape(-1, DIMENSION)
        scored = zip(np.vecdot(rows, query).tolist(), (f"{key % 7}-{key}" for key in keys), strict=True)
        return [(id_, score) for score, id_ in sorted(scored, key=lambda each: (-each[0], each[1]))[:limit]]


KINDS = st.sampled_from(["any", "any", "zero", "axis", "copy", "close", "long", "tiny"])
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "change", "delete", "clear"]), KINDS), max_size=25)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=STEPS,
    asked=KINDS,
    limit=st.sampled_from([1, 2, 5, 10, 40]),
    in_memory=st.sampled_from([1000, 30, 0]),
)
def test_after_any_changes_it_finds_what_multiplying_every_vector_finds(
    seed: int, steps: list[tuple[str, str]], asked: str, limit: int, in_memory: int
) -> None:
    with small_blocks(in_memory):
        both = Both(np.random.default_rng(seed))
        for step, kind in steps:
            getattr(both, step)(kind)
            query = np.ascontiguousarray(both.vector(asked))
            for where in FILTERS:
                expected = both.expected(query, limit, where)
                with both.index.reading() as index:
                    hits = index.vector_hits(query, limit, where, both.read)
                    cosines = index.cosines(query, [id_ for id_, _ in expected], both.read)
                assert [(hit.chunk.id, hit.cosine) for hit in hits] == expected
                assert cosines == dict(expected)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(st.one_of(st.integers(1, 20), st.just("remove")), max_size=40),
    in_memory=st.sampled_from([1000, 30, 0]),
)
def test_rows_that_come_and_go_one_by_one_are_those_of_a_list(
    seed: int, steps: list[int | str], in_memory: int
) -> None:
    with small_blocks(in_memory):
        rng, vectors, rows = np.random.default_rng(seed), Vectors(), list[Vector]()

        def read(places: Rows) -> Matrix:
            return np.stack([rows[place] for place in places])

        for step in steps:
            if isinstance(step, int):
                new = rng.standard_normal((step, DIMENSION), dtype=np.float32) * np.float32(
                    rng.choice([0.01, 1.0, 9.0])
                )
                vectors.append(new)
                rows += list(new)
            elif rows:
                place = int(rng.integers(len(rows)))
                vectors.move_last_to(place)
                rows[place] = rows[-1]
                rows.pop()
            query = rng.standard_normal(DIMENSION, dtype=np.float32)
            scores = np.vecdot(np.array(rows, dtype=np.float32).reshape(-1, DIMENSION), query)
            for among in (None, rng.random(len(rows)) < 0.9, rng.random(len(rows)) < 0.2):
                counted = np.flatnonzero(np.ones(len(rows), dtype=np.bool_) if among is None else among)
                expected = counted[np.argsort(-scores[counted])][:5]
                cosines, found = vectors.nearest(query, 5, among, read)
                assert sorted(found) == sorted(expected)
                assert (cosines == scores[found]).all()


def test_a_row_that_moves_takes_the_bound_of_its_error_with_it() -> None:
    with small_blocks():
        rng, vectors = np.random.default_rng(4), Vectors()
        vectors.append(rng.standard_normal((16, DIMENSION), dtype=np.float32) * np.float32(1e-3))
        likes = np.float32(9) * (unit_rows(1, DIMENSION, 5) + np.float32(1e-3) * unit_rows(64, DIMENSION, 6))
        vectors.append(likes)
        rows = np.concatenate((likes[:-17:-1], likes[:-16]))
        for place in range(16):
            vectors.move_last_to(place)
        for query in unit_rows(20, DIMENSION, 7):
            scores = np.vecdot(rows, query)
            assert set(vectors.nearest(query, 3, None, nothing)[1]) == set(np.argsort(-scores)[:3])


def nothing(_rows: object) -> Matrix:
    raise AssertionError("the vectors are in memory")


def unit_rows(count: int, dimension: int, seed: int) -> Matrix:
    rows: Matrix = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@pytest.mark.parametrize("limit", [10, 40])
def test_few_rows_of_many_are_scored_in_float32(limit: int) -> None:
    count = module.QUANTISED_FROM + 5_000
    rows, vectors = unit_rows(count, 384, 1), Vectors()
    vectors.reserve(count, 384)
    vectors.put(np.arange(count), rows)
    for query in unit_rows(5, 384, 2):
        contenders = vectors._contenders(query, limit, np.arange(count), nothing)
        scores = np.vecdot(rows, query)
        assert set(np.argsort(-scores)[:limit]) <= set(contenders)
        assert len(contenders) < 10 * limit


def test_rows_that_came_before_there_were_integers_are_found() -> None:
    with small_blocks():
        rows, vectors = unit_rows(40, DIMENSION, 3), Vectors()
        for size in range(1, 41):
            vectors.reserve(size, DIMENSION)
            vectors.put(np.array([size - 1]), rows[size - 1 : size])
        for number, row in enumerate(rows):
            assert vectors.nearest(row, 1, None, nothing)[1].tolist() == [number]
        some = vectors.only(np.arange(0, 40, 3))
        for number, row in enumerate(rows[::3]):
            assert some.nearest(row, 1, None, nothing)[1].tolist() == [number]


@pytest.mark.parametrize("damage", [np.nan, np.inf, 1e30])
def test_a_damaged_vector_hides_no_other(damage: float) -> None:
    with small_blocks():
        rows, vectors = unit_rows(40, DIMENSION, 3), Vectors()
        rows[20, 3] = damage
        vectors.reserve(40, DIMENSION)
        vectors.put(np.arange(40), rows)
        sound = np.delete(np.arange(40), 20)
        for query in rows[sound]:
            best = sound[np.argmax(np.vecdot(rows[sound], query))]
            assert best in vectors.nearest(query, 3, None, nothing)[1]


@pytest.mark.parametrize("kind", ["different", "mostly zero", "of two values", "ascending", "some damaged"])
@given(size=st.integers(0, 700), limit=st.integers(0, 30), seed=st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_the_best_scores_are_those_of_all_sorted_and_all_that_equal_the_last(
    kind: str, size: int, limit: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random(size)
    if kind == "mostly zero":
        scores[rng.random(size) < 0.95] = 0.0
    elif kind == "of two values":
        scores = np.round(scores)
    elif kind == "ascending":
        scores.sort()
    sound = np.ones(size, dtype=bool)
    if kind == "some damaged":
        sound = rng.random(size) < 0.99
        scores[~sound] = np.nan

    found = module.best(scores, limit)

    ordered = np.sort(scores[sound])[::-1]
    if sound.all() or limit < 1:
        expected = np.flatnonzero(scores >= ordered[limit - 1]) if 0 < limit <= size else np.arange(size * (limit > 0))
        assert found.tolist() == expected.tolist()
    else:  # those that are damaged hide no more than as many others
        kept = set(found.tolist())
        least = ordered[: max(limit - int((~sound).sum()), 0)]
        assert all(row in kept for row in np.flatnonzero(sound & (scores >= least.min(initial=np.inf))).tolist())
