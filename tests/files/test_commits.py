"""When a file was written: last committed, where it is what was committed, else last changed."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_context.files.commits import FileTimes, printed_by_git
from rag_context.files.file_reading import Found, LoadedFile, load_file

CHANGED = datetime(2025, 6, 7, tzinfo=UTC)


def git(folder: Path, *arguments: str, at: str = "2024-01-01T00:00:00Z") -> None:
    environment = {
        **os.environ,
        "GIT_AUTHOR_DATE": at,
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    named = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(folder))
    subprocess.run(["git", *named, *arguments], check=True, capture_output=True, env=environment)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (CHANGED.timestamp(), CHANGED.timestamp()))
    return path


def loaded(path: Path) -> LoadedFile:
    found = load_file(Found(path, named=True))
    assert isinstance(found, LoadedFile)
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: `first.md` and `dir/ü b.md`, then a new version of the latter."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    write(root, "first.md", "one")
    write(root, "dir/ü b.md", "two")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first", at="2024-01-01T00:00:00Z")
    write(root, "dir/ü b.md", "three")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "second", at="2024-02-02T00:00:00+01:00")
    return root


def test_committed_files_have_the_time_of_their_last_commit(repository: Path) -> None:
    times = FileTimes()
    assert times.of(loaded(repository / "first.md")) == datetime(2024, 1, 1, tzinfo=UTC)
    assert times.of(loaded(repository / "dir/ü b.md")) == datetime(2024, 2, 1, 23, tzinfo=UTC)


def test_edited_and_new_files_have_the_time_of_their_last_change(repository: Path, tmp_path: Path) -> None:
    edited, new = write(repository, "first.md", "one, edited"), write(repository, "new.md", "new")
    outside = write(tmp_path, "outside.md", "one")
    times = FileTimes()
    assert [times.of(loaded(path)) for path in (edited, new, outside)] == [CHANGED] * 3
    write(repository, "first.md", "one")
    assert times.of(loaded(repository / "first.md")) == datetime(2024, 1, 1, tzinfo=UTC)


def test_a_repository_without_a_commit_or_a_broken_one_is_a_folder(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    path = write(tmp_path, "a.md", "a")
    assert FileTimes().of(loaded(path)) == CHANGED
    (tmp_path / ".git" / "HEAD").write_text("nonsense")
    assert FileTimes().of(loaded(path)) == CHANGED


def test_without_git_the_last_change_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert FileTimes().of(loaded(repository / "first.md")) == CHANGED


def program_named_git(folder: Path, script: str) -> Path:
    program = write(folder, "git", f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_history_that_takes_too_long_is_not_waited_for(repository: Path, tmp_path: Path) -> None:
    hanging = program_named_git(tmp_path / "bin", "exec sleep 600")
    assert printed_by_git(str(hanging), repository, ["log"], timeout_s=0.1) == b""


def test_where_git_prints_nothing_the_last_change_counts(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program_named_git(tmp_path / "bin", "exit 1").parent))
    assert FileTimes().of(loaded(repository / "first.md")) == CHANGED


def test_the_settings_of_a_repository_run_no_program(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = write(tmp_path, "program", f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "gpg.program", "core.sshCommand", "diff.external", "pager.log"):
        git(repository, "config", name, str(program))
    git(repository, "config", "log.showSignature", "true")
    write(repository, ".gitattributes", "*.md diff=x filter=x\n")
    git(repository, "config", "diff.x.textconv", str(program))
    git(repository, "config", "filter.x.smudge", str(program))
    assert FileTimes().of(loaded(repository / "first.md")) == datetime(2024, 1, 1, tzinfo=UTC)
    assert not ran.exists()
