"""A large repository answers by keywords long before all its vectors are there, and the command says how far it is."""

import json
import signal
import subprocess
from pathlib import Path

from rag_context.files.file_jobs import EMBEDDED_AT_ONCE
from tests.end_to_end.process import COMMAND, command, environment, served, wait_until

FILES = EMBEDDED_AT_ONCE + 60
STORED = "Keyword search finds all files now. Vectors of "


def notes(root: Path) -> None:
    for number in range(FILES):
        (root / f"{number:03d}.md").write_text(f"# Note {number}\n\nPump{number:03d} is checked every Monday.\n")


def test_keywords_find_everything_before_the_vectors_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    root, data_dir = tmp_path / "notes", tmp_path / "data"
    root.mkdir()
    notes(root)
    with subprocess.Popen(
        [COMMAND, "index", str(root), "--data-dir", str(data_dir)], stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(STORED):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, said
    assert f"{FILES} files were acknowledged and safe" in said[-1]

    searched = command("search", f"pump{FILES - 1:03d}", "--mode", "text", "--json", data_dir=data_dir)
    (first, *_) = json.loads(searched.stdout)["results"]
    assert first["source"].endswith(f"/{FILES - 1:03d}.md")

    again = command("index", str(root), data_dir=data_dir)
    assert again.returncode == 0, again.stderr
    assert f"{FILES} unchanged" in again.stderr
    assert json.loads(command("health", "--json", data_dir=data_dir).stdout)["pendingDocuments"] == 0


def test_a_server_answers_by_keywords_while_it_embeds_what_a_command_sent(tmp_path: Path) -> None:
    root, data_dir = tmp_path / "notes", tmp_path / "data"
    root.mkdir()
    notes(root)
    with served(data_dir) as server:
        server.wait_ready()
        done = command("index", str(root), "--receipts", str(tmp_path / "receipts"), data_dir=data_dir)
        assert done.returncode == 0, done.stderr
        receipts = [json.loads(line) for line in (tmp_path / "receipts").read_text().splitlines()]
        assert {each["status"] for each in receipts} == {"indexed", "deferred"}
        assert f"{FILES} indexed" in done.stderr  # the command waited for the vectors
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        found = server.search("when is it checked?", mode="vector", limit=20)
        assert (found["fallbackLevel"], len(found["results"])) == (1, 20)
