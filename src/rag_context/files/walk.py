"""Which files a walk returns: named files, folders, and patterns, less what the ignore files leave out.

Everything streams in a fixed order, so that a walk over any number of files needs little memory and a second one
meets them in the same order. What cannot be walked is returned as a `Rejected`, never an exception.

Patterns as in `.gitignore` come with folders of other people, and the regular expressions that pathspec makes of them
backtrack: `*a*a*a*a*a*a*a*b` takes practically for ever on a long name. Here the first position where the text after a
star matches is kept (an atomic group): no other is better as long as another star follows. The two methods that are
overridden are internals of pathspec: pyproject.toml names the minor version that they were written for.
"""

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from rag_context.errors import FieldError, InvalidInputError
from rag_context.files import file_reading
from rag_context.files.descriptors import read_start
from rag_context.files.file_reading import SKIPPED_FILES, SKIPPED_FOLDERS, Found, Rejected, printable
from rag_context.files.generated import Generated

MAX_PATTERN_CHARS = 1000
MAX_PATTERNS = 10_000
"""Of one list. Longer patterns, and those after so many, are ignored."""

_STAR = "[^/]*"
_ANY_FOLDERS_FIRST = "^(?:.+/)?"
_ANY_FOLDERS = "(?:/.+)?"
"""How pathspec writes `*` and `**`."""

ListFolder: TypeAlias = Callable[[Path], Sequence[os.DirEntry[str] | Rejected]]
"""Lists a folder by name, or returns the reason why it cannot."""

_MAGIC = re.compile(r"[*?\[]")


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


@dataclass(frozen=True)
class Root:
    """Where a walk begins: an absolute path without links.

    Of the files below it those that match `pattern`, as in an ignore file, and secret places only with `secrets`.
    """

    path: Path
    pattern: str = ""
    secrets: bool = False

    def takes(self, path: Path) -> bool:
        return not self.pattern or self._spec.match_file(path.relative_to(self.path).as_posix())

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        return path_patterns([self.pattern])


def roots(paths: Iterable[Path]) -> list[Root]:
    """Where to begin, each root once. A path with `*`, `?` or `[` that does not exist is a pattern (`**` for any
    depth): the folder before it is walked, and its ignore files count."""
    return list(dict.fromkeys(map(_root, paths)))


def _root(path: Path) -> Root:
    parts = path.parts
    magic = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), None)
    if magic is None or os.path.lexists(path):
        return Root(_absolute(path))
    return Root(_absolute(Path(*parts[:magic])), "/" + "/".join(parts[magic:]))


def find_files(paths: Iterable[Path], generated: Generated | None = None) -> Iterator[Found | Rejected]:
    """The files named and those below the folders named, in a fixed order."""
    for root in roots(paths):
        yield from walk(root, generated)


def walk(root: Root, generated: Generated | None = None) -> Iterator[Found | Rejected]:
    """The files of one root but vendored code; a file that is named itself is returned even if it is ignored."""
    try:
        mode = root.path.stat().st_mode
    except OSError as error:
        yield Rejected(printable(root.path), f"cannot be read: {error.strerror}", unknown=True)
        return
    if not root.secrets and is_secret_place(root.path):
        yield Rejected(printable(root.path), f"{SECRET_PLACE}; `rag-context index --secrets` reads it")
        return
    if not stat.S_ISDIR(mode):
        yield Found(root.path, named=True)
        return
    is_empty = True
    rules = _rules(root.path, _rules_above(root.path))
    for item in _walk_entries(_entries(root.path), root, rules, generated):
        if isinstance(item, Found) and not root.takes(item.path):
            continue
        is_empty = False
        # With a pattern, other files that are left out do not matter; a folder that cannot be read may hold matches.
        if not root.pattern or isinstance(item, Found) or item.unknown:
            yield item
    if root.pattern and is_empty:
        yield Rejected(printable(root.path) + root.pattern, "nothing matches")


def _entries(folder: Path) -> Sequence[os.DirEntry[str] | Rejected]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        return [Rejected(printable(folder), f"cannot be read: {error.strerror}", unknown=True)]


def find_changed(
    root: Path, changed: Collection[Path], generated: Generated | None = None, *, list_folder: ListFolder = _entries
) -> Iterator[Found | Rejected]:
    """Of the files that a walk of a folder returns, those at or below some paths in it, which may be gone."""
    names: dict[Path, set[str]] = {}
    for path in outermost(changed):
        if path == root:
            yield from walk(Root(root), generated)
            return
        names.setdefault(path.parent, set()).add(path.name)
    for folder in sorted(names):
        yield from _below_folder(names[folder], folder, root, generated, list_folder)


def outermost(paths: Collection[Path]) -> list[Path]:
    """The paths that are not below another one, in order. For an ignore file, the folder that it applies to."""
    touched = {path.parent if path.name in file_reading.IGNORE_FILES else path for path in paths}
    return sorted(path for path in touched if touched.isdisjoint(path.parents))


