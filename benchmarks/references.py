"""How often a stale reference is found: `python -m benchmarks references`, or `benchmarks.references FOLDER...`.

Histories are made by a seed: files and names in them are created, changed, renamed, moved and deleted, on branches too,
while notes cite them. What became of each file is known from its making, not from Git. With folders of repositories,
names in their past are cited instead, and the truth is a comparison of the past commit with the last one.
"""

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.figures import Figure, as_markdown
from rag_context.agents.workspace import workspace
from rag_context.references.repositories import Cited, Repositories

HISTORIES = 10
COMMITS = 60
NOTES = 3
"""Notes after each commit."""

Kind = Literal["path", "symbol", "commit", "flag"]
Truth: TypeAlias = tuple[str, str | None]
"""What became of a citation, and where it is now if it moved."""

_FRESH: Truth = ("fresh", None)
_STALE: Truth = ("stale", None)
_FOLDERS = ("src/app", "src/app/net", "src/lib", "tools", "tests")
_WORDS = (
    "retry",
    "cache",
    "token",
    "parser",
    "router",
    "worker",
    "queue",
    "session",
    "index",
    "storage",
    "scan",
    "merge",
)
_START_S = 1_700_000_000


@dataclass(eq=False)
class _File:
    """A file, however it is called; `path` is None once it is deleted."""

    path: str
    lines: list[str]
    is_gone: bool = False


@dataclass(eq=False)
class _Name:
    """A function or a flag."""

    text: str
    file: _File
    is_gone: bool = False


class Note(NamedTuple):
    """A citation, when it was made, and what it is of: a file, a name, a commit with whether it is kept, or nothing."""

    cited: str
    at: float
    kind: Kind
    of: _File | _Name | bool | None = None


