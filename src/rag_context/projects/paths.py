"""Resolves paths in links, front matter and requests; only this module decides what is inside the docs folder.

Links are data: they are resolved as text against the indexed documents, and never opened. A path in a
request is opened, so it is checked against the file system too.
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.records import DocumentNotFoundError

MAX_PATH_CHARS = 4096

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f]")


SUFFIXES = (".md", ".markdown", ".mdown", ".mdx", ".rst", ".adoc", ".txt")
"""Suffixes of files that are documents, the most frequent first."""

INDEX_NAMES = ("index", "README", "readme", "Index")
"""Names of the index document of a folder, without suffixes."""


def wiki_name(href: str) -> str | None:
    """The target of a `[[wiki]]` link, without its anchor; None for other links."""
    if not (href.startswith("[[") and href.endswith("]]")):
        return None
    return href[2:-2].split("#", 1)[0].strip()


def spellings(path: str) -> Iterator[str]:
    """The possible files of a path: as it is, with a suffix, or the index document of the folder."""
    path = path.rstrip("/")
    yield path
    yield from (f"{path}{suffix}" for suffix in SUFFIXES)
    yield from (f"{path}/{name}{suffix}" for name in INDEX_NAMES for suffix in SUFFIXES)


def link_candidates(href: str, document: str, docs_folder: str) -> tuple[str, ...]:
    """The possible targets of a link, as paths relative to the docs folder, the most likely first.

    The first is the path as written. If that does not exist, `./<docs folder>/x.md`, `../<docs folder>/x.md` and
    `/<docs folder>/x.md` mean `x.md` in the docs folder.

    Args:
        href: the link as written: percent-encoded, with or without an anchor.
        document: path of the document with the link, relative to the docs folder.
        docs_folder: name of the docs folder.

    Returns:
        Nothing for an external link, a mere anchor, or a path out of the docs folder; never a path with `..`.
    """
    if len(href) > MAX_PATH_CHARS or _SCHEME.match(href) or href.startswith(("//", "\\\\")):
        return ()
    decoded = _decoded(re.split(r"[?#]", href, maxsplit=1)[0])
    return tuple(dict.fromkeys(_meant(decoded, document, docs_folder))) if decoded else ()


def reference_candidates(path: str, document: str, docs_folder: str) -> tuple[str, ...]:
    """The same for a path in front matter: not encoded, first relative to the docs folder, then to the document."""
    path = path.replace("\\", "/").strip()
    if not path or len(path) > MAX_PATH_CHARS or _FORBIDDEN.search(path) or _SCHEME.match(path):
        return ()
    plain = path.split("#", 1)[0]
    from_root = () if plain.startswith(("./", "../")) else _spelt(_walked([], plain.split("/")))
    return tuple(dict.fromkeys([*from_root, *_meant(plain, document, docs_folder)]))


def inside(folder: Path, relative: str, root: Path) -> Path | None:
    """Resolve a path relative to `folder`; None if it is absolute or leads out of `root`, also by symbolic links."""
    if not relative or len(relative) > MAX_PATH_CHARS or _FORBIDDEN.search(relative) or Path(relative).is_absolute():
        return None
    try:
        path = (folder / relative.replace("\\", "/")).resolve()
        return path if path.is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError, ValueError):
        return None


def located(docs_root: Path, requested: str) -> str:
    """The path of a file relative to the docs folder, from such a path or an absolute one in a request.

    Raises:
        InvalidInputError: it leads out of the docs folder, or is not a path.
        DocumentNotFoundError: the file does not exist.
    """
    if not requested or len(requested) > MAX_PATH_CHARS or _FORBIDDEN.search(requested):
        raise _invalid_path("A path must have 1 to 4096 characters and no control characters")
    plain = requested.replace("\\", "/")
    absolute = Path(plain).is_absolute()
    try:
        relative = Path(plain).relative_to(docs_root).as_posix() if absolute else plain
    except ValueError:
        raise _invalid_path("The path is outside the docs folder") from None
    walked = _walked([], relative.split("/"))
    if walked is None or not walked:
        raise _invalid_path("The path is outside the docs folder")
    path = docs_root.joinpath(*walked)
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise DocumentNotFoundError(f"There is no file {'/'.join(walked)!r} in the docs folder") from None
    if real != docs_root.resolve().joinpath(*walked):
        raise _invalid_path("The path is a symbolic link or contains one: send the path of the file itself")
    if not path.is_file():
        raise DocumentNotFoundError(f"{'/'.join(walked)!r} is not a file")
    return "/".join(walked)


def relative_path(docs_root: Path, path: Path) -> str:
    """The path of a file relative to the docs folder, in POSIX form."""
    return os.path.relpath(path, docs_root).replace(os.sep, "/")


def _meant(decoded: str, document: str, docs_folder: str) -> Iterator[str]:
    from_top = decoded.startswith("/")
    parts = decoded.split("/")
    base = [] if from_top else document.split("/")[:-1]
    yield from _spelt(_walked_within(docs_folder, base, parts))
    lead = 1 if parts[0] in ("", ".", "..") else 0
    if lead and parts[lead : lead + 1] == [docs_folder]:
        yield from _spelt(_walked([], parts[lead + 1 :]))


def _walked_within(docs_folder: str, base: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    """Resolve a path with the docs folder's name as first part, so that `../<docs folder>/x` stays inside."""
    walked = _walked([docs_folder, *base], parts)
    return walked[1:] if walked and walked[0] == docs_folder else None


def _walked(base: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    """Resolve `.` and `..`; None if the path leads above the first part."""
    place = list(base)
    for part in parts:
        if part == "..":
            if not place:
                return None
            place.pop()
        elif part not in ("", "."):
            place.append(part)
    return place


def _spelt(walked: Sequence[str] | None) -> Iterator[str]:
    """A path as written and, if that differs, in composed Unicode (NFC), which most systems use."""
    if walked:
        path = "/".join(walked)
        yield path
        yield unicodedata.normalize("NFC", path)


def _decoded(href: str) -> str | None:
    """A link, percent-decoded once; None if the result is not a path."""
    try:
        decoded = unquote_to_bytes(href).decode().replace("\\", "/")
    except (UnicodeDecodeError, UnicodeEncodeError):
        return None
    return None if _FORBIDDEN.search(decoded) or decoded.startswith("//") else decoded


def _invalid_path(message: str) -> InvalidInputError:
    return InvalidInputError(message, [FieldError("path", message)])
