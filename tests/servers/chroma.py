"""A real Chroma server for tests, as its own command starts it.

python -m tests.servers.chroma --port 8000     serve until interrupted; prints the address once it listens
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers.process import HOST, ServerProcess, free_port


@contextmanager
def chroma_server(port: int | None = None, folder: Path | None = None) -> Iterator[ServerProcess]:
    """A running server over `folder`, or over one that goes with it."""
    port = free_port() if port is None else port
    with TemporaryDirectory(prefix="chroma-") as temporary:
        command = [str(Path(sys.executable).with_name("chroma")), "run", "--host", HOST, "--port", str(port)]
        server = ServerProcess(
            [*command, "--path", str(folder or temporary)],
            port,
            Path(temporary) / "log",
            lambda: _answers(port),
            {**os.environ, "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1"},
        )
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://{HOST}:{port}/api/v2/heartbeat", timeout=5) as answer:
            said: bytes = answer.read()
    except URLError as error:
        raise ConnectionError from error
    return b"heartbeat" in said


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A Chroma server for tests.")
    parser.add_argument("--port", type=int, default=8000)
    with chroma_server(parser.parse_args().port) as server:
        print(f"http://{HOST}:{server.port}", flush=True)
        server.serve()


if __name__ == "__main__":
    main()
