"""What the page about getting things in shows can be typed."""

import io
import re
import shlex
from pathlib import Path

import pytest

from rag_context.api.index import BulkLine, FileReceipt
from rag_context.cli.command_line import loaded
from rag_context.files.file_reading import Labels
from rag_context.files.sending import read_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "getting-things-in.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)^(?:my-exporter \| )?(rag-context .*)$", PAGE)
BLOCKS = re.findall(r"(?s)```json\n(.*?)```", PAGE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    _, name, *words = shlex.split(command)
    root = loaded()

    context = root.commands[name].make_context(name, words)

    assert context.params


def test_there_are_commands_of_every_kind() -> None:
    assert {command.split()[1] for command in COMMANDS} == {"index", "watch", "serve"}


def test_the_documents_are_documents() -> None:
    (lines,) = (block for block in BLOCKS if '"content"' in block)

    documents = list(read_documents(io.BytesIO(lines.encode()), "page", Labels()))

    assert [type(document) for document in documents] == [BulkLine, BulkLine]


def test_the_receipts_are_receipts() -> None:
    (lines,) = (block for block in BLOCKS if '"status"' in block)

    for line in lines.splitlines():
        assert FileReceipt.model_validate_json(line).to_json().decode() == line
