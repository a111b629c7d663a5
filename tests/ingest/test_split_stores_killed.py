"""D-8: a process that is killed between two stores leaves what the next one completes."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from rag_context.domain.reports import Thoroughness
from rag_context.domain.search import Filter
from rag_context.ingest.split_stores import TwoStoreAuditor
from rag_context.memory.index_maintenance import Audit
from rag_context.stores.sqlite.embedded import open_auditor
from tests.ingest.split_stores import SplitStores, opened
from tests.ingest.split_stores_process import draft

ROOT = Path(__file__).parents[2]
ROUNDS = 4
MOST_ROUNDS = 16
ENOUGH = 20
"""Documents that must have been acknowledged; a slow machine needs more rounds for them."""


async def killed(directory: Path, prefix: str, after_s: float) -> dict[str, int]:
    """The newest acknowledged version of each document, of a process that wrote for a while."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ingest.split_stores_process", str(directory), prefix, stdout=PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            first = await child.stdout.readline()
        await asyncio.sleep(after_s)
    finally:
        child.kill()
    lines = (first + await child.stdout.read()).decode().split("\n")[:-1]
    await child.wait()
    return {name: int(version) for name, version in (line.split() for line in lines)}


async def found_by_text(split: SplitStores, word: str) -> set[str]:
    hits = await split.home.texts.search(word, limit=50, where=Filter())
    return {hit.chunk.document_id for hit in hits if hit.share == 1.0}


async def test_what_was_acknowledged_is_found_and_nothing_twice_however_often_it_is_killed(tmp_path: Path) -> None:
    moments = random.Random(7)
    acknowledged: dict[str, int] = {}
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and len(acknowledged) > ENOUGH:
            break
        acknowledged.update(await killed(tmp_path, f"r{number}", moments.uniform(0.0, 0.4)))
        async with opened(tmp_path) as split:
            indexer = await split.indexer()
            assert await split.torn() == []
            for name, version in acknowledged.items():
                (id_,) = await found_by_text(split, name)
                document = await split.home.documents.get(id_)
                assert document is not None
                assert document.content >= draft(name, version).content
            for id_ in await split.home.documents.pending(1000):
                await indexer.complete(id_)
            counts = await split.home.documents.counts()
            assert counts.pending == 0
            vector = await split.fake.embed_query("name")
            hits = await split.vectors.search(vector, limit=100_000, where=Filter())
            found = [hit.chunk.id for hit in hits]
            assert len(found) == len(set(found)) == counts.chunks == counts.vectors
            assert len({hit.chunk.document_id for hit in hits}) == counts.documents >= len(acknowledged)
            async with open_auditor(tmp_path / "documents.db") as auditor:
                examined = await Audit(TwoStoreAuditor(auditor, split.reconciler)).examine(Thoroughness.FULL)
            assert examined.issues == ()
    assert len(acknowledged) > ENOUGH
