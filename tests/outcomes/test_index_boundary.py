"""An agent indexes files of its workspace only; files at the usual places of secrets are indexed only on purpose."""

import json
import os
from pathlib import Path

import pytest
from mcp.client.context import ClientRequestContext
from mcp_types import ListRootsResult, Root, TextContent

from mcp import Client, StdioServerParameters
from tests.end_to_end.process import COMMAND, environment, run

SECRETS = (".ssh/config", ".aws/credentials", ".pgpass", ".netrc", ".bash_history", ".config/gcloud/key.json")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with secrets, a workspace in it, and another folder."""
    for name in (*SECRETS, "work/notes.md", "work/.ssh/config", "other/notes.md"):
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The pump of {name} is checked on Fridays.\n")
    (tmp_path / "home/work/link.md").symlink_to(tmp_path / "home/.pgpass")
    (tmp_path / "home/work/links").symlink_to(tmp_path / "home/.ssh")
    return tmp_path / "home"


def command(home: Path, started_in: Path, **extra: str) -> StdioServerParameters:
    env = {**environment(**extra), "HOME": str(home)}
    return StdioServerParameters(
        command=COMMAND, args=["mcp", "--data-dir", str(home / "data")], env=env, cwd=started_in
    )


async def indexed(client: Client, path: object) -> tuple[bool, str]:
    """Whether a path was indexed, and what the agent reads of it."""
    answer = await client.call_tool("rag_context_index_files", {"path": str(path)})
    (block,) = answer.content
    assert isinstance(block, TextContent)
    return not answer.is_error, block.text


async def test_an_agent_reaches_its_workspace_and_no_secrets(home: Path) -> None:
    async with Client(command(home, home / "work")) as client:
        is_done, said = await indexed(client, ".")
        assert is_done
        assert "1 indexed" in said
        assert ".ssh/: one of the usual places of secrets" in said
        refused: list[object] = [home / name for name in SECRETS]
        refused += [
            "~/.ssh/config",
            "/etc/passwd",
            "/proc/self/environ",
            "/etc/../etc/shadow",
            "link.md",
            "links/config",
        ]
        refused += [f"/proc/self/root{home}/.pgpass", home / "work/../.PGPASS", ".ssh/config", "links"]
        for path in refused:
            is_done, said = await indexed(client, path)
            assert not is_done, path
            assert "the usual places of secrets" in said, path
        for outside in (home / "other", "..", "~", "/", f"/proc/self/root{home}/other", home / "nowhere"):
            is_done, said = await indexed(client, outside)
            assert not is_done, outside
            assert "outside of the folders that may be indexed here" in said
            assert "indexing.roots" in said


async def test_a_client_that_names_its_folders_is_believed_and_a_setting_adds_to_them(home: Path) -> None:
    async def roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root.model_validate({"uri": (home / "work").as_uri()})])

    (home / "third").mkdir()
    (home / "third/notes.md").write_text("The crane is checked on Mondays.\n")
    setting = {"RAG_CONTEXT_INDEXING__ROOTS": json.dumps(["~/third"])}
    async with Client(command(home, home / "other", **setting), mode="legacy", list_roots_callback=roots) as client:
        assert (await indexed(client, home / "work/notes.md"))[0]
        assert (await indexed(client, home / "third"))[0]
        assert not (await indexed(client, home / "other/notes.md"))[0]


async def test_a_client_that_was_started_in_the_home_folder_has_no_workspace(home: Path) -> None:
    async with Client(command(home, home)) as client:
        is_done, said = await indexed(client, home / "work")
    assert not is_done
    assert "may be indexed here (none)" in said


def test_a_person_indexes_any_folder_and_secrets_only_on_purpose(home: Path) -> None:
    def index(*arguments: str) -> tuple[int, dict[str, str]]:
        words = [COMMAND, "index", str(home), "--json", "--data-dir", str(home / "data"), *arguments]
        ran = run(words, env={**environment(), "HOME": str(home)})
        receipts = [json.loads(line) for line in ran.stdout.splitlines()]
        return ran.returncode, {os.path.relpath(each["source"], home): each["status"] for each in receipts}

    code, statuses = index()
    assert code == 0
    assert {name for name, status in statuses.items() if status == "indexed"} == {"work/notes.md", "other/notes.md"}
    assert {".ssh", ".aws", ".pgpass", ".netrc", ".bash_history"} <= {
        name for name, status in statuses.items() if status == "rejected"
    }
    code, statuses = index("--secrets")
    assert statuses[".ssh/config"] == "indexed"
