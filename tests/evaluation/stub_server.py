"""An HTTP server that answers from a table: a backend, or a rag-context server that has gone wrong."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HEALTHY: dict[str, Any] = {
    "healthy": True,
    "qdrantStatus": "healthy",
    "lmStudioStatus": "healthy",
    "mongoStatus": "healthy",
    "latency": 1.0,
    "indexedDocuments": 0,
    "circuitBreakerOpen": False,
    "components": [],
    "embeddingModel": {"name": "stand-in", "dimension": 2},
    "pendingDocuments": 0,
    "version": "0",
}
FOUND_NOTHING: dict[str, Any] = {
    "results": [],
    "latency": 1.0,
    "fallback": False,
    "fallbackLevel": 1,
    "circuitBreakerOpen": False,
    "totalIndexed": 0,
    "requestId": "r",
    "legs": {},
}
INDEXED: dict[str, Any] = {
    "success": True,
    "chunksIndexed": 1,
    "vectorIds": ["v"],
    "latencyMs": 1.0,
    "documentId": "d",
    "status": "indexed",
}


def embedding(*numbers: float) -> dict[str, Any]:
    return {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": list(numbers)}], "model": "m"}


def healthy_server() -> dict[str, Any]:
    """Answers of a server whose parts are well and whose searches find nothing; it has no tool to delete."""
    return {
        "/ready": {"status": "ready"},
        "/v1/models": {"object": "list", "data": [{"id": "stand-in"}]},
        "/v1/embeddings": embedding(0.6, 0.8),
        "/tools": {"tools": [{"name": "rag_context_search"}]},
        "/tools/rag_context_health": HEALTHY,
        "/tools/rag_context_index": INDEXED,
        "/tools/rag_context_search": FOUND_NOTHING,
    }


@dataclass
class StubServer:
    """The requests it received: path and body, in order."""

    url: str
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def bodies(self, path: str) -> list[Any]:
        return [body for request, body in self.requests if request == path]


@contextmanager
def stub_server(answers: dict[str, Any]) -> Iterator[StubServer]:
    """Answer every known path with 200 and its JSON, every other with 404, for the time of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            stub.requests.append((self.path, body))
            known = self.path in answers
            sent = json.dumps(answers.get(self.path, {"error": "Not found"})).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's name)
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub = StubServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
