"""Promotes a document in each FOLDER and is killed on the way: `python -m tests.projects.promotion_process FOLDER...`.

Each folder is named after the step at which its process is killed. They are forked, because starting takes longest.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rag_context.ports.writing import Version
from rag_context.projects.activation import Projects
from rag_context.projects.records import PromotionLevel
from tests.projects.sync_harness import SyncHarness, open_sync_harness


def die() -> None:
    """End as if the power had gone."""
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A writer that ends the process at a write."""

    def __init__(self, harness: SyncHarness, step: str) -> None:
        self._documents = harness.documents
        self._step = step

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        """Store, and die before or after."""
        if self._step == "before-the-index":
            die()
        indexed = await self._documents.write_all(versions)
        if self._step == "after-the-index":
            die()
        return indexed


async def promote(folder: Path) -> None:
    """Promote `a.md`."""
    async with open_sync_harness(folder) as harness:
        projects = Projects(harness.indexer, harness.documents)
        activation = await projects.activate(str(folder / "repository"))
        harness.indexer.writer = Dying(harness, folder.name)  # type: ignore[assignment]
        if folder.name == "before-the-file":
            sys.addaudithook(lambda event, _: die() if event == "os.rename" else None)
        await projects.promote(activation, "a.md", PromotionLevel.CRITICAL)


def main(folders: Sequence[Path]) -> int:
    """Returns how many were killed by the signal that no one can catch."""
    killed = 0
    for folder in folders:
        child = os.fork()
        if child == 0:
            asyncio.run(promote(folder))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return killed


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
