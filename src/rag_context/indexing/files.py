"""Files on disk as drafts: which ones a walk takes, what kind of content each is, and why one is left out.

Everything streams in a fixed order, so that a run over any number of files needs little memory and a second
run sees them in the same order. A file that cannot be used is answered with a `Rejected`, never an exception.
"""

import codecs
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from rag_context.types import CHAT, CODE, DOCUMENTATION, Draft, Metadata, Origin

FILES_SESSION = "files"
"""Session of documents read from files, unless another is named."""

DEFAULT_MAX_BYTES = 1 << 20
IGNORE_FILES = (".gitignore", ".ragignore")
"""Read in every folder; in one folder the later ones win, and deeper folders win over all above."""

_MACHINERY = (
    ".git .hg .svn .jj node_modules bower_components .venv venv __pycache__ .tox .nox .mypy_cache .ruff_cache "
    ".pytest_cache .hypothesis .cache .gradle .idea .vs .terraform .next .nuxt .eggs site-packages"
)
_GENERATED = (
    ".gitignore .ragignore .gitattributes .DS_Store Thumbs.db .env .env.local package-lock.json pnpm-lock.yaml "
    "yarn.lock uv.lock poetry.lock Cargo.lock Gemfile.lock composer.lock"
)
SKIPPED_FOLDERS = frozenset(_MACHINERY.split())
SKIPPED_FILES = frozenset(_GENERATED.split())
"""Never of use in an answer: machinery, secrets, and what tools generate."""

_CODE_SUFFIXES = (
    "py pyi js jsx mjs cjs ts tsx mts cts cs csx fs fsx vb java kt kts scala groovy go rs c h cc cpp cxx hh hpp hxx m "
    "mm swift rb php pl pm lua r jl dart ex exs erl hrl hs ml mli clj cljs elm nim zig d pas sql graphql gql proto sh "
    "bash zsh fish ps1 psm1 bat cmd css scss sass less vue svelte astro json jsonc json5 yaml yml toml ini cfg conf "
    "properties xml xsl xsd csproj sln gradle cmake mk tf hcl dockerfile editorconfig sol asm s"
)
_DOCUMENTATION_SUFFIXES = "md markdown mdx mdown rst adoc asciidoc org txt text tex log csv tsv"
CONTENT_TYPES_BY_SUFFIX = {
    **{f".{suffix}": CODE for suffix in _CODE_SUFFIXES.split()},
    **{f".{suffix}": DOCUMENTATION for suffix in _DOCUMENTATION_SUFFIXES.split()},
    ".chat": CHAT,
}
"""Kind of content by the end of the name; any other text is documentation."""

CODE_NAMES = frozenset({"makefile", "dockerfile", "jenkinsfile", "rakefile", "gemfile", "vagrantfile", "procfile"})

UNSUPPORTED = {
    ".pdf": "PDF",
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf"), "word processor"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "HTML"),
    **dict.fromkeys((".pptx", ".ppt", ".odp", ".xlsx", ".xls", ".ods"), "office"),
    ".epub": "EPUB",
    ".ipynb": "notebook",
}
"""Formats that hold text which this version cannot take out of them."""

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARKS = tuple(mark for mark, _ in _ENCODINGS)
_SNIFFED_BYTES = 8192
_NOT_TEXT = dict.fromkeys([*range(8), *range(14, 27), *range(28, 32), 127])
_MAX_CONTROL_SHARE = 0.1
_OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))


_NO_METADATA = Metadata()


@dataclass(frozen=True, slots=True)
class Labels:
    """What is said of every file of a run. Without a content type it follows from the name."""

    content_type: str | None = None
    session_id: str = FILES_SESSION
    metadata: Metadata = _NO_METADATA


_NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read. `named` is whether the caller named it, not only a folder above it."""

    path: Path
    named: bool


@dataclass(frozen=True, slots=True)
class FileDraft:
    """A file that was read."""

    path: Path
    draft: Draft


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that was left out, by a printable name.

    `failed` is False where a walk met something that is not text and nobody had asked for it by name.
    """

    path: str
    reason: str
    failed: bool = True


class _UnusableError(Exception):
    """Why a file cannot be used. `expected` among the files of any folder, such as pictures."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


def printable(path: Path) -> str:
    """A path that any output can take; bytes that are not UTF-8 are written as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def content_type_of(path: Path) -> str:
    """Kind of content by a file's name."""
    name = path.name.lower()
    if name in CODE_NAMES or name.startswith("dockerfile."):
        return CODE
    return CONTENT_TYPES_BY_SUFFIX.get(path.suffix.lower(), DOCUMENTATION)