@dataclass
class History:
    """A repository that is made by a seed.

    Args:
        root: where it is made.
        seed: decides what happens.
        commits: how many.
    """

    root: Path
    seed: int
    commits: int
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._files: list[_File] = []
        self._names: list[_Name] = []
        self._former: list[str] = []
        self._now_s = float(_START_S)
        self._number = 0

    def make(self) -> None:
        """Make all commits, and move the checkout to another folder in the end."""
        self.root.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")
        self._git("remote", "add", "origin", f"https://git.example.org/team/history-{self.seed}.git")
        for _ in range(12):
            self._create()
        self._commit()
        for number in range(self.commits):
            if number % 15 == 9:
                self._branch()
            else:
                for _ in range(self._random.randint(1, 3)):
                    self._change()
                self._commit(is_lost=number % 20 == 13)
            self._note()
        self.root = self.root.rename(self.root.with_name(f"{self.root.name}-moved"))

    def became(self, note: Note) -> Truth:
        """What became of what a note cites."""
        if isinstance(note.of, _File):
            return self._file_became(note.cited.partition(":")[0], note.of)
        if isinstance(note.of, _Name):
            return _STALE if note.of.is_gone else _FRESH if note.of.text in note.cited else ("moved", note.of.text)
        if note.of is None:
            return "unverifiable", None
        return _FRESH if note.of else _STALE

    def _file_became(self, cited: str, file: _File) -> Truth:
        if file.is_gone:
            # Where another file has the name by now, that can be opened, and nothing says that it is not the one.
            return _FRESH if any(f"/{each.path}".endswith(f"/{cited}") for each in self._there()) else _STALE
        return _FRESH if f"/{file.path}".endswith(f"/{cited}") else ("moved", file.path)

    def _branch(self) -> None:
        """Renames on a branch and changes on main, merged."""
        files = self._random.sample(self._there(), 8)
        self._number += 1
        branch = f"branch-{self._number}"
        main = [(each, each.path) for each in files[:3]]
        self._git("checkout", "-q", "-b", branch)
        for each, _ in main:
            self._rename(each)
        self._commit()
        self._git("checkout", "-q", "main")
        for each in files[3:]:
            self._edit(each)
        self._commit()
        self._tick()
        self._git("merge", "-q", "--no-ff", "-m", "merge", branch)

    def _change(self) -> None:
        file = self._random.choice(self._there())
        share = self._random.random()
        if share < 0.2 or len(self._there()) < 10:
            self._create()
        elif share < 0.45:
            self._edit(file)
        elif share < 0.65:
            self._rename(file)
        elif share < 0.73:
            self._rename(file)
            self._edit(file)
        elif share < 0.82:
            self._delete(file)
        elif share < 0.92:
            self._rename_name(file)
        elif share < 0.96:
            self._drop_name(file)
        else:
            self._move_folder()

    def _there(self) -> list[_File]:
        return [each for each in self._files if not each.is_gone]

    def _word(self) -> str:
        self._number += 1
        return f"{self._random.choice(_WORDS)}_{self._random.choice(_WORDS)}_{self._number}"

    def _constant(self) -> str:
        return f"VALUE_{self._word().upper()} = {self._random.random()}"

    def _create(self) -> None:
        free = [path for path in self._former if not self._is_used(path)]
        # One new file in four gets the name that another had.
        is_again = bool(free) and self._random.random() < 0.25
        path = self._random.choice(free) if is_again else f"{self._random.choice(_FOLDERS)}/{self._word()}.py"
        file = _File(path, [self._constant() for _ in range(20)])
        for _ in range(3):
            name = self._word()
            file.lines += [f"def {name}(request, limit={self._number}):", f"    return {self._random.random()}", ""]
            self._names.append(_Name(name, file))
        flag = f"--{self._word().replace('_', '-')}"
        file.lines.append(f'parser.add_argument("{flag}")')
        self._names.append(_Name(flag, file))
        self._files.append(file)
        self._write(file)

    def _is_used(self, path: str) -> bool:
        return any(each.path == path for each in self._there())

    def _edit(self, file: _File) -> None:
        for _ in range(2):
            file.lines[self._random.randrange(20)] = self._constant()
        self._write(file)

    def _rename(self, file: _File) -> None:
        folder, _, name = file.path.rpartition("/")
        is_same_folder = self._random.random() < 0.5
        new = f"{folder}/{self._word()}.py" if is_same_folder else f"{self._random.choice(_FOLDERS)}/{name}"
        if not self._is_used(new):
            self._take_away(file)
            file.path = new
            self._write(file)

    def _move_folder(self) -> None:
        old, new = self._random.choice(_FOLDERS[:2]), f"packages/{self._word()}"
        for each in self._there():
            if each.path.startswith(f"{old}/"):
                self._take_away(each)
                each.path = new + each.path.removeprefix(old)
                self._write(each)

    def _delete(self, file: _File) -> None:
        self._take_away(file)
        file.is_gone = True
        for name in self._names:
            name.is_gone = name.is_gone or name.file is file

    def _rename_name(self, file: _File) -> None:
        for name in self._names_of(file, "")[:1]:
            new = self._word()
            file.lines = [line.replace(f"def {name.text}(", f"def {new}(") for line in file.lines]
            name.text = new
        self._write(file)

    def _drop_name(self, file: _File) -> None:
        for name in [*self._names_of(file, "--")[:1], *self._names_of(file, "")[:1]]:
            file.lines = [line for line in file.lines if name.text not in line]
            name.is_gone = True
        self._write(file)

    def _names_of(self, file: _File, start: str) -> list[_Name]:
        names = [each for each in self._names if each.file is file and not each.is_gone]
        return [each for each in names if each.text.startswith("--") == bool(start)]

    def _take_away(self, file: _File) -> None:
        self._former.append(file.path)
        (self.root / file.path).unlink()

    def _write(self, file: _File) -> None:
        path = self.root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(file.lines) + "\n", encoding="utf-8")

    def _note(self) -> None:
        """Cite some of what there is now, and what never was."""
        self._tick()
        for _ in range(NOTES):
            file = self._random.choice(self._there())
            forms = (file.path, f"{file.path}:{self._random.randint(1, 20)}", "/".join(file.path.split("/")[-2:]))
            self.notes.append(Note(self._random.choice(forms), self._now_s, "path", file))
            name = self._random.choice([each for each in self._names if not each.is_gone])
            is_flag = name.text.startswith("--")
            cited = f"`{name.text}`" if is_flag else f"`{name.text}()`"
            self.notes.append(Note(cited, self._now_s, "flag" if is_flag else "symbol", name))
        self.notes.append(Note(f"src/{self._word()}/{self._word()}.py", self._now_s, "path"))
        self.notes.append(Note(f"`{self._word()}()`", self._now_s, "symbol"))

    def _commit(self, *, is_lost: bool = False) -> None:
        self._tick()
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", "change")
        commit = self._git("rev-parse", "HEAD")[:9]
        if is_lost:
            self._git("commit", "-q", "--amend", "-m", "changed")
        if is_lost or self._random.random() < 0.2:
            self.notes.append(Note(commit, self._now_s, "commit", not is_lost))

    def _tick(self) -> None:
        self._now_s += self._random.randint(60, 86_400)

    def _git(self, *arguments: str) -> str:
        date = f"{int(self._now_s)} +0000"
        who = {f"GIT_{role}_{part}": "note" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        own = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "HOME": str(self.root)}
        return _git(self.root, *arguments, environment={**os.environ, **who, **own})


