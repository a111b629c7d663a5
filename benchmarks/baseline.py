"""The baseline of a search, in a process and a thread of its own: tokenise, embed, multiply, and nothing else.

`python -m benchmarks.baseline DATA_DIR` answers each line of its input, a question, with the
milliseconds that it took, and those of processor time.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import Cost, timed

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A multiplication on every core would take the server's, whose turn it is next."""


@contextmanager
def baseline(data_dir: Path) -> Iterator[Callable[[str], Cost]]:
    """The cost of a question at the baseline, over the vectors of an index."""
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

    def ask(question: str) -> Cost:
        asked.write(question + "\n")
        asked.flush()
        ms, processor_ms = told.readline().split()
        return Cost(float(ms), float(processor_ms))

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
    from rag_context.embedders.onnx_model import BUNDLED, load  # noqa: PLC0415

    model, matrix = load(BUNDLED), vectors_of(Path(sys.argv[1]))

    def answer(question: str) -> object:
        scores = matrix @ model.embed(question)
        return np.argpartition(scores, len(scores) - 5)[-5:]

    for line in sys.stdin:
        question, processor_s = line.rstrip("\n"), time.process_time()
        ms = timed(lambda: answer(question))  # noqa: B023
        print(ms, (time.process_time() - processor_s) * 1e3, flush=True)


if __name__ == "__main__":
    main()
