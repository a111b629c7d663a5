"""A log that is removed while the embedded store is open: no other log is begun while a connection has that one."""

import asyncio
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rag_context.errors import BackendUnavailableError
from rag_context.stores.sqlite.database_file import DatabaseFile
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from tests.stores.builders import axis, document, put


def remove(path: Path, suffixes: Sequence[str]) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink()


async def until_it_takes_writes(store: SqliteStore) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.documents.try_write()
            except BackendUnavailableError:
                await asyncio.sleep(0.02)


def copied(path: Path) -> Path:
    """The files of the database as they are now, in another directory."""
    directory = path.with_name("copy")
    directory.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, directory)
    return directory / path.name


async def documents_after_a_crash(path: Path) -> int:
    """How many documents there are if all processes are killed now."""
    async with open_database(copied(path)) as store:
        return (await store.documents.counts()).documents


@pytest.mark.parametrize("suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")], ids="".join)
async def test_who_opens_the_file_after_the_removal_begins_no_log_beside_the_one_in_use(
    path: Path, suffixes: Sequence[str]
) -> None:
    async with open_database(path) as one:
        await put(one, document("a"), vector=axis(0))
        remove(path, suffixes)
        async with open_database(path) as other:  # before the watcher of the first can have noticed
            for number, store in enumerate((other, one, other, one)):
                await until_it_takes_writes(store)
                await put(store, document(f"b{number}"), vector=axis(1))
            assert await documents_after_a_crash(path) == 5
            assert (await one.documents.counts()).documents == 5
            assert (await other.documents.counts()).documents == 5


async def test_nothing_is_written_while_a_process_that_does_not_notice_has_the_removed_log(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
        unaware, _ = DatabaseFile(path).open_reader()
        with closing(unaware):
            remove(path, ("-wal", "-shm"))
            with pytest.raises(BackendUnavailableError, match=r"log of .* removed"):
                await put(store, document("b"), vector=axis(1))
            assert unaware.execute("SELECT count(*) FROM documents").fetchone() == (1,)
        await until_it_takes_writes(store)
        await put(store, document("b"), vector=axis(1))
        assert await documents_after_a_crash(path) == 2


async def test_a_copy_without_a_log_is_used_as_it_is(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    async with open_database(copy) as one, open_database(copy) as other:
        await put(one, document("b"), vector=axis(0))
        await put(other, document("c"), vector=axis(0))
        assert (await one.documents.counts()).documents == 3
