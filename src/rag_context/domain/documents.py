"""Documents, their chunks and vectors, their tenants, files and times; and computed ids.

The same document has the same id wherever and whenever it is indexed. A document's id says *which* document it is, so
that a new version replaces the old one; its content hash says whether anything about it changed; a chunk's id says
which text is at which position of which document. Stores keep moments as microseconds since 1970; a time without a zone
is UTC.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints
from uuid import UUID

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

CHAT = "chat"
DECISION = "decision"
CODE = "code"
DOCUMENTATION = "documentation"
PROJECT_TAG = "project:"
"""A tag that begins so says which project a document belongs to; without one it belongs to none, and fits all."""
CONTENT_TYPES = (CHAT, DECISION, CODE, DOCUMENTATION)
"""The built-in kinds of content; settings may add more, which are treated as documentation."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LATEST = datetime.max.replace(tzinfo=UTC)

utc_now = partial(datetime.now, UTC)
"""The wall clock."""


class Shelf(StrEnum):
    """Where documents are kept that are not visible; see `journal`."""

    SUPERSEDED = "superseded"
    TRASH = "trash"


@dataclass(frozen=True, slots=True)
class Tenant:
    """The owner of documents. The default tenant is the agents' own memory."""

    project: str = ""
    branch: str = ""
    path_hash: str = ""
    """No request can name one that has a shelf: it begins with the shelf's name and a colon."""

    @property
    def names(self) -> tuple[str, str, str]:
        return self.project, self.branch, self.path_hash

    @property
    def has_files(self) -> bool:
        """Whether these are the files of a repository, whose front matter describes them."""
        return bool(self.visible.path_hash)

    @property
    def shelf(self) -> Shelf | None:
        """Where these documents are if they are not visible."""
        return next((shelf for shelf in Shelf if self.path_hash.startswith(f"{shelf}:")), None)

    @property
    def visible(self) -> "Tenant":
        """The owner itself."""
        return self.on(None) if ":" in self.path_hash else self

    def on(self, shelf: Shelf | None) -> "Tenant":
        """The owner of those of its documents that are on a shelf; None: that are visible."""
        path_hash = self.path_hash.removeprefix(f"{self.shelf}:")
        return Tenant(self.project, self.branch, f"{shelf}:{path_hash}" if shelf else path_hash)


DEFAULT_TENANT = Tenant()

