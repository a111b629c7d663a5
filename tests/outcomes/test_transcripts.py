"""What agents' clients keep of conversations is stored as its messages, and nothing else."""

import json
from pathlib import Path

from tests.end_to_end.process import command
from tests.files.transcripts import AGAIN, ANSWERED, ASKED, CLOSED, FILES, INJECTED, claude_code


def _name(source: str, folder: Path) -> str:
    return source.removeprefix(f"{folder}/").partition("#")[0]


def test_a_folder_of_transcripts_is_stored_as_its_messages(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    long = "The pump ran dry again. " * 14_600  # 350 400 characters
    files = {**FILES, "claude/long.jsonl": claude_code().replace(ASKED, long.strip())}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    done = command("index", str(folder), "--json", data_dir=tmp_path / "data")
    assert done.returncode == 0, done.stderr
    receipts = {each["source"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert {_name(source, folder) for source in receipts} == set(files)

    exported = command("export", "-", data_dir=tmp_path / "data")
    assert exported.returncode == 0, exported.stderr
    documents = [each for each in map(json.loads, exported.stdout.splitlines()) if "content" in each]
    stored = {_name(each["source"], folder): each for each in documents}
    assert stored.keys() == set(files)
    for name, document in stored.items():
        asked = long.strip() if "long" in name else ASKED
        places = [document["content"].find(said) for said in (asked, ANSWERED, AGAIN, CLOSED)]
        assert places == sorted(places), name
        assert -1 not in places, name
        assert INJECTED not in document["content"], name
        assert "<" not in document["content"], name
        assert document["contentType"] == "chat", name

    assert receipts[f"{folder}/qwen/qwen-1.jsonl"]["leftOut"]["tool-output"] == 1
    assert receipts[f"{folder}/claude/claude-1.jsonl"]["leftOut"]["compaction-summary"] == 2
    assert "compaction summar" in done.stderr
