"""The command of the nightly backup, run against a real PostgreSQL, and what is restored from its file."""

import asyncio
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_context.domain.documents import Counts
from rag_context.domain.search import Filter
from rag_context.stores.postgres import open_postgres
from tests.deploy.files import resource
from tests.servers.postgres import FAST, PASSWORD, binaries, execute, postgres_process, url_of
from tests.stores.builders import axis, document, put

KEPT = 7

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgres_process(*FAST) as server:
        execute(url_of(server.port), "CREATE DATABASE rag_context", "CREATE DATABASE restored")
        yield server.port


async def fill(url: str) -> None:
    async with open_postgres(url, exact_rows=1) as store:
        for name in "abc":
            await put(store, document(name, "wolf"), vector=axis(0))
        assert await store.vectors.build_index(0)


async def found(url: str) -> tuple[Counts, int, int]:
    async with open_postgres(url, exact_rows=1) as store:
        by_word = await store.texts.search("wolf", limit=5, where=Filter())
        return (
            await store.documents.counts(),
            len(by_word),
            len(await store.vectors.search(axis(0), limit=5, where=Filter())),
        )


def run(
    port: int, command: list[str], database: str = "rag_context", user: str = "postgres"
) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": f"{binaries()}:/usr/bin:/bin",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGUSER": user,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": database,
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def backup_command(folder: Path) -> list[str]:
    (only,) = resource("CronJob", "postgres-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return [*only["command"], *(word.replace("/backup", str(folder)) for word in only["args"])]


def test_the_last_seven_are_kept_and_all_of_the_index_is_restored(port: int, tmp_path: Path) -> None:
    asyncio.run(fill(url_of(port, "rag_context")))
    earlier = [tmp_path / f"rag_context-202501{day:02}T021700Z.dump" for day in range(1, 10)]
    for path in earlier:
        path.write_text("an earlier one", encoding="utf-8")

    done = run(port, backup_command(tmp_path))

    assert done.returncode == 0, done.stderr
    there = sorted(tmp_path.iterdir())
    assert len(there) == KEPT
    assert there[:-1] == earlier[-KEPT + 1 :]
    restored = run(port, ["pg_restore", "--no-owner", "--dbname=restored", str(there[-1])])
    assert restored.returncode == 0, restored.stderr
    assert asyncio.run(found(url_of(port, "restored"))) == (Counts(3, 0, 3, 3), 3, 3)


def test_a_backup_that_fails_removes_nothing(port: int, tmp_path: Path) -> None:
    earlier = [tmp_path / f"rag_context-202501{day:02}T021700Z.dump" for day in range(1, 10)]
    for path in earlier:
        path.write_text("an earlier one", encoding="utf-8")

    assert run(port, backup_command(tmp_path), database="absent").returncode != 0
    assert sorted(tmp_path.glob("*.dump")) == earlier


def commands_of(page: str, section: str) -> list[list[str]]:
    """The words of the commands in the first example of a section."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"## {section}\n")[1]
    example = text.split("```console\n")[1].split("```")[0]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in example.splitlines()]


def test_a_dump_is_restored_as_the_page_says_by_a_user_without_rights(port: int, tmp_path: Path) -> None:
    user, source = "rag_context", "of_a_team"
    execute(url_of(port), f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'", f"CREATE DATABASE {source} OWNER {user}")
    execute(url_of(port, source), "CREATE EXTENSION vector")
    asyncio.run(fill(url_of(port, source, user=user)))
    dump, create, extend, restore, _ = commands_of("postgresql.md", "Backup and restore")

    for command, by in ((dump, user), (create, "postgres"), (extend, "postgres"), (restore, user)):
        words = [word.replace("$DATABASE_URL", source).replace("restored", "for_a_team") for word in command]
        done = run(port, [word.replace("memory.dump", str(tmp_path / "memory.dump")) for word in words], source, by)
        assert done.returncode == 0, done.stderr

    assert asyncio.run(found(url_of(port, "for_a_team", user=user))) == (Counts(3, 0, 3, 3), 3, 3)
