"""What a repository has and had: read by a worker process from what Git prints and from the files themselves.

Git runs in the process that starts the worker, as a worker may start no program. Its limits bound what a repository can
make it do.
"""

import json
import re
import sys
import time
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

from rag_context.resilience.confinement import CutOffError, ProcessLimits, confine, receive, renew, send

COMMIT = b"\x01"
"""Begins each commit in the history of files."""

_PROSE = frozenset({".md", ".markdown", ".rst", ".txt", ".adoc", ".lock", ".svg", ".csv", ".ipynb", ".map"})
"""Endings of files that name what is gone, such as a list of changes, or that are generated."""

_MAX_FILE_BYTES = 1 << 20
_MAX_READ_BYTES = 96 << 20

_TOKEN = re.compile(rb"--[a-z][a-z0-9]+(?:-[a-z0-9]+)*|[A-Za-z_][A-Za-z0-9_]{2,}")
_DEFINITION = re.compile(
    rb"\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe)\s+)*"
    rb"(?:def|class|func|function|fn|struct|enum|trait|interface|type|const|let|var|module|record)\s+"
    rb"(?:\([^)]*\)\s*)?([A-Za-z_]\w+)"
    rb"|([A-Z][A-Z0-9_]{2,})\s*[:=]"
)


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended a file's name: another name (`to`) or its deletion, by its `order` from the oldest and its time."""

    order: int
    at: float
    to: str | None


class Survey:
    """What a repository has and had: files, what ended names, and removed definitions with what they became."""

    def __init__(self, data: Mapping[str, Any], present: "array[int]", removed: "array[int]") -> None:
        self.names = frozenset(data["names"])
        self.endings = {name: tuple(Ending(*each) for each in ends) for name, ends in data["endings"].items()}
        self.defined: dict[str, str | None] = data["defined"]
        self._present, self._removed = present, removed
        self._is_whole = bool(data["isWhole"])
        self._commits: tuple[list[str], list[str]] = (data["commits"], data["lost"])
        self._by_name, self._past_by_name = _by_last(self.names), _by_last(self.endings)
        self.folders, self.past_folders = _folders_of(self.names), _folders_of(self.endings)

    def ending_with(self, name: str) -> list[str]:
        """The files that are there with a name that ends so, at a boundary of folders."""
        return _with_end(self._by_name, name)

    def past_ending_with(self, name: str) -> list[str]:
        """The files of the history with a name that ends so."""
        return _with_end(self._past_by_name, name)

    def has(self, token: str) -> bool:
        """Whether code has a name now."""
        return _holds(self._present, token)

    def had(self, token: str) -> bool:
        """Whether code had a name and has it no more; False also where not all code could be read."""
        return self._is_whole and _holds(self._removed, token)

    def commit(self, prefix: str) -> bool | None:
        """Whether a commit is on a branch; None for one that is not known."""
        for commits, is_kept in zip(self._commits, (True, False), strict=True):
            place = bisect_left(commits, prefix)
            if place < len(commits) and commits[place].startswith(prefix):
                return is_kept
        return None


