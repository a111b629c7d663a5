"""Compare ways to scan vectors for the best: what each costs, and whether it finds what multiplying all finds.

    .venv/bin/python scripts/compare_scans.py 10000 30000 100000 1000000
    OPENBLAS_NUM_THREADS=1 .venv/bin/python scripts/compare_scans.py 100000

The vectors have 384 dimensions and stand in clusters. Times are medians of one query's; processor time is that of all
threads. docs/design/dependencies.md says what came out and what was decided.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from rag_context.domain.vectors import Matrix, Vector
from rag_context.stores.sqlite.memory import vector_scan as quantised
from rag_context.stores.sqlite.memory.vector_scan import BLOCK_ROWS, Blocks, Vectors, best

DIMENSION = 384
CLUSTERS = 1000
QUERIES = 50
LIMITS = (10, 40)


def clustered(rows: int, seed: int) -> Matrix:
    """Unit vectors with a cosine of some .8 to their cluster's centre."""
    centres = _unit(np.random.default_rng(1), CLUSTERS)
    rng = np.random.default_rng(seed)
    vectors = _unit(rng, rows)
    vectors *= 0.75
    vectors += centres[rng.integers(CLUSTERS, size=rows)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def compare(rows: int) -> None:
    """Print what each way costs for so many rows."""
    matrix, queries = clustered(rows, seed=2), clustered(QUERIES, seed=3)
    exact, both = Blocks(), Vectors()
    exact.reserve(rows, DIMENSION)
    exact.put(np.arange(rows), matrix)
    quantised.QUANTISED_FROM = 1
    both.reserve(rows, DIMENSION)
    for start in range(0, rows, BLOCK_ROWS):
        both.put(np.arange(start, min(start + BLOCK_ROWS, rows)), matrix[start : start + BLOCK_ROWS])
    print(f"== {rows} rows")
    _show("float32, row by row", lambda query: best(exact.scores(query, None), 40), queries)
    _show("float32, BLAS", lambda query: best(np.matmul(matrix, query), 40), queries)
    for limit in LIMITS:
        _show(f"int8, then float32, limit {limit}", lambda query: both.nearest(query, limit, None, exact.take), queries)  # noqa: B023
        _recall(limit, exact, both, queries)
    _show("int8 by onnxruntime, the scan alone", _by_onnxruntime(matrix), queries)
    if rows <= BLOCK_ROWS * 2:
        codes = np.rint(matrix * 127).astype(np.int8)
        _show("int8 by NumPy, the scan alone", lambda query: np.vecdot(codes, codes[0], dtype=np.int32), queries[:5])


def _unit(rng: np.random.Generator, rows: int) -> Matrix:
    vectors: Matrix = rng.standard_normal((rows, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _recall(limit: int, exact: Blocks, both: Vectors, queries: Matrix) -> None:
    """How many of the best are found with the same cosines, and how many rows are scored for that."""
    found, scored = 0, []
    for query in queries:
        scores = exact.scores(query, None)
        expected = best(scores, limit)
        cosines, rows = both.nearest(query, limit, None, exact.take)
        known = dict(zip(rows.tolist(), cosines.tolist(), strict=True))
        found += sum(known.get(row) == float(scores[row]) for row in expected.tolist()) == len(expected)
        scored.append(len(both._contenders(query, limit, np.arange(len(scores)), exact.take)))  # noqa: SLF001
    print(
        f"    recall 1.000 in {found} of {len(queries)} queries; {statistics.mean(scored):.0f} rows scored in float32"
    )


def _by_onnxruntime(matrix: Matrix) -> Callable[[Vector], object]:
    """`MatMulInteger` of the query by blocks of columns, its fastest form."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["query", "rows"], ["products"])],
        "scan",
        [value("query", TensorProto.UINT8, [1, DIMENSION]), value("rows", TensorProto.INT8, [DIMENSION, "n"])],
        [value("products", TensorProto.INT32, [1, "n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    codes = np.rint(matrix * 127).astype(np.int8)
    blocks = [np.ascontiguousarray(codes[at : at + BLOCK_ROWS].T) for at in range(0, len(codes), BLOCK_ROWS)]

    def scan(query: Vector) -> object:
        code = np.rint(query * 127 + 127).astype(np.uint8)[np.newaxis]
        return [session.run(None, {"query": code, "rows": block}) for block in blocks]

    return scan


def _show(what: str, work: Callable[[Vector], object], queries: Sequence[Vector] | Matrix) -> None:
    times, cpu = [], []
    work(queries[0])
    for query in queries:
        started, started_cpu = time.perf_counter(), time.process_time()
        work(query)
        times.append((time.perf_counter() - started) * 1e3)
        cpu.append((time.process_time() - started_cpu) * 1e3)
    print(f"{what}: {statistics.median(times):.2f} ms, processor {statistics.median(cpu):.2f} ms", flush=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or ["100000"]:
        compare(int(each))