def read_files(
    paths: Iterable[Path], labels: Labels = _NO_LABELS, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[FileDraft | Rejected]:
    """Read files and the files of folders, one at a time.

    Args:
        paths: Files and folders; files are read even where an ignore file names them.
        labels: What to say of each.
        max_bytes: Size above which a file is rejected.
    """
    for found in find_files(paths):
        yield found if isinstance(found, Rejected) else read_file(found, labels, max_bytes=max_bytes)


def read_file(found: Found, labels: Labels = _NO_LABELS, *, max_bytes: int = DEFAULT_MAX_BYTES) -> FileDraft | Rejected:
    """Read one file; its source is its absolute POSIX path, and line ends stay as they are."""
    path = found.path
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return Rejected(printable(path), "its name is not valid UTF-8")
    try:
        content = _text(path, max_bytes)
    except _UnusableError as error:
        return Rejected(printable(path), str(error), failed=found.named or not error.expected)
    draft = Draft(
        content=content,
        content_type=labels.content_type or content_type_of(path),
        session_id=labels.session_id,
        source=path.as_posix(),
        metadata=labels.metadata,
        origin=Origin.FILE,
    )
    return FileDraft(path, draft)


def _text(path: Path, max_bytes: int) -> str:
    if kind := UNSUPPORTED.get(path.suffix.lower()):
        raise _UnusableError(f"{kind} files are not supported yet", expected=True)
    text = _decode(_bytes(path, max_bytes))
    if not text or text.isspace():
        raise _UnusableError("empty", expected=True)
    controls = len(text) - len(text.translate(_NOT_TEXT))
    if "\0" in text or controls > _MAX_CONTROL_SHARE * len(text):
        raise _UnusableError("binary, not text", expected=True)
    return text


def _bytes(path: Path, max_bytes: int) -> bytes:
    try:
        with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _UnusableError("not a regular file")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise _UnusableError(f"cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        if b"\0" in data[:_SNIFFED_BYTES] and not data.startswith(_MARKS):
            raise _UnusableError("binary, not text", expected=True)
        raise _UnusableError(f"larger than {max_bytes} bytes ({status.st_size}); see indexing.max_file_bytes")
    return data


def _decode(data: bytes) -> str:
    mark, encoding = next(((mark, name) for mark, name in _ENCODINGS if data.startswith(mark)), (b"", ""))
    if not encoding and b"\0" in data:
        raise _UnusableError("binary, not text", expected=True)
    try:
        return data[len(mark) :].decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        place = len(mark) + error.start
        raise _UnusableError(f"not valid {encoding.upper() or 'UTF-8'} at byte {place}") from error


def find_files(paths: Iterable[Path]) -> Iterator[Found | Rejected]:
    """The files named and those below the folders named, each once per folder or name, in a fixed order."""
    for root in dict.fromkeys(_absolute(path) for path in paths):
        try:
            mode = root.stat().st_mode
        except OSError as error:
            yield Rejected(printable(root), f"cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(mode):
            yield from _walk(root)
        else:
            yield Found(root, named=True)


def _absolute(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()


@dataclass(frozen=True, slots=True)
class _Rules:
    """The ignore files of one folder, and of the nearest above it that has any."""

    folder: Path
    spec: GitIgnoreSpec
    above: "_Rules | None"


def _ignored(path: Path, rules: _Rules | None, *, suffix: str = "") -> bool:
    """Whether a path is left out; the deepest folder with an opinion decides."""
    while rules is not None:
        verdict = rules.spec.check_file(path.relative_to(rules.folder).as_posix() + suffix).include
        if verdict is not None:
            return verdict
        rules = rules.above
    return False


def _walk(root: Path) -> Iterator[Found | Rejected]:
    """Depth first in the order of names, without recursion, so that depth has no limit of its own."""
    stack = [(iter(_entries(root)), _rules(root, _rules_above(root)))]
    while stack:
        entries, rules = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, Rejected):
            yield entry
        elif entry.is_symlink():
            yield from _link(entry, root, rules)
        elif entry.is_dir(follow_symlinks=False):
            folder = Path(entry.path)
            if entry.name not in SKIPPED_FOLDERS and not _ignored(folder, rules, suffix="/"):
                stack.append((iter(_entries(folder)), _rules(folder, rules)))
        elif entry.name not in SKIPPED_FILES and not _ignored(Path(entry.path), rules):
            yield _file(entry)


def _entries(folder: Path) -> Sequence[os.DirEntry[str] | Rejected]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        return [Rejected(printable(folder), f"cannot be read: {error.strerror}")]


def _file(entry: os.DirEntry[str]) -> Found | Rejected:
    path = Path(entry.path)
    if entry.is_file(follow_symlinks=False):
        return Found(path, named=False)
    return Rejected(printable(path), "not a regular file", failed=False)


def _link(entry: os.DirEntry[str], root: Path, rules: _Rules | None) -> Iterator[Rejected]:
    """A link is not followed: what it means inside the root is met there by its own name."""
    path = Path(entry.path)
    if entry.name in SKIPPED_FOLDERS | SKIPPED_FILES or _ignored(path, rules):
        return
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        yield Rejected(printable(path), "a symbolic link that leads nowhere", failed=False)
        return
    if not target.is_relative_to(root):
        yield Rejected(printable(path), "a symbolic link that leads out of the folder", failed=False)


def _rules(folder: Path, above: _Rules | None) -> _Rules | None:
    lines = [line for name in IGNORE_FILES for line in _lines(folder / name)]
    return _Rules(folder, _spec(lines), above) if lines else above


def _rules_above(root: Path) -> _Rules | None:
    """The ignore files from the top of the repository that holds the root, down to the root's parent."""
    parents = list(root.parents)
    top = next((place for place in (root, *parents) if (place / ".git").exists()), root)
    rules: _Rules | None = None
    for folder in reversed([parent for parent in parents if parent.is_relative_to(top)]):
        rules = _rules(folder, rules)
    return rules


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    """Compile patterns; like git, pass over the ones that mean nothing."""
    try:
        return GitIgnoreSpec.from_lines(lines, backend="simple")
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _means_something(line)], backend="simple")


def _means_something(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except ValueError:
        return False
    return True
