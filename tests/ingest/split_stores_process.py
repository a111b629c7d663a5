"""A process that writes to two stores until it is killed, and says what was acknowledged.

python -m tests.ingest.split_stores_process DIRECTORY PREFIX
"""

import asyncio
import sys
from pathlib import Path

from rag_context.domain.documents import DocumentInput
from tests.ingest.split_stores import opened

LANES = 4


def draft(name: str, version: int) -> DocumentInput:
    """A version of a document; each has a word of its own, and one that all versions share."""
    content = f"# {name}\n\nThe name is {name}.\n\n## Version\n\nThis is {name}v{version}.\n"
    return DocumentInput(content, "documentation", "s", f"{name}.md")


async def main() -> None:
    directory, prefix = sys.argv[1:]
    async with opened(Path(directory)) as split:
        indexer = await split.indexer()

        async def write(lane: int) -> None:
            number = lane
            while True:
                name, version = f"{prefix}n{number}", 0
                for version in range(1 + number % 3):
                    await indexer.index(draft(name, version))
                    sys.stdout.write(f"{name} {version}\n")
                    sys.stdout.flush()
                number += LANES

        await asyncio.gather(*(write(lane) for lane in range(LANES)))


if __name__ == "__main__":
    asyncio.run(main())
