"""`backup` and `restore`: one file, read and checked before anything is in its place."""

import io
import tarfile
from pathlib import Path

import pytest

from .run_command import Commands


@pytest.fixture
def archive(commands: Commands, tmp_path: Path) -> Path:
    """The backup of an index of two documents."""
    commands.write("a.md", "# Valves\n\nValve 7 opens at nine bar.\n")
    commands.write("b.md", "# Pumps\n\nThe pump in the cellar is blue.\n")
    assert commands("index", ".").status == 0
    file = tmp_path / "memory.tar"
    made = commands("backup", file)
    assert made.status == 0
    assert made.err.startswith("2 documents and 0 collections backed up")
    return file


def test_what_was_backed_up_comes_back_in_an_empty_directory(commands: Commands, archive: Path, tmp_path: Path) -> None:
    place = tmp_path / "again"
    restored = commands("restore", archive, "--data-dir", place)
    assert restored.status == 0
    assert "2 documents and 0 collections" in restored.out
    assert "Valve 7" in commands("search", "at what pressure does valve 7 open", "--data-dir", place).out


def test_an_index_that_is_there_is_set_aside_on_request_only(commands: Commands, archive: Path) -> None:
    rejected = commands("restore", archive)
    assert rejected.status != 0
    assert "--overwrite" in rejected.err
    done = commands("restore", archive, "--overwrite", "--json").json()
    assert done["documents"] == 2
    assert (Path(done["setAside"]) / "rag-context.db").is_file()


def test_a_file_that_was_cut_or_changed_changes_nothing(commands: Commands, archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    at = whole.index(b"SQLite format 3") + 8192
    for damaged in (b"", b"no archive", whole[: len(whole) // 2], whole[:at] + b"\xa5" * 512 + whole[at + 512 :]):
        archive.write_bytes(damaged)
        place = tmp_path / "again"
        assert commands("restore", archive, "--data-dir", place).status != 0
        assert not place.exists()


def test_a_few_bytes_that_stand_for_terabytes_are_rejected(commands: Commands, tmp_path: Path) -> None:
    file, place = tmp_path / "sparse.tar", tmp_path / "again"
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("rag-context.db")
        member.size = 512
        member.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.size": str(1 << 32),  # of more, a version without the check would fill this disk
            "GNU.sparse.map": "0,512",
        }
        archive.addfile(member, io.BytesIO(b"x" * 512))
    rejected = commands("restore", file, "--data-dir", place)
    assert "it holds something else" in rejected.err
    assert not place.exists()


def test_a_backup_needs_an_index_and_a_place(commands: Commands, tmp_path: Path) -> None:
    assert "There is no index" in commands("backup", tmp_path / "memory.tar").err
    assert not (tmp_path / "memory.tar").exists()
    assert commands("restore", tmp_path / "missing.tar").status != 0
