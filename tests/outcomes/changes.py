"""What tests of corrections and of forgetting share: statements on a server, and all that it answers about them."""

import json
from typing import Any

from tests.end_to_end.process import Served, wait_until

QUESTIONS = ("How often is a failed payment retried?", "Which colour do the buoys have?", "payment retries")


def state(server: Served, *, superseded: bool = False) -> str:
    """What the server answers to some questions, and what it lists, to the byte; without what differs by itself."""
    # Where another store has the vectors, those of what has moved follow in a moment.
    wait_until(lambda: not server.tool("health", {}).json().get("pendingDocuments"))
    answers: list[Any] = []
    for question in QUESTIONS:
        answer = _in_full(server, question, includeSuperseded=superseded)
        for name in ("latency", "requestId", "legs", "cached"):
            answer.pop(name, None)
        answers.append(answer)
    answers.append(server.tool("list", {"limit": 100}).json())
    return json.dumps(answers, sort_keys=True)


def _in_full(server: Served, question: str, **fields: Any) -> dict[str, Any]:
    """The answer with all scores: a busy server says that it is without some, which says nothing of what it holds."""
    answer: dict[str, Any] = {}

    def is_full() -> bool:
        answer.clear()
        answer.update(server.search(question, minScore=0, explain=True, limit=20, **fields))
        return answer["fallbackLevel"] == 1 and "warning" not in answer

    wait_until(is_full)
    return answer


def contents(answer: dict[str, Any]) -> list[str]:
    return [each["content"] for each in answer["results"]]


def log(server: Served, **fields: Any) -> list[dict[str, Any]]:
    """The journal, newest first."""
    entries: list[dict[str, Any]] = done(server, "log", **fields)["entries"]
    return entries


def done(server: Served, tool: str, **fields: Any) -> dict[str, Any]:
    response = server.tool(tool, fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
