"""Moving an index: what goes out comes in, whatever the backends, and what cannot is named."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.api.export_lines import ExportHeader
from rag_context.domain.documents import (
    Chunk,
    Document,
    DocumentInput,
    Json,
    Metadata,
    Span,
    Stored,
    Tenant,
    chunk_ids,
    content_hash,
    document_id,
)
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendRejectedError, BackendUnavailableError, InvalidInputError
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import IndexWriter, ModelRegistry, Version
from rag_context.stores.postgres import PostgresStore
from rag_context.stores.sqlite.embedded import open_database
from rag_context.testing import FakeEmbedder, Fault, Faulty
from rag_context.transfer.exporter import TRIES, Exported, Exporter
from rag_context.transfer.importer import AT_ONCE, Conflict, Imported, Importer, ImportOutcome, Lines
from tests.ingest.split_stores import opened
from tests.memory_stores import MemoryStore
from tests.servers.postgres_fixtures import database, postgres, server, template

__all__ = ["database", "postgres", "server", "template"]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAKE = FakeEmbedder(dimension=16)


@dataclass
class Index:
    """An index, whatever is behind it."""

    documents: DocumentStore
    vectors: VectorStore
    writer: IndexWriter
    registry: ModelRegistry

    async def put(self, *moved: "Piece") -> None:
        for each in moved:
            made_by = FAKE.model.fingerprint if each.vectors is not None else None
            await self.writer.write(Version(each.document, each.chunks, each.vectors, made_by))

    async def export(self, project: str | None = None) -> bytes:
        out = io.BytesIO()

        async def put(line: bytes) -> None:
            out.write(line)

        exporter = Exporter(self.documents, self.vectors, self.registry, now=lambda: NOON)
        await exporter.export(put, lambda _done, _total: None, project=project)
        return out.getvalue()

    async def take(self, export: bytes, conflict: Conflict = Conflict.KEEP) -> "Taken":
        importer = Importer(self.documents, self.writer, self.registry, conflict)
        broken: list[tuple[int, str]] = []
        headers: list[tuple[ExportHeader, EmbeddingModel | None]] = []
        imported = await importer.import_lines(
            Lines(io.BytesIO(export)),
            lambda header, model: headers.append((header, model)),
            lambda _imported: None,
            lambda number, reason: broken.append((number, reason)),
        )
        return Taken(imported, sorted(broken), headers[0][1])


@dataclass
class Taken:
    """What an import came to."""

    imported: Imported
    broken: list[tuple[int, str]]
    usable: EmbeddingModel | None

    @property
    def outcomes(self) -> dict[str, int]:
        return {outcome.value: count for outcome, count in self.imported.outcomes.items() if count}


@dataclass(frozen=True)
class Piece:
    """A document with its chunks and vectors."""

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix | None


def piece(
    name: str,
    content: str = "Some text.",
    *,
    cuts: Sequence[int] = (),
    metadata: Metadata | None = None,
    tenant: Tenant | None = None,
    age: timedelta = timedelta(),
    seed: int | None = 0,
) -> Piece:
    """A document as the indexer makes them, cut at the given places; without a seed it has no vectors."""
    draft = DocumentInput(content, "documentation", "s", f"{name}.md", metadata or Metadata(), tenant or Tenant())
    document = Document(
        id=document_id(draft),
        tenant=draft.tenant,
        content_type=draft.content_type,
        session_id=draft.session_id,
        source=draft.source,
        title=name,
        content=content,
        content_hash=content_hash(draft),
        timestamp=NOON - age,
        occurred_at=NOON - 2 * age,
        metadata=draft.metadata,
        similarity_hash=2**64 - 5,
    )
    edges = [0, *sorted({cut % (len(content) + 1) for cut in cuts}), len(content)]
    texts = [(name, content[start:end]) for start, end in pairwise(edges)]
    ids = chunk_ids(document.id, texts)
    chunks = [
        Chunk(id_, document.id, place, text, Span(start, start + len(text), 1, 1, "A > B"), context, occurred_at=NOON)
        for place, (id_, start, (context, text)) in enumerate(zip(ids, edges, texts, strict=False))
    ]
    if seed is None:
        return Piece(document, chunks, None)
    drawn = np.random.default_rng(seed).standard_normal((len(chunks), 16))
    vectors: Matrix = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return Piece(document, chunks, vectors)


class Indexes:
    """Opens indexes, each in a folder of its own, and closes them all."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._opened = 0

    def _new_folder(self) -> Path:
        self._opened += 1
        folder = self._folder / str(self._opened)
        folder.mkdir()
        return folder

    async def one(self, model: EmbeddingModel | None = FAKE.model) -> Index:
        """Everything in one file."""
        store = await self._stack.enter_async_context(open_database(self._new_folder() / "index.db"))
        if model is not None:
            await store.documents.adopt_model(model)
        return Index(store.documents, store.vectors, store.documents, store.documents)

    async def two(self) -> Index:
        """Documents in one file and vectors in another."""
        apart = await self._stack.enter_async_context(opened(self._new_folder()))
        return Index(apart.home.documents, apart.vectors, apart.writer, apart.writer)

    async def memory(self) -> Index:
        """Everything in memory."""
        store = MemoryStore()
        await store.adopt_model(FAKE.model)
        return Index(store, store.vectors, store, store)


