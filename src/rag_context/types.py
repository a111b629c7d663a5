"""The nouns every room shares: documents, chunks, filters, hits. All frozen; none knows a vendor or a wire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding: `(dim,) float32`, L2 norm 1."""

Matrix: TypeAlias = NDArray[np.float32]
"""Embeddings row by row: `(n, dim) float32`, each of L2 norm 1."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

CHAT = "chat"
DECISION = "decision"
CODE = "code"
DOCUMENTATION = "documentation"
CONTENT_TYPES = (CHAT, DECISION, CODE, DOCUMENTATION)
"""The built-in kinds of content; settings may add more, which are treated as documentation."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose documents these are. The default tenant is the agents' own memory."""

    project: str = ""
    branch: str = ""
    path_hash: str = ""

    @property
    def has_files(self) -> bool:
        """Whether these are the files of a repository, whose front matter says what their project makes of them."""
        return bool(self.path_hash)


DEFAULT_TENANT = Tenant()


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the writer said about a document. `extra` is kept and returned, never filtered on."""

    agent: str | None = None
    tags: tuple[str, ...] = ()
    category: str | None = None
    game: str | None = None
    decision_id: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


class Origin(StrEnum):
    """How a document came in, which decides its identity."""

    TOOL = "tool"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as it was handed in: not yet identified, cut or stored."""

    content: str
    content_type: str
    session_id: str
    source: str
    metadata: Metadata = Metadata()
    tenant: Tenant = DEFAULT_TENANT
    origin: Origin = Origin.TOOL


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document. `content_hash` covers the content and all that is returned with it."""

    id: str
    tenant: Tenant
    content_type: str
    session_id: str
    source: str
    title: str
    content: str
    content_hash: str
    timestamp: datetime
    metadata: Metadata
    thread: str | None = None
    """Session in which neighbouring documents are neighbouring turns of one talk; None where they are not."""
    similarity_hash: int = 0
    """64-bit SimHash of the content's terms; see `indexing.duplicates`."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: offsets in characters, lines counted from 1, and the headings it stands under."""

    start: int
    end: int
    start_line: int
    end_line: int
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The unit that is embedded, matched and returned: `text == content[span.start:span.end]`.

    `context` is what the text itself does not say of where it stands (title, headings), on one line: it is embedded
    and matched with the text, and not returned. A line above it (the file that code is in) is matched only, so that
    a file with another name has the same vectors.
    """

    id: str
    document_id: str
    position: int
    text: str
    span: Span
    context: str = ""

    @property
    def searchable(self) -> str:
        """What is matched by words."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def embedded(self) -> str:
        """What is embedded."""
        headings = self.context.rpartition("\n")[2]
        return f"{headings}\n{self.text}" if headings else self.text


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds of one document; `indexed` once its vectors are there too."""

    content_hash: str
    indexed: bool
    chunk_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What a vector store holds of one document: its chunks, and the content hashes they were made from."""

    chunk_ids: frozenset[str]
    revisions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Retrievals:
    """How often a document was returned by a search, and when last."""

    count: int = 0
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A document without its content, as lists show it; `indexed` once its vectors are there."""

    id: str
    title: str
    content_type: str
    session_id: str
    source: str
    timestamp: datetime
    metadata: Metadata
    indexed: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list was left off: the last document that was shown."""

    timestamp: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which chunks a search may see. Every field narrows; None and () narrow nothing. `since <= t < until`.

    Of `tags` a document has all; of every group of `any_tags` it has at least one. Documents whose ids are in
    `without_documents` are not seen.
    """

    tenant: Tenant = DEFAULT_TENANT
    content_type: str | None = None
    session_id: str | None = None
    category: str | None = None
    game: str | None = None
    source: str | None = None
    source_prefix: str | None = None
    tags: tuple[str, ...] = ()
    any_tags: tuple[tuple[str, ...], ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    without_documents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk by name, with what ranking needs to know of it."""

    id: str
    document_id: str
    position: int
    content_type: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A chunk and its cosine to the query, -1..1."""

    chunk: ChunkRef
    cosine: float


@dataclass(frozen=True, slots=True)
class TextHit:
    """A chunk, its BM25 score (0..) and the share of the query's idf mass that it holds (0..1)."""

    chunk: ChunkRef
    bm25: float
    share: float


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The chunks before and after a chunk in its document, or in its talk."""

    before: ChunkRef | None = None
    after: ChunkRef | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with all that an answer says of it."""

    chunk: Chunk
    document_id: str
    title: str
    content_type: str
    session_id: str
    source: str
    timestamp: datetime
    metadata: Metadata


