"""Reads files on disk as documents, with their kind of content, or with the reason why one is left out.

Reading is bounded and follows no link. A file that cannot be used is returned as a `Rejected`, never an exception.
"""

import codecs
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from rag_context.domain import documents
from rag_context.domain.provenance import stated_time
from rag_context.files.descriptors import NotRegularError, open_file
from rag_context.files.formats.converter import SNIFFED_BYTES, Converter, format_of
from rag_context.files.formats.exchange import MAX_FILE_BYTES, ConversionError, Extracted, Format, MissingLibraryError
from rag_context.files.generated import Generated, kind_of

FILES_SESSION = "files"
"""Session of documents read from files, unless another is named."""

READING = "2"
"""Grows when the same file becomes another document than before: then every file is read again once."""

DEFAULT_MAX_BYTES = 1 << 20
MAX_IGNORE_BYTES = 1 << 20
IGNORE_FILES = (".gitignore", ".ragignore")
"""Read in every folder; in one folder the later ones win, and deeper folders win over all above."""

_MACHINERY = (
    ".git .hg .svn .jj node_modules bower_components .venv venv __pycache__ .tox .nox .mypy_cache .ruff_cache "
    ".pytest_cache .hypothesis .cache .gradle .idea .vs .terraform .next .nuxt .eggs site-packages"
)
SKIPPED_FOLDERS = frozenset(_MACHINERY.split())
SKIPPED_FILES = frozenset(
    [".gitignore", ".ragignore", ".gitattributes", ".DS_Store", "Thumbs.db", ".env", ".env.local"]
)
"""Never useful in an answer: caches, tools and secrets. Generated files are recognised by `generated`."""

_CODE_SUFFIXES = (
    "py pyi js jsx mjs cjs ts tsx mts cts cs csx fs fsx vb java kt kts scala groovy go rs c h cc cpp cxx hh hpp hxx m "
    "mm swift rb php pl pm lua r jl dart ex exs erl hrl hs ml mli clj cljs elm nim zig d pas sql graphql gql proto sh "
    "bash zsh fish ps1 psm1 bat cmd css scss sass less vue svelte astro json jsonc json5 yaml yml toml ini cfg conf "
    "properties xml xsl xsd csproj sln gradle cmake mk tf hcl dockerfile editorconfig sol asm s"
)
_DOCUMENTATION_SUFFIXES = "md markdown mdx mdown rst adoc asciidoc org txt text tex log csv tsv"
CONTENT_TYPES_BY_SUFFIX = {
    **{f".{suffix}": documents.CODE for suffix in _CODE_SUFFIXES.split()},
    **{f".{suffix}": documents.DOCUMENTATION for suffix in _DOCUMENTATION_SUFFIXES.split()},
    ".chat": documents.CHAT,
}
"""Kind of content by the end of the name; of documentation and any other text `kinds` tells the kind."""

CODE_NAMES = frozenset(
    {"makefile", "cmakelists.txt", "dockerfile", "jenkinsfile", "rakefile", "gemfile", "vagrantfile", "procfile"}
)

UNSUPPORTED = {
    **dict.fromkeys((".doc", ".odt", ".rtf"), "word processor"),
    **dict.fromkeys((".pptx", ".ppt", ".odp", ".xlsx", ".xls", ".ods"), "office"),
    ".epub": "EPUB",
}
"""Formats with text that are not supported."""

# UTF-32 before UTF-16: the mark of the former begins with the mark of the latter.
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARKS = tuple(mark for mark, _ in _ENCODINGS)
_NOT_TEXT = dict.fromkeys([*range(8), *range(14, 27), *range(28, 32), 127])
_MAX_CONTROL_SHARE = 0.1

_NO_METADATA = documents.Metadata()


@dataclass(frozen=True, slots=True)
class Labels:
    """The metadata for every file of a run. Without a content type or a session they follow from the file."""

    content_type: str | None = None
    session_id: str | None = None
    metadata: documents.Metadata = _NO_METADATA


_NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read. `named`: the caller named the file itself, not only a folder above it."""

    path: Path
    named: bool


def stamp_of(status: os.stat_result) -> documents.FileStamp:
    return documents.FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@dataclass(frozen=True)
class LoadedFile:
    """The bytes of a file, and its stamp just before they were read."""

    path: Path
    named: bool
    data: bytes
    format: Format | None
    """The format it must be converted from; None for plain text."""
    stamp: documents.FileStamp
    read_ns: int
    """When reading began, by the wall clock."""

    @cached_property
    def digest(self) -> bytes:
        return hashlib.blake2b(self.data, digest_size=16).digest()


FileTime: TypeAlias = Callable[[LoadedFile], datetime | None]
"""Says when a file was written."""


@dataclass(frozen=True, slots=True)
class FileInput:
    document: documents.DocumentInput
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many other parts of a conversation were left out, by kind."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that was left out, by a printable name.

    `failed` is False where a walk met a file that is not text and that the caller did not name. `unknown` is True where
    the content could not be read: the file may be unchanged.
    """

    path: str
    reason: str
    failed: bool = True
    unknown: bool = False


class _UnusableError(Exception):
    """Why a file cannot be used. `expected` among the files of any folder, such as pictures."""

    def __init__(self, reason: str, *, expected: bool = False, unknown: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected
        self.unknown = unknown


def printable(path: Path) -> str:
    """A printable path; bytes that are not UTF-8 are written as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def content_type_of(path: Path) -> str:
    """Kind of content by a file's name, as far as that tells it."""
    name = path.name.lower()
    if name in CODE_NAMES or name.startswith("dockerfile."):
        return documents.CODE
    return CONTENT_TYPES_BY_SUFFIX.get(path.suffix.lower(), documents.DOCUMENTATION)


def modified_at(loaded: LoadedFile) -> datetime | None:
    """When a file was last changed; None if its time is no time."""
    try:
        return documents.moment(loaded.stamp.modified_ns // 1000)
    except OverflowError:  # a file system may keep any number
        return None


def read_file(
    found: Found, labels: Labels = _NO_LABELS, *, max_bytes: int = DEFAULT_MAX_BYTES, times: FileTime = modified_at
) -> FileInput | Rejected:
    """Read one file of text; its source is its absolute POSIX path, and line ends stay as they are."""
    loaded = load_file(found, max_bytes=max_bytes)
    if isinstance(loaded, Rejected):
        return loaded
    if loaded.format is not None:
        return _rejected(found, _UnusableError(f"{loaded.format} file, not text", expected=True))
    return text_input(loaded, labels, times=times)


def load_file(found: Found, *, max_bytes: int = DEFAULT_MAX_BYTES) -> LoadedFile | Rejected:
    """The bytes of a file; of one that cannot be used, only as many as it takes to detect that."""
    path = found.path
    try:
        # Bytes that are not UTF-8 are surrogates in a path, which neither JSON nor a store can hold.
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return Rejected(printable(path), "its name is not valid UTF-8")
    try:
        return _loaded(found, max_bytes)
    except _UnusableError as error:
        return _rejected(found, error)


def text_input(
    loaded: LoadedFile, labels: Labels = _NO_LABELS, generated: Generated | None = None, times: FileTime = modified_at
) -> FileInput | Rejected:
    """The text of a file. A generated file is rejected, unless it was named or the check is off (None)."""
    path = loaded.path
    try:
        content = _text(loaded.data)
    except _UnusableError as error:
        return _rejected(Found(path, loaded.named), error)
    if not loaded.named and generated is not None and (reason := generated.text(path, content)):
        return Rejected(printable(path), reason, failed=False)
    content_type = labels.content_type or content_type_of(path)
    if labels.content_type is None and content_type == documents.DOCUMENTATION:
        content_type = kind_of(content)
    document = documents.DocumentInput(
        content=content,
        content_type=content_type,
        session_id=labels.session_id or FILES_SESSION,
        source=path.as_posix(),
        metadata=labels.metadata,
        channel=documents.Channel.FILE,
        occurred_at=stated_time(content, content_type) or times(loaded),
    )
    return FileInput(document)


def converted_inputs(
    loaded: LoadedFile,
    format_: Format,
    converter: Converter,
    labels: Labels = _NO_LABELS,
    times: FileTime = modified_at,
) -> Iterator[FileInput | Rejected]:
    """The documents of a file in another format; after a failure in the middle, those before it are valid."""
    path = loaded.path
    try:
        for extracted in converter.documents(format_, path, loaded.data):
            content_type = labels.content_type or extracted.content_type
            if labels.content_type is None and content_type == documents.DOCUMENTATION:
                content_type = kind_of(extracted.content)
            session_id = labels.session_id or extracted.session_id or FILES_SESSION
            source = path.as_posix() + (f"#{extracted.part}" if extracted.part else "")
            document = converted_input(extracted, content_type, session_id, source, labels.metadata)
            stated = stated_time(extracted.content, content_type, document.metadata.extra)
            written = document.occurred_at or stated or times(loaded)
            yield FileInput(replace(document, occurred_at=written), extracted.left_out)
    except ConversionError as error:
        is_unknown = not error.expected or isinstance(error, MissingLibraryError)
        reason = _UnusableError(str(error), expected=error.expected, unknown=is_unknown)
        yield _rejected(Found(path, loaded.named), reason)


def converted_input(
    extracted: Extracted, content_type: str, session_id: str, source: str, metadata: documents.Metadata
) -> documents.DocumentInput:
    """A document of a file; a conversation occurred when it began, of others the time is not known here."""
    extra: dict[str, documents.Json] = dict(metadata.extra)
    for name, value in extracted.extra.items():
        extra[name] = [*value] if isinstance(value, list) else value
    times = tuple(documents.MessageTime(start, documents.moment(at)) for start, at in extracted.message_times)
    return documents.DocumentInput(
        content=extracted.content,
        content_type=content_type,
        session_id=session_id,
        source=source,
        metadata=replace(metadata, extra=extra),
        channel=documents.Channel.FILE,
        occurred_at=min((each.at for each in times), default=None),
        message_times=times,
        origin=documents.Origin(extracted.origin) if extracted.origin is not None else None,
    )


def _rejected(found: Found, error: _UnusableError) -> Rejected:
    return Rejected(printable(found.path), str(error), failed=found.named or not error.expected, unknown=error.unknown)


def _loaded(found: Found, max_bytes: int) -> LoadedFile:
    if kind := UNSUPPORTED.get(found.path.suffix.lower()):
        raise _UnusableError(f"{kind} files are not supported yet", expected=True)
    try:
        with os.fdopen(open_file(found.path), "rb") as file:
            # Both before reading: a change while the file is read, or after it, gives it another stamp, or makes this
            # one racy (see `folder_sync.RACY_NS`).
            read_ns = time.time_ns()
            status = os.fstat(file.fileno())
            data = file.read(SNIFFED_BYTES)
            format_ = format_of(found.path.name, data)
            # By the beginning, so that a large picture or archive is not read to its end.
            if format_ is None and b"\0" in data and not data.startswith(_MARKS):
                raise _UnusableError("binary, not text", expected=True)
            limit = max_bytes if format_ is None else MAX_FILE_BYTES
            # From the start again, and no more than there is: a longer buffer would be copied to be joined or cut.
            file.seek(0)
            data = file.read(min(status.st_size, limit) + 1)
    except FileNotFoundError as error:
        raise _UnusableError("vanished before it was read") from error
    except NotRegularError as error:
        raise _UnusableError("not a regular file") from error
    except OSError as error:
        raise _UnusableError(f"cannot be read: {error.strerror}", unknown=True) from error
    if len(data) > limit:
        advice = "; see indexing.max_file_bytes" if format_ is None else ""
        raise _UnusableError(f"larger than {limit} bytes ({status.st_size}){advice}")
    return LoadedFile(found.path, found.named, data, format_, stamp_of(status), read_ns)


def _text(data: bytes) -> str:
    text = _decode(data)
    if not text or text.isspace():
        raise _UnusableError("empty", expected=True)
    controls = len(text) - len(text.translate(_NOT_TEXT))
    if "\0" in text or controls > _MAX_CONTROL_SHARE * len(text):
        raise _UnusableError("binary, not text", expected=True)
    return text


def _decode(data: bytes) -> str:
    mark, encoding = next(((mark, name) for mark, name in _ENCODINGS if data.startswith(mark)), (b"", ""))
    if not encoding and b"\0" in data:
        raise _UnusableError("binary, not text", expected=True)
    try:
        return data[len(mark) :].decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        offset = len(mark) + error.start
        raise _UnusableError(f"not valid {encoding.upper() or 'UTF-8'} at byte {offset}") from error
