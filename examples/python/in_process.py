"""The whole memory inside this process, in a folder of its own; no server, no network."""

import asyncio
import tempfile
from pathlib import Path

from rag_context import open_context


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_context(data_dir=Path(folder)) as memory:
            facts = ["Grey wolves hunt deer in packs.", "Barn owls hunt voles at night.", "Deer eat young leaves."]
            documents = (
                {"content": fact, "content_type": "documentation", "session_id": "zoo", "source": f"fact-{number}"}
                for number, fact in enumerate(facts)
            )
            async for receipt in memory.bulk(documents):
                print(f"{receipt.source}: {receipt.status}")
            answer = await memory.search("which animal is active after dark?", limit=1)
            print(answer.results[0].content)


asyncio.run(main())
