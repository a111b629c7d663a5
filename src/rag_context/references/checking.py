"""What a passage cites, and whether that is still there, by a survey of its repository.

A path stands for the file that had it when the passage was written: a name that another file has since then is not
that file. What a repository never had is no business of it, and nothing is said of it.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rag_context.api.search import CitationKind, CitationStatus, CitedReference
from rag_context.references.survey import Survey

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


_MOST_NAMES = 50
"""Names that one thing is followed through."""

_Outcome: TypeAlias = tuple[CitationStatus, str | None]
"""What became of something, and where it is now if it moved."""

_FRESH: _Outcome = ("fresh", None)
_STALE: _Outcome = ("stale", None)


def references(text: str, at: float, survey: Survey, root: Path, *, is_of_project: bool) -> list[CitedReference]:
    """What a text that was written `at` a time (seconds since 1970) cites, checked by the survey of a repository.

    `is_of_project`: the passage says so. In one that does not, a file's name without a folder may be any project's.
    """
    found = []
    for citation in citations(text):
        is_bare = citation.kind == "path" and "/" not in citation.text
        outcome = _outcome(citation, at, survey, root) if is_of_project or not is_bare else None
        if outcome is None and citation.is_certain:
            outcome = "unverifiable", None
        if outcome is not None:
            status, now = outcome
            found.append(CitedReference(text=citation.text, kind=citation.kind, status=status, now=now))
    return found


def _outcome(citation: Citation, at: float, survey: Survey, root: Path) -> _Outcome | None:
    """None for what is not known."""
    match citation.kind:
        case "path":
            return _of_path(citation.text, at, survey, root)
        case "commit":
            is_kept = survey.commit(citation.text)
            return None if is_kept is None else _FRESH if is_kept else _STALE
        case _:
            return _of_name(citation, survey)


def _of_name(citation: Citation, survey: Survey) -> _Outcome | None:
    text = citation.text
    words = list(spellings(text))
    if any(map(survey.has, words)):
        return _FRESH
    now = survey.defined.get(words[0])
    for _ in range(_MOST_NAMES):
        if now is None or survey.has(now):
            break
        now = survey.defined.get(now)
    if now is not None and survey.has(now):
        return "moved", text.removesuffix(words[0]) + now
    # A plain word may have stood in any comment; a name of several parts was one.
    is_distinct_name = citation.kind == "flag" or is_distinct(text)
    return _STALE if words[0] in survey.defined or (is_distinct_name and survey.had(words[0])) else None


def _of_path(text: str, at: float, survey: Survey, root: Path) -> _Outcome | None:
    name = next((each for each in _below(text, root) if _is_known(each, survey)), None)
    if name is None:
        return None
    if name in survey.folders:
        return _FRESH
    candidates = _candidates(name, survey)
    if not candidates:
        return _of_folder(name, survey)
    ends = [_fate(each, at, survey) for each in candidates]
    if any(end == each for end, each in zip(ends, candidates, strict=True)):
        return _FRESH
    if name not in survey.names and os.path.lexists(root / name):  # made since the survey
        return _FRESH
    # Of several former files of this name it is the one that had it last.
    last = max(zip(candidates, ends, strict=True), key=lambda each: survey.endings[each[0]][-1].order)[1]
    now = last or next(filter(None, ends), None)
    return ("moved", now) if now is not None and os.path.lexists(root / now) else _STALE


def _below(text: str, root: Path) -> Iterator[str]:
    """The name of a file in its repository; an absolute path may be that of another checkout."""
    name = text.rstrip("/")
    while name.startswith(("./", "../")):
        name = name.partition("/")[2]
    if not name.startswith("/"):
        yield name
        return
    if name.startswith(f"{root.as_posix()}/"):
        yield name[len(root.as_posix()) + 1 :]
        return
    folders = name.strip("/").split("/")
    yield from ("/".join(folders[start:]) for start in range(1, len(folders) - 1))


def _is_known(name: str, survey: Survey) -> bool:
    return bool(
        name in survey.folders
        or name in survey.past_folders
        or survey.ending_with(name)
        or survey.past_ending_with(name)
    )


def _candidates(name: str, survey: Survey) -> list[str]:
    """The files that a name may stand for, present ones or, failing those, former ones."""
    if "/" in name and (name in survey.names or name in survey.endings):
        return [name]
    return survey.ending_with(name) or survey.past_ending_with(name)


def _fate(name: str, at: float, survey: Survey) -> str | None:
    """What a file is called now that had a name at a time; None if it was deleted."""
    endings = survey.endings.get(name, ())
    ending = next((each for each in endings if each.at > at), None)
    if ending is None and name not in survey.names:
        ending = endings[-1] if endings else None
    for _ in range(_MOST_NAMES):
        if ending is None or ending.to is None:
            return name if name in survey.names else None
        name, order = ending.to, ending.order
        ending = next((each for each in survey.endings.get(name, ()) if each.order > order), None)
    return None


def _of_folder(name: str, survey: Survey) -> _Outcome:
    """What became of a folder: where most of its files went, if they kept their names there."""
    files = [each for each in survey.endings if each.startswith(f"{name}/")]
    went = Counter(
        now.removesuffix(each.removeprefix(name)) if now is not None and now.endswith(each.removeprefix(name)) else None
        for each in files
        for now in (_fate(each, float("inf"), survey),)
    )
    (folder, count), *_ = went.most_common(1)
    return ("moved", folder) if folder and 2 * count > len(files) else _STALE
