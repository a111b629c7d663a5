"""Tenants: listed, forgotten, removed once nothing is left of them, and no text embedded twice for two of them."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import COMMAND, TIMEOUT_S, Served, command, environment, served
from tests.outcomes.repositories import Caller, Repository, repository

DAY_S = 86_400.0
GRACE_S = 4.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that removes what is gone after a few seconds."""
    folder = tmp_path_factory.mktemp("tenants")
    grace = {"RAG_CONTEXT_PROJECTS__FORGET_AFTER_DAYS": str(GRACE_S / DAY_S)}
    with served(folder / "data", **grace) as running:
        running.wait_ready()
        yield running


def data_dir(server: Served) -> Path:
    arguments = server.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[arguments.index("--data-dir") + 1]))


def listed(program: Caller, name: str) -> list[dict[str, Any]]:
    return [each for each in program.call("list_projects")["projects"] if each["project_name"] == name]


def branches(program: Caller, name: str) -> set[str]:
    return {each["branch_name"] for each in listed(program, name)}


def wait_for_branches(program: Caller, name: str, expected: set[str]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while (found := branches(program, name)) != expected:
        assert time.monotonic() < end, found
        time.sleep(0.1)


def wait_for_documents(program: Caller, name: str, branch: str, expected: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    while [each["documents"] for each in listed(program, name) if each["branch_name"] == branch] != [expected]:
        assert time.monotonic() < end, listed(program, name)
        time.sleep(0.1)


def wait_for_log(server: Served, pattern: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not re.search(pattern, log := data_dir(server).with_suffix(".log").read_text()):
        assert time.monotonic() < end, log[-4000:]
        time.sleep(0.1)


def activate(program: Caller, project: Repository) -> dict[str, Any]:
    reply: dict[str, Any] = program.call("activate_project", config_path=project.config)
    return reply


def test_projects_are_listed_with_their_records(server: Served, tmp_path: Path) -> None:
    program = Caller(server.url)
    made = repository(tmp_path, "listed", one="# One\n", two="# Two\n")
    activate(program, made)
    (project,) = listed(program, "listed")
    assert project["last_used"] is not None
    assert {key: project[key] for key in ("branch_name", "path_hash", "documents", "path", "exists", "followed")} == {
        "branch_name": "main",
        "path_hash": made.path_hash,
        "documents": 2,
        "path": str(made.root),
        "exists": True,
        "followed": True,
    }
    shown = command("project", "list", data_dir=data_dir(server))
    assert shown.returncode == 0
    assert "listed" in shown.stdout
    assert made.path_hash in shown.stdout


def test_what_is_left_behind_is_removed_after_the_grace_period_and_nothing_else(server: Served, tmp_path: Path) -> None:
    program = Caller(server.url)
    made = repository(tmp_path, "history", one="# One\n")
    activate(program, made)
    commit = "1234567890abcdef1234567890abcdef12345678"
    made.write(".git/HEAD", commit + "\n")
    wait_for_branches(program, "history", {"main", commit[:12]})
    made.check_out("feature")
    wait_for_branches(program, "history", {"main", "feature"})
    wait_for_documents(program, "history", "feature", 1)
    made.check_out("main")
    (made.root / ".git/refs/heads/feature").unlink()
    made.write(".git/packed-refs", f"# pack-refs\n{'0' * 40} refs/heads/packed\n")
    wait_for_branches(program, "history", {"main"})
    wait_for_log(server, r"project history \(feature.*was removed with 1 documents, because the branch 'feature'")
    away = made.root.rename(tmp_path / "unmounted")
    wait_for_log(server, r"project history \(main\): .*; removed after ")
    (gone,) = listed(program, "history")
    assert (gone["exists"], gone["removed_after"] is not None) == (False, True)
    away.rename(made.root)
    time.sleep(GRACE_S)
    (back,) = listed(program, "history")
    assert (back["exists"], back["removed_after"]) == (True, None)
    assert program.paths(project="history") == {"one.md"}
    shutil.rmtree(made.root)
    wait_for_branches(program, "history", set())
    assert program.call("rag_query", query="one", project="history", status=404)["code"] == "NOT_FOUND"


def forgotten_at_a_terminal(name: str, said: str, folder: Path) -> str:
    """What `project forget` prints where a person says so."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, said.encode())
        arguments = [COMMAND, "project", "forget", name, "--data-dir", str(folder)]
        done = subprocess.run(
            arguments, stdin=theirs, capture_output=True, text=True, env=environment(), timeout=60, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.stdout + done.stderr


def test_a_project_is_forgotten_with_its_files_left_alone_and_stays_forgotten(server: Served, tmp_path: Path) -> None:
    program = Caller(server.url)
    made = repository(tmp_path, "unwanted", one="# One\n")
    activate(program, made)
    assert program.call("delete_documents", project_name="unwanted", dry_run=True)["deleted_count"] == 1
    assert branches(program, "unwanted") == {"main"}
    unsure = command("project", "forget", "unwanted", "--branch", "main", data_dir=data_dir(server))
    assert (unsure.returncode, "Forget 1 document of unwanted, branch main?" in unsure.stderr) == (2, True)
    assert "--yes" in unsure.stderr
    assert "Aborted" in forgotten_at_a_terminal("unwanted", "n\n", data_dir(server))
    assert branches(program, "unwanted") == {"main"}
    done = command("project", "forget", "unwanted", "--branch", "main", "--yes", data_dir=data_dir(server))
    assert "1 document with 1 chunks removed from the index" in done.stdout
    made.write("docs/two.md", "# Two\n")
    made.write(".gitignore", "x\n")
    time.sleep(2.5)
    assert branches(program, "unwanted") == set()
    assert (made.root / "docs/one.md").exists()
    again = program.call("delete_documents", project_name="unwanted", status=404)
    assert "There is no project 'unwanted'" in again["error"]


def test_forgetting_a_name_of_several_repositories_needs_the_path_hash(server: Served, tmp_path: Path) -> None:
    program = Caller(server.url)
    one, two = repository(tmp_path / "1", "twin", a="# A\n"), repository(tmp_path / "2", "twin", b="# B\n")
    handle = activate(program, one)["activation"]
    activate(program, two)
    rejected = program.call("delete_documents", project_name="twin", status=400)
    assert one.path_hash in rejected["error"]
    assert two.path_hash in rejected["error"]
    own = program.call("delete_documents", project_name="twin", activation=handle)
    assert (own["deleted_count"], own["path_hash"]) == (1, one.path_hash)
    assert program.paths(project="twin") == {"b.md"}
