"""Paths and links of project documents; only this module decides what is inside the docs folder.

Links are data: they are resolved as text against the indexed documents, and never opened. A path in a request is
opened, so it is checked against the file system too.

The links of a Markdown text are read from its syntax tree: text in code or comments is not a link. `[[wiki]]` links and
`<a href>` count; the former keep their brackets, because they are resolved differently.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from pathlib import Path
from urllib.parse import unquote_to_bytes

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import EnvType

from rag_context.errors import FieldError, InvalidInputError
from rag_context.ingest.chunking.prose import fences
from rag_context.projects.records import DocumentNotFoundError

MAX_PATH_CHARS = 4096

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f]")

SUFFIXES = (".md", ".markdown", ".mdown", ".mdx", ".rst", ".adoc", ".txt")
"""Suffixes of files that are documents, the most frequent first."""

INDEX_NAMES = ("index", "README", "readme", "Index")
"""Names of the index document of a folder, without suffixes."""

MAX_LINKS = 10_000
"""The most links of one document."""

MAX_EFFORT = 30_000_000
"""Characters that the parser may have to read for the brackets of one paragraph (some 0.2 s)."""

_MAX_NESTING = 100
MAX_PARSED_CHARS = 100_000
"""In a longer text, only paragraphs that may have a link are parsed: parsing all of it would take seconds."""

_MARKS = ("](", "]:", "[[", "<")
_WIKI = re.compile(r"(?<!!)\[\[([^\[\]|\n]{1,500})(?:\|[^\[\]\n]{0,500})?\]\]")
_HTML_COMMENT = re.compile(r"<!--(?:(?!-->).)*+(?:-->)?", re.DOTALL)
_ANCHOR = re.compile(r"<a\s[^<>]{0,2000}?\bhref\s*=\s*(?:\"([^\"<>]{1,2000})\"|'([^'<>]{1,2000})')", re.IGNORECASE)
_BRACKET = re.compile(r"[\[\]]")


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
    """The possible targets of a link, as paths relative to the docs folder without `..`, the most likely first.

    The first is the path as written. If that does not exist, `./<docs folder>/x.md`, `../<docs folder>/x.md` and
    `/<docs folder>/x.md` mean `x.md` in the docs folder. An external link or a mere anchor has none.
    """
    if len(href) > MAX_PATH_CHARS or _SCHEME.match(href) or href.startswith(("//", "\\\\")):
        return ()
    # Cut before it is decoded: an encoded `#` or `?` is a part of the name.
    decoded = _decoded(re.split(r"[?#]", href, maxsplit=1)[0])
    return tuple(dict.fromkeys(_resolved(decoded, document, docs_folder))) if decoded else ()


def reference_candidates(path: str, document: str, docs_folder: str) -> tuple[str, ...]:
    """The same for a path in front matter: not encoded, first relative to the docs folder, then to the document."""
    path = path.replace("\\", "/").strip()
    if not path or len(path) > MAX_PATH_CHARS or _FORBIDDEN.search(path) or _SCHEME.match(path):
        return ()
    plain = path.split("#", 1)[0]
    from_root = () if plain.startswith(("./", "../")) else _spelt(_walked([], plain.split("/")))
    return tuple(dict.fromkeys([*from_root, *_resolved(plain, document, docs_folder)]))


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

    Raises: InvalidInputError (it leads out of the docs folder), DocumentNotFoundError (there is no file).
    """
    if not requested or len(requested) > MAX_PATH_CHARS or _FORBIDDEN.search(requested):
        raise invalid_path("A path must have 1 to 4096 characters and no control characters")
    plain = requested.replace("\\", "/")
    absolute = Path(plain).is_absolute()
    try:
        relative = Path(plain).relative_to(docs_root).as_posix() if absolute else plain
    except ValueError:
        raise invalid_path("The path is outside the docs folder") from None
    walked = _walked([], relative.split("/"))
    if walked is None or not walked:
        raise invalid_path("The path is outside the docs folder")
    path = docs_root.joinpath(*walked)
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise DocumentNotFoundError(f"There is no file {'/'.join(walked)!r} in the docs folder") from None
    # Any link in it, also one that leads to another place inside: a document has one path.
    if real != docs_root.resolve().joinpath(*walked):
        raise invalid_path("The path is a symbolic link or contains one: send the path of the file itself")
    if not path.is_file():
        raise DocumentNotFoundError(f"{'/'.join(walked)!r} is not a file")
    return "/".join(walked)


