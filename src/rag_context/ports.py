"""The sockets in the wall: what the work needs from the outside, said in the domain's words.

Adapters fit structurally. They are async, raise only our own errors, apply the whole `Filter` themselves and
order by descending score. Sequences come back in the order asked for; unknown ids are left out of mappings.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from rag_context.records import ErrorRecord, SearchRecord, SearchSummary
from rag_context.types import (
    Chunk,
    ChunkRef,
    Counts,
    Document,
    EmbeddingModel,
    Examination,
    FileEntry,
    Filter,
    FlawKind,
    Held,
    Listing,
    Matrix,
    Missing,
    Neighbours,
    Passage,
    Place,
    ProjectRecord,
    Rebuild,
    Retrievals,
    Stored,
    Tenant,
    TextHit,
    Thoroughness,
    Vector,
    VectorHit,
)

Judge: TypeAlias = Callable[[Document, Sequence[Chunk]], Iterable[FlawKind]]
"""Says what is wrong with a document and its chunks (by position)."""


class Tokenizer(Protocol):
    """Cuts text as the embedder does."""

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of every token of `text`, in order; special tokens excluded, nothing truncated."""
        ...


class Embedder(Protocol):
    """Turns text into vectors."""

    @property
    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known (loading, unreachable)."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, ahead of any documents that wait."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages; one row per text."""
        ...

    async def ping(self) -> str:
        """Embed a probe past every cache; returns one line for people. Raises: BackendError."""
        ...


class ChatModel(Protocol):
    """Writes text."""

    async def complete(self, instructions: str, message: str) -> str:
        """What the model writes when it is told `instructions` and asked `message`; never blank."""
        ...


class VectorStore(Protocol):
    """Finds chunks by vector."""

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]: ...

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        """Exact cosine of the given chunks; chunks without a vector are left out."""
        ...

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        """What the store can show of the given chunks by itself, where the document store cannot be asked."""
        ...

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the given chunks; those without are left out."""
        ...

    async def ping(self) -> str: ...


class TextIndex(Protocol):
    """Finds chunks by words. The query is data: no character of it is syntax."""

    async def search(self, query: str, *, limit: int, where: Filter) -> list[TextHit]: ...

    async def score(self, query: str, chunks: Sequence[ChunkRef]) -> dict[str, TextHit]:
        """Exact text score of the given chunks; those that hold none of the terms, or are unknown, may be left out."""
        ...


class DocumentStore(Protocol):
    """Holds the documents and their chunks."""

    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of; read without any I/O."""
        ...

    @property
    def stamp(self) -> str | None:
        """Names this state of this index to every process that uses it; None while it is not known. No I/O."""
        ...

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]: ...

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]: ...

    async def get(self, document_id: str) -> Document | None: ...

    async def stored(self, document_id: str) -> Stored | None:
        """What is there of a document; None where it is unknown."""
        ...

    async def chunks(self, document_id: str) -> list[Chunk]: ...

    async def pending(self, limit: int) -> list[str]:
        """Ids of documents that still lack vectors, oldest first."""
        ...

    async def matching(self, where: Filter, limit: int) -> list[str]:
        """Ids of the documents that a filter lets through, oldest first."""
        ...

    async def similar(self, document: Document) -> list[str]:
        """Ids of other documents of the tenant whose similarity hash is within 3 bits."""
        ...

    async def listing(self, where: Filter, *, limit: int, after: Place | None = None) -> list[Listing]:
        """The documents that a filter lets through, newest first, equal ones by id; those behind `after`."""
        ...

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        """All documents of all tenants by ascending id, those behind the id `after` ("" for the first)."""
        ...

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        """Which version is there of each document, whatever its tenant."""
        ...

    async def tenants(self) -> list[Tenant]:
        """Everybody of whom there are documents."""
        ...

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None: ...

    async def retrievals(self, document_id: str) -> Retrievals: ...

    async def counts(self) -> Counts: ...

    async def missing_vectors(self, where: Filter) -> Missing:
        """How many of the passages that a filter lets through have no vector; nothing is counted where none lacks."""
        ...

    async def ping(self) -> str: ...


class IndexWriter(Protocol):
    """The one way in: after a call returns, what it wrote survives the end of the process.

    `made_by` is the fingerprint of the model that made the vectors. Where the index records another one by now,
    they are refused (BackendRejectedError) and nothing changes; None leaves that to the caller.
    """

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version; at no moment is neither found.

        Returns whether its vectors are in too. Without vectors, or where they could not be stored now, the document
        is stored as pending: found by text, its vectors follow by `attach`.
        """
        ...

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors of a pending document; False where it changed or went away meanwhile."""
        ...

    async def recut(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document changed or went away meanwhile."""
        ...

    async def delete(self, document_id: str) -> bool: ...


