"""Stores a decision on a running server and finds it again: python remember.py [URL]

Without an address the server of this user's data directory is found, or the one that RAG_CONTEXT_URL names.
"""

import sys

from rag_context import Client, Metadata
from rag_context.client import ServerUnreachableError


def main() -> None:
    with Client(*sys.argv[1:2]) as memory:
        receipt = memory.index(
            "We keep everything in one SQLite file: nothing to operate, one file to back up.",
            content_type="decision",
            session_id="architecture",
            source="adr-7",
            metadata=Metadata(agent="designer", tags=("storage",), category="architecture"),
        )
        print(f"kept: {receipt.status}, document {receipt.document_id}")
        answer = memory.search("where is the data kept?", limit=3, tags=["storage"], agent="designer")
        for result in answer.results:
            print(f"{result.score:.2f}  {result.content}  [{result.source}]")
        if answer.warning:
            print(f"level {answer.fallback_level}: {answer.warning}")


if __name__ == "__main__":
    try:
        main()
    except ServerUnreachableError as error:
        sys.exit(str(error))
