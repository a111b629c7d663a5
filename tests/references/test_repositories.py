"""What became of what passages cite, in real repositories."""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.references import histories

from rag_context.agents.workspace import Workspace, workspace
from rag_context.references.repositories import Checked, Cited, Repositories
from tests.agents.test_workspace import git, repository

BEFORE, AFTER = 0.0, 4e9
"""Before and after all commits."""

CODE = "".join(f"def function_{number}(a, b):\n    return {number}\n\n" for number in range(20))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = repository(tmp_path / "shop", "https://git.example.org/team/shop.git")
    for name in ("a.py", "b.py", "net/client.py", "net/wire.py", "net/old.py"):
        write(root, f"src/{name}", f"NAME = '{name}'\n{CODE}def only_in_{name[-4]}(a):\n    return a\n")
    commit(root)
    return root


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Change")


def known(root: Path) -> Workspace:
    project = workspace(root)
    assert project is not None
    return project


async def checked(root: Path, text: str, at: float = BEFORE) -> dict[str, tuple[str, str | None]]:
    """What a fresh reading of the repository says of a passage about it."""
    repositories, project = Repositories(budget_s=60), known(root)
    repositories.note(project)
    await repositories.settled()
    found = await repositories.check([Cited(text, at, (project.tag,))], None)
    await repositories.aclose()
    assert found is not None and found.problem is None
    return {each.text: (each.status, each.now) for each in found.references[0]}


async def test_names_are_followed_through_renames_and_folders(root: Path) -> None:
    git(root, "mv", "src/a.py", "src/c.py")
    git(root, "mv", "src/net", "src/wire")
    commit(root)
    git(root, "mv", "src/c.py", "src/d.py")
    git(root, "rm", "-q", "src/wire/old.py")
    commit(root)
    text = "src/a.py:3, src/b.py, net/client.py, src/net/old.py, `src/net/`, src/never.py"
    assert await checked(root, text) == {
        "src/a.py": ("moved", "src/d.py"),
        "src/b.py": ("fresh", None),
        "net/client.py": ("moved", "src/wire/client.py"),
        "src/net/old.py": ("stale", None),
        "src/net/": ("moved", "src/wire"),
        "src/never.py": ("unverifiable", None),
    }


async def test_a_name_that_another_file_has_since_stands_for_the_file_of_its_time(root: Path) -> None:
    git(root, "mv", "src/a.py", "src/c.py")
    commit(root)
    write(root, "src/a.py", "print('another')\n")
    commit(root)
    assert await checked(root, "src/a.py", BEFORE) == {"src/a.py": ("moved", "src/c.py")}
    assert await checked(root, "src/a.py", AFTER) == {"src/a.py": ("fresh", None)}


async def test_functions_flags_settings_and_commits_are_checked(root: Path) -> None:
    write(root, "tool.py", f"FLAG = '--dry-run'\nSHOP_TOKEN = 1\n{CODE}def first_name(a, b):\n    pass\n")
    commit(root)
    write(root, "tool.py", f"{CODE}def second_name(a, b):\n    pass\n")
    write(root, "CHANGES.md", "Removed --dry-run and SHOP_TOKEN; first_name is second_name.\n")
    commit(root)
    git(root, "commit", "-q", "--amend", "-m", "Changed")
    kept, lost = (root / ".git/logs/HEAD").read_text().splitlines()[-1].split()[1::-1]
    text = f"`function_3()`, `first_name`, `--dry-run`, `SHOP_TOKEN`, commit {kept[:9]} and commit {lost[:9]}"
    assert await checked(root, text) == {
        "function_3": ("fresh", None),
        "first_name": ("moved", "second_name"),
        "--dry-run": ("stale", None),
        "SHOP_TOKEN": ("stale", None),
        kept[:9]: ("fresh", None),
        lost[:9]: ("stale", None),
    }


async def test_what_is_not_committed_counts(root: Path) -> None:
    (root / "src/a.py").unlink()
    git(root, "mv", "src/b.py", "src/staged.py")
    (root / "src/net/old.py").rename(root / "old.py")
    write(root, "src/new.py", "x = 1\n")
    assert await checked(root, "src/a.py src/b.py src/net/old.py src/new.py") == {
        "src/a.py": ("stale", None),
        "src/b.py": ("moved", "src/staged.py"),
        "src/net/old.py": ("moved", "old.py"),
        "src/new.py": ("fresh", None),
    }


async def test_a_file_that_a_sparse_checkout_leaves_out_is_there(root: Path) -> None:
    git(root, "update-index", "--skip-worktree", "src/a.py")
    (root / "src/a.py").unlink()
    assert await checked(root, "src/a.py") == {"src/a.py": ("fresh", None)}


