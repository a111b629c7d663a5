"""What the rules of ranking cost: searches with all of them in turn with none, in this process, over 10 000 chunks.

Half of the chunks are messages of a user and an assistant, half are code. Queries bring their own vectors.
"""

import asyncio
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.large_export import NOW, PER_DOCUMENT, clustered, header
from benchmarks.processes import COMMAND
from benchmarks.searching import chain_over
from rag_context.api.export_lines import ExportFooter
from rag_context.domain.documents import (
    CHAT,
    CODE,
    Chunk,
    Document,
    DocumentInput,
    Metadata,
    Span,
    Tenant,
    chunk_ids,
    content_hash,
    document_id,
)
from rag_context.domain.ranking_rules import Rule
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.errors import BackendStartingError
from rag_context.search.chain import SearchChain
from rag_context.search.query import Level, Query
from rag_context.search.question_rules import with_windows
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database
from rag_context.transfer.lines import IndexedDocument, document_line

QUESTIONS = 200
WARM_UP = 50
MOST_MS = 1.0


def measure(scratch: Path, chunks: int) -> list[Figure]:
    """Fill a store, and ask each kind of question."""
    data_dir = scratch / "data"
    data_dir.mkdir(parents=True)
    _fill(data_dir, scratch / "export.jsonl", chunks // PER_DOCUMENT)
    return asyncio.run(_ask(data_dir, f", {chunks} chunks"))


def _fill(data_dir: Path, export: Path, documents: int) -> None:
    writer, vectors_of = Writer(seed=5), clustered()
    with export.open("wb") as file:
        file.write(header(load(BUNDLED).model, documents))
        for number in range(documents):
            document, cut = _conversation(number, writer) if number % 2 else _code(number, writer)
            file.write(document_line(IndexedDocument(document, cut, vectors_of(number))))
        file.write(ExportFooter(documents=documents).to_json())
    subprocess.run([COMMAND, "import", str(export), "--data-dir", str(data_dir)], check=True, capture_output=True)


def _conversation(number: int, writer: Writer) -> tuple[Document, tuple[Chunk, ...]]:
    texts = [f"{writer.passage(3)} It is {number % 50 + position} today." for position in range(PER_DOCUMENT)]
    return _document(number, f"talks/{number}", CHAT, texts, ("User", "Assistant"))


def _code(number: int, writer: Writer) -> tuple[Document, tuple[Chunk, ...]]:
    names = ["_".join(writer.words(2)) for _ in range(PER_DOCUMENT)]
    texts = [f'def {name}(path):\n    """{writer.passage(2)}"""\n    return load_{name}(path)' for name in names]
    return _document(number, f"src/{names[0]}_{number}.py", CODE, texts, (None,))


def _document(
    number: int, source: str, kind: str, texts: list[str], speakers: tuple[str | None, ...]
) -> tuple[Document, tuple[Chunk, ...]]:
    content = "\n\n".join(texts)
    draft = DocumentInput(content, kind, f"session-{number}", source, Metadata())
    at = NOW - timedelta(hours=number)
    document = Document(
        id=document_id(draft),
        tenant=Tenant(),
        content_type=kind,
        session_id=draft.session_id,
        source=source,
        title=source,
        content=content,
        content_hash=content_hash(draft),
        timestamp=NOW,
        occurred_at=at,
        metadata=draft.metadata,
    )
    cut, start = [], 0
    for position, (id_, text) in enumerate(
        zip(chunk_ids(document.id, [("", text) for text in texts]), texts, strict=True)
    ):
        place = Span(start, start + len(text), 2 * position + 1, 2 * position + 1)
        said = speakers[position % len(speakers)]
        at += timedelta(minutes=1)
        cut.append(Chunk(id_, document.id, position, text, place, occurred_at=at, speaker=said))
        start += len(text) + 2
    return document, tuple(cut)


def _words(writer: Writer) -> str:
    return " ".join(writer.words(4))


KINDS: Mapping[str, Callable[[Writer], str]] = {
    "no rule applies to it": lambda writer: f"{_words(writer)} system",
    "of the user, for a value": lambda writer: f"When is my {_words(writer)} system due?",
    "with a date": lambda writer: f"What happened to the {_words(writer)} system last week?",
    "a name in code": lambda writer: "_".join(writer.words(2)),
}
"""Questions by the rules that they call for."""


async def _ask(data_dir: Path, where: str) -> list[Figure]:
    figures = []
    model = load(BUNDLED)
    async with open_database(data_dir / FILE_NAME) as store:
        await in_memory(store)
        chains = {"all": chain_over(store, ()), "none": chain_over(store, tuple(Rule))}
        for kind, question in KINDS.items():
            writer = Writer(seed=31)
            spent: dict[str, list[float]] = {name: [] for name in chains}
            for number in range(QUESTIONS + WARM_UP):
                text = question(writer)
                query = Query(text, vector=model.embed(text))
                await chains["none"].search(query)  # the first search with a question reads its terms and pages
                for name in sorted(chains, reverse=number % 2 == 0):
                    spent[name].append(await _processor_ms(chains[name], query))
            with_all, without = (statistics.median(spent[name][WARM_UP:]) for name in ("all", "none"))
            name = f"rules of ranking{where}, a question {kind}"
            note = f"processor time, p50; without them {without:.2f} ms"
            figures.append(Figure(name, with_all - without, "ms", MOST_MS, note=note))
    return figures


async def _processor_ms(chain: SearchChain, query: Query) -> float:
    """Processor time of one search, the times in its question recognised as part of it."""
    started = time.process_time()
    answer = await chain.search(with_windows(query, NOW))
    spent = (time.process_time() - started) * 1e3
    if answer.level is not Level.PRIMARY or answer.warning is not None:
        raise RuntimeError(f"an answer of level {answer.level}: {answer.warning}")
    return spent


async def in_memory(store: SqliteStore) -> None:
    """Wait until the whole index is in memory."""
    is_ready = False
    while not is_ready:
        await asyncio.sleep(0.1)
        with suppress(BackendStartingError):
            is_ready = "in memory" in await store.vectors.ping()
