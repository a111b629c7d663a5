"""The matrix in memory: complete changes only, and no memory kept of deleted rows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rag_context.domain.search import Filter
from rag_context.stores.sqlite.blocks import BLOCK_ROWS
from rag_context.stores.sqlite.columns import StoredVector
from rag_context.stores.sqlite.matrix import VectorMatrix
from tests.stores.builders import axis


def row(chunk: str, number: int = 0) -> StoredVector:
    vector = axis(number).tobytes()
    return StoredVector(chunk, "d", 0, "", "", "", "chat", "s", "source", None, None, "[]", None, 0, vector)


def test_no_search_sees_half_a_change() -> None:
    matrix = VectorMatrix()
    matrix.change((), [row("first")])
    done = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not done.is_set():
            seen.add(len(matrix.search(axis(0), 5, Filter())))

    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(look)
        for _ in range(300):
            matrix.change(["first"], [row("second")])
            matrix.change(["second"], [row("first")])
        done.set()
    assert seen == {1}


def test_rows_of_many_blocks_come_and_go() -> None:
    matrix = VectorMatrix()
    names = [f"{number:06d}" for number in range(2 * BLOCK_ROWS + 100)]
    matrix.change((), [row(name, number % 16) for number, name in enumerate(names)])
    kept = names[::1000]
    matrix.change([name for name in names if name not in set(kept)], ())
    assert len(matrix) == len(kept)
    scores = matrix.score(axis(0), names)
    assert scores == {name: float(names.index(name) % 16 == 0) for name in kept}
    matrix.change(kept, ())
    assert matrix.search(axis(0), 5, Filter()) == []
    matrix.change((), [row("again")._replace(vector=np.ones(3, np.float32).tobytes())])
    assert matrix.dimension == 3
