"""Collections of Chroma that another program filled: named, left alone, and taken over by one command."""

import asyncio
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from rag_context.stores.chroma.chroma_api import Rows
from rag_context.stores.chroma.server import open_api
from tests.cli.run_command import Commands, ended
from tests.end_to_end.process import Served, served, wait_until
from tests.outcomes.test_commands_and_other_programs import in_order
from tests.servers.process import ServerProcess

DIMENSION = 768
MESSAGES = 256
"""Enough for several batches, so that a run can be interrupted between two."""

PASSAGES = (
    "The wolverine crossed the river at dawn, and the ice broke behind it.",
    "and the ice broke behind it. It left no track on the other side.",
)


def chroma_rows() -> Rows:
    """Messages of a chat, two passages of a document, the second of which repeats the end of the first, and no text."""
    common = {"sessionId": "s-1", "agent": "opus", "game": "FireKirin"}
    fields: list[dict[str, Any]] = [
        {**common, "contentType": "chat", "source": "talk", "timestamp": f"2026-01-01T12:00:00.{number:06}Z"}
        for number in range(MESSAGES)
    ]
    texts = [f"Message {number}: the heron at weir {number % 7} was fed." for number in range(MESSAGES)]
    for number, text in enumerate(PASSAGES):
        document = {"contentType": "documentation", "source": "river.md", "timestamp": f"2026-01-02T12:00:0{number}Z"}
        fields.append({**common, **document})
        texts.append(text)
    fields.append({"sessionId": "s-1", "x": 1})
    texts.append("")
    vectors = np.random.default_rng(7).standard_normal((len(texts), DIMENSION)).astype(np.float32)
    return Rows([f"theirs-{number:04}" for number in range(len(texts))], fields, texts, vectors)


async def _put(place: str | Path, name: str) -> None:
    async with open_api(place) as api:
        info = await api.create(name, {"owner": "them"})
        assert info is not None
        await api.upsert(info.id, chroma_rows())


async def _everything(place: str | Path) -> object:
    found = []
    async with open_api(place) as api:
        for info in sorted(await api.all(), key=lambda each: each.name):
            if info.name.startswith("theirs"):
                rows = await api.get(info.id, ["metadatas", "documents", "embeddings"])
                assert rows.vectors is not None
                found.append(
                    (
                        info,
                        sorted(
                            zip(rows.ids, map(in_order, rows.fields), rows.texts, rows.vectors.tolist(), strict=True)
                        ),
                    )
                )
    return found


@pytest.fixture
def name() -> str:
    return f"theirs-{uuid4().hex}"


@pytest.fixture(params=["server", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[str | Path]:
    """A Chroma with a collection of another program."""
    server: ServerProcess | None = request.getfixturevalue("shared_chroma") if request.param == "server" else None
    where = tmp_path / "chroma" if server is None else f"http://{server.host}:{server.port}"
    asyncio.run(_put(where, name))
    yield where


def documents_in(data_dir: Path) -> int:
    """How many documents an index has, read beside the process that writes it."""
    if not (data_dir / "rag-context.db").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{data_dir / 'rag-context.db'}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    except sqlite3.OperationalError:  # it is being made
        return 0
    return int(count)


def test_a_collection_is_taken_over_by_one_command_which_may_be_stopped(
    place: str | Path, name: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    before, commands = asyncio.run(_everything(place)), Commands(tmp_path / "here")
    adopt = ("adopt", "--chroma", str(place), "--collection", name)

    dry = commands(*adopt, "--dry-run", "--json").json()
    (planned,) = dry["sources"]
    assert dry["dryRun"]
    assert (planned["records"], planned["documents"], planned["withoutText"]) == (MESSAGES + 2, MESSAGES + 1, 1)
    assert documents_in(commands.data_dir) == 0

    with commands.start(*adopt) as process:
        wait_until(lambda: documents_in(commands.data_dir) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        stopped = ended(process)
    there = documents_in(commands.data_dir)
    assert 0 < there < MESSAGES + 1
    assert stopped.status == 130
    assert stopped.err.splitlines()[-1] == (
        "interrupted. What was taken over is safe: run the same command again, it goes on."
    )

    for outcomes in ({"indexed": MESSAGES + 1 - there, "unchanged": there}, {"unchanged": MESSAGES + 1}):
        done = commands(*adopt, "--json")
        assert done.status == 0, done.err
        (receipt,) = done.json()["sources"]
        assert (receipt["documents"], receipt["rejected"], receipt["outcomes"]) == (MESSAGES + 1, 0, outcomes)
    assert asyncio.run(_everything(place)) == before

    answer = commands("search", "wolverine on the ice", "--json").json()
    assert (answer["fallbackLevel"], answer["totalIndexed"]) == (1, MESSAGES + 1)
    (first, *_) = answer["results"]
    assert (first["source"], first["metadata"]["agent"], first["metadata"]["game"]) == ("river.md", "opus", "FireKirin")
    document = commands("get", first["documentId"], "--json").json()
    assert document["content"] == f"{PASSAGES[0]} It left no track on the other side."
    assert document["occurredAt"].startswith("2026-01-02T12:00:01")


@pytest.mark.parametrize("place", ["server"], indirect=True)
def test_until_then_health_and_labels_say_whose_the_rows_are(place: str, name: str, tmp_path: Path) -> None:
    before = asyncio.run(_everything(place))
    settings = {"CHROMA_URL": place, "RAG_CONTEXT_STORES__CHROMA_COLLECTION": name}

    def detail(server: Served) -> str:
        return " ".join(each["detail"] for each in server.health()["components"])

    with served(tmp_path / "data", **settings) as server:
        assert server.index("A heron waits at the weir.")["status"] == "pending"
        wait_until(lambda: f"holds {MESSAGES + 3} rows of other programs" in detail(server))
        assert "set stores.chroma_collection to another name" in detail(server)
        assert "`rag-context adopt`" in detail(server)
        reply = server.tool("reindex", {"force": True})
        assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
        answer = server.search("wolverine", mode="hybrid")
        assert (answer["fallbackLevel"], answer["totalIndexed"]) == (2, 1)
        assert all("wolverine" not in result["content"] for result in answer["results"])
    assert asyncio.run(_everything(place)) == before