def _below_folder(
    names: Collection[str], folder: Path, root: Path, generated: Generated | None, list_folder: ListFolder
) -> Iterator[Found | Rejected]:
    """What a walk of the root finds under some names in one folder below it, listing the folder once."""
    # Down from the root, as a walk comes: below an ignored folder nothing counts, whatever the ignore files there say.
    rules = _rules(root, _rules_above(root))
    above = root
    for name in folder.relative_to(root).parts:
        above /= name
        is_folder = above.is_dir() and not above.is_symlink()
        if name in SKIPPED_FOLDERS or not is_folder or _ignored(above, rules, suffix="/"):
            return
        if is_secret_place(above) or (generated is not None and generated.folder(above)):
            return
        rules = _rules(above, rules)
    entries = [entry for entry in list_folder(folder) if isinstance(entry, Rejected) or entry.name in names]
    yield from _walk_entries(entries, Root(root), rules, generated)


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
    """Whether a path is left out; the deepest folder with a matching pattern decides."""
    while rules is not None:
        verdict = rules.spec.check_file(path.relative_to(rules.folder).as_posix() + suffix).include
        if verdict is not None:
            return verdict
        rules = rules.above
    return False


def _walk_entries(
    start: Sequence[os.DirEntry[str] | Rejected], root: Root, start_rules: _Rules | None, generated: Generated | None
) -> Iterator[Found | Rejected]:
    """Depth first in the order of names, without recursion, so that depth has no limit of its own."""
    stack = [(iter(start), start_rules)]
    while stack:
        entries, rules = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, Rejected):
            yield entry
        elif entry.is_symlink():
            yield from _link(entry, root.path, rules)
        elif entry.is_dir(follow_symlinks=False):
            folder = Path(entry.path)
            if entry.name in SKIPPED_FOLDERS or _ignored(folder, rules, suffix="/"):
                continue
            if not root.secrets and is_secret_place(folder):
                yield Rejected(f"{printable(folder)}/", SECRET_PLACE, failed=False)
            elif generated is not None and (reason := generated.folder(folder)):
                yield Rejected(f"{printable(folder)}/", reason, failed=False)
            else:
                stack.append((iter(_entries(folder)), _rules(folder, rules)))
        elif entry.name not in SKIPPED_FILES and not _ignored(Path(entry.path), rules):
            yield _file(entry, root)


def _file(entry: os.DirEntry[str], root: Root) -> Found | Rejected:
    path = Path(entry.path)
    if not root.secrets and is_secret_place(path):
        return Rejected(printable(path), SECRET_PLACE, failed=False)
    if entry.is_file(follow_symlinks=False):
        return Found(path, named=False)
    return Rejected(printable(path), "not a regular file", failed=False)


def _link(entry: os.DirEntry[str], root: Path, rules: _Rules | None) -> Iterator[Rejected]:
    """A link is not followed: a target inside the root is found there under its own name."""
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
    lines = [line for name in file_reading.IGNORE_FILES for line in _lines(folder / name)]
    return _Rules(folder, ignore_patterns(lines), above) if lines else above


def _rules_above(root: Path) -> _Rules | None:
    """The ignore files from the top of the repository that holds the root, down to the root's parent."""
    parents = list(root.parents)
    top = next((folder for folder in (root, *parents) if (folder / ".git").exists()), root)
    rules: _Rules | None = None
    for folder in reversed([parent for parent in parents if parent.is_relative_to(top)]):
        rules = _rules(folder, rules)
    return rules


def _lines(path: Path) -> list[str]:
    """The lines of an ignore file; as with git, a symbolic link is not read."""
    try:
        return read_start(path, file_reading.MAX_IGNORE_BYTES).decode("utf-8-sig", "replace").splitlines()
    except OSError:
        return []


def _secret_places() -> re.Pattern[str]:
    """Those of `secret_places.txt`: folders of the system, folders below any other, and files."""
    blocks = Path(__file__).with_name("secret_places.txt").read_text("utf-8").split("\n\n")
    system, folders, files = ("|".join(map(re.escape, " ".join(block.split()).split(", "))) for block in blocks)
    return re.compile(rf"^/(?:{system})(?:/|$)|/(?:{folders})(?:/|$)|/(?:{files})$")


_SECRET = _secret_places()

SECRET_PLACE = "one of the usual places of secrets, such as ~/.ssh, .netrc, shell histories and /etc"  # noqa: S105


def is_secret_place(path: Path) -> bool:
    """Whether a file or folder (absolute, without links) is, or lies in, a place where programs keep secrets."""
    return _SECRET.search(path.as_posix().casefold()) is not None


def check_reach(path: Path, folders: Sequence[Path]) -> None:
    """Check that a path may be read for an agent, whether it exists or not. Raises: InvalidInputError (it may not)."""
    if is_secret_place(path):
        sentence = f"{path.as_posix()} is not indexed: it is {SECRET_PLACE}"
    elif not any(path.is_relative_to(folder) for folder in folders):
        named = ", ".join(folder.as_posix() for folder in folders) or "none"
        sentence = (
            f"{path.as_posix()} is outside of the folders that may be indexed here ({named}). "
            "A person can add its folder to the setting indexing.roots, or run `rag-context index` on it"
        )
    else:
        return
    raise InvalidInputError(sentence, [FieldError("path", sentence)])


def folders_of_work(started_in: Path, home: Path) -> list[Path]:
    """The folder in which a client started this process; none where it holds the home folder, as with desktops."""
    folder = started_in.resolve()
    return [] if home.resolve().is_relative_to(folder) else [folder]
