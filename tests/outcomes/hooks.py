"""The program that clients of agents run at their events, run as they do: a payload on stdin, an answer on stdout."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_context.agents.workspace import workspace
from tests.end_to_end.process import Served, environment

PROGRAM = (sys.executable, "-m", "rag_context.agents.hook")
PATIENT = {"RAG_CONTEXT_HOOKS__BOUND_MS": "5000"}
"""A time budget for a busy machine; what the usual one comes to is measured by `make bench`."""

DECISION = (
    "We decided to retry failed payments three times with exponential backoff, because the sandbox of the provider "
    "drops every tenth request."
)
QUESTION = "How often do we retry failed payments, and with what backoff?"


@dataclass
class Agent:
    """An agent's client in one session.

    Args:
        data_dir: the memory's.
        folder: the folder in which the agent works.
    """

    data_dir: Path
    folder: Path
    session: str = "s1"
    client: str = "claude-code"
    settings: dict[str, str] = field(default_factory=lambda: dict(PATIENT))

    def hook(self, event: str, **payload: Any) -> str:
        """What is printed at an event. Fails where the program does not end well, or prints an error."""
        base = {"session_id": self.session, "cwd": str(self.folder), "hook_event_name": event}
        return self.raw(event, json.dumps({**base, **payload}).encode())

    def raw(self, event: str, payload: bytes) -> str:
        done = subprocess.run(
            [*PROGRAM, event, "--client", self.client, "--data-dir", str(self.data_dir)],
            input=payload,
            capture_output=True,
            env=environment(**self.settings),
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def prompt(self, text: str = QUESTION, **payload: Any) -> str:
        """What reaches the model with a prompt."""
        return context(self.hook("prompt", prompt=text, **payload))


def context(printed: str) -> str:
    """The text in an answer of the usual shape; "" where nothing was printed."""
    return str(json.loads(printed)["hookSpecificOutput"]["additionalContext"]) if printed else ""


def decide(server: Served, folder: Path, text: str = DECISION, source: str = "docs/retries.md") -> str:
    """Store a decision of the project in a folder; returns its id."""
    project = workspace(folder)
    assert project is not None
    metadata = {"tags": [project.tag]}
    return str(server.index(text, contentType="decision", source=source, metadata=metadata)["documentId"])
