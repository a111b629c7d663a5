"""The tag of a folder's project: the same for every checkout of a repository, and never of a home."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rag_context.agents.workspace import Workspace, tag_of_remote, workspace
from rag_context.domain.documents import PROJECT_TAG


def git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, remote: str = "") -> Path:
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "First")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder


def found(folder: Path) -> Workspace:
    known = workspace(folder)
    assert known is not None
    assert known.tag.startswith(PROJECT_TAG)
    return known


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/Owner/Harbour.git",
        "https://user:ghp_secret@github.com/owner/harbour",
        "https://github.com:443/owner/harbour/",
        "git@github.com:owner/harbour.git",
        "github.com:owner/harbour",
        "ssh://git@github.com:22/owner/harbour.git",
        "ssh://git@ssh.github.com:443/owner/harbour.git",
        "git+ssh://git@github.com/owner//harbour.git",
        "https://user:p@ss@github.com/owner/harbour.git",
    ],
)
def test_every_address_of_a_remote_gives_one_tag_without_credentials(tmp_path: Path, address: str) -> None:
    known = found(repository(tmp_path / "checkout", address) / "src")
    assert known.root == tmp_path / "checkout"
    assert known.name == "harbour"
    assert known.tag == tag_of_remote("https://github.com/owner/harbour")
    assert known.tag.startswith("project:harbour-")


def test_remotes_that_differ_have_tags_that_differ(tmp_path: Path) -> None:
    addresses = ["git@github.com:a/x.git", "git@github.com:b/x.git", "git@gitlab.com:a/x.git", "https://h/a/b/x"]
    assert len({found(repository(tmp_path / str(n), each)).tag for n, each in enumerate(addresses)}) == 4
    assert tag_of_remote("git@ssh.dev.azure.com:v3/org/p/repo") == tag_of_remote(
        "https://o@dev.azure.com/org/p/_git/repo"
    )
    assert tag_of_remote("../harbour") is tag_of_remote("file:///srv/harbour.git") is tag_of_remote("C:\\x\\y") is None


def test_worktrees_moves_and_clones_belong_to_the_repository(tmp_path: Path) -> None:
    first = repository(tmp_path / "harbour", "git@example.org:x/harbour.git")
    tag = found(first).tag
    git(first, "worktree", "add", "-q", str(tmp_path / "elsewhere"))
    assert found(tmp_path / "elsewhere") == (tmp_path / "elsewhere", "harbour", tag)
    git(tmp_path, "clone", "-q", str(first), str(tmp_path / "copy"))
    assert found(tmp_path / "copy").tag == tag
    shutil.move(first, tmp_path / "moved")
    assert found(tmp_path / "moved" / "deep" / "gone").tag == tag


def test_without_a_remote_worktrees_share_the_path_of_the_first_checkout(tmp_path: Path) -> None:
    first = repository(tmp_path / "Harbour plan")
    git(first, "worktree", "add", "-q", str(tmp_path / "second"))
    git(tmp_path, "clone", "-q", "--bare", str(first), str(tmp_path / "bare.git"))
    git(tmp_path / "bare.git", "remote", "remove", "origin")
    git(tmp_path / "bare.git", "worktree", "add", "-q", "-b", "other", str(tmp_path / "third"))
    assert found(tmp_path / "second").tag == found(first / "docs").tag
    assert found(first).name == "harbour-plan"
    assert found(tmp_path / "third").tag != found(first).tag


def test_a_submodule_is_the_project_of_its_own_remote(tmp_path: Path) -> None:
    part = repository(tmp_path / "part", "https://example.org/x/part.git")
    whole = repository(tmp_path / "whole", "https://example.org/x/whole.git")
    git(whole, "submodule", "--quiet", "add", str(part), "lib")
    assert found(whole / "lib").tag == found(part).tag == tag_of_remote("https://example.org/x/part")
    assert found(whole).tag != found(part).tag


def test_a_folder_without_a_repository_is_known_by_its_path(tmp_path: Path) -> None:
    assert found(tmp_path / "notes").root == tmp_path / "notes"
    assert found(tmp_path / "notes").tag != found(tmp_path / "notes2").tag
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    assert found(tmp_path / "link").tag == found(tmp_path / "notes").tag


def test_homes_roots_and_folders_of_temporary_files_are_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(repository(tmp_path / "home")))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    for folder in (tmp_path / "home", tmp_path / "temporary", Path("/"), Path("/tmp")):
        assert workspace(folder) is None
    # A home under version control does not make everything in it one project.
    assert found(tmp_path / "home" / "a").tag != found(tmp_path / "home" / "b").tag


def test_files_that_are_no_configuration_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.mkfifo(tmp_path / "a" / ".git" / "config")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".git").write_bytes(b"gitdir: \0\xff" * 100)
    (tmp_path / "c" / ".git").mkdir(parents=True)
    (tmp_path / "c" / ".git" / "HEAD").touch()
    (tmp_path / "c" / ".git" / "config").write_text(
        '[remote "other"]\nurl = https://h/x\n[remote "origin"] url = "https://h/c#1/d" # mine\n'
    )
    assert [found(tmp_path / name).name for name in "abc"] == ["a", "b", "c"]
