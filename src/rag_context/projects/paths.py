"""Where a path leads that somebody wrote: the one place that decides what lies inside the docs folder.

Links are data. They are turned into paths relative to the docs folder by letters alone, looked up among the documents
that are indexed, and never opened. What a tool names is opened, so there the file system is asked as well.
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
"""Endings of the files that are documents, the likeliest first."""

INDEX_NAMES = ("index", "README", "readme", "Index")
"""Names of the document that stands for its folder, without their endings."""


def wiki_name(href: str) -> str | None:
    """What a `[[wiki]]` link names, its anchor taken off; None for another link."""
    if not (href.startswith("[[") and href.endswith("]]")):
        return None
    return href[2:-2].split("#", 1)[0].strip()


def spellings(path: str) -> Iterator[str]:
    """The documents that a path may mean: itself, with an ending, or the one that stands for the folder."""
    path = path.rstrip("/")
    yield path
    yield from (f"{path}{suffix}" for suffix in SUFFIXES)
    yield from (f"{path}/{name}{suffix}" for name in INDEX_NAMES for suffix in SUFFIXES)


def link_candidates(href: str, document: str, docs_folder: str) -> tuple[str, ...]:
    """The paths relative to the docs folder that a link may mean, the likeliest first.

    A link means what its letters say. Where nothing is there, `./<docs folder>/x.md`, `../<docs folder>/x.md` and
    `/<docs folder>/x.md` mean `x.md` in the docs folder.

    Args:
        href: as it stands in the document; percent-encoded, with or without an anchor.
        document: path of the document that holds it, relative to the docs folder.
        docs_folder: name of the docs folder.

    Returns:
        Nothing for what is external, an anchor alone, or leads out of the docs folder; never a path with `..`.
    """
    if len(href) > MAX_PATH_CHARS or _SCHEME.match(href) or href.startswith(("//", "\\\\")):
        return ()
    decoded = _decoded(re.split(r"[?#]", href, maxsplit=1)[0])
    return tuple(dict.fromkeys(_meant(decoded, document, docs_folder))) if decoded else ()


def reference_candidates(said: str, document: str, docs_folder: str) -> tuple[str, ...]:
    """The same for a path in front matter: plain, not encoded, first from the docs folder, then from the document."""
    said = said.replace("\\", "/").strip()
    if not said or len(said) > MAX_PATH_CHARS or _FORBIDDEN.search(said) or _SCHEME.match(said):
        return ()
    plain = said.split("#", 1)[0]
    from_root = () if plain.startswith(("./", "../")) else _spelt(_walked([], plain.split("/")))
    return tuple(dict.fromkeys([*from_root, *_meant(plain, document, docs_folder)]))


def inside(folder: Path, said: str, root: Path) -> Path | None:
    """The path that `said` names from `folder`; None where it is absolute or leads out of `root`, also by links."""
    if not said or len(said) > MAX_PATH_CHARS or _FORBIDDEN.search(said) or Path(said).is_absolute():
        return None
    try:
        path = (folder / said.replace("\\", "/")).resolve()
        return path if path.is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError, ValueError):
        return None


def located(docs_root: Path, said: str) -> str:
    """The path relative to the docs folder of a file that a caller named so, or by its absolute path.

    Raises:
        InvalidInputError: it leads out of the docs folder, or is no path.
        DocumentNotFoundError: there is no such file.
    """
    if not said or len(said) > MAX_PATH_CHARS or _FORBIDDEN.search(said):
        raise _refused("A path has 1 to 4096 characters, none of them a control character")
    plain = said.replace("\\", "/")
    absolute = Path(plain).is_absolute()
    try:
        relative = Path(plain).relative_to(docs_root).as_posix() if absolute else plain
    except ValueError:
        raise _refused("The path does not lie in the docs folder") from None
    walked = _walked([], relative.split("/"))
    if walked is None or not walked:
        raise _refused("The path does not lie in the docs folder")
    path = docs_root.joinpath(*walked)
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise DocumentNotFoundError(f"There is no file {'/'.join(walked)!r} in the docs folder") from None
    if real != docs_root.resolve().joinpath(*walked):
        raise _refused("The path is, or lies behind, a symbolic link; name the file that it leads to")
    if not path.is_file():
        raise DocumentNotFoundError(f"{'/'.join(walked)!r} is no file")
    return "/".join(walked)


def relative_path(docs_root: Path, path: Path) -> str:
    """The path of a file of the docs folder as documents are known by it."""
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
    """Walk with the docs folder's own name above it, so that going out and coming back in is seen as staying."""
    walked = _walked([docs_folder, *base], parts)
    return walked[1:] if walked and walked[0] == docs_folder else None


def _walked(base: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    """Where the steps lead; None above the top."""
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
    """A path in the letters given and, where those differ, in the composed ones that most systems write."""
    if walked:
        path = "/".join(walked)
        yield path
        yield unicodedata.normalize("NFC", path)


def _decoded(href: str) -> str | None:
    """A link with its percent signs resolved once; None where that gives no path."""
    try:
        decoded = unquote_to_bytes(href).decode().replace("\\", "/")
    except (UnicodeDecodeError, UnicodeEncodeError):
        return None
    return None if _FORBIDDEN.search(decoded) or decoded.startswith("//") else decoded


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError(message, [FieldError("path", message)])