def _by_last(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[name.rpartition("/")[2]].append(name)
    return found


def _folders_of(names: Iterable[str]) -> frozenset[str]:
    folders: set[str] = set()
    for name in names:
        while (name := name.rpartition("/")[0]) and name not in folders:
            folders.add(name)
    return frozenset(folders)


def _with_end(by_name: Mapping[str, list[str]], name: str) -> list[str]:
    return [each for each in by_name.get(name.rpartition("/")[2], ()) if each == name or each.endswith(f"/{name}")]


def _holds(tokens: "array[int]", token: str) -> bool:
    digest = crc32(token.encode())
    place = bisect_left(tokens, digest)
    return place < len(tokens) and tokens[place] == digest


def endings_of(log: bytes, staged: bytes, now: float) -> dict[str, list[Ending]]:
    """The endings of names from `git log --name-status -z` (newest first) and `git diff-index --cached -z`."""
    changes = [(float("inf"), each) for each in _changes(iter(staged.split(b"\0")))]
    for commit in log.split(COMMIT)[1:]:
        head, _, rest = commit.partition(b"\0")
        at = float(head.rpartition(b" ")[2] or 0)
        changes += [(at, each) for each in _changes(iter(rest.lstrip(b"\n").split(b"\0")))]
    endings: dict[str, list[Ending]] = defaultdict(list)
    for order, (at, (name, to)) in enumerate(reversed(changes)):
        endings[name].append(Ending(order, min(at, now), to))
    return endings


def _changes(fields: Iterator[bytes]) -> Iterator[tuple[str, str | None]]:
    for status in fields:
        if status.startswith(b"R"):
            old, new = next(fields, b""), next(fields, b"")
            yield _text(old), _text(new)
        elif status.startswith(b"D"):
            yield _text(next(fields, b"")), None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def removed_by(patches: bytes) -> tuple[set[int], dict[str, str | None]]:
    """Names on removed lines of `git log -p -U0`, as hashes; definitions among them, with what replaced each.

    A definition is renamed where its line, but for the name, became another one.
    """
    removed: set[int] = set()
    defined: dict[str, str | None] = {}
    gone: list[bytes] = []
    new: list[bytes] = []

    def close() -> None:
        sides = [[match for line in lines if (match := _DEFINITION.match(line))] for lines in (gone, new)]
        is_pair = len(gone) == len(new) and all(len(matches) == 1 for matches in sides)
        for before in sides[0]:
            name, to = _defined(before), _defined(sides[1][0]) if is_pair else b""
            is_renamed = is_pair and name != to and before.string.replace(name, to) == sides[1][0].string
            defined.setdefault(name.decode(), to.decode() if is_renamed else None)
        gone.clear()
        new.clear()

    for line in patches.split(b"\n"):
        mark = line[:1]
        if mark == b"@":
            close()
        elif mark == b"-" and not line.startswith(b"--- "):
            removed.update(map(crc32, _TOKEN.findall(line, 1)))
            gone.append(line[1:])
        elif mark == b"+" and not line.startswith(b"+++ "):
            new.append(line[1:])
    close()
    return removed, defined


def _defined(match: re.Match[bytes]) -> bytes:
    return match[1] or match[2]


def tokens_of(root: Path, names: Iterable[str]) -> tuple[set[int], bool]:
    """The names in the code of some files, as hashes, and whether all could be read."""
    tokens: set[int] = set()
    left = _MAX_READ_BYTES
    for name in names:
        if PurePosixPath(name).suffix.lower() in _PROSE:
            continue
        try:
            path = root / name
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
                continue
            data = path.read_bytes()
        except (OSError, ValueError):
            continue
        if (left := left - len(data)) < 0:
            return tokens, False
        if b"\0" not in data[:8000]:
            tokens.update(map(crc32, _TOKEN.findall(data)))
    return tokens, True


def surveyed(root: Path, listing: bytes, staged: bytes, log: bytes, patches: bytes, now: float) -> list[bytes]:
    """The survey of a repository as `unpacked` reads it; `listing` is of `git ls-files -z -t -c -o -d`."""
    by_mark: dict[str, set[str]] = defaultdict(set)
    for entry in listing.split(b"\0"):
        if entry:
            by_mark[chr(entry[0])].add(_text(entry[2:]))
    lost = by_mark.pop("R", set()) - by_mark.get("S", set())
    names = set().union(*by_mark.values()) - lost
    endings = endings_of(log, staged, now)
    moved = _by_last(by_mark.get("?", set()))
    order = 1 + max((each[-1].order for each in endings.values()), default=0)
    for name in lost:
        same = moved.get(name.rpartition("/")[2], [])
        endings[name].append(Ending(order, now, same[0] if len(same) == 1 else None))
    present, is_whole = tokens_of(root, sorted(names))
    removed, defined = removed_by(patches)
    gone = {name: to for name, to in defined.items() if crc32(name.encode()) not in present}
    data = {
        "names": sorted(names),
        "endings": {name: [(each.order, each.at, each.to) for each in ends] for name, ends in endings.items()},
        "defined": gone,
        "isWhole": is_whole,
    }
    return [
        json.dumps(data).encode(),
        array("I", sorted(present)).tobytes(),
        array("I", sorted(removed - present)).tobytes(),
    ]


def unpacked(frames: list[bytes], commits: list[str], lost: list[str]) -> Survey:
    arrays = array("I"), array("I")
    for tokens, frame in zip(arrays, frames[1:], strict=True):
        tokens.frombytes(frame)
    return Survey({**json.loads(frames[0]), "commits": commits, "lost": lost}, *arrays)


FRAMES = 3
"""How many frames an answer has."""


def run(limits: ProcessLimits) -> None:
    """Answer requests on standard input until it ends: the worker process.

    A request is the folder and what Git printed: the files, what is staged, the history of names, and the patches.
    """
    confine(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            root, *printed = (receive(requests) for _ in range(5))
        except CutOffError:
            return
        renew(limits)
        listing, staged, log, patches = printed
        send(answers, *surveyed(Path(_text(root)), listing, staged, log, patches, time.time()))
