"""A folder of chats, decisions, code and documentation is stored as what it holds, whatever its files are called."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

from tests.end_to_end.process import command

EXAMPLES = Path(__file__).parents[2] / "examples" / "corpus"
KINDS = {"chats": "chat", "decisions": "decision", "docs": "documentation", "code": "code"}


def indexed(folder: Path, data_dir: Path, *options: str) -> list[dict[str, Any]]:
    done = command("index", str(folder), "--json", *options, data_dir=data_dir)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_folder_is_stored_as_what_it_holds(tmp_path: Path) -> None:
    folder, data_dir = tmp_path / "corpus", tmp_path / "data"
    copytree(EXAMPLES, folder)
    (folder / "docs" / "half.txt").write_text("A first line that goes on\nbelow, and has no heading above it.\n")

    receipts = indexed(folder, data_dir)
    told = {Path(each["source"]).relative_to(folder): each["contentType"] for each in receipts}
    assert told == {path: KINDS[path.parts[0]] for path in told}
    exported = command("export", "-", data_dir=data_dir)
    stored = [each for each in map(json.loads, exported.stdout.splitlines()) if "content" in each]
    assert {each["source"]: each["contentType"] for each in stored} == {
        each["source"]: each["contentType"] for each in receipts
    }
    titles = {Path(each["source"]).name: each["title"] for each in stored}
    assert titles["half.txt"] == "half.txt"
    assert titles["2026-03-02-berth-fourteen.txt"] == "2026-03-02-berth-fourteen.txt"
    assert titles["0002-web-app-instead-of-native.md"] == "2. One web app, no native apps"

    again = indexed(folder, data_dir, "--type", "documentation")
    assert {each["contentType"] for each in again if each["status"] == "replaced"} == {"documentation"}
    ids = {each["source"]: each["documentId"] for each in receipts}
    assert {each["source"]: each["documentId"] for each in again} == ids
