"""Records of files on disk and of the projects they belong to."""

from dataclasses import dataclass
from datetime import datetime

from rag_context.domain.documents import Tenant


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

    `digest` identifies its content, `recipe` the settings it was read and labelled with, `read_ns` is the time by the
    wall clock; `is_named` tells whether a caller named the file itself, not only a folder above it.
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
