"""A data directory with thousands of chunks, made in seconds: documents come in with vectors that they already have."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.corpus import Writer, unit_vectors

from rag_context.api.export_lines import ExportFooter, ExportHeader
from rag_context.domain.documents import (
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
from rag_context.domain.vectors import EmbeddingModel
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.transfer.lines import Moved, exported, model_line
from tests.end_to_end.process import Served, command

PER_DOCUMENT = 10
QUESTIONS = 500
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LargeIndex:
    """A running server over such a directory, and questions in the words of its documents."""

    server: Served
    questions: list[str]

    def question(self, client: int, number: int) -> dict[str, Any]:
        """The body of a search, never the same twice."""
        return {"query": f"{self.questions[(61 * client + number) % len(self.questions)]} {client} {number}"}


def fill(data_dir: Path, chunks: int) -> list[str]:
    """Import about so many chunks of invented text with random vectors; returns questions in their words."""
    model = load(BUNDLED).model
    export = data_dir.with_suffix(".jsonl")
    documents = chunks // PER_DOCUMENT
    writer = Writer(seed=5)
    vectors = unit_vectors(documents * PER_DOCUMENT, model.dimension)
    with export.open("wb") as file:
        file.write(_header(model, documents))
        for number in range(documents):
            texts = [writer.passage() for _ in range(PER_DOCUMENT)]
            document, cut = _document(number, texts)
            rows = vectors[number * PER_DOCUMENT : (number + 1) * PER_DOCUMENT]
            file.write(exported(Moved(document, cut, rows)).to_json())
        file.write(ExportFooter(documents=documents).to_json())
    ended = command("import", str(export), data_dir=data_dir)
    assert ended.returncode == 0, ended.stderr
    return [writer.question() for _ in range(QUESTIONS)]


def _header(model: EmbeddingModel, documents: int) -> bytes:
    return ExportHeader(exported_at=NOW, model=model_line(model), project=None, documents=documents).to_json()


def _document(number: int, texts: Sequence[str]) -> tuple[Document, tuple[Chunk, ...]]:
    content = "\n\n".join(texts)
    draft = DocumentInput(content, "documentation", f"session-{number % 100}", f"/notes/{number}.md", Metadata())
    document = Document(
        id=document_id(draft),
        tenant=Tenant(),
        content_type=draft.content_type,
        session_id=draft.session_id,
        source=draft.source,
        title=f"Note {number}",
        content=content,
        content_hash=content_hash(draft),
        timestamp=NOW,
        metadata=draft.metadata,
    )
    ids = chunk_ids(document.id, [("", text) for text in texts])
    cut, start = [], 0
    for position, (id_, text) in enumerate(zip(ids, texts, strict=True)):
        line = 2 * position + 1
        cut.append(Chunk(id_, document.id, position, text, Span(start, start + len(text), line, line), ""))
        start += len(text) + 2
    return document, tuple(cut)