class DocumentWriter(Protocol):
    """The documents' half of a write, where the vectors are kept by another store.

    A document is pending from `put` to `settle`. What a call returns from survives the end of the process.
    """

    async def put(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Store a document, pending, in place of its earlier version; it is found by text from now on."""
        ...

    async def recut(self, document: Document, chunks: Sequence[Chunk]) -> bool:
        """Put other chunks in place of this version's, pending; False where it changed or went away meanwhile."""
        ...

    async def settle(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        """Note that this version's vectors are in; False where it changed or went away meanwhile.

        Raises:
            BackendRejectedError: the index records another model than `made_by` by now.
        """
        ...

    async def unsettle(self, document_ids: Collection[str]) -> None:
        """Note that the vectors of these documents are not what they should be: they are pending again."""
        ...

    async def delete(self, document_id: str) -> bool: ...


class VectorWriter(Protocol):
    """The vectors' half of a write, where the documents are kept by another store. Every call may be repeated."""

    async def prepare(self, model: EmbeddingModel) -> None:
        """Make whatever is missing to hold vectors of this model.

        Raises:
            BackendRejectedError: there are vectors of another dimension.
        """
        ...

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        """Store the vectors of a document; those of its earlier versions go, but not before the new ones are found."""
        ...

    async def discard(self, document_ids: Collection[str]) -> None:
        """Forget the vectors of these documents."""
        ...

    async def held(self, document_ids: Collection[str]) -> dict[str, Held]:
        """What is there of these documents; those without a vector are left out."""
        ...

    def held_documents(self) -> AsyncIterator[str]:
        """The ids of all documents that have vectors, each at least once."""
        ...

    async def count(self) -> int:
        """How many vectors there are."""
        ...

    async def clear(self) -> None:
        """Forget all vectors."""
        ...


class ModelRegistry(Protocol):
    """Remembers which model made the vectors of the index."""

    async def recorded_model(self) -> EmbeddingModel | None: ...

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors.

        Raises:
            IndexMismatchError: its vectors were made by another model.
        """
        ...

    async def drop_vectors(self) -> int:
        """Forget all vectors and the model that made them; every document becomes pending. Returns how many."""
        ...


class VectorRebuilder(Protocol):
    """Makes room for new vectors beside those that answer, and puts them in their place once they are complete.

    A run survives the end of the process. A document that is written or deleted meanwhile lacks its new vectors
    again, or is gone from both.
    """

    async def under_way(self) -> Rebuild | None:
        """The run that was begun and is not complete."""
        ...

    async def begin(self, model: EmbeddingModel) -> None:
        """Begin to make the vectors of `model`; what another run has made is forgotten."""
        ...

    async def lacking(self, after: str, limit: int) -> list[str]:
        """Ids, ascending, of documents behind the id `after` ("" for the first) that lack new vectors."""
        ...

    async def remaining(self) -> int:
        """How many documents lack new vectors."""
        ...

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        """Store the new vectors of this version of a document; False where it changed or went away meanwhile."""
        ...

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Put the new vectors and their model in the place of the old ones; False where too many are missing.

        Documents that lack theirs then are pending. Those in `without` cannot have any, and keep nobody waiting.
        """
        ...

    async def abandon(self) -> None:
        """Forget the run under way and what it has made."""
        ...


class IndexAuditor(Protocol):
    """Compares what a store says of itself with what it holds."""

    async def examine(self, judge: Judge, thoroughness: Thoroughness) -> Examination:
        """Examine all of it, at one moment; every document is shown to `judge`.

        Raises:
            ForeignIndexError: the index is another program's, or a newer version's.
            BackendDataError: it is too damaged to be examined.
        """
        ...

    async def mend(self, kinds: Collection[FlawKind]) -> None:
        """Mend what the store can mend by itself; documents whose vectors are wrong become pending."""
        ...

    async def distrust(self, document_ids: Collection[str]) -> None:
        """Take the version of these documents for none, so that indexing their sources again replaces them."""
        ...


class FileLedger(Protocol):
    """Remembers what became of the files of this machine; all of it can be found out again by reading them.

    Called from threads, one call at a time.
    """

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        """What is known of the given files, by path."""
        ...

    def below(self, path: str) -> Iterator[FileEntry]:
        """What is known of a file, or of all files below a folder, by path."""
        ...

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        """Some files that held the same when they were last read."""
        ...

    def put(self, entries: Collection[FileEntry]) -> None: ...

    def forget(self, paths: Collection[str]) -> None: ...


class ProjectRegistry(Protocol):
    """Remembers the projects of files that this machine works on, for all its processes.

    Called from threads. What cannot be written is logged and forgotten with the process; nothing is raised.
    """

    def records(self) -> list[ProjectRecord]:
        """Everything that is remembered, what was used last first."""
        ...

    def put(self, record: ProjectRecord) -> None:
        """Remember a project, in place of what was remembered of its tenant."""
        ...

    def note_used(self, times: Mapping[Tenant, datetime]) -> None: ...

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None: ...

    def forget(self, tenants: Collection[Tenant]) -> None: ...


class MetricsStore(Protocol):
    """Keeps one record per search, and the errors."""

    async def append(self, searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> None: ...

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> SearchSummary: ...

    async def prune(self, before: datetime) -> int: ...


class Cache(Protocol):
    """A bounded memory of bytes that may forget anything at any time."""

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, value: bytes, ttl_s: float) -> None: ...

    async def ping(self) -> str: ...
