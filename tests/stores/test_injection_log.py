"""The record of what agents were shown: shared by processes, begun again when damaged, deleted in time."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rag_context.domain.documents import utc_now
from rag_context.domain.reports import Injection
from rag_context.stores.machine_tables import INJECTIONS_NAME, PRUNE_S, SqliteInjectionLog
from rag_context.testing import FrozenClock

MONTH = timedelta(days=31)
SHOWN = Injection(
    utc_now(), "s1", "codex", "prompt", "project:harbour-0123abcd", "", "d1", ("c1", "c2"), "", 90, {"relevance": 0.9}
)
WITHHELD = replace(SHOWN, document_id="d2", chunk_ids=("c3",), reason="not relevant enough", tokens=0)


def test_what_one_process_records_another_remembers_until_the_context_is_emptied(tmp_path: Path) -> None:
    one, two = SqliteInjectionLog(tmp_path, MONTH), SqliteInjectionLog(tmp_path, MONTH)
    one.add([SHOWN, WITHHELD])
    two.add([replace(SHOWN, session_id="s2")])
    assert two.remembered("s1") == [SHOWN, WITHHELD]
    assert (one.tokens("s1"), one.tokens("s2"), one.tokens("s3")) == (90, 90, 0)
    two.forget("s1")
    assert (one.remembered("s1"), one.remembered("s2")) == ([], [replace(SHOWN, session_id="s2")])
    assert one.tokens("s1") == 90  # spent all the same
    assert one.latest("s1", 10) == [WITHHELD, SHOWN]
    assert len(one.latest(None, 2)) == 2
    one.close()
    two.close()


def test_one_that_opens_the_file_does_not_wait_for_a_process_that_is_stopped_in_a_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = SqliteInjectionLog(tmp_path, MONTH), SqliteInjectionLog(tmp_path, MONTH)
    one.add([SHOWN])
    with closing(sqlite3.connect(tmp_path / INJECTIONS_NAME)) as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        assert two.remembered("s1") == [SHOWN]
        assert not caplog.records  # it neither waited nor left the file
    one.close()
    two.close()


def test_old_records_are_deleted_when_others_are_added(tmp_path: Path) -> None:
    clock = FrozenClock()
    log = SqliteInjectionLog(tmp_path, MONTH, clock)
    old = replace(SHOWN, at=utc_now() - MONTH - timedelta(hours=1))
    log.add([SHOWN])
    log.add([old])
    assert log.latest(None, 10) == [SHOWN, old]
    clock.advance(PRUNE_S)
    log.add([WITHHELD])
    assert log.latest(None, 10) == [WITHHELD, SHOWN]
    log.prune(utc_now() + timedelta(days=1))
    assert log.latest(None, 10) == []
    log.close()


def test_a_damaged_file_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / INJECTIONS_NAME).write_bytes(b"garbage " * 4096)
    log = SqliteInjectionLog(tmp_path, MONTH)
    log.add([SHOWN])
    assert log.remembered("s1") == [SHOWN]
    log.close()