def relative_path(docs_root: Path, path: Path) -> str:
    return os.path.relpath(path, docs_root).replace(os.sep, "/")


def _resolved(decoded: str, document: str, docs_folder: str) -> Iterator[str]:
    from_top = decoded.startswith("/")
    parts = decoded.split("/")
    base = [] if from_top else document.split("/")[:-1]
    # With the docs folder's name as first part, so that `../<docs folder>/x` stays inside.
    walked = _walked([docs_folder, *base], parts)
    yield from _spelt(walked[1:] if walked and walked[0] == docs_folder else None)
    lead = 1 if parts[0] in ("", ".", "..") else 0
    if lead and parts[lead : lead + 1] == [docs_folder]:
        yield from _spelt(_walked([], parts[lead + 1 :]))


def _walked(base: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    """Resolve `.` and `..`; None if the path leads above the first part."""
    walked = list(base)
    for part in parts:
        if part == "..":
            if not walked:
                return None
            walked.pop()
        elif part not in ("", "."):
            walked.append(part)
    return walked


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


def invalid_path(message: str) -> InvalidInputError:
    return InvalidInputError(message, [FieldError("path", message)])


def links(body: str) -> tuple[str, ...]:
    """The targets of the inline, reference and autolinks of a text without front matter, each once, in reading order.

    Images, `data:`, `javascript:` and paragraphs whose brackets would take the parser too long are left out.
    """
    if not any(mark in body for mark in _MARKS):
        return ()
    if len(body) > MAX_PARSED_CHARS:
        body = _promising(body)
    # Blocks only: the brackets of each paragraph are counted before its links are parsed.
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).disable("inline")
    references: EnvType = {}
    blocks = parser.parse(body, references)
    found = dict.fromkeys(_targets(blocks, parser, references))
    return tuple(found)[:MAX_LINKS]


def _targets(blocks: Iterable[Token], parser: MarkdownIt, references: EnvType) -> Iterator[str]:
    for block in blocks:
        if block.type == "html_block":
            yield from _anchors(_HTML_COMMENT.sub("", block.content))
        if block.type == "inline" and _effort(block.content) <= MAX_EFFORT:
            pieces: list[Token] = []
            parser.inline.parse(block.content, parser, references, pieces)
            yield from _of_pieces(pieces)


def _of_pieces(pieces: Iterable[Token]) -> Iterator[str]:
    """The links of a paragraph; the text of a wiki link may be split into several tokens."""
    plain = ""
    for token in pieces:
        if token.type == "text":
            plain += token.content
            continue
        yield from _wiki(plain)
        plain = ""
        if token.type == "link_open":
            yield str(token.attrs["href"])
        elif token.type == "html_inline":
            yield from _anchors(token.content)
    yield from _wiki(plain)


def _wiki(text: str) -> Iterator[str]:
    return (f"[[{match[1].strip()}]]" for match in _WIKI.finditer(text))


def _anchors(html: str) -> Iterator[str]:
    return (unescape(match[1] or match[2]) for match in _ANCHOR.finditer(html))


def _promising(body: str) -> str:
    """The paragraphs outside code fences that may have a link or the definition of one."""
    kept: list[str] = []
    end = 0
    for start, after in (*fences(body), (len(body), len(body))):
        kept += [part for part in body[end:start].split("\n\n") if any(mark in part for mark in _MARKS)]
        end = after
    return "\n\n".join(kept)


def _effort(text: str) -> int:
    """The sum of characters between each opening bracket and its closing one, or the end; the parser reads them all."""
    opened: list[int] = []
    effort = 0
    for match in _BRACKET.finditer(text):
        if match[0] == "[":
            opened.append(match.start())
        elif opened:
            effort += match.start() - opened.pop()
    return effort + sum(len(text) - start for start in opened)
