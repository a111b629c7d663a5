"""What this tree costs beside another one: `python -m benchmarks.trees OTHER`, another checkout of the repository.

Both run as servers on the same texts. The same questions and writes go to each in turn, and what counts is the
processor time of its server, so that other work on the machine does not.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import starmap
from pathlib import Path
from typing import Any

from benchmarks.corpus import Writer
from benchmarks.figures import Figure, as_markdown
from benchmarks.processes import UNCACHED, Cost, Server, ask, cost_of, median, serving, until_ready

DOCUMENTS, TIMES, WARM_UP = 1_000, 400, 50
TARGETS = {"search": 1.03, "write": 1.10, "write again": 1.10}


def measure(other: Path, documents: int, times: int) -> list[Figure]:
    """Fill two servers with the same documents, then ask and write in turn."""
    with tempfile.TemporaryDirectory(prefix="rag-context-trees-") as name, ExitStack() as stack:
        servers = [
            stack.enter_context(serving(Path(name) / tree.name, PYTHONPATH=str(tree / "src"), **UNCACHED))
            for tree in (Path(__file__).parents[1], other)
        ]
        connections = []
        for server in servers:
            until_ready(server)
            connections.append(server.connection())
            writer = Writer(seed=5)
            for number in range(documents):
                ask(connections[-1], "index", _document(f"{number}.md", writer))
        in_turn = list(zip(servers, connections, strict=True))
        writer = Writer(seed=9)
        works: dict[str, Callable[[int], Callable[[Server, HTTPConnection], Cost]]] = {
            "search": lambda _: _search(writer.question()),
            "write": lambda number: _write(_document(f"new-{number}.md", writer)),
            "write again": lambda number: _write(_document(f"new-{number}.md", writer)),
        }
        return [_ratio(what, work, in_turn, times) for what, work in works.items()]


def _ratio(
    what: str,
    work: Callable[[int], Callable[[Server, HTTPConnection], Cost]],
    in_turn: list[tuple[Server, HTTPConnection]],
    times: int,
) -> Figure:
    costs = [list(starmap(work(number), in_turn)) for number in range(WARM_UP + times)][WARM_UP:]
    here, there = map(median, zip(*costs, strict=True))
    note = f"{here.processor_ms:.2f} and {there.processor_ms:.2f} ms of the processor, p50 of {times}"
    return Figure(
        f"{what}, this tree / the other", here.processor_ms / there.processor_ms, "x", TARGETS[what], note=note
    )


def _document(source: str, writer: Writer) -> dict[str, Any]:
    return {"content": writer.passage(3), "contentType": "documentation", "sessionId": "s", "source": source}


def _search(question: str) -> Callable[[Server, HTTPConnection], Cost]:
    return lambda server, connection: cost_of(server, connection, {"query": question})


def _write(document: dict[str, Any]) -> Callable[[Server, HTTPConnection], Cost]:
    return lambda server, connection: cost_of(server, connection, document, "index")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="trees", description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--times", type=int, default=TIMES)
    arguments = parser.parse_args()
    figures = measure(arguments.other.resolve(), arguments.documents, arguments.times)
    print(as_markdown(figures))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