async def test_paths_of_another_checkout_are_those_of_this_one(root: Path, tmp_path: Path) -> None:
    git(root, "mv", "src/a.py", "src/c.py")
    commit(root)
    moved = Path(shutil.move(root, tmp_path / "elsewhere"))
    text = f"{root}/src/a.py and {root}/src/b.py and {moved}/src/net/wire.py"
    assert list((await checked(moved, text)).values()) == [("moved", "src/c.py"), ("fresh", None), ("fresh", None)]


async def test_other_projects_and_code_are_not_checked(root: Path) -> None:
    repositories, project = Repositories(budget_s=60), known(root)
    repositories.note(project)
    await repositories.settled()
    git(root, "rm", "-q", "src/a.py")
    commit(root)
    others = [Cited("src/a.py", AFTER, ("project:wiki-12345678",)), Cited("src/a.py", AFTER, (), is_code=True)]
    assert await repositories.check(others, project.tag) is None
    assert await repositories.check([Cited("src/a.py", AFTER)], None) is None
    own = await repositories.check([Cited("src/b.py and b.py", AFTER)], project.tag)
    assert own is not None and [each.text for each in own.references[0]] == ["src/b.py"]
    await repositories.aclose()


async def test_a_commit_is_noticed_and_what_is_newer_than_the_survey_is_never_called_gone(root: Path) -> None:
    now = [0.0]
    repositories, project = Repositories(clock=lambda: now[0], budget_s=60), known(root)

    async def check(text: str) -> Checked:
        found = await repositories.check([Cited(text, AFTER, (project.tag,))], None)
        assert found is not None
        return found

    repositories.note(project)
    assert (await check("src/a.py")).problem == "the repository is being read"
    await repositories.settled()
    git(root, "mv", "src/a.py", "src/c.py")
    commit(root)
    now[0] = 10.0
    await check("src/a.py")
    await repositories.settled()
    assert (await check("src/a.py")).references[0][0].now == "src/c.py"
    git(root, "mv", "src/c.py", "src/a.py")
    assert (await check("src/a.py")).references[0][0].status == "fresh"
    shutil.rmtree(root)
    assert (await check("src/a.py")).references == ((),)
    await repositories.aclose()


async def test_what_takes_too_long_is_left_out_and_said(root: Path) -> None:
    repositories, project = Repositories(budget_s=0.0), known(root)
    repositories.note(project)
    await repositories.settled()
    found = await repositories.check([Cited("src/a.py", AFTER, (project.tag,))], None)
    assert found is not None and (found.references, found.problem) == (((),), "the check took too long")
    await repositories.aclose()


async def closed(repositories: Repositories) -> None:
    """What the end of a program waits for: the threads that read a repository, too."""
    async with asyncio.timeout(20):
        await repositories.aclose()
        await asyncio.get_running_loop().shutdown_default_executor()


def survey_process() -> int | None:
    """The process that reads a repository, a child of this one."""
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread or a process that has just ended
            for child in task.read_text().split():
                if b"references.survey" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    return None


async def test_the_end_waits_for_no_process_that_reads_a_repository(root: Path) -> None:
    """One that is stopped stands for one that takes long on a busy machine."""
    process = None
    while process is None:  # it may have ended before it was seen
        repositories = Repositories()
        repositories.note(known(root))
        read = asyncio.create_task(repositories.settled())
        while not read.done() and (process := survey_process()) is None:
            await asyncio.sleep(0.002)
    os.kill(process, signal.SIGSTOP)
    await closed(repositories)
    await read


async def test_the_end_waits_for_no_git(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, begun = tmp_path / "bin" / "git", tmp_path / "begun"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{begun}'\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    repositories = Repositories()
    repositories.note(known(root))
    while not begun.exists():
        await asyncio.sleep(0.002)
    await closed(repositories)


async def test_without_commits_or_without_a_repository_nothing_is_known(tmp_path: Path) -> None:
    git(tmp_path / "empty", "init", "-q")
    (tmp_path / "plain").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "plain"):
        repositories, project = Repositories(budget_s=60), known(folder)
        repositories.note(project)
        await repositories.settled()
        found = await repositories.check([Cited("src/a.py", AFTER, (project.tag,))], None)
        assert found is None or found.references == ((),)
        await repositories.aclose()


def test_histories_are_followed(tmp_path: Path) -> None:
    result = histories(tmp_path, count=2, commits=20)
    assert len(result.answers) > 300
    assert result.share_found() >= 0.95
    assert result.share_false() <= 0.02
    assert result.share_right() >= 0.9
