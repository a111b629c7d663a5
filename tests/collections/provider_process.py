"""A second process on the same data directory: writes until it is killed, and says what is acknowledged.

python -m tests.collections.provider_process PATH NAME
"""

import asyncio
import sys
from pathlib import Path

import numpy as np

from rag_context.ports.provider import Collection, Entry
from rag_context.stores.sqlite.collections import open_collections


async def main() -> None:
    path, name = sys.argv[1:]
    async with open_collections(Path(path)) as provider:
        await provider.create(Collection(name))
        number = 0
        while True:
            entries = [Entry(f"{number:06d}-{part}", "text", {"batch": number}) for part in range(20)]
            await provider.upsert(name, entries, np.eye(20, dtype=np.float32))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    asyncio.run(main())