@pytest.fixture
async def indexes(tmp_path: Path) -> AsyncIterator[Indexes]:
    async with AsyncExitStack() as stack:
        yield Indexes(stack, tmp_path)


def lines_of(export: bytes) -> list[Any]:
    return [json.loads(line) for line in export.splitlines()]


def changed(export: bytes, number: int, **fields: object) -> bytes:
    """The export with other fields in a line, counted from 1."""
    lines = export.splitlines(keepends=True)
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **fields}).encode() + b"\n"
    return b"".join(lines)


json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
pieces = st.builds(
    piece,
    texts.filter(bool),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    metadata=st.builds(
        Metadata,
        agent=st.none() | texts,
        tags=st.lists(texts, max_size=3, unique=True).map(tuple),
        category=st.none() | texts,
        game=st.none() | texts,
        decision_id=st.none() | texts,
        extra=st.dictionaries(texts, json_values, max_size=3),
    ),
    tenant=st.builds(Tenant, texts, texts, texts),
    age=st.timedeltas(timedelta(days=-9000), timedelta(days=9000)),
    seed=st.none() | st.integers(0, 99),
)


class TestRoundTrip:
    """D-9: out of any backend and into any other, nothing is lost and nothing is added."""

    @settings(max_examples=15, deadline=None)
    @given(st.lists(pieces, max_size=6, unique_by=lambda each: each.document.id))
    async def test_what_comes_in_goes_out_the_same_from_any_backend(self, made: list[Piece]) -> None:
        with TemporaryDirectory() as folder:
            async with AsyncExitStack() as stack:
                indexes = Indexes(stack, Path(folder))
                source = await indexes.one()
                await source.put(*made)
                export = await source.export()
                for target in (await indexes.two(), await indexes.one(), await indexes.memory()):
                    taken = await target.take(export)
                    assert taken.broken == []
                    assert taken.imported.complete
                    assert await target.export() == export
                    for each in made:
                        assert await target.documents.get(each.document.id) == each.document
                        assert await target.documents.chunks(each.document.id) == list(each.chunks)

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(pieces, max_size=6, unique_by=lambda each: each.document.id))
    async def test_what_comes_in_goes_out_the_same_from_postgresql(
        self, postgres: PostgresStore, made: list[Piece]
    ) -> None:
        documents = postgres.documents
        index = Index(documents, postgres.vectors, documents, documents)
        await documents.adopt_model(FAKE.model)
        for id_ in await documents.inventory("", 100):
            await documents.delete(id_)
        with TemporaryDirectory() as folder:
            async with AsyncExitStack() as stack:
                indexes = Indexes(stack, Path(folder))
                source = await indexes.memory()
                await source.put(*made)
                export = await source.export()
                taken = await index.take(export)
                assert (taken.broken, taken.imported.complete) == ([], True)
                for each in made:
                    assert await documents.get(each.document.id) == each.document
                    assert await documents.chunks(each.document.id) == list(each.chunks)
                for target in (await indexes.one(), await indexes.two()):
                    assert (await target.take(await index.export())).broken == []
                    assert await target.export() == export

    async def test_the_file_says_what_it_is(self, indexes: Indexes) -> None:
        index = await indexes.one()
        first, second = sorted(
            (piece("a", "Größe \x00", cuts=[2]), piece("b", seed=None)), key=lambda each: each.document.id
        )
        await index.put(first, second)
        header, *documents, footer = lines_of(await index.export())
        assert (header["format"], header["version"], header["documents"]) == ("rag-context-export", 3, 2)
        assert (header["model"]["name"], header["model"]["dimension"]) == ("fake", 16)
        assert header["exportedAt"] == "2026-03-01T12:00:00Z"
        assert footer == {"end": True, "documents": 2}
        assert [each["id"] for each in documents] == [first.document.id, second.document.id]
        assert sorted(each["vectors"] is None for each in documents) == [False, True]

    async def test_an_empty_index_goes_out_and_in(self, indexes: Indexes) -> None:
        export = await (await indexes.one(model=None)).export()
        taken = await (await indexes.two()).take(export)
        assert len(lines_of(export)) == 2
        assert (taken.outcomes, taken.imported.complete) == ({}, True)

    async def test_one_project_goes_out_alone(self, indexes: Indexes) -> None:
        index = await indexes.one()
        own, agents = piece("own", tenant=Tenant("mine", "main", "aa")), piece("agents")
        await index.put(own, agents, piece("other", tenant=Tenant("other")))
        for project, expected in (("mine", own), ("", agents)):
            header, *documents, footer = lines_of(await index.export(project))
            assert (header["project"], header["documents"], footer["documents"]) == (project, None, 1)
            assert [each["id"] for each in documents] == [expected.document.id]

    async def test_more_documents_than_a_page_go_out_in_order(self, indexes: Indexes) -> None:
        index = await indexes.memory()
        await index.put(*(piece(str(number), seed=None) for number in range(450)))
        _, *documents, _ = lines_of(await index.export())
        ids = [each["id"] for each in documents]
        assert len(ids) == 450
        assert ids == sorted(ids)


