"""What a text cites that can be checked: paths, symbols, commits, flags and settings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rag_context.api.search import CitationKind

MOST = 20
"""Citations of one text: the first."""

MAX_CHARS = 20_000

_SUFFIXES = frozenset((
    "py", "pyi", "ts", "tsx", "js", "jsx", "mjs", "cjs", "go", "rs", "java", "kt", "kts", "c", "h", "cc", "cpp",
    "hpp", "cs", "rb", "php", "swift", "scala", "sh", "bash", "ps1", "sql", "toml", "yaml", "yml", "json", "jsonc",
    "ini", "cfg", "conf", "env", "md", "rst", "txt", "html", "css", "scss", "vue", "svelte", "tf", "proto", "lock",
    "gradle", "xml", "ipynb",
))  # fmt: skip
"""Endings of files that are cited by their names alone."""

_WORD = re.compile(r"[^\s`'\"()\[\]{}<>,;|*\\=]{3,}")
_PATH = re.compile(r"/?[\w.@+-]+(?:/[\w.@+-]+)*/?")
_LINES = re.compile(r"(?::\d[\d:-]*|#L?\d[\dL-]*)$")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_COMMIT_CUE = re.compile(
    r"(?:commit|revision|sha|rev|in|since|by|reverts?|reverted|fixed|@)[\s:(`'\"]*$", re.IGNORECASE
)
_FLAG = re.compile(r"--[a-z][a-z0-9]+(?:-[a-z0-9]+)*")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_{1,2}[A-Z0-9]+)+")
_SYMBOL = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|#)\w+)*")
_CAMEL = re.compile(r"[A-Za-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")


@dataclass(frozen=True, slots=True)
class Citation:
    """A name in a text; one that is not `is_certain` ("and/or") is one where the repository knows it."""

    text: str
    kind: CitationKind
    is_certain: bool


def citations(text: str) -> list[Citation]:
    """What a text cites, each once, in its order."""
    found: dict[str, Citation] = {}
    for match in _WORD.finditer(text, 0, MAX_CHARS):
        word, start = match[0].rstrip(".:!?"), match.start()
        is_quoted = text[start - 1 : start] == "`"
        is_called = text[start + len(word) : start + len(word) + 1] == "("
        # Most words are plain ones.
        if len(word) < 3 or (word.isalpha() and word[1:].islower() and not is_quoted and not is_called):
            continue
        before = text[max(start - 16, 0) : start]
        citation = _citation(word, before, is_quoted=is_quoted, is_called=is_called)
        if citation is not None:
            found.setdefault(citation.text, citation)
            if len(found) == MOST:
                break
    return list(found.values())


def _citation(word: str, before: str, *, is_quoted: bool, is_called: bool) -> Citation | None:
    if "/" in word:
        return _path(word, is_quoted=is_quoted)
    if word.startswith("--"):
        return Citation(word, "flag", is_quoted) if _FLAG.fullmatch(word) else None
    if "." in word:
        name = _LINES.sub("", word)
        if name.rpartition(".")[2] in _SUFFIXES and _PATH.fullmatch(name):
            return Citation(name, "path", is_certain=False)
    if word.isalnum() and _COMMIT.fullmatch(word) and not (word.isdigit() or word.isalpha()):
        return Citation(word, "commit", is_quoted or len(word) == 40 or _COMMIT_CUE.search(before) is not None)
    if _CONSTANT.fullmatch(word):
        return Citation(word, "setting", is_quoted)
    if not (is_quoted or is_called or "_" in word or _CAMEL.fullmatch(word)) or not _SYMBOL.fullmatch(word):
        return None
    if is_quoted and not is_called and "." in word and word.islower():
        return Citation(word, "setting", is_certain=True)
    return Citation(word, "symbol", is_called or (is_quoted and is_distinct(word)))


def _path(word: str, *, is_quoted: bool) -> Citation | None:
    name = _LINES.sub("", word)
    if "//" in name or name.startswith("~") or not _PATH.fullmatch(name) or len(name.strip("/.")) < 3:
        return None
    has_suffix = name.rpartition("/")[2].rpartition(".")[2] in _SUFFIXES and "." in name.rpartition("/")[2]
    return Citation(name, "path", has_suffix or is_quoted)


def is_distinct(name: str) -> bool:
    """Whether a name is no plain word: it has several parts."""
    return "_" in name or "." in name or "::" in name or any(map(str.isupper, name[1:]))


def spellings(name: str) -> Iterator[str]:
    """How code writes a name: the last part of a dotted one, the words of a flag or a variable in several ways.

    Names of environment variables may be made of a prefix and the name of a setting: `SHOP_DATA_DIR` of `data_dir`.
    """
    if name.startswith("--"):
        words = name.removeprefix("--").split("-")
        yield from (name, "_".join(words), words[0] + "".join(map(str.capitalize, words[1:])))
        return
    yield re.split(r"\.|::|#", name)[-1]
    if _CONSTANT.fullmatch(name):
        *_, last = name.lower().split("__")
        words = last.split("_")
        yield from ("_".join(words[start:]) for start in range(max(len(words) - 1, 1)))
