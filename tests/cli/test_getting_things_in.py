"""The lines of JSON on the page about getting things in are what goes in and comes out."""

import io
import re
from pathlib import Path

from rag_context.api.index import BulkLine, FileReceipt
from rag_context.files.file_reading import Labels
from rag_context.files.sending import read_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "getting-things-in.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?s)```jsonl?\n(.*?)```", PAGE)


def test_the_documents_are_documents() -> None:
    (lines,) = (block for block in BLOCKS if '"content"' in block)

    documents = list(read_documents(io.BytesIO(lines.encode()), "page", Labels()))

    assert [type(document) for document in documents] == [BulkLine, BulkLine]


def test_the_receipts_are_receipts() -> None:
    (lines,) = (block for block in BLOCKS if '"status"' in block)

    for line in lines.splitlines():
        assert FileReceipt.model_validate_json(line).to_json().decode() == line
