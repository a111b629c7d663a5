"""The TypeScript example, run by Node as it is."""

from pathlib import Path

import pytest

from tests.client.scripted_server import SILENCE, reply, scripted
from tests.end_to_end.process import Served
from tests.mcp.javascript import node

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "typescript" / "example.ts"


def test_it_stores_finds_and_gets_a_rejection(server: Served) -> None:
    done = node(EXAMPLE, server.url)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] in {"kept: indexed, 1 chunk", "kept: unchanged, 1 chunk"}
    assert lines[1].startswith("found: We keep everything in one SQLite file")
    assert lines[-1] == "refused: Query cannot be empty (400)"


def test_where_no_server_listens_it_says_so() -> None:
    done = node(EXAMPLE, "http://127.0.0.1:9")
    assert done.stdout.splitlines() == ["refused: http://127.0.0.1:9 cannot be reached (no answer)"]


@pytest.mark.parametrize("body", [b"<html>", b"null"])
def test_a_response_of_another_server_is_reported_as_one_and_not_retried(body: bytes) -> None:
    with scripted([reply(200, body)]) as server:
        done = node(EXAMPLE, server.url)
    assert done.stdout.splitlines() == [f"refused: {server.url} returned an invalid response (200)"]
    assert len(server.requests) == 1


def test_what_passes_is_tried_again() -> None:
    busy = reply(503, b"null", Retry_After="0")
    with scripted([busy, SILENCE, busy]) as server:
        done = node(EXAMPLE, server.url)
    assert done.stdout.splitlines() == [f"refused: {server.url} answered HTTP 503 (503)"]
    assert len(server.requests) == 3
