"""A stub for a server: it answers what a test says, and records the requests."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rag_context.client.address import CHALLENGE, Announcement, proof_of
from rag_context.server.running import announce, withdraw

INSTANCE = "stand-in"
SECRET = "of the file"


@dataclass
class Script:
    """What the stub does."""

    secret: str = SECRET
    """With what it answers a challenge."""
    status: int = 200
    body: bytes = b"{}"
    receipts: Sequence[dict[str, object]] | None = None
    """Receipts after which a bulk request is cut off; None: it is never answered."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    bulk_came: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def headers_of(self, path: str) -> dict[str, str]:
        return next(headers for request, headers in self.requests if request == path)


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._remember()
            proof = proof_of(script.secret, self.headers.get(CHALLENGE, ""))
            self._answer(200, json.dumps({"instance": INSTANCE, "proof": proof}).encode())

        def do_POST(self) -> None:
            self._remember()
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/bulk" and script.status == 200:
                self._cut_off()
            else:
                self._answer(script.status, script.body)

        def _cut_off(self) -> None:
            script.bulk_came.set()
            if script.receipts is None:
                script.ended.wait()
            else:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for receipt in script.receipts:
                    line = json.dumps(receipt).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.close_connection = True

        def _remember(self) -> None:
            script.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's name)
            """Say nothing."""

    return Handler


@contextmanager
def stub_server(data_dir: Path, script: Script) -> Iterator[str]:
    """A stub announced in a data directory, for the time of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        data_dir.mkdir(exist_ok=True)
        announce(data_dir, Announcement(1, url, INSTANCE, SECRET))
        yield url
    finally:
        withdraw(data_dir, INSTANCE)
        script.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
