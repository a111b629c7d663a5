"""Four servers on one database: what one acknowledged, each of the others finds, and deletes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, command, served, wait_until
from tests.servers.postgres_fixtures import empty, server

__all__ = ["empty", "server"]

SERVERS = 4


@pytest.fixture
def servers(tmp_path: Path, empty: str) -> Iterator[list[Served]]:
    """The servers, started on a database without a schema."""
    with ExitStack() as stack:
        started = []
        for number in range(SERVERS):
            directory = tmp_path / str(number)
            directory.mkdir()
            started.append(stack.enter_context(served(directory, DATABASE_URL=empty)))
        for each in started:
            each.wait_ready()
        yield started


def test_what_one_of_four_servers_acknowledged_the_others_find(
    servers: list[Served], empty: str, tmp_path: Path
) -> None:
    receipts = [
        each.index(f"The harbour keeps key number{number}x.", source=f"note {number}")
        for number, each in enumerate(servers)
    ]
    assert [receipt["status"] for receipt in receipts] == ["indexed"] * SERVERS
    for asked in servers:
        for number, receipt in enumerate(receipts):
            answer = asked.search(f"number{number}x")
            assert answer["fallbackLevel"] == 1
            assert receipt["documentId"] in {result["documentId"] for result in answer["results"]}
    for number, receipt in enumerate(receipts):
        deleted = servers[number - 1].tool("delete", {"documentId": receipt["documentId"], "confirm": True})
        assert deleted.json()["deletedCount"] == 1
    for asked in servers:
        wait_until(lambda asked=asked: asked.health()["indexedDocuments"] == 0)
        wait_until(lambda asked=asked: asked.search("harbour key")["results"] == [])
    listed = command("log", "--accesses", data_dir=tmp_path / "elsewhere", DATABASE_URL=empty)
    calls = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [each["operation"] for each in calls] == ["rag_context_delete"] * SERVERS + ["rag_context_index"] * SERVERS
    assert {target for each in calls for target in each.get("target", [])} == {each["documentId"] for each in receipts}
