"""Passages as LangChain's documents: pip install 'rag-context[langchain]'"""

import asyncio
import tempfile
from pathlib import Path

from rag_context import open_context
from rag_context.integrations.langchain import RagContextRetriever


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_context(data_dir=Path(folder)) as memory:
            await memory.index("Barn owls hunt voles.", content_type="chat", session_id="zoo", source="talk")
            retriever = RagContextRetriever(client=memory, options={"limit": 3, "content_type": "chat"})
            for document in await retriever.ainvoke("what do owls hunt?"):
                print(document.page_content, document.metadata["source"], document.metadata["fallback_level"])


asyncio.run(main())
