"""One server for all tests that change nothing but the stub's script."""

from collections.abc import Iterator

import httpx2
import pytest

from rag_context.api.operations import Access
from rag_context.server.options import HashedKey, ServerOptions, hash_key

from .server_thread import Running, running
from .stub_service import StubService


@pytest.fixture(scope="session")
def _open_server() -> Iterator[Running]:
    options = ServerOptions(port=0, instance_id="i-1", body_timeout_s=0.3, head_timeout_s=0.3, bulk_line_bytes=4096)
    with running(StubService(), options) as open_server:
        yield open_server


@pytest.fixture
def open_server(_open_server: Running) -> Running:
    """A server without keys; its stub starts afresh."""
    StubService.__init__(_open_server.service)
    return _open_server


@pytest.fixture
def client(open_server: Running) -> Iterator[httpx2.Client]:
    with open_server.client() as client:
        yield client


@pytest.fixture(scope="session")
def _locked_server() -> Iterator[Running]:
    keys = (
        HashedKey.parse("reader", hash_key("read-me"), Access.READ),
        HashedKey.parse("writer", hash_key("write-me"), Access.WRITE),
    )
    with running(StubService(), ServerOptions(port=0, api_keys=keys)) as open_server:
        yield open_server


@pytest.fixture
def locked(_locked_server: Running) -> Running:
    """A server with a key that may read and a key that may write."""
    StubService.__init__(_locked_server.service)
    return _locked_server