class Status(StrEnum):
    """How a component is."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a store holds."""

    documents: int
    pending: int
    chunks: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Missing:
    """How many of so many passages have no vector; both are 0 where none lacks one."""

    vectors: int = 0
    passages: int = 0


@dataclass(frozen=True, slots=True)
class Calibration:
    """`p = sigmoid(slope * cosine + intercept)`: how likely a passage of this cosine is relevant under this model."""

    slope: float
    intercept: float
    threshold: float = 0.3
    """Default least probability of a returned passage."""
    answerable_cosine: float = 0.4
    """Below this best cosine, probably nothing in the index answers the query."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What an index must know of the model that made its vectors."""

    name: str
    dimension: int
    fingerprint: str
    """SHA-256 of the model file, or of a probe's vector where there is no file."""
    window: int
    """Most tokens of a text the model reads, its own special tokens excluded."""
    calibration: Calibration
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A run that makes the vectors of `model` beside those that answer; `touched` when it last got on (since 1970)."""

    model: EmbeddingModel
    touched: float


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What the system says of a file without reading it; it differs after most changes. Times in nanoseconds."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A document that came out of a file. Its content hash is empty while nobody has acknowledged it."""

    source: str
    id: str
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What became of a file when it was last read.

    `digest` says what it held, `recipe` how it was read and labelled, `read_ns` when, by the wall clock; `is_named`
    whether a caller had named it, not only a folder above it.
    """

    path: str
    stamp: FileStamp
    read_ns: int
    digest: bytes
    recipe: bytes
    is_named: bool
    documents: tuple[FileDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecord:
    """What this machine remembers of a project of files. Paths are absolute; times are aware.

    `config_path` is empty where no activation named it; `is_followed` says that its files are followed while a server
    runs, `is_forced` that its branch was given against what is checked out, `gone_since` when its files or its branch
    were first seen not to be there, None while they are.
    """

    tenant: Tenant
    root: str
    config_path: str
    last_used: datetime
    is_followed: bool = False
    is_forced: bool = False
    gone_since: datetime | None = None


class Thoroughness(StrEnum):
    """How closely an index is examined."""

    QUICK = "quick"
    """Beside everything else, without keeping anybody from writing."""

    FULL = "full"
    """Every page, every term; writers wait while the text index is compared."""


class FlawKind(StrEnum):
    """What can be untrue of an index."""

    DAMAGED_FILE = "damaged-file"
    WRONG_COUNTERS = "wrong-counters"
    ORPHANS = "orphans"
    LOST_CONTENT = "lost-content"
    CHANGED_CONTENT = "changed-content"
    WRONG_ID = "wrong-id"
    WRONG_TAGS = "wrong-tags"
    BROKEN_CHUNKS = "broken-chunks"
    MISSING_VECTORS = "missing-vectors"
    BAD_VECTORS = "bad-vectors"
    STALE_VECTORS = "stale-vectors"
    NO_MODEL = "no-model"
    STALE_TERMS = "stale-terms"
    TEXT_INDEX = "text-index"
    STATISTICS = "statistics"


@dataclass(frozen=True, slots=True)
class Flaw:
    """A kind of untruth, how often it was met, and a few places (ids where there are some)."""

    kind: FlawKind
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """What an examination of an index found."""

    counts: Counts
    compared_terms: int
    """Of how many chunks the stored terms were compared with the analyser's; a sample of a large index."""
    flaws: tuple[Flaw, ...]
    broken: tuple[str, ...] = ()
    """Ids of all documents whose chunks are broken."""
    spoilt: tuple[str, ...] = ()
    """Ids of all documents whose content is lost, damaged or changed."""
