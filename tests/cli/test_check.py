"""`check`: the index examined and repaired from the command line, beside a server, and what it cannot do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from .run_command import Commands, serving


@pytest.fixture
def database(commands: Commands) -> Path:
    """The file of an index of two documents."""
    commands.write("a.md", "# Valves\n\nValve 7 opens at nine bar.\n")
    commands.write("b.md", "# Pumps\n\nThe pump in the cellar is blue.\n")
    assert commands("index", ".").status == 0
    return commands.data_dir / "rag-context.db"


def sabotage(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_sound_index_exits_0(commands: Commands, database: Path) -> None:
    ended = commands("check")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "sound · 2 documents in 2 chunks, 0 pending\n"
    assert commands("check", "--full", "--json").json()["sound"]


def test_an_issue_exits_1_and_a_repair_fixes_it(commands: Commands, database: Path) -> None:
    sabotage(database, "DELETE FROM vectors WHERE chunk = 1")
    sabotage(database, "UPDATE chunks SET start = 3 WHERE key = 2")
    found = commands("check")
    assert found.status == 1
    assert "missing-vectors" in found.out
    assert "chunks them again" in found.out
    repaired = commands("check", "--repair", "--json")
    assert (repaired.status, repaired.err) == (0, "")
    assert repaired.json()["flaws"] == []
    assert {flaw["kind"] for flaw in repaired.json()["mended"]} == {"missing-vectors", "broken-chunks"}
    assert repaired.json()["pending"] == 0
    answer = commands("search", "at what pressure does valve 7 open", "--mode", "vector", "--json").json()
    assert answer["results"][0]["title"] == "Valves"


def test_what_cannot_be_repaired_is_left_and_exits_1(commands: Commands, database: Path) -> None:
    sabotage(database, "UPDATE documents SET content_hash = 'x' WHERE key = 1")
    ended = commands("check", "--repair")
    assert ended.status == 1
    assert "Left:" in ended.out
    assert "index their sources again" in ended.out
    assert commands("index", ".").status == 0
    assert commands("check").status == 0


def test_it_works_beside_a_server_which_sees_the_repair(commands: Commands, database: Path) -> None:
    with serving(commands):
        assert commands("check").status == 0
        sabotage(database, "DELETE FROM vectors")
        assert commands("check", "--repair").status == 0
        answer = commands("search", "which colour has the pump", "--mode", "vector", "--json").json()
        assert answer["results"][0]["title"] == "Pumps"


def test_without_the_model_documents_wait_for_their_vectors(commands: Commands, database: Path) -> None:
    sabotage(database, "DELETE FROM vectors WHERE chunk = 1")
    nowhere = commands.with_variables(RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(commands.folder / "nowhere"))
    ended = nowhere("check", "--repair", "--json")
    assert ended.status == 0
    assert ended.json()["pending"] == 1
    assert "not all vectors could be made now" in ended.err


def test_a_damaged_file_says_how_to_rescue_and_is_left_alone(commands: Commands, database: Path) -> None:
    garbage = b"SQLite format 3\0" + b"garbage " * 4096
    database.write_bytes(garbage)
    for words in (["check"], ["check", "--repair"]):
        ended = commands(*words)
        assert ended.status == 1
        assert ".recover" in ended.out
        assert "restore a backup" in ended.out
        assert "Traceback" not in ended.err
    assert database.read_bytes() == garbage


def test_a_locked_file_exits_75(commands: Commands, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE totals SET version = version + 1")
        ended = commands("check")
    assert (ended.status, ended.out) == (75, "")
    assert "locked" in ended.err


@pytest.mark.parametrize(
    ("statement", "says"), [("PRAGMA application_id = 7", "another program"), ("PRAGMA user_version = 9000", "upgrade")]
)
def test_a_file_of_another_program_exits_78(commands: Commands, database: Path, statement: str, says: str) -> None:
    sabotage(database, statement)
    ended = commands("check", "--repair")
    assert (ended.status, ended.out) == (78, "")
    assert says in ended.err


def test_without_an_index_it_exits_78_and_makes_none(commands: Commands) -> None:
    ended = commands("check")
    assert ended.status == 78
    assert "no index" in ended.err
    assert not commands.data_dir.exists()