_INITIAL = "initial"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextField:
    """What is declared of a text that callers state about documents, beside its name and whether filters compare it.

    The requests that state it or filter by it, the options of commands, hints, statistics, exports, and the columns,
    payloads, records and indexes of all stores follow from this and from the name.

    `stated`, `searched`, `listed` and `option` are its helps: where a document is indexed, as a filter of searches and
    of lists, and as an option of commands. `for_models`: lists of tools show it, which costs tokens. `is_counted`:
    statistics count searches by it (`StatsResponse` declares `queries_by_NAME`). `since` is the name of the migrations
    that add its columns to the SQL stores (`NNNN_NAME.sql`).
    """

    stated: str
    searched: str = ""
    listed: str = ""
    option: str = ""
    for_models: bool = False
    is_counted: bool = False
    since: str = _INITIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterFields:
    """Texts that callers state about documents, and that filters compare."""

    category: Annotated[
        str | None,
        TextField(
            stated="Any category; searches filter by the known ones",
            searched="Filter by content category",
            listed="Only documents of this category",
            option="Category of the documents.",
            for_models=True,
        ),
    ] = None
    game: Annotated[
        str | None,
        TextField(
            stated="Game the content is about",
            searched="Filter by the game that the content is about",
            listed="Only documents about this game",
            option="Game that the documents are about.",
            is_counted=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Metadata(FilterFields):
    """What the caller states about a document. `extra` is kept and returned, never filtered on."""

    agent: Annotated[str | None, TextField(stated="Agent that produced the content", for_models=True)] = None
    tags: tuple[str, ...] = ()
    decision_id: Annotated[str | None, TextField(stated="Identifier of the decision recorded here")] = None
    extra: Mapping[str, Json] = field(default_factory=dict)


def _declared(kind: type) -> dict[str, TextField]:
    hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


FILTERED: Mapping[str, TextField] = _declared(FilterFields)
"""The fields that filters compare, by their names."""

TEXT_FIELDS: Mapping[str, TextField] = _declared(Metadata)
"""All of them."""

_ALWAYS_HASHED = frozenset(name for name, declared in TEXT_FIELDS.items() if declared.since == _INITIAL)


@cache
def wire_name(name: str) -> str:
    """The name of a field in requests, answers and records: `decisionId` for `decision_id`."""
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


@dataclass(frozen=True, slots=True)
class MessageTime:
    """The time of the messages from the character `start` of a content on, up to the next one."""

    start: int
    at: datetime


class Channel(StrEnum):
    """How a document came in, which decides its identity."""

    TOOL = "tool"
    FILE = "file"


class Origin(StrEnum):
    """Whose words a text is, from the most trusted to the least; see `provenance.origin_of`."""

    OWNER = "owner"
    AGENT = "agent"
    TEAMMATE = "teammate"
    DOCUMENT = "document"
    WEB = "web"
    UNKNOWN = "unknown"

    def and_above(self) -> tuple["Origin", ...]:
        """Those that are trusted as much as this one, or more."""
        every = tuple(Origin)
        return every[: every.index(self) + 1]

    @classmethod
    def stored(cls, value: object) -> "Origin":
        """The origin that a store kept; what an earlier version stored has none."""
        known = cls._value2member_map_.get(value)
        return known if isinstance(known, Origin) else cls.UNKNOWN


def origins_of(counts: Iterable[tuple[object, int]]) -> dict[Origin, int]:
    """Counts by origins as a store kept them; several of those count as `UNKNOWN`."""
    sums: Counter[Origin] = Counter()
    for stored, count in counts:
        sums[Origin.stored(stored)] += count
    return dict(sums)


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """A document as it was submitted: without an id, not yet chunked or stored."""

    content: str
    content_type: str
    session_id: str
    source: str
    metadata: Metadata = Metadata()
    tenant: Tenant = DEFAULT_TENANT
    channel: Channel = Channel.TOOL
    occurred_at: datetime | None = None
    """When it was said or written; None where only the content may tell."""
    message_times: tuple[MessageTime, ...] = ()
    origin: Origin | None = None
    """None where source and content may tell (`provenance.origin_of`)."""
    id_space: str = ""
    """Documents of different spaces are different ones, whatever else identifies them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is shown of a document wherever it is. `timestamp` is when it was indexed."""

    content_type: str
    session_id: str
    source: str
    title: str
    timestamp: datetime
    metadata: Metadata

    def described(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Described.__slots__}


@dataclass(frozen=True, slots=True)
class Document(Described):
    """A stored document, said or written at `occurred_at`; `content_hash` covers what is returned, except times."""

    id: str
    tenant: Tenant
    content: str
    content_hash: str
    occurred_at: datetime
    thread: str | None = None
    """Session in which neighbouring documents are neighbouring turns of one conversation; None elsewhere."""
    similarity_hash: int = 0
    """64-bit SimHash of the content's terms; see `ingest.chunk_context`."""
    message_times: tuple[MessageTime, ...] = ()
    """Of a conversation whose text does not state them all; ascending."""
    origin: Origin = Origin.UNKNOWN
    """Of a conversation of the owner with an assistant `OWNER`, although its chunks may be of another origin."""


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

    `context` is the title and the headings that the text stands under, on one line: it is embedded and matched with
    the text, and not returned. A line above it (the file that code is in) is matched only, so that
    a file with another name has the same vectors. `occurred_at` is the time of its first message, elsewhere that of its
    document. `speaker` is who alone said it, a role or a name; None if several did, or it is no conversation.
    `is_standing`: it holds a standing instruction of the owner (`provenance.origins`).
    """

    id: str
    document_id: str
    position: int
    text: str
    span: Span
    context: str = ""
    _: KW_ONLY
    occurred_at: datetime
    speaker: str | None = None
    origin: Origin = Origin.UNKNOWN
    is_standing: bool = False

    @property
    def searchable(self) -> str:
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def embedded(self) -> str:
        headings = self.context.rpartition("\n")[2]
        return f"{headings}\n{self.text}" if headings else self.text


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds of one document; `indexed` once its vectors are there too."""

    content_hash: str
    indexed: bool
    chunk_ids: tuple[str, ...]
    occurred_at: datetime
    origin: Origin = Origin.UNKNOWN
    shelf: Shelf | None = None


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """What a vector store holds of one document: its chunks, and the content hashes they were made from."""

    chunk_ids: frozenset[str]
    revisions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Retrievals:
    count: int = 0
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listing(Described):
    """A document without its content, as lists show it; `indexed` once its vectors are there."""

    id: str
    occurred_at: datetime
    indexed: bool
    origin: Origin = Origin.UNKNOWN


@dataclass(frozen=True, slots=True)
class Cursor:
    timestamp: datetime
    id: str


class Status(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 document`, `2 documents`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a store holds; `others` are documents of other programs in it, which have no vectors of ours."""

    documents: int
    pending: int
    chunks: int
    vectors: int
    others: int = 0


@dataclass(frozen=True, slots=True)
class TenantState:
    """What a tenant has come to. `stamp` differs, in every process, after each change that its answers can show."""

    stamp: str
    documents: int
    """Pending ones too."""


@dataclass(frozen=True, slots=True)
class Missing:
    """How many of so many passages have no vector; both are 0 where all have one."""

    vectors: int = 0
    passages: int = 0
    of_all: bool = False
    """Whether it was counted over the whole store, of which one answer may see a part only."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The metadata of a file in the file system; it differs after most changes. Times in nanoseconds."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A document that came out of a file. Its content hash is empty until the index has acknowledged it."""

    source: str
    id: str
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The result of reading a file last time.

    `digest` identifies its content, `settings_hash` the settings it was read and labelled with, `read_ns` is the time
    by the wall clock; `is_named` tells whether a caller named the file itself, not only a folder above it.
    """

    path: str
    stamp: FileStamp
    read_ns: int
    digest: bytes
    settings_hash: bytes
    is_named: bool
    documents: tuple[FileDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecord:
    """What this machine records of a project of files. Paths are absolute; times are aware.

    `config_path` is empty where no activation named one; `is_followed`: a running server watches its files;
    `is_forced`: its branch was given although another one is checked out; `gone_since`: when its files or its branch
    were first missing, None while they exist.
    """

    tenant: Tenant
    root: str
    config_path: str
    last_used: datetime
    is_followed: bool = False
    is_forced: bool = False
    gone_since: datetime | None = None


NAMESPACE = UUID("7f3c0c4e-5a1d-5d0e-9c5b-2f6f0a3b8d41")
"""Namespace of all document ids. It must never change: every stored id depends on it."""


def document_id(document: DocumentInput) -> str:
    """The id of the document that `document` is a version of, a UUID string.

    Code and files are identified by tenant and source. Documents submitted through a tool are identified by tenant,
    kind, source and session; a chat by its text too, since one session sends many texts.
    """
    tenant = document.tenant
    fields = [tenant.project, tenant.branch, tenant.path_hash, document.source]
    if document.channel is Channel.TOOL and document.content_type != CODE:
        fields += [document.content_type, document.session_id]
        if document.content_type == CHAT:
            fields.append(_digest(document.content))
    if document.id_space:
        fields.append(f"space:{document.id_space}")
    return _named_id(NAMESPACE, json.dumps(fields))


_SORTED_JSON = json.JSONEncoder(sort_keys=True).encode  # `json.dumps` makes an encoder for each call


def content_hash(document: DocumentInput | Document) -> str:
    """SHA-256 in hexadecimal over the content and everything that is returned with it."""
    metadata = document.metadata
    stated = {name: getattr(metadata, name) for name in TEXT_FIELDS}
    fields = {
        "content": document.content,
        "contentType": document.content_type,
        "sessionId": document.session_id,
        "source": document.source,
        "tags": metadata.tags,
        "extra": dict(metadata.extra),
        # A field that came later counts where it has a value only: what was stored before keeps its hash.
        **{wire_name(name): value for name, value in stated.items() if value is not None or name in _ALWAYS_HASHED},
    }
    return _digest(_SORTED_JSON(fields))


def chunk_ids(document_id: str, chunks: Iterable[tuple[str, str]]) -> list[str]:
    """One UUID string per chunk, from the document's id, the place in the order, and the chunk's context and text.

    What is embedded decides the id: a chunk that keeps its id keeps its vector.
    """
    namespace = UUID(document_id)
    return [_named_id(namespace, f"{position}:{_digest(json.dumps(chunk))}") for position, chunk in enumerate(chunks)]


def _named_id(namespace: UUID, name: str) -> str:
    """`str(uuid.uuid5(namespace, name))`, which takes twice as long."""
    digest = bytearray(hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid(text: str) -> bool:
    """Whether it is written as ids of documents and chunks are; from another id no chunk ids can be computed."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


_UNSAFE = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"  # UTF-8 of U+007F to U+2069
)


def for_terminals(body: bytes) -> bytes:
    r"""JSON in which no string steers a terminal or turns a line around: `\u009b` for the character, which is the same.

    JSON itself escapes what is below U+0020.
    """
    return _UNSAFE.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), body)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    return (aware(moment) - EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return EPOCH + value * _MICROSECOND


def packed_times(times: Iterable[MessageTime]) -> str | None:
    """Message times as stores keep them; None without any."""
    pairs = [[each.start, microseconds(each.at)] for each in times]
    return json.dumps(pairs, separators=(",", ":")) if pairs else None


def unpacked_times(stored: str | None) -> tuple[MessageTime, ...]:
    """Message times as they were before `packed_times`. Raises: TypeError or ValueError if they are damaged."""
    return tuple(MessageTime(int(start), moment(at)) for start, at in json.loads(stored)) if stored else ()


def end_of(until: datetime | None, as_of: datetime | None) -> datetime | None:
    """The end of what is before `until` and not after `as_of`, itself excluded; None: there is none."""
    if as_of is None or as_of == LATEST:
        return until
    after = as_of + _MICROSECOND
    return after if until is None else min(until, after)


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Items in order, `size` at once."""
    return (items[start : start + size] for start in range(0, len(items), size))