class TestRepeated:
    """An import may be stopped, repeated, and done beside others."""

    async def test_what_is_there_is_left_as_it_is(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        await source.put(piece("a"), piece("b"))
        export = await source.export()
        assert (await target.take(export)).outcomes == {"new": 2}
        version = target.documents.version
        assert (await target.take(export)).outcomes == {"unchanged": 2}
        assert target.documents.version == version

    async def test_after_a_failure_the_same_call_goes_on(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.one()
        await source.put(*(piece(str(number)) for number in range(30)))
        export = await source.export()
        failing = Stopping(target.writer, after=11)
        stopped = replace(target, writer=failing)
        with pytest.raises(BackendUnavailableError):
            await stopped.take(export)
        there = (await target.documents.counts()).documents
        assert there == 11
        assert (await target.take(export)).outcomes == {"unchanged": there, "new": 30 - there}
        assert await target.export() == export

    async def test_a_document_that_the_store_rejects_is_named_and_stops_no_other_one(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.one()
        await source.put(*(piece(str(number)) for number in range(30)))
        export = await source.export()
        rejected = lines_of(export)[7]["id"]
        taken = await replace(target, writer=Choosy(target.writer, rejected)).take(export)
        assert taken.broken == [(8, "too large for this store")]
        assert (taken.outcomes, taken.imported.broken, taken.imported.complete) == ({"new": 29}, 1, True)

    async def test_a_document_that_waits_gets_its_vectors(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        made = piece("a", "one two three", cuts=[4, 8])
        await source.put(made)
        await target.put(replace(made, vectors=None))
        taken = await target.take(await source.export())
        assert (taken.outcomes, taken.imported.pending) == ({"completed": 1}, 0)
        assert await target.export() == await source.export()

    async def test_a_document_that_waits_and_was_cut_otherwise_is_cut_as_it_was(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        await source.put(piece("a", "one two three", cuts=[4, 8]))
        await target.put(piece("a", "one two three", seed=None))
        assert (await target.take(await source.export())).outcomes == {"completed": 1}
        assert await target.export() == await source.export()

    async def test_only_a_few_lines_are_read_ahead(self, indexes: Indexes) -> None:
        source, target = await indexes.memory(), await indexes.one()
        await source.put(*(piece(str(number)) for number in range(60)))
        file = Counting(await source.export())
        importer = Importer(target.documents, target.writer, target.registry)
        ahead: list[int] = []

        def look(imported: Imported) -> None:
            ahead.append(file.lines - 1 - imported.lines)

        await importer.import_lines(Lines(file), lambda *_: None, look, lambda *_: None)
        assert max(ahead) <= AT_ONCE + 1
        assert len(ahead) == 61


class TestConflicts:
    """A newer version in the index stays, unless the caller says otherwise."""

    async def test_a_newer_version_is_kept(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        newer = piece("a", "The newer text.")
        await target.put(newer)
        for age in (timedelta(microseconds=1), timedelta()):
            await source.put(piece("a", "The older text.", age=age))
            assert (await target.take(await source.export())).outcomes == {"kept": 1}
            assert await target.documents.get(newer.document.id) == newer.document

    async def test_an_older_version_is_replaced(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        await source.put(piece("a", "The newer text."))
        await target.put(piece("a", "The older text.", age=timedelta(seconds=1)))
        assert (await target.take(await source.export())).outcomes == {"replaced": 1}
        assert await target.export() == await source.export()

    async def test_a_newer_version_is_overwritten_when_that_is_requested(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.two()
        await source.put(piece("a", "The older text.", age=timedelta(days=1)))
        await target.put(piece("a", "The newer text."))
        assert (await target.take(await source.export(), Conflict.OVERWRITE)).outcomes == {"replaced": 1}
        assert await target.export() == await source.export()


class TestModels:
    """Vectors are used where they can be compared with the index's, and else recreated."""

    @pytest.mark.parametrize("model", [FakeEmbedder("another", dimension=16).model, None], ids=["another", "unknown"])
    async def test_vectors_of_another_model_stay_out_and_their_texts_wait(
        self, indexes: Indexes, model: EmbeddingModel | None
    ) -> None:
        source, target = await indexes.one(), await indexes.one(model)
        made = piece("a")
        await source.put(made)
        taken = await target.take(await source.export())
        assert taken.usable is None
        assert (taken.outcomes, taken.imported.pending) == ({"new": 1}, 1)
        assert await target.documents.pending(5) == [made.document.id]
        assert await target.documents.get(made.document.id) == made.document
        assert await target.vectors.vectors([chunk.id for chunk in made.chunks]) == {}

    async def test_a_reindexing_during_an_import_leaves_documents_that_wait(self, indexes: Indexes) -> None:
        source, target = await indexes.one(), await indexes.one()
        await source.put(piece("a"))
        importer = Importer(target.documents, target.writer, target.registry)
        export = Lines(Reindexed(await source.export(), target.registry))
        imported = await importer.import_lines(export, lambda *_: None, lambda _: None, lambda *_: None)
        assert (imported.pending, imported.outcomes[ImportOutcome.NEW]) == (1, 1)

    async def test_an_index_that_changes_its_model_meanwhile_is_not_exported_as_if_nothing_were(
        self, indexes: Indexes
    ) -> None:
        index = await indexes.one()
        await index.put(piece("a"))
        written: list[bytes] = []

        async def put(line: bytes) -> None:
            written.append(line)
            await index.registry.drop_vectors()

        with pytest.raises(BackendUnavailableError, match="export it again"):
            await Exporter(index.documents, index.vectors, index.registry).export(put, lambda *_: None)
        assert b'{"end"' not in b"".join(written)


class TestBroken:
    """One bad line is named and costs nothing else; an incomplete file is never accepted as complete."""

    @pytest.fixture
    async def export(self, indexes: Indexes) -> bytes:
        source = await indexes.memory()
        await source.put(*(piece(str(number), f"Text {number}.", cuts=[3]) for number in range(3)))
        return await source.export()

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"not json\n", "Not valid JSON"),
            (b'{"id": "x"}\n', "content"),
            (b"\xff\xfe\n", "Not valid JSON"),
            (b"[]\n", "Not a JSON object"),
        ],
    )
    async def test_an_invalid_line_is_named_by_its_number(
        self, indexes: Indexes, export: bytes, line: bytes, reason: str
    ) -> None:
        lines = export.splitlines(keepends=True)
        lines[2] = line
        taken = await (await indexes.one()).take(b"".join(lines))
        ((number, said),) = taken.broken
        assert number == 3
        assert reason in said
        assert "Text" not in said
        assert (taken.outcomes, taken.imported.broken) == ({"new": 2}, 1)
        assert taken.imported.complete

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"content": "Another text."}, "its content is not what was exported"),
            ({"id": "drawn"}, "its id is not one of this package"),
            ({"surprise": 1}, "Unknown field 'surprise'"),
            ({"timestamp": "yesterday"}, "timestamp must be a time"),
            ({"similarityHash": "x"}, "similarityHash"),
            (
                {"chunks": [{"id": "x", "start": -1, "end": 0, "startLine": 1, "endLine": 1}]},
                "start must be at least 0",
            ),
        ],
    )
    async def test_a_document_that_is_not_what_it_says_stays_out(
        self, indexes: Indexes, export: bytes, fields: dict[str, object], reason: str
    ) -> None:
        taken = await (await indexes.one()).take(changed(export, 2, **fields))
        ((number, said),) = taken.broken
        assert number == 2
        assert reason in said
        assert taken.outcomes == {"new": 2}

    @pytest.mark.parametrize(
        "vectors",
        ["", "AAAA", "###", "A" * 256, "AADAfwAAwH8" * 16],
        ids=["none", "few", "not base64", "noughts", "not numbers"],
    )
    async def test_vectors_that_cannot_be_right_are_recreated(
        self, indexes: Indexes, export: bytes, vectors: str
    ) -> None:
        target = await indexes.one()
        taken = await target.take(changed(export, 2, vectors=vectors))
        assert (taken.broken, taken.outcomes, taken.imported.pending) == ([], {"new": 3}, 1)
        assert await target.documents.pending(5) == [lines_of(export)[1]["id"]]

    async def test_chunks_that_are_not_cut_from_the_content_are_cut_again(
        self, indexes: Indexes, export: bytes
    ) -> None:
        target = await indexes.one()
        chunks = lines_of(export)[1]["chunks"]
        taken = await target.take(changed(export, 2, chunks=[{**chunks[0], "end": 1}, *chunks[1:]]))
        assert (taken.broken, taken.outcomes, taken.imported.pending) == ([], {"new": 3}, 1)
        id_ = lines_of(export)[1]["id"]
        document = await target.documents.get(id_)
        assert document is not None
        assert document.content == lines_of(export)[1]["content"]
        assert await target.documents.chunks(id_) == []

    @pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.999])
    async def test_a_file_that_was_cut_short_is_noticed_wherever_the_cut_is(
        self, indexes: Indexes, export: bytes, kept: float
    ) -> None:
        target = await indexes.one()
        taken = await target.take(export[: int(kept * len(export))])
        assert not taken.imported.complete
        assert (await target.take(export)).imported.complete
        assert (await target.documents.counts()).documents == 3

    async def test_lines_that_were_lost_added_or_doubled_are_noticed(self, indexes: Indexes, export: bytes) -> None:
        target = await indexes.one()
        header, one, *rest = export.splitlines(keepends=True)
        for lines in ([header, *rest], [header, one, one, *rest], [header, one, *rest, one], [header, *rest, *rest]):
            assert not (await target.take(b"".join(lines))).imported.complete
        assert (await target.take(b"\n" + export.replace(b"\n", b"\r\n\n"))).imported.complete

    async def test_a_line_longer_than_any_document_is_not_read_into_memory(
        self, indexes: Indexes, export: bytes
    ) -> None:
        target = await indexes.one()
        header, one, two, *rest = export.splitlines(keepends=True)
        longest = max(map(len, (header, one, two, *rest)))
        long = two.rstrip() + b" " * 3 * longest + b"\n"
        broken: list[int] = []
        importer = Importer(target.documents, target.writer, target.registry)
        lines = Lines(io.BytesIO(b"".join([header, one, b"x" * 4 * longest + b"\n", long, *rest])), longest=longest)
        imported = await importer.import_lines(
            lines, lambda *_: None, lambda _: None, lambda number, _: broken.append(number)
        )
        assert broken == [3]
        assert imported.lines == 4

    @pytest.mark.parametrize(
        "export", [b"", b"\n\n", b"not json\n", b'{"end":true,"documents":0}\n', b'{"format":"another","version":1}\n']
    )
    async def test_a_file_that_is_no_export_is_rejected(self, indexes: Indexes, export: bytes) -> None:
        with pytest.raises(InvalidInputError, match="no export of rag-context"):
            await (await indexes.memory()).take(export)

    async def test_a_file_of_a_newer_version_is_rejected_before_anything_comes_in(
        self, indexes: Indexes, export: bytes
    ) -> None:
        target = await indexes.memory()
        with pytest.raises(InvalidInputError, match=r"format 5, and this version reads up to 4: upgrade"):
            await target.take(changed(export, 1, version=5, surprise=True))
        assert (await target.documents.counts()).documents == 0


