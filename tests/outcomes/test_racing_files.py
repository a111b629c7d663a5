"""A folder that is swapped for a symbolic link again and again, while a server reads and writes files in it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.process import TIMEOUT_S, Served, served

TRIES = 300
MOST_S = 12.0
THEIR_TITLE = "Zirconium ledger"
SECRET = "the vault opens with marmalade"

_RACER = """
import os, random, sys, time
inner, link, spare = sys.argv[1:]
pick = random.Random(1)
while os.getppid() != 1:
    os.rename(inner, spare); os.rename(link, inner)
    time.sleep(pick.random() * 0.003)
    os.rename(inner, link); os.rename(spare, inner)
    time.sleep(pick.random() * 0.003)
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


@contextmanager
def racing(docs: Path) -> Iterator[None]:
    """`docs/inner` is a folder and a link to somewhere else in turn, hundreds of times a second."""
    names = [str(docs / name) for name in ("inner", ".link", ".spare")]
    process = subprocess.Popen([sys.executable, "-c", _RACER, *names])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("race") / "data", RAG_CONTEXT_INDEXING__TIMEOUT_S="0.01") as running:
        running.wait_ready()
        yield running


def call(server: Served, tool: str, body: Mapping[str, object]) -> httpx2.Response:
    return httpx2.post(f"{server.url}/tools/{tool}", json=body, timeout=TIMEOUT_S)


def test_nothing_outside_the_docs_folder_is_read_or_written_in_a_race(server: Served, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    theirs = outside / "page.md"
    theirs.write_text(f"# {THEIR_TITLE}\n\n{SECRET}\n")
    before = theirs.read_bytes()
    docs = tmp_path / "project" / "docs"
    (docs / "inner").mkdir(parents=True)
    (docs / "inner" / "page.md").write_text("# Ours\n\nNothing to see.\n")
    (docs / ".link").symlink_to(outside)
    config = tmp_path / "project" / ".rag-context" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"project_name": "race"}))
    activated = call(server, "activate_project", {"config_path": str(config)})
    assert activated.status_code == 200
    ours = {"activation": activated.json()["activation"]}
    end, seen = time.monotonic() + MOST_S, set()
    with racing(docs):
        for number in range(TRIES):
            if number % 5:
                tried = call(server, "index_document", {"path": "inner/page.md", **ours})
                assert THEIR_TITLE not in tried.text
            else:
                level = ("important", "critical", "standard")[number % 3]
                said = {"document_path": "inner/page.md", "promotion_level": level, **ours}
                tried = call(server, "update_promotion_level", said)
            seen.add(tried.status_code)
            assert theirs.read_bytes() == before
            assert (
                THEIR_TITLE not in call(server, "rag_query", {"query": SECRET, "min_relevance_score": 0, **ours}).text
            )
            if time.monotonic() > end:
                break
    assert 200 in seen, "some tries met the folder itself"
    assert [path.name for path in outside.iterdir()] == ["page.md"]
