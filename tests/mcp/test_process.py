"""`rag-context mcp` as clients run it: real processes on one data directory."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from rag_context.embedders.onnx_model import BUNDLED
from tests.end_to_end.process import COMMAND, TIMEOUT_S, command, environment, served, wait_until

from .mcp_client import read
from .test_stdio import INITIALIZED, OPENING, search

REPORT = """
import os, sys

write = os.write

def noted(descriptor, data):
    if b'"id":"last"' in bytes(data):
        with open({report!r}, "w") as file:
            file.write(" ".join(sys.modules))
    return write(descriptor, data)

os.write = noted
"""
"""Notes what is imported when the last list is answered."""

STRAY = """
import os, subprocess, sys, threading, time

def run():
    while "rag_context.server.mcp.stdio" not in sys.modules:
        time.sleep(0.01)
    for _ in range(100):
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")
        time.sleep(0.01)
    subprocess.run(["echo", "stray child"])

threading.Thread(target=run, daemon=True).start()
"""


@dataclass
class Spoken:
    """A process, line by line."""

    process: "subprocess.Popen[bytes]"

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def end(self) -> tuple[int, str]:
        """Close our end; returns the exit status and stderr. Nothing more may be on stdout."""
        out, stderr = self.process.communicate(timeout=TIMEOUT_S)
        assert out == b""
        return self.process.returncode, stderr.decode()


@contextmanager
def spoken(data_dir: Path, **extra: str) -> Iterator[Spoken]:
    """A process whose conversation was opened."""
    process = subprocess.Popen(
        [COMMAND, "mcp", "--structured", "--data-dir", str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**extra),
    )
    client = Spoken(process)
    try:
        client.send(OPENING)
        assert client.receive()["id"] == "init"
        client.send(INITIALIZED)
        yield client
    finally:
        process.kill()
        process.communicate()


INTRODUCTION = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
LISTS = ("tools/list", "prompts/list", "resources/templates/list")


@pytest.mark.parametrize(
    ("opening", "methods", "params"),
    [
        pytest.param([OPENING, INITIALIZED], (*LISTS, "resources/list"), {}, id="initialize"),
        pytest.param([], ("server/discover", *LISTS), INTRODUCTION, id="server/discover"),
    ],
)
def test_the_opening_is_answered_before_anything_heavy_is_imported(
    tmp_path: Path, opening: list[dict[str, Any]], methods: tuple[str, ...], params: dict[str, Any]
) -> None:
    """P-3: a client shows the model no tools that come later than a second or so, and imports take that long."""
    ids = [*methods[:-1], "last"]
    requests = [
        {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        for id_, method in zip(ids, methods, strict=True)
    ]
    report = tmp_path / "imported.txt"
    (tmp_path / "sitecustomize.py").write_text(REPORT.format(report=str(report)))
    done = subprocess.run(
        [COMMAND, "mcp", "--data-dir", str(tmp_path / "data")],
        input="".join(json.dumps(message) + "\n" for message in [*opening, *requests]),
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=str(tmp_path)),
        timeout=TIMEOUT_S,
        check=True,
    )
    opened = ["init"] if opening else []
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [*opened, *ids]
    imported = set(report.read_text().split())
    assert "rag_context.server.mcp.handshake" in imported
    assert not {"asyncio", "mcp", "numpy", "onnxruntime", "pathlib", "pydantic", "typer", "typing"} & imported


async def test_a_client_with_an_empty_list_of_resources_is_notified(tmp_path: Path) -> None:
    """P-3."""
    command("index", str(Path(__file__)), data_dir=tmp_path)
    request = {"jsonrpc": "2.0", "id": "early", "method": "resources/list"}
    with spoken(tmp_path) as client:
        client.send(request)
        assert client.receive()["result"] == {"resources": []}
        assert client.receive()["method"] == "notifications/resources/list_changed"
        client.send({**request, "id": "late"})
        assert len(client.receive()["result"]["resources"]) == 1


def test_stray_output_stays_off_the_wire_and_the_end_of_input_is_the_end(tmp_path: Path) -> None:
    """P-1."""
    (tmp_path / "sitecustomize.py").write_text(STRAY)
    with spoken(tmp_path / "data", PYTHONPATH=str(tmp_path)) as client:
        client.send(search(1), {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert {client.receive()["id"] for _ in range(2)} == {1, 2}
        status, stderr = client.end()
    assert status == 0
    assert "stray print" in stderr
    assert "stray write" in stderr


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    """M-6."""
    with spoken(tmp_path) as client:
        client.send(search(1))
        assert client.receive()["result"]["structuredContent"]["fallbackLevel"] == 1, "it waits for its model"
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(TIMEOUT_S) == 0


def test_sigterm_before_the_first_message_ends_it_cleanly(tmp_path: Path) -> None:
    """M-6."""
    process = subprocess.Popen(
        [COMMAND, "mcp", "--data-dir", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    wait_until(lambda: _reads_from_elsewhere(process.pid))
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()


def test_a_person_who_runs_it_gets_a_message_on_who_should(tmp_path: Path) -> None:
    theirs, ours = os.openpty()
    process = subprocess.Popen(
        [COMMAND, "mcp", "--data-dir", str(tmp_path)],
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stderr is not None
        assert b"rag-context install" in process.stderr.readline()
        os.write(theirs, b"\x04")  # Ctrl-D
        out, _ = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out) == (0, b"")
    finally:
        process.kill()
        os.close(theirs)
        os.close(ours)


def _reads_from_elsewhere(pid: int) -> bool:
    """Whether it has taken its input for itself (Linux)."""
    return Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)


def test_an_index_of_another_model_is_reported_to_the_agent_and_to_people(tmp_path: Path) -> None:
    """M-5, D-10."""
    data_dir, model = tmp_path / "data", tmp_path / "model"
    note = tmp_path / "note.md"
    note.write_text("Red foxes.")
    assert command("index", str(note), data_dir=data_dir).returncode == 0
    shutil.copytree(BUNDLED, model)
    (model / "manifest.json").unlink()
    with (model / "model.onnx").open("ab") as file:
        file.write(b"\x72\x00")  # an empty field more: the same model under another hash
    with spoken(data_dir, RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(model)) as client:
        client.send(search(1))
        assert "rag-context reindex" in client.receive()["error"]["message"]
        status, stderr = client.end()
    assert status == 78
    assert "rag-context reindex" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "extra", "status", "says"),
    [
        (("--tools", "everything"), {}, 2, "memory, operations, projects, collections, search-fetch, all"),
        ((), {"RAG_CONTEXT_SEARCH__LIMITT": "1"}, 78, "RAG_CONTEXT_SEARCH__"),
    ],
)
def test_what_cannot_work_is_reported_before_any_message(
    tmp_path: Path, arguments: tuple[str, ...], extra: dict[str, str], status: int, says: str
) -> None:
    """M-5."""
    ended = command("mcp", *arguments, data_dir=tmp_path, **extra)
    assert ended.returncode == status
    assert says in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def as_printed(data_dir: Path) -> StdioServerParameters:
    """The command in a client's configuration."""
    printed = command("mcp", "--print-config", "claude-desktop", data_dir=data_dir)
    assert printed.returncode == 0, printed.stderr
    entry = json.loads(printed.stdout)["mcpServers"]["rag-context"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=environment())


