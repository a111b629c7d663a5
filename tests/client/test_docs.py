"""The code on the pages about clients runs, and so do the examples."""

import ast
import inspect
import json
import re
import runpy
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from rag_context import Client
from tests.end_to_end.process import Served

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
PAGES = ("docs/quick-start.md", "docs/sdk.md", "docs/integrations.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXPECTED = {
    "background.py": "kept: 3, failed: 0, left: 0\nh0und://decision/ADR-8",
    "in_process.py": "fact-2: indexed\nBarn owls hunt voles at night.\n",
    "langchain_retriever.py": "Barn owls hunt voles. talk 1\n",
    "llama_index_retriever.py": "Barn owls hunt voles. talk True\n",
}


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Served) -> Iterator[None]:
    """An empty folder to work in, and the environment's word for where the server is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_CONTEXT_URL", server.url)
    yield


def blocks(page: str) -> list[CodeType]:
    """The Python of a page, each block with the line on which it stands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        compile("\n" * text.count("\n", 0, match.start(1)) + match[1], page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for match in BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES)
async def test_every_block_of_a_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    found = blocks(page)
    assert found
    for block in found:
        result = eval(block, names)
        if inspect.isawaitable(result):
            await result
    assert "one SQLite file" in capsys.readouterr().out
    if page == "docs/sdk.md":
        assert names["lost"] == []
        assert names["indexer"].indexed == 3
        assert names["answer"].results[0].content.startswith("We keep everything")


def test_memories_of_other_programs_become_lines_that_can_be_indexed(server: Served) -> None:
    mem0 = {"id": "7", "memory": "Ana prefers tea.", "created_at": "2026-01-31T12:00:00-08:00", "user_id": "ana"}
    Path("mem0.json").write_text(json.dumps({"results": [mem0]}))
    with closing(sqlite3.connect("memory.db")) as database, database:
        database.execute("CREATE TABLE memories (content_hash, content, tags, created_at REAL)")
        database.execute("INSERT INTO memories VALUES ('ab12', 'The berths are numbered.', 'port, berths', 1.7e9)")
    lines = b""
    for block in blocks("docs/coming-from.md"):
        eval(block, {})
        lines += Path("documents.jsonl").read_bytes()

    request = urllib.request.Request(f"{server.url}/bulk", lines, {"Content-Type": "application/x-ndjson"})
    with urllib.request.urlopen(request) as replies:
        assert [json.loads(receipt)["status"] for receipt in replies] == ["indexed", "indexed"]
    with Client(server.url) as client:
        found = client.search("who prefers tea?").results[0]
    assert (found.content, found.source) == ("Ana prefers tea.", "mem0/7")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_says_what_it_should(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert EXPECTED[name] in capsys.readouterr().out


def test_the_example_for_a_server_takes_its_address_and_says_where_no_server_listens(server: Served) -> None:
    command = [sys.executable, str(EXAMPLES / "remember.py")]
    well = subprocess.run([*command, server.url], capture_output=True, text=True, check=True)
    assert "one file to back up.  [adr-7]" in well.stdout
    alone = subprocess.run([*command, "http://127.0.0.1:9"], capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert alone.stderr.startswith("No server answers at http://127.0.0.1:9: start one")


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, "remember.py"}
