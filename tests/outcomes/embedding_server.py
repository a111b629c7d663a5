"""An embedding server in a thread, whose models embed single words: cheap, and the same every time."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSION = 64


@dataclass
class EmbeddingServer:
    """What it does; a test may change it at any time."""

    url: str = ""
    is_down: bool = False
    """Whether every request is answered 503."""
    models: set[str] = field(default_factory=lambda: {"words"})
    weights: str = ""
    """Other weights under the same names; the vectors of a model depend on them."""
    moved: float = 0.0
    """How far all vectors are moved by one direction, as a multiple of their length: no two are unrelated then."""
    long_text_s: float = 0.0
    """How long a request takes that holds a text of more than `LONG` words: a passage, not a question."""


LONG = 20


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """A server on a free port for the time of the block."""
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or every answer waits for an acknowledgement of its head

        def do_GET(self) -> None:
            self._reply(200, {"data": [{"id": name} for name in sorted(state.models)]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model, texts = asked["model"], asked["input"]
            texts = [texts] if isinstance(texts, str) else texts
            if state.is_down or model not in state.models:
                self._reply(503 if state.is_down else 404, {"error": {"message": f"no model {model}"}})
                return
            if any(len(text.split()) > LONG for text in texts):
                began = time.monotonic()
                while time.monotonic() - began < state.long_text_s:  # which may be changed meanwhile
                    time.sleep(0.01)
            data = [
                {"index": i, "embedding": _vector(model + state.weights, text, state.moved).tolist()}
                for i, text in enumerate(texts)
            ]
            self._reply(200, {"data": data, "model": model})

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
            pass

        def _reply(self, status: int, body: object) -> None:
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _vector(model: str, text: str, moved: float) -> NDArray[np.float64]:
    total = np.sum([_direction(model, word.strip(".,:?!").lower()) for word in text.split()] or [np.ones(DIMENSION)], 0)
    unit = np.append(total / np.linalg.norm(total), moved)
    normalised: NDArray[np.float64] = unit / np.linalg.norm(unit)
    return normalised


@cache
def _direction(model: str, word: str) -> NDArray[np.float64]:
    seed = np.frombuffer(f"{model}/{word}".encode(), dtype=np.uint8)
    direction: NDArray[np.float64] = np.random.default_rng(seed).standard_normal(DIMENSION)
    return direction
