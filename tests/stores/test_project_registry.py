"""The record of projects: shared by processes, begun again when damaged, never in anyone's way."""

import resource
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rag_context.domain.documents import ProjectRecord, Tenant
from rag_context.stores.machine_tables import PROJECTS_NAME, RETRY_S, SqliteProjectRegistry, open_file_manifest
from rag_context.testing import FrozenClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHOP = Tenant("shop", "main", "0" * 16)


def record(tenant: Tenant = SHOP, hours: int = 0) -> ProjectRecord:
    return ProjectRecord(
        tenant=tenant,
        root="/r",
        config_path="/r/.rag-context/config.json",
        last_used=NOW + timedelta(hours=hours),
        is_followed=True,
        is_forced=True,
    )


def test_what_one_process_records_another_reads(tmp_path: Path) -> None:
    one, two = SqliteProjectRegistry(tmp_path), SqliteProjectRegistry(tmp_path)
    later = record(Tenant("wiki", "main", "1" * 16), hours=1)
    one.put(record())
    two.put(later)
    assert one.records() == two.records() == [later, record()]
    assert one.has(later.tenant) is two.has(SHOP) is True
    one.note_used({SHOP: NOW + timedelta(hours=2)})
    two.note_used({SHOP: NOW})
    one.note_gone(later.tenant, NOW)
    first, second = two.records()
    assert (first.tenant, first.last_used) == (SHOP, NOW + timedelta(hours=2))
    assert second.gone_since == NOW
    two.note_gone(later.tenant, None)
    two.forget([SHOP])
    assert one.records() == [later]
    assert one.has(SHOP) is False
    one.close()
    assert one.records() == []
    assert one.has(SHOP) is None
    two.close()


def test_a_record_that_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    registry = SqliteProjectRegistry(tmp_path)
    registry.put(record())
    with closing(sqlite3.connect(tmp_path / PROJECTS_NAME)) as other:
        other.execute("DROP TABLE projects")
    assert registry.has(SHOP) is None
    registry.close()


@pytest.mark.parametrize("damage", [b"no database at all" * 400, b""])
def test_a_damaged_file_is_recreated(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / PROJECTS_NAME).write_bytes(damage)
    registry = SqliteProjectRegistry(tmp_path)
    registry.put(record())
    registry.close()
    again = SqliteProjectRegistry(tmp_path)
    assert again.records() == [record()]
    again.close()


def test_where_there_can_be_no_file_memory_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    registry = SqliteProjectRegistry(tmp_path / "file")
    registry.put(record())
    assert registry.records() == [record()]
    registry.close()


def test_what_was_recorded_without_a_file_is_in_it_once_there_can_be_one(tmp_path: Path) -> None:
    clock = FrozenClock()
    place = tmp_path / "place"
    place.write_text("in the way")
    registry = SqliteProjectRegistry(place, clock)
    wiki = record(Tenant("wiki", "main", "1" * 16))
    for each in (record(), wiki):
        registry.put(each)
    registry.forget([wiki.tenant])
    place.unlink()
    clock.advance(RETRY_S)
    assert registry.has(SHOP) is True
    other = SqliteProjectRegistry(place)
    assert other.records() == registry.records() == [record()]
    other.close()
    registry.close()


def test_a_file_that_cannot_be_written_any_more_is_read_and_written_later(tmp_path: Path) -> None:
    clock = FrozenClock()
    registry = SqliteProjectRegistry(tmp_path, clock)
    registry.put(record())
    wiki = record(Tenant("wiki", "main", "1" * 16), hours=1)
    with closing(sqlite3.connect(tmp_path / PROJECTS_NAME)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        registry.put(wiki)
        assert registry.records() == [wiki, record()]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    clock.advance(RETRY_S)
    assert registry.records() == [wiki, record()]
    again = SqliteProjectRegistry(tmp_path)
    assert again.records() == [wiki, record()]
    again.close()
    registry.close()


def test_what_is_left_when_it_is_closed_is_written_then(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("in the way")
    registry = SqliteProjectRegistry(place, FrozenClock())
    registry.put(record())
    place.unlink()
    registry.close()
    again = SqliteProjectRegistry(place)
    assert again.records() == [record()]
    again.close()


def test_its_files_are_for_their_owner_only_also_those_of_an_earlier_version(tmp_path: Path) -> None:
    (tmp_path / PROJECTS_NAME).touch(0o644)
    registry = SqliteProjectRegistry(tmp_path)
    registry.put(record())
    with open_file_manifest(tmp_path) as manifest:
        manifest.forget(["/a"])
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    registry.close()
