"""An embedding server that costs next to nothing: large projects are embedded in seconds.

A text's vector is the sum of fixed vectors of its words, so that texts with words in common are near each other.
"""

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

MODEL = "words"
DIMENSION = 64
BUCKETS = 4096

_WORD = re.compile(r"\w+")
_WORDS = np.random.default_rng(7).standard_normal((BUCKETS, DIMENSION)).astype(np.float32)


@contextmanager
def cheap_embeddings() -> Iterator[dict[str, str]]:
    """Settings, as environment variables, of a server that embeds by this one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {
            "RAG_CONTEXT_EMBEDDER__KIND": "openai_compatible",
            "RAG_CONTEXT_EMBEDDER__URL": f"http://127.0.0.1:{server.server_port}",
            "RAG_CONTEXT_EMBEDDER__MODEL": MODEL,
            "RAG_CONTEXT_INDEXING__TIMEOUT_S": "60",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _vector(text: str) -> list[float]:
    buckets = [zlib.crc32(word.encode()) % BUCKETS for word in _WORD.findall(text.lower())]
    summed = _WORDS[buckets].sum(axis=0) if buckets else _WORDS[0]
    rounded: list[float] = np.round(summed / np.linalg.norm(summed), 5).tolist()
    return rounded


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The models."""
        self._reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        """The vectors."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not body:  # the client gave up
            return
        asked = json.loads(body)
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        rows = [{"object": "embedding", "index": i, "embedding": _vector(text)} for i, text in enumerate(texts)]
        self._reply({"object": "list", "data": rows, "model": MODEL})

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""

    def _reply(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
