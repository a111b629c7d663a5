"""Takes a folder in again and again, and is killed each time at another moment; then once more to the end.

python -m tests.files.folder_process DIRECTORY SEED ROUNDS

Each round is a process of its own, forked before there is any thread, which changes the folder, looks at it, and
kills itself after a drawn number of steps. Prints the number of rounds that were killed.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rag_context.api.index import BulkLine, BulkReceipt, FileReceipt
from rag_context.domain.documents import FileEntry
from rag_context.files.file_jobs import ReadingSettings
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.formats.converter import Converter
from rag_context.files.target import OnReceipt
from rag_context.files.walk import Root
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.memory.mappers import bulk_receipt, document_input
from rag_context.resilience.dependency import Dependency
from rag_context.stores.machine_tables import SqliteFileManifest, open_file_manifest
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database
from rag_context.testing import FakeEmbedder

from .index_target import IndexTarget

MOST_STEPS = 14


class Fuse:
    """Kills this process after a number of steps."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps

    def step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class FusedTarget(IndexTarget):
    """The embedded store, with a step before and after everything."""

    def __init__(self, store: SqliteStore, fuse: Fuse) -> None:
        self.fuse = fuse
        self.sqlite = store.documents
        fake = FakeEmbedder()
        self.fake = fake
        self.writer = Indexer(
            embedder=fake,
            embedding=Dependency("embedder", fake.ping),
            documents=store.documents,
            document_store=Dependency("documents", store.documents.ping),
            writer=store.documents,
            policy=IndexingPolicy(254),
        )

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        for place, line in enumerate(lines):
            self.fuse.step()
            receipt: BulkReceipt = bulk_receipt(await self.writer.index(document_input(line)), line.source)
            self.fuse.step()
            on_receipt(place, receipt)

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        there = await self.sqlite.content_hashes(list(versions))
        return [id_ for id_, version in versions.items() if there.get(id_) != version]

    async def remove(self, document_id: str) -> None:
        self.fuse.step()
        await self.writer.remove(document_id)
        self.fuse.step()


class FusedLedger:
    """The real ledger, with a step before every write."""

    def __init__(self, ledger: SqliteFileManifest, fuse: Fuse) -> None:
        self.entries, self.below, self.with_digest = ledger.entries, ledger.below, ledger.with_digest
        self._ledger, self._fuse = ledger, fuse

    def put(self, entries: Collection[FileEntry]) -> None:
        self._fuse.step()
        self._ledger.put(entries)

    def forget(self, paths: Collection[str]) -> None:
        self._fuse.step()
        self._ledger.forget(paths)


async def look(place: Path, steps: int | None) -> None:
    """Bring the index in step with the folder, or as far as the steps reach."""
    fuse = Fuse(steps)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_database(place / FILE_NAME))
        ledger = FusedLedger(stack.enter_context(open_file_manifest(place)), fuse)
        converter = stack.enter_context(Converter())
        target = FusedTarget(store, fuse)
        if await store.documents.recorded_model() is None:
            await store.documents.adopt_model(target.fake.model)
        recipe = ReadingSettings(Labels(), 10_000, b"")
        sync = FolderSync(target, ledger, recipe, converter, Gone.REMOVE, _unheard)
        await sync.run([Root(place / "folder")])


def _unheard(_receipt: FileReceipt) -> None:
    """No server listens."""


def change(folder: Path, rng: random.Random) -> None:
    """Write, rename and delete some files."""
    names = [f"{rng.randrange(12)}.md" for _ in range(12)]
    for number, name in enumerate(names):
        path = folder / name
        match rng.randrange(4):
            case 0 if path.exists():
                path.unlink()
            case 1 if path.exists():
                path.rename(folder / names[-number])
            case _:
                path.write_text(f"# {name}\n\nVersion {rng.randrange(1000)}.\n")


def main() -> None:
    place, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder = place / "folder"
    folder.mkdir()
    rng = random.Random(seed)
    killed = 0
    for _ in range(rounds):
        change(folder, rng)
        steps = rng.randrange(MOST_STEPS)
        child = os.fork()
        if child == 0:
            asyncio.run(look(place, steps))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
    asyncio.run(look(place, None))
    sys.stdout.write(f"{killed}\n")


if __name__ == "__main__":
    main()
