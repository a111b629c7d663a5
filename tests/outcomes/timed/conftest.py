"""One memory of a thousand chunks, as delivered, for all that asks it under load and through pauses."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.process import served
from tests.outcomes.clients import ask_together
from tests.outcomes.large_index import LargeIndex, fill

CHUNKS = 1000


@pytest.fixture(scope="session")
def large_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeIndex]:
    data_dir = tmp_path_factory.mktemp("filled") / "data"
    questions = fill(data_dir, CHUNKS)
    with served(data_dir, RAG_CACHE_SIZE="0") as server:
        server.wait_ready()
        memory = LargeIndex(server, questions)
        ask_together(server.url, 2, 0.5, memory.question)
        yield memory
