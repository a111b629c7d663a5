"""An agent queues texts without waiting; they are stored in the background, and failures are reported."""

import asyncio
import tempfile
from pathlib import Path

from rag_context import BackgroundIndexer, open_context


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_context(data_dir=Path(folder)) as memory:
            async with BackgroundIndexer(memory, on_failure=lambda failure: print("lost:", failure)) as indexer:
                indexer.queue_chat_session("s-1", "[Ann] Which port?\n[Bob] Three thousand.", "helper")
                indexer.queue_decision("ADR-8", "The server listens on port 3000.", "architecture")
                indexer.queue_code_documentation("src/serve.py", "serve() binds the port before it opens the index.")
                print(f"waiting: {indexer.waiting}")
            print(f"kept: {indexer.indexed}, failed: {indexer.failed}, left: {len(indexer.left)}")
            async for document in memory.list_all(content_type="decision"):
                print(document.source, document.metadata)


asyncio.run(main())
