"""Collections beside Chroma's own server: the same JSON over HTTP to both, in one run."""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.corpus import Writer, unit_vectors
from benchmarks.figures import Figure
from benchmarks.processes import TIMEOUT_S, serving, until_ready
from rag_context.domain.vectors import Matrix

DIMENSION = 384
DOCUMENTS = 100_000
REQUESTS = 100
QUESTIONS = 100
SECTIONS = 100
"""One section is 1 % of all."""

NAME = "benchmark"


class Kept(Protocol):
    """A server that keeps a collection."""

    def body(self, numbers: range, texts: Sequence[str], vectors: Matrix) -> bytes:
        """A request that adds documents, written out."""
        ...

    def add(self, body: bytes) -> None: ...

    def section(self, number: int) -> int:
        """A page of a section's documents; returns how many came."""
        ...

    def nearest(self, vector: Sequence[float], section: int) -> list[str]:
        """Ids of the ten nearest documents of a section."""
        ...


def measure(scratch: Path, documents: int = DOCUMENTS) -> list[Figure]:
    """Fill both servers, timing the first tenth, and ask both: by a field at half of it, by vector at the end."""
    writer = Writer(seed=17)
    texts = [writer.passage(2) for _ in range(documents // REQUESTS)]
    vectors = unit_vectors(documents, DIMENSION, seed=17)
    added, half = documents // 10, documents // 2
    with serving(scratch / "ours") as server, _chroma(scratch / "chroma") as connection:
        until_ready(server)
        ours, chroma = Ours(server.connection()), Chroma(connection)
        adding = [_fill(kept, range(added), texts, vectors) for kept in (ours, chroma)]
        for kept in (ours, chroma):
            _fill(kept, range(added, half), texts, vectors)
        pages = [_sections(kept) for kept in (ours, chroma)]
        for kept in (ours, chroma):
            _fill(kept, range(half, documents), texts, vectors)
        nearest = _nearest((ours, chroma), vectors)
        started = time.perf_counter()
        ours.empty()
        emptying = time.perf_counter() - started
    return [
        Figure(f"adding {added} documents / Chroma's server", adding[1] / adding[0], "x", 1, True, "speed, over HTTP"),
        Figure(f"adding {added} documents to a collection", adding[0], "s"),
        Figure(f"documents by one field of {half}, p50", pages[0], "ms", 10, note="pages of 100, over HTTP"),
        Figure(f"documents by one field of {half}, Chroma's server, p50", pages[1], "ms"),
        Figure(f"1 % filter, {documents} vectors / Chroma's server", nearest[0] / nearest[1], "x", 1, note="p50"),
        Figure(f"query with a 1 % filter, {documents} vectors, p50", nearest[0], "ms"),
        Figure(f"emptying a collection of {documents} documents", emptying, "s", 30),
    ]


def _fill(kept: Kept, numbers: range, texts: Sequence[str], vectors: Matrix) -> float:
    """Seconds that the server took; writing the requests out is not counted."""
    taken = 0.0
    for start in range(numbers.start, numbers.stop, len(texts)):
        part = range(start, start + len(texts))
        body = kept.body(part, texts, vectors[part.start : part.stop])
        started = time.perf_counter()
        kept.add(body)
        taken += time.perf_counter() - started
    return taken


def _sections(kept: Kept) -> float:
    """p50 in milliseconds; the first answers are not counted."""
    times = []
    for number in range(QUESTIONS + 5):
        started = time.perf_counter()
        assert kept.section(number % SECTIONS) > 0
        times.append((time.perf_counter() - started) * 1000.0)
    return statistics.median(times[5:])


def _nearest(both: tuple[Kept, Kept], vectors: Matrix) -> list[float]:
    """p50 of each in milliseconds, measured alternately; the first answers are not counted."""
    times: list[list[float]] = [[], []]
    for number in range(QUESTIONS + 5):
        asked = vectors[number].tolist()
        for kept, taken in zip(both, times, strict=True):
            started = time.perf_counter()
            found = kept.nearest(asked, number % SECTIONS)
            taken.append((time.perf_counter() - started) * 1000.0)
            assert found[0] == _id(number)
    return [statistics.median(taken[5:]) for taken in times]


class Ours:
    """Our server."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        _ask(connection, "POST", "/collections", {"name": NAME})

    def body(self, numbers: range, texts: Sequence[str], vectors: Matrix) -> bytes:
        documents = [
            {"id": _id(number), "text": text, "metadata": _metadata(number), "embedding": vector}
            for number, text, vector in zip(numbers, texts, vectors.tolist(), strict=True)
        ]
        return json.dumps({"documents": documents}).encode()

    def add(self, body: bytes) -> None:
        _ask(self._connection, "POST", f"/collections/{NAME}/documents", body)

    def section(self, number: int) -> int:
        where = f"%7B%22section_id%22%3A%22section-{number}%22%7D"
        answer = _ask(self._connection, "GET", f"/collections/{NAME}/documents?where={where}&limit=100")
        assert answer["total"] >= answer["count"]
        return len(answer["documents"])

    def nearest(self, vector: Sequence[float], section: int) -> list[str]:
        asked = {"embedding": vector, "top_k": 10, "where": {"section_id": f"section-{section}"}}
        answer = _ask(self._connection, "POST", f"/collections/{NAME}/query", asked)
        return [result["id"] for result in answer["results"]]

    def empty(self) -> None:
        """Remove all documents."""
        _ask(self._connection, "DELETE", f"/collections/{NAME}/documents/all")


class Chroma:
    """Chroma's server."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        collections = "/api/v2/tenants/default_tenant/databases/default_database/collections"
        made = {"name": NAME, "configuration": {"hnsw": {"space": "cosine"}}}
        self._path = f"{collections}/{_ask(connection, 'POST', collections, made)['id']}"

    def body(self, numbers: range, texts: Sequence[str], vectors: Matrix) -> bytes:
        columns = {
            "ids": [_id(number) for number in numbers],
            "documents": texts,
            "metadatas": [_metadata(number) for number in numbers],
            "embeddings": vectors.tolist(),
        }
        return json.dumps(columns).encode()

    def add(self, body: bytes) -> None:
        _ask(self._connection, "POST", f"{self._path}/add", body)

    def section(self, number: int) -> int:
        asked = {"where": {"section_id": f"section-{number}"}, "limit": 100, "include": ["documents", "metadatas"]}
        return len(_ask(self._connection, "POST", f"{self._path}/get", asked)["ids"])

    def nearest(self, vector: Sequence[float], section: int) -> list[str]:
        asked = {
            "query_embeddings": [vector],
            "n_results": 10,
            "where": {"section_id": f"section-{section}"},
            "include": ["documents", "metadatas", "distances"],
        }
        found: list[str] = _ask(self._connection, "POST", f"{self._path}/query", asked)["ids"][0]
        return found


def _id(number: int) -> str:
    return f"document-{number:06d}"


def _metadata(number: int) -> dict[str, str | int]:
    return {"section_id": f"section-{number % SECTIONS}", "doc_type": "paragraph", "page": number % 37}


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | Mapping[str, object] | None = None
) -> Any:
    """What a server answers; anything but success is the end of the run."""
    sent = json.dumps(body).encode() if isinstance(body, Mapping) else body
    response = _sent(connection, method, path, sent)
    answer = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{method} {path.partition('?')[0]}: {response.status} {answer[:200]!r}")
    return json.loads(answer)


def _sent(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
) -> http.client.HTTPResponse:
    """A server closes a connection that no one spoke on for some seconds: then a new one is opened."""
    headers = {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse()
    except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
        connection.close()
        connection.request(method, path, body, headers)
        return connection.getresponse()


@contextmanager
def _chroma(folder: Path) -> Iterator[http.client.HTTPConnection]:
    """Chroma's server as its own command starts it, on a free port; stopped at the end."""
    folder.mkdir(parents=True)
    port = _free_port()
    with (folder / "log").open("wb") as log:
        command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(folder), "--port", str(port)]
        environment = {**os.environ, "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            yield _connected(port, process)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _connected(port: int, process: subprocess.Popen[bytes]) -> http.client.HTTPConnection:
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        try:
            _ask(connection, "GET", "/api/v2/heartbeat")
        except (OSError, RuntimeError):
            time.sleep(0.05)
            continue
        return connection
    raise RuntimeError(f"Chroma's server did not come up (status {process.poll()})")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
