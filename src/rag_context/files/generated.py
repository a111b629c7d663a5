"""Recognises generated files: lock files, vendored and minified code, generated code, tables of data.

In an index they crowd out what people wrote: of a Python repository, a lock file and a tokenizer's table can be more
chunks than all of its code. They are recognised by name, by what generators write at the top, and by shape. The names
follow GitHub's Linguist (`generated.rb`, `vendor.yml`).
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

RULES = "generated-2"
"""Version of the rules: after a change files are read again."""

_VENDORED = "vendor vendors vendored third_party third-party thirdparty Pods Carthage"
VENDORED_FOLDERS = frozenset(_VENDORED.split())
"""Folders of other people's code."""

_LOCKS = (
    "package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum go.work.sum packages.lock.json project.assets.json "
    "gradle.lockfile package.resolved"
)
_LOCK_NAMES = frozenset(_LOCKS.split())
_LOCK_SUFFIXES = (".lock", ".lockb", ".lockfile")
_BUILT = re.compile(
    r"\.(min|bundle|chunk|packed)\.(js|mjs|cjs|css)$|\.(js|mjs|cjs|css)\.map$|_pb2(_grpc)?\.pyi?$|\.pb(\.gw)?\.go$|"
    r"\.(g|designer|generated)\.(cs|vb|ts|dart)$|\.freezed\.dart$",
    re.IGNORECASE,
)
_PROSE = (".md", ".markdown", ".mdx", ".mdown", ".rst", ".adoc", ".asciidoc", ".org", ".tex", ".log", ".html", ".htm")
"""Files that people read, whether generated or not."""

_HEAD_LINES = 8
_HEAD_CHARS = 2_000
_COMMENT = ("#", "//", "/*", "*", ";", "--", "<!--", "%", "'")
_MARK = re.compile(
    r"@generated\b|^\W*(this file (was|is) )?(auto-?|automatically )generated(\W*$|[.;,]| (by|from|using|with|file)\b)|"
    r"\bgenerated (by|from|using)\b.*\b(do not|don't) (edit|modify)\b",
    re.IGNORECASE,
)

LONG_LINE = 1_000
MINIFIED_SHARE = 0.5
"""Share of a text in lines of LONG_LINE characters and more, above which it is minified, unless it is sentences."""

DATA_CHARS = 32_768
"""A shorter file of data may be a configuration, and costs little."""

_SENTENCE = re.compile(r"[^\W\d_]{2,}(?:[,;:]? [^\W\d_]{2,}){3,}")
SENTENCE_SHARE = 0.1
"""Share of a file of data in runs of four words and more, below which it is a table."""

_WORD = re.compile(r"[^\W\d_]{2,}")
WORD_SHARE = 0.25
"""Share of a long program in letters, below which it is a table of numbers or bytes."""

_TABLES = ".json .jsonc .json5 .jsonl .ndjson .geojson .csv .tsv .xml .svg .yaml .yml .toml .plist .po .pem .map"
_DATA_SUFFIXES = frozenset(_TABLES.split())


@dataclass(frozen=True)
class Generated:
    """Distinguishes generated files from written ones; what matches `include`, ignore patterns, is always indexed."""

    include: tuple[str, ...] = ()

    def folder(self, path: Path) -> str | None:
        if path.name not in VENDORED_FOLDERS or self._may_hold_included(path):
            return None
        return "vendored code"

    def name(self, path: Path) -> str | None:
        """Why a file is left out by its name; None where it is not."""
        name = path.name.lower()
        if name in _LOCK_NAMES or name.endswith(_LOCK_SUFFIXES):
            reason = "a lock file"
        elif _BUILT.search(name):
            reason = "built or generated from other files"
        else:
            return None
        return None if self._is_included(path) else reason

    def text(self, path: Path, text: str) -> str | None:
        suffix = path.suffix.lower()
        if suffix in _PROSE:
            return None
        reason = _shape(text, is_data=suffix in _DATA_SUFFIXES)
        return None if reason is None or self._is_included(path) else reason

    def _is_included(self, path: Path) -> bool:
        return bool(self.include) and self._spec.match_file(path.as_posix().lstrip("/"))

    def _may_hold_included(self, folder: Path) -> bool:
        """Whether a pattern names a folder, something in it, or everything of its name."""
        inside = (folder / "x").as_posix().lstrip("/")
        return bool(self.include) and (
            self._spec.match_file(inside) or any(folder.name in pattern.split("/") for pattern in self.include)
        )

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        return GitIgnoreSpec.from_lines(map(_anywhere, self.include), backend="simple")


def _anywhere(pattern: str) -> str:
    """A pattern with a slash in it, which an ignore file anchors to its own folder, for any depth."""
    anchored = "/" in pattern.rstrip("/") and not pattern.startswith(("/", "**/"))
    return f"**/{pattern}" if anchored else pattern


def _shape(text: str, *, is_data: bool) -> str | None:
    head = text[:_HEAD_CHARS].split("\n", _HEAD_LINES)[:_HEAD_LINES]
    # In comments only: a text that explains how code is generated is written by people.
    if any(_MARK.search(line) for line in head if line.lstrip().startswith(_COMMENT)):
        return "generated, as its first lines state"
    if text.lstrip().startswith("-----BEGIN ") and not _is_sentences(text):
        return "a key or certificate"
    in_long_lines = sum(len(line) for line in text.split("\n") if len(line) >= LONG_LINE)
    if in_long_lines > MINIFIED_SHARE * len(text) and not _is_sentences(text):
        return "minified or generated: most of it is in very long lines"
    if len(text) < DATA_CHARS:
        return None
    if is_data and not _is_sentences(text):
        return "data: hardly a sentence in it"
    if _covered(_WORD, text) < WORD_SHARE * len(text):
        return "data: mostly numbers and signs"
    return None


def _is_sentences(text: str) -> bool:
    return _covered(_SENTENCE, text) >= SENTENCE_SHARE * len(text)


def _covered(pattern: re.Pattern[str], text: str) -> int:
    return sum(match.end() - match.start() for match in pattern.finditer(text))
