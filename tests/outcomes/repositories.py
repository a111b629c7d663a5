"""Repositories with project documents, and callers of the tools that work on them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on disk with a project's configuration."""

    root: Path

    @property
    def config(self) -> str:
        return str(self.root / ".rag-context" / "config.json")

    @property
    def path_hash(self) -> str:
        return hashlib.sha256(self.root.resolve().as_posix().encode()).hexdigest()[:16]

    def write(self, path: str, text: str) -> Path:
        """Write a file of the repository."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def configure(self, **values: object) -> None:
        """Write the configuration; `project_name` is the folder's by default."""
        self.write(".rag-context/config.json", json.dumps({"project_name": self.root.name, **values}))

    def check_out(self, branch: str) -> None:
        """Make a branch, and have it checked out."""
        self.write(f".git/refs/heads/{branch}", "0" * 40 + "\n")
        self.write(".git/HEAD", f"ref: refs/heads/{branch}\n")


def repository(folder: Path, name: str, **documents: str) -> Repository:
    """A repository on branch `main` whose documents are `docs/<keyword>.md`."""
    made = Repository(folder / name)
    made.configure()
    made.check_out("main")
    for stem, text in documents.items():
        made.write(f"docs/{stem}.md", text)
    return made


@dataclass(frozen=True, slots=True)
class Caller:
    """A program that calls tools over HTTP, with an API key or without."""

    url: str
    key: str | None = None

    def post(self, tool: str, /, **fields: Any) -> httpx2.Response:
        headers = {"X-API-Key": self.key} if self.key is not None else {}
        return httpx2.post(f"{self.url}/tools/{tool}", json=fields, headers=headers, timeout=TIMEOUT_S)

    def call(self, tool: str, /, *, status: int = 200, **fields: Any) -> Any:
        reply = self.post(tool, **fields)
        assert reply.status_code == status, reply.text
        return reply.json()

    def paths(self, **fields: Any) -> set[str]:
        """What a search for everything finds, by path."""
        asked = {"query": "orders and pages", "min_relevance_score": 0, "limit": 50, **fields}
        return {result["path"] for result in self.call("semantic_search", **asked)["results"]}
