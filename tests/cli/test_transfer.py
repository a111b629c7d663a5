"""`export` and `import`: a backup that comes back, beside a server, through pipes, and incomplete files."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.loaded import COMMAND, Program
from tests.end_to_end.process import run

from .run_command import TIMEOUT_S, Commands, Ended, heed_interrupts, serving


def index_both(commands: Commands) -> None:
    commands.write("a.md", "# Valves\n\nValve 7 opens at nine bar.\n")
    commands.write("b.md", "# Pumps\n\nThe pump in the cellar is blue.\n")
    assert commands("index", ".").status == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of an index of two documents."""
    folder = tmp_path_factory.mktemp("prepared") / "here"
    folder.mkdir()
    commands = Commands(folder)
    index_both(commands)
    return commands.data_dir


@pytest.fixture
def source(commands: Commands, prepared: Path) -> Commands:
    """An index of two documents."""
    shutil.copytree(prepared, commands.data_dir)
    return commands


@pytest.fixture
def target(commands: Commands) -> Commands:
    """Commands on another data directory."""
    return commands.with_variables(RAG_CONTEXT_DATA_DIR=str(commands.folder.parent / "other"))


def fed(commands: Commands, text: str, *words: str) -> Ended:
    """A command that reads from a pipe."""
    made = run([COMMAND, *words], sent=text, cwd=commands.folder, env=commands._environment())
    return Ended(made.returncode, made.stdout, made.stderr)


def title(commands: Commands, question: str) -> str:
    answer = commands("search", question, "--mode", "vector", "--json").json()
    assert answer["fallbackLevel"] == 1
    return str(answer["results"][0]["title"])


def test_a_backup_comes_back(source: Commands, target: Commands) -> None:
    exported = source("export", "backup.jsonl")
    assert (exported.status, exported.out, exported.err) == (0, "", "2 documents exported.\n")
    imported = target("import", "backup.jsonl")
    assert (imported.status, imported.out, imported.err) == (0, "", "2 new\n")
    assert title(target, "which colour has the pump") == "Pumps"
    assert target("check").out == "sound · 2 documents in 2 chunks, 0 pending\n"
    again = target("import", "backup.jsonl", "--json")
    assert again.json() == {
        "new": 0, "replaced": 0, "completed": 0, "unchanged": 2, "kept": 0, "pending": 0, "broken": 0,
        "entries": 0, "searches": 0, "changes_left": 0, "complete": True,
    }  # fmt: skip


def test_it_goes_through_pipes(source: Commands, target: Commands) -> None:
    exported = source("export", "-", "--json")
    assert json.loads(exported.err) == {"documents": 2, "pending": 0, "chunks": 2, "entries": 0, "searches": 0}
    assert len(exported.lines()) == 5
    imported = fed(target, exported.out, "import", "-")
    assert (imported.status, imported.err) == (0, "2 new\n")


def test_collections_and_statistics_go_along_on_request(source: Commands, target: Commands) -> None:
    assert source("collections", "create", "handbook", "--metadata", '{"of": {"ship": 1}}').status == 0
    texts: list[dict[str, Any]] = [
        {"text": "The pump in the cellar is blue.", "metadata": {"deck": {"number": 2.0}}},
        {"text": "Valve 7."},
    ]
    source.write("texts.jsonl", "".join(f"{json.dumps(each)}\n" for each in texts))
    assert source("collections", "add", "handbook", "texts.jsonl").status == 0
    assert source("collections", "create", "empty").status == 0
    title(source, "which colour has the pump")
    assert source("export", "plain.jsonl").err == "2 documents exported.\n"
    exported = source("export", "all.jsonl", "--collections", "--statistics")
    assert exported.err == "2 documents exported.\n2 documents of collections and 1 record of searches, too.\n"
    versions = [json.loads((source.folder / name).read_text().splitlines()[0])["version"] for name in FILES]
    assert versions == [3, 4]  # what an earlier version can read stays readable for it
    assert target("import", "all.jsonl").err == "2 new\n2 documents of collections and 1 record of searches, too.\n"
    for words in (("collections", "list"), ("collections", "documents", "handbook"), ("stats", "--range", "30d")):
        was, now = (commands(*words, "--json").json() for commands in (source, target))
        assert without_times(was) == without_times(now)
    answer = target("collections", "query", "handbook", "what colour is the pump?", "--json").json()
    assert answer["results"][0]["text"] == texts[0]["text"]
    again = target("import", "all.jsonl", "--json").json()
    assert (again["unchanged"], again["entries"], again["searches"], again["complete"]) == (2, 0, 0, True)


FILES = ("plain.jsonl", "all.jsonl")


