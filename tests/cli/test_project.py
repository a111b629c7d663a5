"""`rag-context project`: on the index itself, and through a running server."""

import time
from pathlib import Path

import pytest

from tests.cli.run_command import TIMEOUT_S, Commands, serving
from tests.projects.sync_harness import configure, write

POOL = "---\nsummary: Leaks\n---\n# Pool\n\nDatabase connections run out. See [driver](driver.md).\n"
ASK = "Why do database connections run out?"


@pytest.fixture
def repository(commands: Commands) -> Path:
    """The folder of the commands is a project."""
    configure(commands.folder, project_name="shop")
    write(commands.folder / "docs/pool.md", POOL)
    write(commands.folder / "docs/driver.md", "# Driver\n\nIt keeps a hundred sockets.\n")
    write(commands.folder / "docs/money.md", "---\npromotion_level: critical\n---\n# Money\n\nNever a float.\n")
    return commands.folder


def test_without_a_server_the_project_of_the_folder_is_queried(commands: Commands, repository: Path) -> None:
    activated = commands("project", "activate", "--json")
    assert (activated.status, activated.json()["total_docs"], activated.json()["complete"]) == (0, 3, True)
    asked = commands("project", "query", ASK, "--critical", "never", "--max-sources", "1")
    assert asked.status == 0
    assert asked.out.startswith("## Retrieved Context (By Relevance)\n\n### Pool\n- **Path**: pool.md\n")
    assert "- **Linked from**: pool.md" in asked.out
    assert "Money" not in asked.out
    promoted = commands("project", "promote", "docs/pool.md", "important")
    assert promoted.out.startswith("pool.md of project shop (branch main, ")
    assert promoted.out.endswith(" is important now; it was standard.\n")
    assert "promotion_level: important" in (repository / "docs/pool.md").read_text()


def test_a_branch_that_is_not_checked_out_is_queried_as_it_is_stored(commands: Commands, repository: Path) -> None:
    head = write(repository / ".git/HEAD", "ref: refs/heads/main\n")
    activated = commands("project", "activate", str(repository / "docs"), "--json")
    assert (activated.status, activated.json()["branch_name"]) == (0, "main")
    head.write_text("ref: refs/heads/next\n")
    write(repository / "docs/new.md", "# New\n\nOne more.\n")
    assert commands("project", "status", "--branch", "main", "--json").json()["total_docs"] == 3
    assert commands("project", "status", "--json").json()["total_docs"] == 4
    unknown = commands("project", "status", "--branch", "other")
    assert (unknown.status, "on branch 'other'" in unknown.err) == (1, True)


def test_where_there_is_no_project_the_next_step_is_named(commands: Commands) -> None:
    asked = commands("project", "status")
    assert asked.status == 2
    assert "--project" in asked.err
    unknown = commands("project", "status", "--project", "nothing")
    assert "Run `rag-context project activate` to add a project of files" in unknown.err


def test_a_running_server_is_used_and_follows_the_files(commands: Commands, repository: Path) -> None:
    with serving(commands) as served:
        activated = commands("project", "activate")
        assert activated.out.startswith("shop (branch main, ")
        assert served.url in activated.err
        write(repository / "docs/new.md", "# New\n\nOne more.\n")
        until = time.monotonic() + TIMEOUT_S
        while (status := commands("project", "status", "--json").json())["total_docs"] < 4:
            assert time.monotonic() < until
        assert status["project_name"] == "shop"
