"""What was corrected, forgotten and pinned is so in an index that was moved, or exported and imported, too."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rag_context.domain.documents import DEFAULT_TENANT, Document, Shelf, Tenant, content_hash
from rag_context.domain.journal import Action, Change, Location, Move, Revision, content_key, ids_of, reverted
from rag_context.errors import ForgottenError
from rag_context.ports.writing import Version
from rag_context.settings import Settings
from rag_context.wiring.stores import Stores, open_stores
from tests.cli.run_command import Commands
from tests.servers.postgres_fixtures import database, server, template
from tests.stores.builders import NOON, chunks_of, document
from tests.transfer.test_move import in_postgres

__all__ = ["database", "server", "template"]

LONG = "The gate of the marina opens at six and closes at ten, and the night watch has the only key to it."


def stated(name: str, text: str, tenant: Tenant = DEFAULT_TENANT) -> Document:
    each = document(name, text, tenant=tenant)
    return replace(each, content_hash=content_hash(each))


WRONG, RIGHT = stated("wrong", "Ten berths."), stated("right", "Twelve berths.")
KEPT, TRASHED, PURGED = stated("kept", "A note."), stated("trashed", LONG), stated("purged", LONG + " Always.")
ELSEWHERE = stated("page", "A page.", Tenant("wiki", "main", "0" * 16))


async def fill(data_dir: Path) -> None:
    async with open_stores(Settings(data_dir=data_dir)) as stores:
        for each in (WRONG, TRASHED, PURGED, ELSEWHERE):
            await put(stores, each)
        await put(stores, RIGHT, Revision(Action.CORRECT, (WRONG.id,), "two more were built"))
        await put(stores, KEPT, Revision(pinned=True, expires_at=NOON + timedelta(days=9)))
        for each, action in ((TRASHED, Action.FORGET), (PURGED, Action.PURGE)):
            after = Location("", each.content_hash, Shelf.TRASH) if action is Action.FORGET else None
            moves = [Move(Location(each.id, each.content_hash), after, forgets=True)]
            await journal_of(stores).make(Change(action, Tenant(), moves, "ana", NOON))


async def put(stores: Stores, each: Document, revision: Revision = Revision()) -> None:  # noqa: B008  (frozen)
    await stores.writer.write(Version(each, chunks_of(each), revision=revision))


def journal_of(stores: Stores) -> Any:
    assert stores.journal is not None
    return stores.journal


async def known(settings: Settings, *, of_trash: bool) -> dict[str, Any]:
    """What the journal holds, without the numbers of entries, and without those that storing the documents has made."""
    async with open_stores(settings) as stores:
        journal = journal_of(stores)
        entries = [entry for entry in await journal.recorded(0, 100) if entry.by == "ana" or entry.reason is not None]
        links = await journal.links(list(await stores.documents.inventory("", 100)))
        return {
            "entries": [replace(entry, sequence=0) for entry in entries],
            "links": {id_: link for id_, link in links.items() if of_trash or link.place.shelf is not Shelf.TRASH},
            "tombstones": await journal.tombstones("", 100),
        }


async def check(settings: Settings) -> None:
    """What it holds is in force: forgotten texts stay out, and what could be undone can be undone."""
    async with open_stores(settings) as stores:
        for each in (TRASHED, PURGED, stated("another name", PURGED.content)):
            with pytest.raises(ForgottenError):
                await put(stores, each)
        journal = journal_of(stores)
        reasons = {link.place.id: link.reason for link in await journal.chain(RIGHT.id, Tenant())}
        assert reasons == {WRONG.id: "two more were built", RIGHT.id: None}
        assert await journal.forgotten({"x": content_key(Tenant(), LONG)}) == {"x"}
        (correction,) = [each for each in await journal.recorded(0, 100) if each.action is Action.CORRECT]
        places = {id_: link.place for id_, link in (await journal.links(ids_of([correction]))).items()}
        assert correction.may_be_undone(places)
        await journal.make(reverted(correction, "ana", NOON))
        assert await stores.documents.get(WRONG.id) == WRONG


def test_a_move_takes_the_journal_along(tmp_path: Path, database: str) -> None:
    commands = Commands(tmp_path)
    asyncio.run(fill(commands.data_dir))
    here, there = Settings(data_dir=commands.data_dir), in_postgres(database, commands.data_dir)
    for _ in range(2):  # again, it changes nothing
        moved = commands("move", "--to", database)
        assert moved.status == 0, moved.err
        before, after = (asyncio.run(known(each, of_trash=True)) for each in (here, there))
        assert after == before
    asyncio.run(check(there))


def test_an_export_holds_the_journal(tmp_path: Path) -> None:
    commands, file = Commands(tmp_path), tmp_path / "index.jsonl"
    elsewhere = Commands(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    asyncio.run(fill(commands.data_dir))
    assert commands("export", str(file)).status == 0
    assert LONG not in file.read_text(encoding="utf-8")
    for _ in range(2):
        taken = elsewhere("import", str(file))
        assert taken.status == 0, taken.err
    here, there = (Settings(data_dir=each.data_dir) for each in (commands, elsewhere))
    before, after = (asyncio.run(known(each, of_trash=False)) for each in (here, there))
    assert after == before
    asyncio.run(check(there))


def test_an_export_of_a_project_holds_its_own_changes_only(tmp_path: Path) -> None:
    commands, file = Commands(tmp_path), tmp_path / "index.jsonl"
    asyncio.run(fill(commands.data_dir))
    assert commands("export", str(file), "--project", "wiki").status == 0
    text = file.read_text(encoding="utf-8")
    assert ELSEWHERE.id in text
    assert not any(each.id in text for each in (WRONG, RIGHT, KEPT, TRASHED, PURGED))