class TestBesideWriters:
    """What goes out of a document is one version of it, whole."""

    async def exported(self, index: Index) -> tuple[Exported, list[Any]]:
        out: list[bytes] = []

        async def put(line: bytes) -> None:
            out.append(line)

        result = await Exporter(index.documents, index.vectors, index.registry).export(put, lambda *_: None)
        return result, [json.loads(line) for line in out]

    async def test_a_document_that_changes_while_it_is_read_goes_out_in_its_newer_version(
        self, indexes: Indexes
    ) -> None:
        index = await indexes.two()
        await index.put(piece("a", "The old text."))
        new = piece("a", "The new text, longer.", cuts=[8])
        changing = Changing(index.documents, "a", 1, lambda: index.put(new))
        _, (_, line, _) = await self.exported(replace(index, documents=changing))
        assert line["content"] == new.document.content
        assert [chunk["id"] for chunk in line["chunks"]] == [chunk.id for chunk in new.chunks]
        assert line["vectors"] is not None

    async def test_a_document_that_is_deleted_meanwhile_is_left_out(self, indexes: Indexes) -> None:
        index = await indexes.one()
        gone, there = piece("a"), piece("b")
        await index.put(gone, there)
        changing = Changing(index.documents, "a", 1, lambda: index.writer.delete(gone.document.id))
        result, lines = await self.exported(replace(index, documents=changing))
        assert [line["id"] for line in lines[1:-1]] == [there.document.id]
        assert result.documents == lines[-1]["documents"] == 1

    async def test_a_document_that_never_stands_still_is_an_error(self, indexes: Indexes) -> None:
        index = await indexes.memory()
        await index.put(piece("a"))
        versions = iter(range(100))
        changing = Changing(index.documents, "a", TRIES, lambda: index.put(piece("a", f"Version {next(versions)}.")))
        with pytest.raises(BackendUnavailableError, match="changed during each of several reads"):
            await self.exported(replace(index, documents=changing))

    async def test_a_dead_vector_store_is_an_error_not_a_backup_without_vectors(self, indexes: Indexes) -> None:
        index = await indexes.one()
        await index.put(piece("a"))
        vectors: Faulty[VectorStore] = Faulty(index.vectors)
        vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
        with pytest.raises(BackendUnavailableError, match="gone"):
            await self.exported(replace(index, vectors=vectors.port))

    async def test_missing_vectors_are_reported(self, indexes: Indexes) -> None:
        index = await indexes.two()
        await index.put(piece("a"), piece("b", seed=None))
        vectors = index.vectors
        await vectors.clear()  # type: ignore[attr-defined]
        result, lines = await self.exported(index)
        assert result == Exported(documents=2, pending=2, chunks=2)
        assert [line["vectors"] for line in lines[1:-1]] == [None, None]


