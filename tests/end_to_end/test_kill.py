"""kill -9: what was acknowledged is there afterwards, once, and a second run ends where an undisturbed one does."""

import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, command, environment, served, wait_until

FILES = 300
QUESTIONS = ("valve 7 pressure", "which pump has the serial number SN-0042", "maintenance on sunday", "quartz gasket")


def make_files(folder: Path) -> None:
    folder.mkdir()
    parts = ("valve", "pump", "gasket", "filter", "sensor")
    for i in range(FILES):
        day = ("monday", "sunday", "friday")[i % 3]
        (folder / f"note-{i:04}.md").write_text(
            f"# Note {i}\n\nThe {parts[i % 5]} {i} has the serial number SN-{i:04}. Its pressure is {i * 7} bar.\n\n"
            f"## Care\n\nMaintenance is on {day}. {'Use the quartz gasket.' if i % 50 == 0 else 'Use the plain one.'}\n"
        )


def state(data_dir: Path) -> object:
    """What the index holds, and what it answers, times left out."""
    with sqlite3.connect(data_dir / "rag-context.db") as database:
        counts = database.execute("SELECT documents, pending, chunks, vectors FROM totals").fetchone()
        documents = database.execute("SELECT id, content_hash, status FROM documents ORDER BY id").fetchall()
        chunks = database.execute("SELECT id FROM chunks ORDER BY id").fetchall()
    database.close()
    answers = []
    for question in QUESTIONS:
        answer = json.loads(command("search", question, "--json", "--limit", "10", data_dir=data_dir).stdout)
        found = [(result["chunkId"], result["score"]) for result in answer["results"]]
        answers.append((answer["fallbackLevel"], answer["totalIndexed"], found))
    return counts, documents, chunks, answers


def test_a_server_killed_while_it_indexes_loses_nothing_and_a_second_run_completes(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    make_files(folder)
    assert command("index", str(folder), data_dir=tmp_path / "calm").returncode == 0

    data_dir = tmp_path / "stormy"
    with served(data_dir) as server:
        server.wait_ready()
        client = Program(
            [COMMAND, "index", str(folder), "--json", "--data-dir", str(data_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        wait_until(lambda: server.health()["indexedDocuments"] >= FILES // 4)
        server.kill()
        stdout, stderr = client.communicate(timeout=60)
    assert client.returncode == 75, stderr
    assert "again" in stderr
    acknowledged = {
        receipt["documentId"] for receipt in map(json.loads, stdout.splitlines()) if receipt["status"] == "indexed"
    }
    assert acknowledged
    with sqlite3.connect(data_dir / "rag-context.db") as database:
        stored = {id_ for (id_,) in database.execute("SELECT id FROM documents")}
    database.close()
    assert acknowledged <= stored
    assert len(stored) < FILES

    again = command("index", str(folder), "--json", data_dir=data_dir)
    assert again.returncode == 0, again.stderr
    receipts = [json.loads(line) for line in again.stdout.splitlines()]
    unchanged = {receipt["documentId"] for receipt in receipts if receipt["status"] == "unchanged"}
    assert unchanged == stored
    assert len(receipts) == FILES
    assert state(data_dir) == state(tmp_path / "calm")


def test_acknowledged_means_found_after_kill_9(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    acknowledged: dict[str, str] = {}
    for round_number in range(3):
        with served(data_dir) as server:
            server.wait_ready()
            end = time.monotonic() + 0.4 + 0.3 * round_number
            while time.monotonic() < end:
                word = f"word{len(acknowledged):05}x"
                receipt = server.index(f"The secret word of document {len(acknowledged)} is {word}.", source=word)
                acknowledged[word] = receipt["documentId"]
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(30)
    with served(data_dir) as server:
        server.wait_ready()
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        assert server.health()["indexedDocuments"] == len(acknowledged)
        for word, document_id in acknowledged.items():
            for mode in ("text", "vector", "hybrid"):
                query = word if mode != "vector" else f"The secret word of document is {word}."
                answer = server.search(query, mode=mode, minScore=0, limit=20)
                assert answer["fallbackLevel"] == 1
                found = [result["documentId"] for result in answer["results"]]
                assert len(found) == len(set(found))
                assert mode == "vector" or found[0] == document_id
