"""A second process on the same file, for the tests that need a real one.

python -m tests.stores.store_process PATH PREFIX write   writes until it is killed, says what is acknowledged
python -m tests.stores.store_process PATH PREFIX serve   does what a test tells it, line by line
"""

import asyncio
import sys
from pathlib import Path

from rag_context.domain.search import Filter
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from tests.stores.builders import DIMENSION, axis, document, put


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write_until_killed(store: SqliteStore, prefix: str) -> None:
    async def writer(lane: int) -> None:
        number = lane
        while True:
            name = f"{prefix}n{number}"
            await put(store, document(name, f"{name} text"), vector=axis(number % DIMENSION))
            say(name)
            number += 8

    await asyncio.gather(*(writer(lane) for lane in range(8)))


async def serve(store: SqliteStore) -> None:
    await store.vectors.ping()
    say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, name = line.split()
        if verb == "write":
            await put(store, document(name, f"{name} text"), vector=axis(1))
            say("written")
        else:
            by_text = await store.texts.search(name, limit=5, where=Filter())
            by_vector = await store.vectors.search(axis(0), limit=5, where=Filter())
            say(f"{len(by_text)} {sum(hit.cosine > 0.9 for hit in by_vector)}")


async def main() -> None:
    path, prefix, verb = sys.argv[1:]
    async with open_database(Path(path)) as store:
        await (write_until_killed(store, prefix) if verb == "write" else serve(store))


if __name__ == "__main__":
    asyncio.run(main())