def without_times(answer: Any) -> Any:
    """An answer without what is about the moment in which it was given."""
    if isinstance(answer, list):
        return [without_times(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    passing = {"latency", "latencyMs", "generatedAt", "since", "until", "timeline", "uptime", "start"}
    return {name: without_times(value) for name, value in answer.items() if name not in passing}


def test_a_collection_that_is_another_there_is_named_and_left(source: Commands, target: Commands) -> None:
    source("collections", "create", "handbook")
    source("export", "all.jsonl", "--collections")
    target("collections", "create", "handbook", "--embedding-provider", "elsewhere")
    imported = target("import", "all.jsonl")
    assert imported.status == 1
    assert "A collection 'handbook' with another origin or model is there already" in imported.err
    assert "does not end as an export does" not in imported.err
    assert "elsewhere" in target("collections", "list", "--json").out


def test_collections_are_of_no_project(source: Commands) -> None:
    assert source("export", "-", "--project", "own", "--statistics").status == 2


def test_one_project_is_exported_alone(source: Commands) -> None:
    nobodys = source("export", "-", "--project", "nobody")
    assert nobodys.lines()[-1] == {"end": True, "documents": 0}
    assert "no document belongs to a project 'nobody'" in nobodys.err
    assert source("export", "-", "--project", "").lines()[-1] == {"end": True, "documents": 2}


def test_both_work_beside_a_server_which_sees_what_came_in(source: Commands, target: Commands) -> None:
    other = Commands(target.folder.parent / "elsewhere")
    other.folder.mkdir()
    with serving(source):
        assert source("export", "backup.jsonl").status == 0
    with serving(other):
        assert other("import", str(source.folder / "backup.jsonl")).err == "2 new\n"
        assert title(other, "at what pressure does valve 7 open") == "Valves"


def test_vectors_of_another_model_are_recreated(source: Commands, target: Commands) -> None:
    header, *rest = source("export", "-").out.splitlines(keepends=True)
    another = json.loads(header)
    another["model"] |= {"name": "another", "fingerprint": "x"}
    imported = fed(target, json.dumps(another) + "\n" + "".join(rest), "import", "-", "--json")
    assert "vectors of this export are of another" in imported.err
    assert "embedded again" in imported.err
    assert (imported.status, imported.json()["new"], imported.json()["pending"]) == (0, 2, 0)
    assert title(target, "which colour has the pump") == "Pumps"


def test_without_a_model_documents_wait_for_their_vectors(source: Commands, target: Commands) -> None:
    source("export", "backup.jsonl")
    nowhere = target.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(source.folder / "nowhere"))
    imported = nowhere("import", "backup.jsonl")
    assert imported.status == 0
    assert "2 documents wait for their vectors" in imported.err
    assert nowhere("search", "pump", "--json").json()["fallbackLevel"] == 2


def test_a_broken_line_is_named_and_the_rest_comes_in(source: Commands, target: Commands) -> None:
    header, changes, first, *rest = source("export", "-").out.splitlines(keepends=True)
    imported = fed(target, "".join([header, changes, "nonsense\n", *rest]), "import", "-")
    assert imported.status == 1
    assert "line 3: Not valid JSON" in imported.err
    assert "1 new, 1 broken" in imported.err
    whole = fed(target, "".join([header, changes, first, *rest]), "import", "-")
    assert (whole.status, whole.err) == (0, "1 new, 1 unchanged\n")


def test_a_file_that_was_cut_short_exits_1(source: Commands, target: Commands) -> None:
    lines = source("export", "-").out.splitlines(keepends=True)
    imported = fed(target, "".join(lines[:-1]), "import", "-")
    assert imported.status == 1
    assert "does not end as an export does" in imported.err


def test_a_newer_version_stays_unless_it_is_to_be_overwritten(commands: Commands) -> None:
    source = commands
    index_both(source)
    source("export", "backup.jsonl")
    source.write("a.md", "# Valves\n\nValve 7 opens at ten bar.\n")
    assert source("index", "a.md").status == 0
    kept = source("import", "backup.jsonl")
    assert (kept.status, kept.err.splitlines()[0]) == (0, "1 unchanged, 1 kept in a newer version")
    assert source("import", "backup.jsonl", "--overwrite").err == "1 replaced, 1 unchanged\n"
    assert "nine" in source("search", "valve 7", "--json").json()["results"][0]["content"]


@pytest.mark.parametrize(
    ("content", "says"), [("{}\n", "no export"), ('{"format":"rag-context-export","version":9}\n', "upgrade")]
)
def test_a_foreign_export_exits_2(target: Commands, content: str, says: str) -> None:
    ended = fed(target, content, "import", "-")
    assert ended.status == 2
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_files_that_cannot_be_read_or_written_are_named(source: Commands) -> None:
    missing = source("import", "nowhere.jsonl")
    assert (missing.status, "nowhere.jsonl cannot be read" in missing.err) == (2, True)
    unwritable = source("export", "nowhere/backup.jsonl")
    assert (unwritable.status, "cannot be written" in unwritable.err) == (1, True)
    folder = source("export", ".")
    assert (folder.status, "cannot be written" in folder.err) == (1, True)


def test_without_an_index_there_is_nothing_to_export_and_none_is_made(target: Commands) -> None:
    ended = target("export", "backup.jsonl")
    assert ended.status == 78
    assert "no index" in ended.err
    assert list(target.folder.iterdir()) == []
    assert not (target.folder.parent / "other").exists()


def test_a_file_is_replaced_only_by_a_complete_one(source: Commands) -> None:
    before = source.write("backup.jsonl", "precious")
    (source.data_dir / "rag-context.db").write_bytes(b"garbage " * 4096)
    assert source("export", "backup.jsonl").status != 0
    assert before.read_text() == "precious"
    assert list(source.folder.iterdir()) == [before]


def test_an_export_may_go_to_what_is_no_file(source: Commands, tmp_path: Path) -> None:
    assert source("export", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_one_sentence(source: Commands) -> None:
    ended = source("export", "/dev/full")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == "error: /dev/full cannot be written: No space left on device.\n"


def test_ctrl_c_ends_an_import_that_waits_for_its_input(source: Commands, target: Commands) -> None:
    header = source("export", "-").out.splitlines(keepends=True)[0].replace("c124", "feed")
    heed_interrupts()
    process = Program(
        [COMMAND, "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=target.folder,
        env=target._environment(),
    )
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(header)
        process.stdin.flush()
        assert "embedded again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
        assert process.returncode == 130
        assert "What came in is safe" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()
