"""An export of any size, made in minutes: documents of invented text with vectors that they already have."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.corpus import Writer
from benchmarks.processes import COMMAND
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
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.transfer.lines import IndexedDocument, document_line, model_line

PER_DOCUMENT = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTERS = 1000
SPREAD = 0.75
"""Length of what is added to a cluster's centre: a vector has a cosine of some .8 to it."""


def write_export(
    path: Path, chunks: int, vectors_of: Callable[[int], Matrix], *, per_document: int = PER_DOCUMENT
) -> Writer:
    """Write about so many chunks.

    Args:
        path: the file.
        chunks: how many.
        vectors_of: the vectors of the document of a number, `(per_document, dim) float32`.
        per_document: chunks of a document.

    Returns:
        the writer, who can go on with questions in the words of the documents.
    """
    documents, writer = chunks // per_document, Writer(seed=5)
    with path.open("wb") as file:
        file.write(header(load(BUNDLED).model, documents))
        for number in range(documents):
            document, cut = _document(number, [writer.passage() for _ in range(per_document)])
            file.write(document_line(IndexedDocument(document, cut, vectors_of(number))))
        file.write(ExportFooter(documents=documents).to_json())
    return writer


def imported(
    data_dir: Path,
    chunks: int,
    vectors_of: Callable[[int], Matrix],
    *,
    per_document: int = PER_DOCUMENT,
    **environment: str,
) -> tuple[Writer, float]:
    """Import such an export, with these settings; returns its writer, and the seconds of the import."""
    data_dir.mkdir(parents=True)
    export = data_dir.with_suffix(".jsonl")
    writer = write_export(export, chunks, vectors_of, per_document=per_document)
    return writer, import_export(export, data_dir, **environment)


def import_export(export: Path, data_dir: Path, **environment: str) -> float:
    """Import an export, with these settings, and remove it; returns the seconds that it took."""
    started = time.perf_counter()
    command = [COMMAND, "import", str(export), "--data-dir", str(data_dir)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
    export.unlink()
    return time.perf_counter() - started


def write_documents(path: Path, texts: Sequence[str], vectors: Sequence[Vector], first: int) -> None:
    """Write an export of documents of one passage each, numbered from `first` on."""
    with path.open("wb") as file:
        file.write(header(load(BUNDLED).model, len(texts)))
        for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), first):
            document, cut = _document(number, [text])
            file.write(document_line(IndexedDocument(document, cut, vector[np.newaxis])))
        file.write(ExportFooter(documents=len(texts)).to_json())


def clustered(seed: int = 7) -> Callable[[int], Matrix]:
    """Vectors around the embeddings of invented passages, so that questions have cosines to them as to real texts."""
    model, writer = load(BUNDLED), Writer(seed=seed)
    centres = np.stack([model.embed(writer.passage()) for _ in range(CLUSTERS)])

    def vectors_of(number: int) -> Matrix:
        rng = np.random.default_rng((seed, number))
        rows: Matrix = rng.standard_normal((PER_DOCUMENT, centres.shape[1]), dtype=np.float32)
        rows *= SPREAD / np.linalg.norm(rows, axis=1, keepdims=True)
        rows += centres[rng.integers(CLUSTERS, size=PER_DOCUMENT)]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    return vectors_of


def header(model: EmbeddingModel, documents: int) -> bytes:
    """The first line of an export."""
    return ExportHeader(exported_at=NOW, model=model_line(model), project=None, documents=documents).to_json()


def _document(number: int, texts: Sequence[str]) -> tuple[Document, tuple[Chunk, ...]]:
    content = "\n\n".join(texts)
    metadata = Metadata(category=f"category-{number % 10}", tags=(f"tag-{number % 10}",))
    draft = DocumentInput(content, "documentation", f"session-{number % 100}", f"/notes/{number}.md", metadata)
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
        occurred_at=NOW,
        metadata=draft.metadata,
    )
    ids = chunk_ids(document.id, [("", text) for text in texts])
    cut, start = [], 0
    for position, (id_, text) in enumerate(zip(ids, texts, strict=True)):
        line = 2 * position + 1
        cut.append(Chunk(id_, document.id, position, text, Span(start, start + len(text), line, line), occurred_at=NOW))
        start += len(text) + 2
    return document, tuple(cut)
