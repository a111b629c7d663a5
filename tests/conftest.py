"""What every test may rely on."""

import gc
import os
import sys
import warnings
from collections.abc import Generator, Iterator
from functools import cache

import httpcore2
import pytest
from hypothesis import settings

from tests.cli.restored_logging import restored_logging
from tests.servers.qdrant import real_server_as_found
from tests.servers.shared import shared_chroma, shared_mongodb, shared_postgres, shared_postgres_template, shared_qdrant

__all__ = ["shared_chroma", "shared_mongodb", "shared_postgres", "shared_postgres_template", "shared_qdrant"]

LEFT_SOCKETS = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
_USES_MONGODB = pytest.StashKey[bool]()

# gRPC, the transport to Qdrant, tends to its threads in every forked child, and may end it before it runs the program:
# servers that run as another user are started by a fork. No test uses gRPC in a child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# See tests/end_to_end/loaded.py; programs that measure, such as benchmarks, start what they measure.
os.environ.setdefault("RAG_TEST_FORK", "1" if sys.platform == "linux" else "0")

# Each client would load the certificates of the system again, 40 ms of processor time to speak to this machine.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

# No deadline: on a busy machine one example may take any time.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "same")
)  # every run the same, unless the variable says otherwise


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all test modules without looking again and again at the half million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Forgive MongoDB's driver: given up while it connects, it leaves its socket to the garbage collector.

    Everywhere else a socket that is not closed fails the test.
    """
    for item in items:
        if "mongodb" in item.nodeid or any("mongodb" in name for name in getattr(item, "fixturenames", ())):
            for mark in LEFT_SOCKETS:
                item.add_marker(mark)
            if module := item.getparent(pytest.Module):
                module.stash[_USES_MONGODB] = True


@pytest.fixture(autouse=True, scope="module")
def _left_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """What MongoDB's driver left is collected before the next module, which would be blamed for it."""
    yield
    if request.node.stash.get(_USES_MONGODB, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    """Undo what a server in this process sets: Hypothesis does not find its own objects after a `gc.freeze()`."""
    frozen = gc.get_freeze_count()
    yield
    gc.callbacks[:] = [each for each in gc.callbacks if not type(each).__module__.startswith("rag_context.")]
    if not frozen:
        gc.unfreeze()


@pytest.fixture(autouse=True)
def _real_qdrant_as_found() -> Iterator[None]:
    with real_server_as_found():
        yield


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    with restored_logging():
        yield
