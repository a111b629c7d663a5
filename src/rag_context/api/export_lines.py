"""The lines of an exported index: a header, a document a line, and an end that says how many there were."""

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, JsonValue

from rag_context.api.index import MessageTimeFields
from rag_context.api.parsing import read_json
from rag_context.api.wire import Count, DeclaredRequest, Instant, OriginName, WireRequest, about
from rag_context.domain.documents import TEXT_FIELDS
from rag_context.domain.journal import Action
from rag_context.errors import InvalidInputError

VERSION = 4
"""Grows with every change that an older reader could not follow."""

OF_DOCUMENTS = 3
"""What an export of nothing but documents is written as."""

Line = TypeVar("Line", bound="ExportLine")


class ExportLine(WireRequest):
    """One line."""

    def to_json(self) -> bytes:
        """The line, with its line feed. Values that are not there are written as null."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True) + b"\n"


class ExportedCalibration(ExportLine):
    """How cosines of the model become relevance."""

    slope: float
    intercept: float
    threshold: float
    answerable_cosine: float
    sampled: Annotated[Count, about("Vectors or pairs of texts that it was made of; 0: the model's own")] = 0


class ExportedModel(ExportLine):
    """The model that made the vectors."""

    name: str
    dimension: Annotated[int, Field(ge=1)]
    fingerprint: str
    window: Annotated[int, Field(ge=1)]
    query_prefix: str
    document_prefix: str
    calibration: ExportedCalibration


class ExportHeader(ExportLine):
    """The first line."""

    format: Literal["rag-context-export"] = "rag-context-export"
    version: int = OF_DOCUMENTS
    exported_at: Instant
    model: ExportedModel | None
    project: Annotated[str | None, about("The only project that is in; null for all there is")] = None
    documents: Annotated[Count | None, about("How many are to come, where that is known")] = None


_TEXTS = {name: Annotated[str | None, Field(default=None)] for name in TEXT_FIELDS if name != "agent"}


class ExportedMetadata(DeclaredRequest, declared=_TEXTS, behind="tags"):
    """What the writer said about a document."""

    agent: str | None = None
    tags: tuple[str, ...] = ()
    extra: Annotated[dict[str, JsonValue], Field(default_factory=dict)]


class ExportedChunk(ExportLine):
    """A piece of the content, by its place; lines are counted from 1."""

    id: str
    start: Count
    end: Count
    start_line: int
    end_line: int
    heading: str = ""
    context: str = ""
    occurred_at: Instant | None = None


class ExportedDocument(ExportLine):
    """A document with everything that hangs on it. `vectors` are float32, little-endian, row by row, in base64."""

    id: str
    project: str = ""
    branch: str = ""
    path_hash: str = ""
    content_type: str
    session_id: str
    source: str
    title: str
    content: str
    content_hash: str
    timestamp: Instant
    occurred_at: Annotated[Instant | None, about("Absent in exports of version 1")] = None
    metadata: ExportedMetadata
    thread: str | None = None
    message_times: tuple[MessageTimeFields, ...] = ()
    similarity_hash: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    origin: Annotated[OriginName | None, about("Absent in exports of earlier versions")] = None
    chunks: list[ExportedChunk]
    vectors: str | None = None


class ExportedTombstone(ExportLine):
    """What was forgotten: the id of a document, and a hash of its content."""

    identity: str
    content: str | None = None
    at: Instant


class ExportedEntry(ExportLine):
    """A change. `moves` are places before and after: id, content hash, shelf, and what took its place."""

    sequence: int
    at: Instant
    by: str
    action: Action
    project: str = ""
    branch: str = ""
    path_hash: str = ""
    moves: list[list[JsonValue]]
    reason: str | None = None
    undoes: int | None = None


class ExportedLink(ExportLine):
    """What the journal knows of a stored document."""

    id: str
    content_hash: str
    project: str = ""
    branch: str = ""
    path_hash: str = ""
    source: str
    timestamp: Instant
    superseded_by: str | None = None
    reason: str | None = None
    superseded_at: Instant | None = None
    expires_at: Instant | None = None
    pinned: bool = False


class ExportedChanges(ExportLine):
    """A part of the journal. Tombstones and entries stand before all documents, links behind their own."""

    changes: Literal[True] = True
    tombstones: tuple[ExportedTombstone, ...] = ()
    entries: tuple[ExportedEntry, ...] = ()
    links: tuple[ExportedLink, ...] = ()


class ExportedDocumentOfCollection(ExportLine):
    """A document of a collection."""

    id: str
    text: str
    metadata: dict[str, JsonValue]


class ExportedCollection(ExportLine):
    """A part of a collection, with all that the whole is called. `vectors` are as those of documents."""

    collection: str
    metadata: dict[str, JsonValue]
    embedding_provider: str | None = None
    embedding_model: str | None = None
    dimension: Annotated[int | None, Field(ge=1)] = None
    created: Instant | None = None
    documents: list[ExportedDocumentOfCollection]
    vectors: str


class ExportedSearches(ExportLine):
    """Records of searches, the newest first."""

    searches: list[dict[str, JsonValue]]


class ExportFooter(ExportLine):
    """The last line, by which a file that was cut short is known."""

    end: Literal[True] = True
    documents: Count


class _Version(WireRequest):
    """What any version's first line says of itself."""

    model_config: ClassVar[Any] = {**WireRequest.model_config, "extra": "ignore"}

    format: Literal["rag-context-export"]
    version: int


def read_header(line: bytes) -> ExportHeader:
    """Read the first line.

    Raises: InvalidInputError (it is not that of an export, or of one that a newer version wrote).
    """
    try:
        version = read_json(_Version, line).version
    except InvalidInputError:
        raise InvalidInputError("This is no export of rag-context: its first line does not say so.") from None
    if version > VERSION:
        raise InvalidInputError(
            f"The export is of format {version}, and this version reads up to {VERSION}: upgrade rag-context."
        )
    return read_line(ExportHeader, line)


def read_line(kind: type[Line], line: bytes) -> Line:
    return read_json(kind, line)
