"""The baseline of a search, in a process and a thread of its own: tokenise, embed, multiply, and nothing else.

`python -m benchmarks.baseline DATA_DIR` answers each line of its input, a question, with the milliseconds it took.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A multiplication on every core would take the server's, whose turn it is next."""


@contextmanager
def baseline(data_dir: Path) -> Iterator[Callable[[str], float]]:
    """Milliseconds of a question at the baseline, over the vectors of an index."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.baseline", str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    asked, told = process.stdin, process.stdout
    assert asked is not None
    assert told is not None

    def ask(question: str) -> float:
        asked.write(question + "\n")
        asked.flush()
        return float(told.readline())

    try:
        yield ask
    finally:
        asked.close()
        process.wait()
        told.close()


def main() -> None:
    """Answer until the input ends. Everything heavy is imported here, after the threads were bounded."""
    import numpy as np  # noqa: PLC0415

    from benchmarks.indexing import vectors_of  # noqa: PLC0415
    from benchmarks.searching import timed  # noqa: PLC0415
    from rag_context.embedders.onnx_model import BUNDLED, load  # noqa: PLC0415

    model, matrix = load(BUNDLED), vectors_of(Path(sys.argv[1]))

    def answer(question: str) -> object:
        scores = matrix @ model.embed(question)
        return np.argpartition(scores, len(scores) - 5)[-5:]

    for line in sys.stdin:
        question = line.rstrip("\n")
        print(timed(lambda: answer(question)), flush=True)  # noqa: B023


if __name__ == "__main__":
    main()
