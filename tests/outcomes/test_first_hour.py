"""A first hour: a folder as it is, a collection, and a repository that answers long before its vectors are there."""

import json
import signal
import subprocess
from pathlib import Path

from rag_context.cli.summary import PROGRESS_EVERY
from rag_context.files.file_jobs import COUNTED_CHARS, EMBEDDED_CHARS
from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, command, environment, served, wait_until

FILES = EMBEDDED_CHARS // COUNTED_CHARS + 60
STORED = "Keyword search finds all files now. Vectors of "


def notes(root: Path) -> None:
    for number in range(FILES):
        (root / f"{number:03d}.md").write_text(f"# Note {number}\n\nPump{number:03d} is checked every Monday.\n")


def test_keywords_find_everything_before_the_vectors_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    root, data_dir = tmp_path / "notes", tmp_path / "data"
    root.mkdir()
    notes(root)
    with Program(
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


def test_a_folder_with_pages_of_html_is_indexed_without_the_library_for_them(tmp_path: Path) -> None:
    root, data_dir, without = tmp_path / "notes", tmp_path / "data", tmp_path / "without"
    for folder in (root, without):
        folder.mkdir()
    (root / "pump.md").write_text("# Pump\n\nThe pump in the cellar is blue.\n")
    page = root / "valve.html"
    page.write_text("<html><body><h1>Valve</h1><p>The valve in the attic is red.</p></body></html>")
    (without / "sitecustomize.py").write_text("import sys\nsys.modules['markdownify'] = None\n")
    lacking = {"PYTHONPATH": str(without)}
    receipts = tmp_path / "receipts"

    for counted in ("1 indexed", "1 unchanged"):  # the second run does as the first
        done = command("index", str(root), "--receipts", str(receipts), data_dir=data_dir, **lacking)
        assert done.returncode == 0, done.stderr
        assert f"{counted}, 1 skipped" in done.stderr
        (skipped,) = [
            each for each in map(json.loads, receipts.read_text().splitlines()) if each["source"] == str(page)
        ]
        assert "need markdownify: run `" in skipped["reason"]
        assert "[formats]'`" in skipped["reason"]

    named = command("index", str(page), data_dir=data_dir, **lacking)
    assert named.returncode == 1
    assert f"{page}: HTML files need markdownify: run `" in named.stderr

    later = command("index", str(root), data_dir=data_dir)
    assert (later.returncode, "1 indexed, 1 unchanged" in later.stderr) == (0, True), later.stderr


def test_a_collection_takes_texts_unless_it_is_for_own_vectors(tmp_path: Path) -> None:
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"text": "The pump in the cellar is blue."}\n')
    assert command("collections", "create", "faq", data_dir=tmp_path).returncode == 0
    added = command("collections", "add", "faq", str(documents), data_dir=tmp_path)
    assert (added.returncode, added.stderr) == (0, "1 document stored.\n")
    found = command("collections", "query", "faq", "which colour has the pump?", data_dir=tmp_path)
    assert "The pump in the cellar is blue." in found.stdout

    assert command("collections", "create", "own", "--own-vectors", data_dir=tmp_path).returncode == 0
    rejected = command("collections", "add", "own", str(documents), data_dir=tmp_path)
    assert (rejected.returncode, "embedding" in rejected.stderr) == (1, True), rejected.stderr


def test_documents_of_a_stream_are_called_documents(tmp_path: Path) -> None:
    stream, empty = tmp_path / "notes.jsonl", tmp_path / "empty.jsonl"
    line = {"contentType": "chat", "sessionId": "s", "source": "notes"}
    stream.write_text("\n".join(json.dumps({**line, "content": f"Note {number}."}) for number in range(PROGRESS_EVERY)))
    empty.touch()
    done = command("index", "--jsonl", str(stream), data_dir=tmp_path)
    assert (done.returncode, "\n100 of 100 documents" in done.stderr, " files" in done.stderr) == (0, True, False)
    assert "No documents found." in command("index", "--jsonl", str(empty), data_dir=tmp_path).stderr

    (first, *_) = json.loads(command("list", "--json", data_dir=tmp_path).stdout)["documents"]
    for words in (["list"], ["similar", first["documentId"]]):
        title, facts, *_ = command(*words, data_dir=tmp_path).stdout.splitlines()
        assert title.startswith("Note ")
        assert len(facts.split()[0]) == len(first["documentId"])


def test_a_folder_without_a_project_says_what_makes_it_one(tmp_path: Path) -> None:
    said = command("project", "activate", str(tmp_path), data_dir=tmp_path / "data").stderr
    (begin, end) = said.index("{"), said.index("}") + 1
    (tmp_path / "docs").mkdir()
    (tmp_path / ".rag-context").mkdir()
    written = said[begin:end].replace("NAME", "pumps")
    (tmp_path / ".rag-context" / "config.json").write_text(written)
    (tmp_path / "docs" / "pump.md").write_text("# The pump\n\nIt is blue.\n")
    activated = command("project", "activate", str(tmp_path), data_dir=tmp_path / "data")
    assert (activated.returncode, "1 document" in activated.stdout) == (0, True), activated.stderr
