"""What is recorded of files on disk and of the projects they belong to."""

from dataclasses import dataclass
from datetime import datetime

from rag_context.domain.documents import Tenant


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