async def test_an_agent_finds_what_another_process_indexed_a_second_before(tmp_path: Path) -> None:
    """P-3, D-2: two agents by the printed configuration, and a server, on one directory."""
    how = await asyncio.to_thread(as_printed, tmp_path)
    with served(tmp_path) as server:
        async with Client(how) as one, Client(how) as other:
            nothing = await one.call_tool("rag_context_search", {"query": "foxes"})
            assert read(nothing).startswith("Nothing found in 0 documents.")
            await asyncio.to_thread(server.index, "Red foxes hunt mice in the snow.", source="foxes")
            await other.call_tool(
                "rag_context_index",
                {"content": "Grey wolves hunt deer.", "contentType": "chat", "sessionId": "s", "source": "wolves"},
            )
            await asyncio.sleep(1.0)
            foxes = await one.call_tool("rag_context_search", {"query": "what do foxes hunt"})
            wolves = await one.call_tool("rag_context_search", {"query": "what do wolves hunt"})
        by_server = await asyncio.to_thread(server.search, "what do wolves hunt")
    assert "Red foxes hunt mice in the snow." in read(foxes)
    assert "Grey wolves hunt deer." in read(wolves)
    assert by_server["results"][0]["source"] == "wolves"
    assert "Level" not in read(foxes)


async def test_a_hundred_pipelined_searches_go_well_while_another_process_indexes(tmp_path: Path) -> None:
    """P-3, D-2."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(60):
        (notes / f"{number}.md").write_text(f"# Note {number}\n\n" + f"Red foxes hunt mice, {number} a night. " * 20)
    data_dir = tmp_path / "data"
    how = StdioServerParameters(
        command=COMMAND, args=["mcp", "--structured", "--data-dir", str(data_dir)], env=environment()
    )
    async with Client(how) as client:
        await client.call_tool("rag_context_list", {})
        indexing = asyncio.create_task(asyncio.to_thread(command, "index", str(notes), data_dir=data_dir))
        answers = await asyncio.gather(
            *(client.call_tool("rag_context_search", {"query": f"how many mice, {i}"}) for i in range(100))
        )
        assert (await indexing).returncode == 0
        await asyncio.sleep(1.0)
        last = await client.call_tool("rag_context_search", {"query": "how many mice a night"})
    assert not any(answer.is_error for answer in answers)
    assert all(answer.structured_content["fallbackLevel"] in {1, 2} for answer in answers)
    assert last.structured_content["totalIndexed"] == 60
    assert len(last.structured_content["results"]) == 5
