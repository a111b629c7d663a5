"""`rag-context review` in a large memory: `python -m benchmarks.review [--documents N] [--backend postgres]`.

Documents have random vectors, so that nothing is near anything else but the pairs that are made for this: of each pair
the later statement gives another value (to be suggested), or the same one, or one about another subject (not to be).
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import numpy as np
from tests.servers.postgres import FAST, postgres_process, url_of

from benchmarks.corpus import Writer, unit_vectors
from benchmarks.figures import Figure, as_markdown
from benchmarks.hundred_thousand import DIMENSION
from rag_context.api.changes import ReviewRequest, ReviewResponse
from rag_context.api.handlers import CallContext
from rag_context.domain.documents import Chunk, Document, DocumentInput, Origin, Span, content_hash, document_id
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Matrix
from rag_context.ports.writing import Version
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service
from rag_context.wiring.stores import open_stores

DOCUMENTS, PAIRS, AT_ONCE = 100_000, 300, 100
NOW = datetime.now(UTC) - timedelta(days=30)
KINDS = ("another value", "the same value", "another subject")


def statements(pair: int, writer: Writer) -> tuple[str, str]:
    """The earlier and the later one."""
    subject, other = (" ".join(writer.words(6)) for _ in range(2))
    text = "A failed payment of the office {} is retried {} times before the clerk is told."
    later = (text.format(subject, 5), text.format(subject, 3) + " It stays so.", text.format(other, 5))[pair % 3]
    return text.format(subject, 3), later


def _made(number: int, text: str) -> tuple[Document, list[Chunk]]:
    draft = DocumentInput(text, "decision", "s", f"{number}.md")
    at = NOW + timedelta(seconds=number)
    made = Document(
        id=document_id(draft),
        tenant=draft.tenant,
        content_type=draft.content_type,
        session_id=draft.session_id,
        source=draft.source,
        title=draft.source,
        content=text,
        content_hash=content_hash(draft),
        timestamp=at,
        occurred_at=at,
        metadata=draft.metadata,
        origin=Origin.AGENT,
    )
    return made, [Chunk(f"{number}-0", made.id, 0, text, Span(0, len(text), 1, 1), occurred_at=at, origin=Origin.AGENT)]


async def _fill(settings: Settings, count: int) -> set[tuple[str, str]]:
    """Store them; returns the pairs that are to be suggested, the later document first."""
    async with open_service(settings) as service:
        await service.wait_ready(120)  # which records the model
    writer, expected = Writer(seed=5), set[tuple[str, str]]()
    vectors: Matrix = unit_vectors(count, DIMENSION)
    every = count // (2 * PAIRS)
    rng = np.random.default_rng(3)
    async with open_stores(settings) as stores:
        model = await stores.registry.recorded_model()
        assert model is not None
        batch: list[Version] = []
        earlier: tuple[str, str, int] | None = None
        for number in range(count):
            text, place = writer.passage(2), number // every
            if number % every == 0 and place < 2 * PAIRS:
                if earlier is None:
                    text, later = statements(place // 2, writer)
                else:
                    text = earlier[1]
                    near = vectors[earlier[2]] + 0.02 * rng.standard_normal(DIMENSION, dtype=np.float32)
                    vectors[number] = near / np.linalg.norm(near)
            document, chunks = _made(number, text)
            if number % every == 0 and place < 2 * PAIRS:
                if earlier is None:
                    earlier = document.id, later, number
                else:
                    if place // 2 % 3 == 0:
                        expected.add((document.id, earlier[0]))
                    earlier = None
            batch.append(Version(document, chunks, vectors[number : number + 1], model.fingerprint))
            if len(batch) == AT_ONCE or number == count - 1:
                await stores.writer.write_all(batch)
                batch = []
    return expected


async def _review(settings: Settings, expected: set[tuple[str, str]], seconds: float) -> list[Figure]:
    calls, examined, found = [], 0, set[tuple[str, ...]]()
    async with open_service(settings) as service:
        await service.wait_ready(600)
        review = service.handlers()["rag_context_review"]
        before_mb, request = _resident_mb(), ReviewRequest(limit=100)
        started, processor = time.perf_counter(), time.process_time()
        while time.perf_counter() < started + seconds:
            begun = time.perf_counter()
            answer = cast("ReviewResponse", await review(request, CallContext("r")))
            calls.append(time.perf_counter() - begun)
            examined += answer.examined
            for each in answer.suggestions:
                found.add(tuple(document.document_id for document in each.documents))
            if answer.next_cursor is None:
                break
            request = request.model_copy(update={"cursor": answer.next_cursor})
        processor = time.process_time() - processor
        seen = await _newest(settings, examined)
    due = {pair for pair in expected if pair[0] in seen}
    right = len(found & expected)
    return [
        Figure("longest call", max(calls), "s", 3.0, note=f"{len(calls)} calls, {examined} documents examined"),
        Figure("a document", processor / examined * 1e3, "ms of this process"),
        Figure("memory for it", _resident_mb() - before_mb, "MB", 100.0),
        Figure("precision", right / max(len(found), 1), "x", 0.9, at_least=True, note=f"{right} of {len(found)}"),
        Figure("recall", right / max(len(due), 1), "x", 0.9, at_least=True, note=f"{right} of {len(due)} examined"),
    ]


async def _newest(settings: Settings, count: int) -> set[str]:
    async with open_stores(settings) as stores:
        return {listed.id for listed in await stores.documents.listing(Filter(), limit=count)}


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="review", description=__doc__)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--backend", choices=("embedded", "postgres"), default="embedded")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rag-context-review-") as name, ExitStack() as stack:
        settings = Settings(data_dir=Path(name))
        if arguments.backend == "postgres":
            url = url_of(stack.enter_context(postgres_process(*FAST)).port)
            stores = {"documents": "postgres", "vectors": "postgres", "postgres_url": url}
            settings = settings.model_copy(update={"stores": settings.stores.model_validate(stores)})
        expected = asyncio.run(_fill(settings, arguments.documents))
        figures = asyncio.run(_review(settings, expected, arguments.seconds))
    print(as_markdown(figures))
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
