"""One browser and one server for a module. Not for the session: Playwright's loop must not run beside other tests'."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser

from tests.end_to_end.process import TIMEOUT_S, Served, served

from .browser import Tab, launched, tab

PROJECT_NOTE = """---
doc_type: problem
title: Pool exhaustion
date: 2026-01-02
summary: Connections run out
significance: performance
---
# Pool exhaustion

Connections ran out under load; the pool holds forty of them.
"""
DOCUMENTS = (
    ("decision", "payments", "decisions/retries.md", "We retry a failed payment three times, then tell the customer."),
    ("documentation", "pumps", "manual/pumps.md", "The pump of hall seven is checked every Monday before the shift."),
    ("chat", "monday", "chat/monday", "[Ada] Which port does the gateway use?\n[Bob] Port 8443, since the migration."),
    ("code", "files", "src/backoff.py", "def backoff(attempt):\n    return min(5.0, 0.1 * 2**attempt)"),
)


@dataclass(frozen=True)
class Memory:
    """A server with a little of everything in it."""

    server: Served
    project: Path

    def index(self, content: str, **fields: object) -> str:
        """Store a document; its id."""
        receipt: str = self.server.index(content, **fields)["documentId"]
        return receipt

    def bulk(self, documents: Iterable[Mapping[str, str]]) -> None:
        """Store many at once."""
        lines = "".join(f"{json.dumps({'contentType': 'documentation', **each})}\n" for each in documents)
        headers = {"content-type": "application/x-ndjson"}
        response = httpx2.post(f"{self.server.url}/bulk", content=lines, headers=headers, timeout=TIMEOUT_S)
        assert response.text.count('"indexed"') + response.text.count('"pending"') == lines.count("\n"), response.text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("page")
    project = folder / "app"
    (project / ".rag-context").mkdir(parents=True)
    (project / "docs" / "problems").mkdir(parents=True)
    (project / ".rag-context" / "config.json").write_text(json.dumps({"project_name": "app"}))
    (project / "docs" / "problems" / "pool.md").write_text(PROJECT_NOTE)
    (project / "docs" / "notes.md").write_text("# Notes\n\nEverything else.\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=project, check=True)
    with served(folder / "data") as server:
        server.wait_ready()
        _fill(server, project)
        yield Memory(server, project)


def _fill(server: Served, project: Path) -> None:
    for kind, session, source, content in DOCUMENTS:
        metadata = {"agent": "reviewer", "tags": ["kept"]}
        server.index(content, contentType=kind, sessionId=session, source=source, metadata=metadata)
    for query in ("how often is a payment retried", "which port", "pump of hall seven"):
        server.search(query, agent="reviewer")
    with httpx2.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        config = str(project / ".rag-context" / "config.json")
        calls = (
            ("/tools/activate_project", {"config_path": config}),
            ("/collections", {"name": "handbook", "embedding_provider": "rag-context"}),
            ("/collections/handbook/documents", {"documents": [_day(days) for days in range(1, 61)]}),
        )
        for path, body in calls:
            response = client.post(path, json=body)
            assert response.status_code < 300, response.text


def _day(days: int) -> dict[str, object]:
    return {
        "id": f"day-{days:02}",
        "text": f"Logs of kind {days} are kept for {days} days.",
        "metadata": {"days": days},
    }


@pytest.fixture
def wide(browser: Browser, memory: Memory) -> Iterator[Tab]:
    """A wide tab of the server, in light."""
    with tab(browser, memory.server.url) as opened:
        yield opened