def _git(root: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    return done.stdout.decode("utf-8", "replace").strip()


@dataclass
class Summary:
    """What was answered, beside the truth."""

    answers: list[tuple[Note, Truth, Truth]] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def share_found(self) -> float:
        """Share of what moved or is gone of which that was said."""
        changed = [answer for _, truth, answer in self.answers if truth[0] in ("stale", "moved")]
        return sum(answer[0] in ("stale", "moved") for answer in changed) / max(len(changed), 1)

    def share_false(self) -> float:
        """Share of what is as it was, or was never there, that was called moved or gone."""
        same = [answer for _, truth, answer in self.answers if truth[0] in ("fresh", "unverifiable")]
        return sum(answer[0] in ("stale", "moved") for answer in same) / max(len(same), 1)

    def share_right(self) -> float:
        """Share of what moved of which the right place was said."""
        moved = [(truth, answer) for _, truth, answer in self.answers if truth[0] == "moved"]
        return sum(truth == answer for truth, answer in moved) / max(len(moved), 1)

    def wrong(self) -> Iterator[str]:
        """What was answered otherwise than it is."""
        return (
            f"{note.kind} {note.cited}: {answer}, not {truth}"
            for note, truth, answer in self.answers
            if answer != truth
        )


async def check(root: Path, notes: Sequence[tuple[Note, Truth]], into: Summary) -> None:
    """Check notes against a repository, five at a time as a search does."""
    project = workspace(root)
    assert project is not None
    repositories = Repositories(budget_s=60.0)
    try:
        repositories.note(project)
        await repositories.settled()
        for start in range(0, len(notes), 5):
            part = notes[start : start + 5]
            passages = [Cited(_sentence(note), note.at, (project.tag,)) for note, _ in part]
            started = time.perf_counter()
            checked = await repositories.check(passages, None)
            into.latencies_ms.append((time.perf_counter() - started) * 1000.0)
            assert checked is not None
            for (note, truth), found in zip(part, checked.references, strict=True):
                name = note.cited.partition(":")[0].strip("`()")
                answers = [(each.status, each.now) for each in found if each.text == name]
                into.answers.append((note, truth, answers[0] if answers else ("unverifiable", None)))
    finally:
        await repositories.aclose()


def _sentence(note: Note) -> str:
    if note.kind == "commit":
        return f"Fixed in commit {note.cited}, as was decided."
    return f"The limit of open requests is in {note.cited} since last week, and nowhere else."


def histories(scratch: Path, count: int, commits: int) -> Summary:
    """Make histories, and check their notes."""
    result = Summary()
    for seed in range(count):
        history = History(scratch / f"history-{seed}", seed, commits)
        history.make()
        asyncio.run(check(history.root, [(note, history.became(note)) for note in history.notes], result))
    return result


def measure(scratch: Path, count: int = HISTORIES, commits: int = COMMITS) -> list[Figure]:
    """The figures of some histories."""
    return figures(histories(scratch, count, commits))


def figures(result: Summary) -> list[Figure]:
    """The shares, and the time of checking five passages."""
    count = f"of {len(result.answers):,} citations"
    return [
        Figure(
            "references: moved or gone, and found", 100 * result.share_found(), "%", 95.0, at_least=True, note=count
        ),
        Figure("references: called moved or gone, and not", 100 * result.share_false(), "%", 2.0),
        Figure("references: moved, and the place is right", 100 * result.share_right(), "%", 90.0, at_least=True),
        Figure("references: five passages, p95", statistics.quantiles(result.latencies_ms, n=20)[-1], "ms", 10.0),
    ]


_DEFINED = re.compile(
    r"^\s*(?:async def|def|class|fn|func|function|struct|enum|trait)\s+([A-Za-z]\w+_\w+)", re.MULTILINE
)
_CODE = (".py", ".rs", ".go", ".js", ".ts", ".rb", ".c", ".h")
_IN_CODE = (".", *(f":(exclude,glob)**/*.{suffix}" for suffix in ("md", "rst", "txt")))
PAST = (0.1, 0.3, 0.5, 0.7, 0.9)
SAMPLE = 60
_EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def past_of(root: Path, seed: int = 0) -> list[tuple[Note, Truth]]:
    """Citations of files and names as several past commits have them, with what two trees compared say of them.

    A file moved if the last commit has one that is new and of which 70 % are the same. Empty ones, and those of which
    it has copies, are left out: each could be the one.
    """
    chance = random.Random(seed)
    commits = _git(root, "rev-list", "--first-parent", "HEAD").split()
    there = _tree(root, "HEAD")
    copies = Counter(there.values()) + Counter({_EMPTY: 2})
    notes: list[tuple[Note, Truth]] = []
    for share in PAST:
        commit = commits[int(share * (len(commits) - 1))]
        at = float(_git(root, "show", "-s", "--format=%ct", commit))
        lines = _git(root, "diff", "-M70%", "-l0", "--name-status", "--diff-filter=R", commit, "HEAD").splitlines()
        renamed = {old: new for _, old, new in (line.split("\t") for line in lines)}
        files = [path for path in _tree(root, commit) if re.fullmatch(r"[\w.-]+/[\w./-]+\.\w+", path)]
        gone = [path for path in files if path not in there]
        for path in {*chance.sample(files, min(SAMPLE, len(files))), *chance.sample(gone, min(SAMPLE, len(gone)))}:
            truth = _FRESH if path in there else ("moved", renamed[path]) if path in renamed else _STALE
            if truth[1] is None or copies[there[truth[1]]] == 1:
                notes.append((Note(path, at, "path"), truth))
        code = [path for path in files if path.endswith(_CODE)]
        sources = (_git(root, "show", f"{commit}:{path}") for path in chance.sample(code, min(SAMPLE, len(code))))
        names = sorted({name for source in sources for name in _DEFINED.findall(source)})
        notes += [
            (Note(f"`{name}`", at, "symbol"), _FRESH if _is_in_code(root, name) else _STALE)
            for name in chance.sample(names, min(SAMPLE, len(names)))
        ]
    return notes


def _tree(root: Path, commit: str) -> dict[str, str]:
    """The hash of each file."""
    entries = (line.partition("\t") for line in _git(root, "ls-tree", "-r", commit).splitlines())
    return {path: head.split()[2] for head, _, path in entries}


def _is_in_code(root: Path, name: str) -> bool:
    command = ["git", "-C", str(root), "grep", "-qwF", name, "HEAD", "--", *_IN_CODE]
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Measure made histories, or the repositories in some folders."""
    parser = argparse.ArgumentParser(prog="benchmarks.references", description=__doc__)
    parser.add_argument("folders", metavar="FOLDER", nargs="*", type=Path, help="checkouts of repositories")
    parser.add_argument("--wrong", action="store_true", help="also list what was answered otherwise than it is")
    options = parser.parse_args()
    results = {str(folder): Summary() for folder in options.folders}
    for folder in options.folders:
        asyncio.run(check(folder, past_of(folder), results[str(folder)]))
    if not options.folders:
        with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as name:
            results["made"] = histories(Path(name), HISTORIES, COMMITS)
    for title, result in results.items():
        sys.stdout.write(f"{title}\n\n{as_markdown(figures(result))}\n")
        if options.wrong:
            sys.stdout.writelines(f"{line}\n" for line in result.wrong())
    return 0


if __name__ == "__main__":
    sys.exit(main())
