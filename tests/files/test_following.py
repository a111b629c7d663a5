"""A folder that is followed: whatever happens to it or to the index, both end in step (C-5)."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings

from rag_context.errors import BackendUnavailableError, RagContextError
from rag_context.files.folder_sync import FolderSync
from rag_context.files.watching import Follower
from rag_context.stores.machine_tables import open_file_manifest

from .index_target import CollectedReceipts, IndexTarget, syncing
from .test_folder_sync_at_random import Look, Step, fresh, steps

DEBOUNCE_S = 0.03
TIMEOUT_S = 15.0


class Followed:
    """A folder, its index, and what follows the one into the other."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "folder"
        self.folder.mkdir()
        self.data_dir = place
        self.target = IndexTarget()
        self.received = CollectedReceipts()
        self.opened = 0
        self.comes_back = True
        self.ready = asyncio.Event()
        self.troubles: list[RagContextError] = []
        self.stop = asyncio.Event()

    @asynccontextmanager
    async def reach(self) -> AsyncIterator[FolderSync]:
        self.opened += 1
        with open_file_manifest(self.data_dir) as ledger, syncing(self.target, ledger, self.received) as sync:
            yield sync

    def trouble(self, error: RagContextError, _wait_s: float) -> None:
        self.troubles.append(error)
        if self.comes_back:
            self.target.down = None

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        follower = Follower(
            [self.folder], self.reach, self.ready.set, self.trouble, debounce_s=DEBOUNCE_S, retry_s=DEBOUNCE_S
        )
        task = asyncio.create_task(follower.run(self.stop))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self.ready.wait()
            yield
        finally:
            self.stop.set()
            async with asyncio.timeout(TIMEOUT_S):
                await task

    async def until(self, *names: str) -> None:
        """Wait until the index holds these files and no other."""
        expected = {f"{self.folder}/{name}" for name in names}
        async with asyncio.timeout(TIMEOUT_S):
            while set(await self.target.state()) != expected:
                await asyncio.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
async def place(folder: Path) -> Followed:
    return Followed(folder)


async def test_changes_before_the_watch_are_indexed_first(place: Followed) -> None:
    (place.folder / "a.md").write_text("x")
    async with place.followed():
        assert place.received.take(place.folder) == [("indexed", "a.md")]


async def test_create_edit_rename_delete_and_ignore(place: Followed) -> None:
    async with place.followed():
        (place.folder / "a.md").write_text("# T\n\nThe pump of pontoon C.")
        await place.until("a.md")
        embeddings = place.target.embeddings
        (place.folder / "a.md").rename(place.folder / "b.md")
        await place.until("b.md")
        assert place.target.embeddings == embeddings
        (place.folder / "c.md").write_text("y")
        await place.until("b.md", "c.md")
        (place.folder / ".ragignore").write_text("c.md\n")
        await place.until("b.md")
        (place.folder / ".ragignore").unlink()
        await place.until("b.md", "c.md")
        (place.folder / "b.md").unlink()
        await place.until("c.md")


async def test_an_index_that_is_unavailable_for_a_while_misses_no_change(place: Followed) -> None:
    async with place.followed():
        place.target.down = BackendUnavailableError("server", "It went away.")
        (place.folder / "a.md").write_text("x")
        await place.until("a.md")

    assert [str(error) for error in place.troubles] == ["It went away."]
    assert place.opened == 2


async def test_a_file_that_was_rejected_temporarily_is_tried_again(place: Followed) -> None:
    place.target.refusing.add("a.md")
    async with place.followed():
        (place.folder / "a.md").write_text("x")
        async with asyncio.timeout(TIMEOUT_S):
            while not any(each.retryable for each in place.received.receipts):
                await asyncio.sleep(0.01)
        place.target.refusing.clear()
        await place.until("a.md")


async def test_an_index_that_is_away_at_the_end_is_reported(place: Followed) -> None:
    place.comes_back = False
    with pytest.raises(BackendUnavailableError):
        async with place.followed():
            place.target.down = BackendUnavailableError("server", "It went away.")
            (place.folder / "a.md").write_text("x")


@settings(max_examples=15, deadline=None)
@given(steps)
def test_whatever_happens_the_index_ends_as_if_built_at_the_end(done: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(follow(Path(directory).resolve(), done))


async def follow(directory: Path, done: Sequence[Step]) -> None:
    place = Followed(directory)
    async with place.followed():
        for step in done:
            if isinstance(step, Look):
                await asyncio.sleep(DEBOUNCE_S)
            else:
                step.do(place.folder)
        expected = await fresh(place.folder, directory / "fresh")
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                while await place.target.state() != expected:
                    await asyncio.sleep(0.01)
        assert await place.target.state() == expected
