"""Several processes on one file, and processes that are killed."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rag_context.domain.search import Filter
from rag_context.stores.sqlite.embedded import open_database
from tests.stores.builders import axis, chunks_of, document, ids, put

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def process(path: Path, prefix: str, verb: str) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.store_process", str(path), prefix, verb, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def reported(child: Process, line: str) -> str:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n".encode())
    return await received(child)


async def received(child: Process) -> str:
    assert child.stdout is not None
    async with asyncio.timeout(60):
        return (await child.stdout.readline()).decode().strip()


async def test_each_process_finds_what_the_other_has_acknowledged(path: Path) -> None:
    async with open_database(path) as store, process(path, "x", "serve") as other:
        assert await received(other) == "ready"
        await put(store, document("mine", "mine text"), vector=axis(0))
        assert await reported(other, "find mine") == "1 1"
        assert await reported(other, "write elsewhere") == "written"
        assert len(await store.texts.search("elsewhere", limit=5, where=Filter())) == 1
        hits = await store.vectors.search(axis(1), limit=1, where=Filter())
        assert [hit.chunk.document_id for hit in hits] == [document("elsewhere").id]
        await store.documents.delete(document("mine").id)
        assert await reported(other, "find mine") == "0 0"


async def test_the_version_follows_other_processes_by_itself(path: Path) -> None:
    async with open_database(path) as store, process(path, "x", "serve") as other:
        assert await received(other) == "ready"
        await store.documents.ping()
        before = store.documents.version
        await reported(other, "write elsewhere")
        async with asyncio.timeout(30):
            while store.documents.version == before:
                await asyncio.sleep(0.01)


async def test_two_processes_may_make_the_file_at_the_same_time(path: Path) -> None:
    async with process(path, "x", "serve") as one, process(path, "y", "serve") as two:
        assert [await received(one), await received(two)] == ["ready", "ready"]
        assert [await reported(one, "write one"), await reported(two, "write two")] == ["written", "written"]
        assert await reported(one, "find two") == "1 0"


async def test_processes_that_write_at_the_same_time_lose_nothing(path: Path) -> None:
    async with process(path, "x", "write") as one, process(path, "y", "write") as two:
        for _ in range(40):
            await received(one)
            await received(two)
    async with open_database(path) as store:
        for name in [f"{prefix}n{number}" for prefix in "xy" for number in range(8)]:
            assert await store.documents.get(document(name).id) is not None


async def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path) -> None:
    moments = random.Random(5)
    acknowledged: dict[str, str] = {}
    for number in range(5):
        async with process(path, f"r{number}", "write") as child:
            acknowledged[await received(child)] = ""
            await asyncio.sleep(moments.uniform(0.0, 0.4))
            child.kill()
            assert child.stdout is not None
            rest = (await child.stdout.read()).decode()
            acknowledged.update((name, "") for name in rest.split("\n")[:-1])
        async with open_database(path) as store:
            chunk_ids = {name: chunks_of(document(name, f"{name} text"))[0].id for name in acknowledged}
            for name, chunk_id in chunk_ids.items():
                assert ids(await store.texts.search(name, limit=5, where=Filter())) == [chunk_id]
            assert set(await store.vectors.score(axis(0), list(chunk_ids.values()))) == set(chunk_ids.values())
            found = ids(await store.vectors.search(axis(0), limit=100_000, where=Filter()))
            counts = await store.documents.counts()
            assert len(found) == len(set(found)) == counts.chunks == counts.vectors == counts.documents
    assert len(acknowledged) > 40
