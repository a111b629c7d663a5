"""Passages as LlamaIndex's nodes: pip install 'rag-context[llama-index]'"""

import asyncio
import tempfile
from pathlib import Path

from rag_context import open_context
from rag_context.integrations.llama_index import RagContextRetriever


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_context(data_dir=Path(folder)) as memory:
            await memory.index("Barn owls hunt voles.", content_type="chat", session_id="zoo", source="talk")
            for found in await RagContextRetriever(memory, limit=3).aretrieve("what do owls hunt?"):
                print(found.node.get_content(), found.node.metadata["source"], 0 < (found.score or 0) <= 1)


asyncio.run(main())
