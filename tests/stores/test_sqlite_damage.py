"""Damaged pages anywhere in the file: writes stop once they are seen, in every process, until a check finds none."""

import asyncio
import json
import random
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rag_context.domain.reports import IssueKind, Thoroughness
from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.database import MOST_SHARE
from rag_context.stores.sqlite.embedded import SqliteStore, open_auditor, open_database
from tests.stores.builders import axis, document, put

PAGE_BYTES = 8192
PAGES = 100
TOGETHER = 20
TIMEOUT_S = 120.0
CHECK_EVERY_S = 0.02


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of more than 100 pages, with all that it holds in the database and nothing in a log."""
    path = tmp_path_factory.mktemp("sound") / "rag-context.db"

    async def fill() -> None:
        async with open_database(path) as store:
            for number in range(60):
                await put(store, document(f"d{number}", f"word{number} " * 900), vector=axis(number % 3))

    asyncio.run(fill())
    assert path.stat().st_size > 1.5 * PAGES * PAGE_BYTES
    return path


def is_sound(path: Path) -> bool:
    """What SQLite itself says."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def pages_of(path: Path) -> int:
    return path.stat().st_size // PAGE_BYTES


def overwrite(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(random.Random(page).randbytes(PAGE_BYTES))


async def until_known(store: SqliteStore, timeout_s: float = TIMEOUT_S) -> None:
    async with asyncio.timeout(timeout_s):
        while store.database.file.damage.reason() is None:
            await asyncio.sleep(CHECK_EVERY_S)


async def use_while_damaged(sound: Path, folder: Path, page: int) -> bool:
    """Damage a page under an open store; returns whether that can be seen at all."""
    path = Path(shutil.copytree(sound.parent, folder / str(page))) / sound.name
    async with open_database(path, check_every_s=CHECK_EVERY_S) as store:
        await put(store, document("before"), vector=axis(0))
        overwrite(path, page)
        if is_sound(path):  # an unused page, or the middle of a long text
            return False
        await until_known(store)
        for attempt in range(3):
            with pytest.raises(BackendDataError, match=r"is damaged .* `rag-context check` says how"):
                await put(store, document(f"after {attempt}"), vector=axis(0))
    return True


async def test_no_write_is_accepted_once_one_of_100_random_pages_is_known_to_be_damaged(
    sound: Path, tmp_path: Path
) -> None:
    pages = random.Random(11).sample(range(1, pages_of(sound)), PAGES)
    seen = 0
    for start in range(0, PAGES, TOGETHER):
        batch = pages[start : start + TOGETHER]
        seen += sum(await asyncio.gather(*(use_while_damaged(sound, tmp_path, page) for page in batch)))
    assert seen > PAGES // 2


async def test_damage_is_known_to_other_processes_and_later_ones_until_a_check_finds_none(
    sound: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    before = path.read_bytes()
    async with open_database(path, check_every_s=CHECK_EVERY_S) as one, open_database(path) as other:
        overwrite(path, 20)
        await until_known(one)
        with pytest.raises(BackendDataError):
            await put(other, document("second"), vector=axis(0))
    async with open_database(path) as later:
        with pytest.raises(BackendDataError):
            await put(later, document("second"), vector=axis(0))
        path.write_bytes(before)
        async with open_auditor(path) as auditor:
            found = await auditor.examine(lambda *_: (), Thoroughness.QUICK)
            assert IssueKind.DAMAGED_FILE not in {issue.kind for issue in found.issues}
        await put(later, document("second"), vector=axis(0))
        assert (await later.documents.counts()).documents == 61


async def test_a_check_that_had_to_wait_is_not_followed_by_a_longer_pause(sound: Path, tmp_path: Path) -> None:
    """On a busy machine a check of milliseconds takes a second; the next one came a minute later."""
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    async with open_database(path, check_every_s=0.3) as store:
        with ExitStack() as busy:
            for user in store.database._readers:
                busy.enter_context(user.lock)
            await asyncio.sleep(1.3)
        await asyncio.sleep(1.0)  # in which the check ends
        overwrite(path, 20)
        await until_known(store, MOST_SHARE / 2)


async def test_damage_that_a_read_meets_stops_writes(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'contents'").fetchone()
    async with open_database(path, check_every_s=3600.0) as store:
        await store.documents.counts()
        overwrite(path, page - 1)
        with pytest.raises(BackendDataError):
            await store.documents.get(document("d3").id)
        with pytest.raises(BackendDataError, match="is damaged"):
            await put(store, document("after"), vector=axis(0))


async def test_a_file_that_is_restored_in_place_is_written_to_again_by_itself(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    async with open_database(path, check_every_s=CHECK_EVERY_S) as store:
        await store.documents.counts()
        before = path.read_bytes()
        overwrite(path, 20)
        await until_known(store)
        path.write_bytes(before)
        async with asyncio.timeout(TIMEOUT_S):
            while store.database.file.damage.reason() is not None:
                await asyncio.sleep(CHECK_EVERY_S)
        await put(store, document("after"), vector=axis(0))


async def test_damage_of_a_file_that_has_just_been_replaced_is_not_that_of_the_new_one(
    sound: Path, tmp_path: Path
) -> None:
    """What a read met is known when the file may be another one already."""
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    async with open_database(path, check_every_s=CHECK_EVERY_S) as store:
        await store.documents.counts()
        path.touch()
        store.database.file.damage.note("read before")
        async with asyncio.timeout(TIMEOUT_S):
            while store.database.file.damage.reason() is not None:
                await asyncio.sleep(CHECK_EVERY_S)


async def test_a_record_of_damage_that_cannot_be_read_stops_writes(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(sound.parent, tmp_path / "copy")) / sound.name
    record = path.with_name(f"{path.name}.damaged")
    record.write_text("no JSON")
    async with open_database(path, check_every_s=3600.0) as store:
        with pytest.raises(BackendDataError, match="its record of damage cannot be read"):
            await put(store, document("after"), vector=axis(0))
        record.write_text(json.dumps({"reason": "page 7", "stamp": None}))
        with pytest.raises(BackendDataError, match=r"is damaged \(page 7\)"):
            await put(store, document("after"), vector=axis(0))
        record.unlink()
        await put(store, document("after"), vector=axis(0))
