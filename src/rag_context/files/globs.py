"""Patterns as in `.gitignore`, matched in linear time, without backtracking.

pathspec turns a pattern into a regular expression that backtracks: `*a*a*a*a*a*a*a*b` against a name of 200 letters
takes practically for ever, and patterns come with folders of other people. Of all the positions where the text after
a star matches, the first is as good as any, as long as another star follows; so that one is kept (an atomic group),
and the time is linear in the path for each star.

The two methods that are overridden are internals of pathspec and change between its minor versions, so pyproject.toml
names the one that they were written for.
"""

from collections.abc import Iterable
from typing import Any

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

MAX_PATTERN_CHARS = 1000
MAX_PATTERNS = 10_000
"""Of one list. Longer patterns, and those after so many, are ignored."""

_STAR = "[^/]*"
_ANY_FOLDERS_FIRST = "^(?:.+/)?"
_ANY_FOLDERS = "(?:/.+)?"
"""How pathspec writes `*` and `**`."""


class _Pattern(GitIgnoreSpecPattern):
    __slots__ = ()

    @classmethod
    def _translate_segment_glob(cls, pattern: str, range_error: Any) -> str:
        """A part of a path; all stars but the last keep the first match of what follows them."""
        translated: str = super()._translate_segment_glob(pattern, range_error)
        first, *rest = translated.split(_STAR)
        if len(rest) < 2:
            return translated
        return first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1]) + _STAR + rest[-1]

    @classmethod
    def pattern_to_regex(cls, pattern: Any) -> Any:
        """The expression of a whole pattern; all `**` but the last keep the first match in the same way."""
        regex, include = super().pattern_to_regex(pattern)
        if regex is None:
            return regex, include
        first, *rest = regex.split(_ANY_FOLDERS)
        if not rest:
            return regex, include
        if first.startswith(_ANY_FOLDERS_FIRST):
            first = f"^(?>(?:.+?/)??{first.removeprefix(_ANY_FOLDERS_FIRST)}(?=/))"
        middle = "".join(f"(?>(?:/.+?)??{piece}(?=/))" for piece in rest[:-1])
        return f"{first}{middle}{_ANY_FOLDERS}{rest[-1]}", include


def path_patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    """The patterns of some lines. Raises: ValueError if one is invalid."""
    kept = [line for line in lines if len(line) <= MAX_PATTERN_CHARS][:MAX_PATTERNS]
    return GitIgnoreSpec.from_lines(kept, _Pattern, backend="simple")


def ignore_patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    """The patterns of an ignore file; like git, this ignores invalid ones."""
    lines = list(lines)
    try:
        return path_patterns(lines)
    except ValueError:
        return path_patterns([line for line in lines if _means_something(line)])


def _means_something(line: str) -> bool:
    try:
        path_patterns([line])
    except ValueError:
        return False
    return True
