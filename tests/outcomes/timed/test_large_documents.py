"""What a question costs where some documents are large, against the same question without them."""

from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import httpx2

from tests.end_to_end.process import served, wait_until
from tests.outcomes.embedding import cheap_embeddings
from tests.outcomes.large_projects import activate, ask, write_project

QUESTIONS = [
    f"chapter on {one} and {other}" for one in ("billing", "cache") for other in ("login", "backup", "handbook")
]
ROUNDS = 12
LARGE_CHARS = 300_000
MOST_TIMES = 2.5
"""1.5 with documents of 1 MiB is what is promised and `python -m benchmarks` measures. The rest is for machines that
have other work."""


def test_large_documents_hardly_slow_a_question_down(tmp_path: Path) -> None:
    """Two servers: what one index holds would slow down the questions to the other project in it as well."""
    with ExitStack() as stack:
        settings = stack.enter_context(cheap_embeddings())
        clients = []
        for name, large in (("pages", 0), ("handbooks", 3)):
            root = write_project(tmp_path / name, name, pages=40, large=large, large_chars=LARGE_CHARS)
            (tmp_path / f"{name}-data").mkdir()
            server = stack.enter_context(served(tmp_path / f"{name}-data", RAG_CACHE_SIZE="0", **settings))
            server.wait_ready()
            client = stack.enter_context(httpx2.Client(base_url=server.url, timeout=60.0))
            named = activate(client, root)
            wait_until(lambda: server.health()["pendingDocuments"] == 0)  # noqa: B023  (done when it returns)
            clients.append((client, named))
        spent: dict[tuple[int, str], list[float]] = {(i, question): [] for i in range(2) for question in QUESTIONS}
        excerpts = 0
        for _ in range(ROUNDS):
            for question in QUESTIONS:
                for i, (client, named) in enumerate(clients):
                    began = perf_counter()
                    reply = ask(client, "rag_query", query=question, **named)
                    spent[i, question].append(perf_counter() - began)
                    excerpts += any(each["excerpt"] for each in reply["sources"])
                    assert 0 < reply["token_count"] <= 8000
    assert excerpts >= ROUNDS * len(QUESTIONS) / 2
    plain, beside = (sum(min(spent[i, question]) for question in QUESTIONS) for i in range(2))
    assert beside < MOST_TIMES * plain, f"{1000 * beside:.1f} ms against {1000 * plain:.1f} ms"
