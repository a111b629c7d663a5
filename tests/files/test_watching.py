"""What is reported of changes in a folder, with the real system (C-5)."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rag_context.files.watching import watch

DEBOUNCE_S = 0.05
TIMEOUT_S = 20.0


class ReportedChanges:
    """The reported paths, relative to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop = asyncio.Event()
        self.names: set[str] = set()
        self.sets: list[frozenset[Path]] = []
        self.more = asyncio.Event()

    async def listen(self, root: Path) -> None:
        async for paths in watch(root, debounce_s=DEBOUNCE_S, stop=self.stop):
            self.sets.append(paths)
            self.names |= {path.relative_to(self.folder).as_posix() for path in paths}
            self.more.set()

    async def until(self, *names: str) -> None:
        """Wait until all of these were reported."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.names.issuperset(names):
                self.more.clear()
                await self.more.wait()

    async def armed(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not self.sets:
                self.more.clear()
                await self.more.wait()


@asynccontextmanager
async def watching(root: Path, folder: Path) -> AsyncIterator[ReportedChanges]:
    reported = ReportedChanges(folder)
    task = asyncio.create_task(reported.listen(root))
    try:
        await reported.armed()
        yield reported
    finally:
        reported.stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "folder"
    made.mkdir()
    return made


async def test_the_first_set_is_empty_and_from_then_on_no_change_is_missed(folder: Path) -> None:
    (folder / "old.md").write_text("x")
    async with watching(folder, folder) as reported:
        (folder / "new.md").write_text("x")
        await reported.until("new.md")

    assert reported.sets[0] == frozenset()
    assert "old.md" not in reported.names


async def test_edits_renames_and_deletions_are_reported_at_any_depth(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "edit.md").write_text("x")
    (folder / "a" / "move.md").write_text("x")
    (folder / "a" / "delete.md").write_text("x")
    async with watching(folder, folder) as reported:
        (folder / "a" / "edit.md").write_text("y")
        (folder / "a" / "move.md").rename(folder / "moved.md")
        (folder / "a" / "delete.md").unlink()
        await reported.until("a/edit.md", "a/move.md", "moved.md", "a/delete.md")


async def test_what_is_in_a_folder_that_is_moved_in_can_be_found(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "tree"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "a.md").write_text("x")
    async with watching(folder, folder) as reported:
        shutil.move(outside, folder / "tree")
        await reported.until("tree")
        (folder / "tree" / "deep" / "a.md").write_text("y")
        await reported.until("tree/deep/a.md")


async def test_changes_in_ignored_folders_are_not_reported(folder: Path) -> None:
    (folder / ".git").mkdir()
    async with watching(folder, folder) as reported:
        (folder / ".git" / "index").write_text("x")
        (folder / "a.md").write_text("x")
        await reported.until("a.md")

    assert reported.names == {"a.md"}


async def test_a_file_is_followed_through_its_replacement(folder: Path) -> None:
    path = folder / "a.md"
    path.write_text("x")
    async with watching(path, folder) as reported:
        (folder / "other.md").write_text("of no interest")
        for content in ("y", "z"):
            (folder / "tmp").write_text(content)
            (folder / "tmp").rename(path)
            reported.names.clear()
            await reported.until("a.md")

    assert reported.names == {"a.md"}


async def test_a_folder_that_goes_and_comes_back_is_watched_again(folder: Path) -> None:
    async with watching(folder, folder) as reported:
        shutil.rmtree(folder)
        await reported.until(".")
        reported.names.clear()
        await asyncio.to_thread(folder.mkdir)
        await reported.until(".")
        reported.names.clear()
        (folder / "a.md").write_text("x")
        await reported.until("a.md")


async def test_a_folder_that_is_not_there_yet_is_waited_for(folder: Path) -> None:
    root = folder / "later"
    async with watching(root, folder) as reported:
        root.mkdir()
        await reported.until("later")


async def test_what_changed_just_before_the_end_is_reported(folder: Path) -> None:
    async with watching(folder, folder) as reported:
        (folder / "a.md").write_text("x")

    assert "a.md" in reported.names


async def test_consecutive_changes_are_reported_together(folder: Path) -> None:
    async with watching(folder, folder) as reported:
        for number in range(20):
            (folder / f"{number}.md").write_text("x")
        await reported.until(*(f"{number}.md" for number in range(20)))

    assert len(reported.sets) < 20
