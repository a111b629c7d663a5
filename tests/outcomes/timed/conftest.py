"""A memory of a thousand chunks, as delivered, for each module that searches it under load or through pauses.

Not one for all: a server that others have sent documents goes on embedding them long after they have hung up.
"""

from collections.abc import Iterator

import pytest

from tests.end_to_end.process import PATIENT, served
from tests.outcomes.clients import ask_together
from tests.outcomes.large_index import LargeIndex, fill

CHUNKS = 1000

PATIENT.clear()


@pytest.fixture(scope="module")
def large_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeIndex]:
    data_dir = tmp_path_factory.mktemp("filled") / "data"
    questions = fill(data_dir, CHUNKS)
    with served(data_dir, RAG_CACHE_SIZE="0") as server:
        server.wait_ready()
        memory = LargeIndex(server, questions)
        ask_together(server.url, 2, 0.5, memory.question)
        yield memory