class Stopping:
    """A writer that goes away after some documents."""

    def __init__(self, writer: IndexWriter, after: int) -> None:
        self._writer = writer
        self._left = after

    async def write(self, version: Version) -> bool:
        self._left -= 1
        if self._left < 0:
            raise BackendUnavailableError("documents", "gone", retry_after_s=0.0)
        return await self._writer.write(version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Choosy:
    """A writer that never takes one of the documents."""

    def __init__(self, writer: IndexWriter, rejected: str) -> None:
        self._writer = writer
        self._refused = rejected

    async def write(self, version: Version) -> bool:
        if version.document.id == self._refused:
            raise BackendRejectedError("documents", "too large for this store")
        return await self._writer.write(version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Changing:
    """A document store in which something happens between reading one document and its chunks, some times."""

    def __init__(self, documents: DocumentStore, name: str, times: int, change: Callable[[], Any]) -> None:
        self._documents = documents
        self._changed = piece(name).document.id
        self._left = times
        self._change = change

    async def chunks(self, document_id: str) -> list[Chunk]:
        if self._left and document_id == self._changed:
            self._left -= 1
            await self._change()
        return await self._documents.chunks(document_id)

    async def get(self, document_id: str) -> Document | None:
        return await self._documents.get(document_id)

    async def stored(self, document_id: str) -> Stored | None:
        return await self._documents.stored(document_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)


class Counting(io.BytesIO):
    """A file that counts the lines that were read from it."""

    lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.lines += bool(line)
        return line


class Reindexed(io.BytesIO):
    """A file whose second line comes when the index was given another model."""

    def __init__(self, content: bytes, registry: ModelRegistry) -> None:
        super().__init__(content)
        self._loop = asyncio.get_running_loop()
        self._registry = registry
        self._read = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self._read += 1
        if self._read == 2:
            asyncio.run_coroutine_threadsafe(self._registry.drop_vectors(), self._loop).result()
        return super().readline(size)
