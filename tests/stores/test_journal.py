"""What every journal does: each change is recorded with it, and what may be undone is undone exactly."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from rag_context.domain.documents import DEFAULT_TENANT, Document, Shelf, Tenant, chunk_ids
from rag_context.domain.journal import (
    PLAIN,
    Action,
    Change,
    Entry,
    Location,
    Move,
    Revision,
    Selection,
    Size,
    acting,
    content_key,
    ids_of,
    reverted,
)
from rag_context.domain.search import Filter
from rag_context.errors import ConflictError, ForgottenError, InvalidInputError
from rag_context.ports.writing import Journal, Version
from rag_context.stores import sql_journal
from rag_context.stores.sql_journal import hidden
from tests.stores.builders import NOON, axis, chunks_of, document, unit_vectors
from tests.stores.builders import Stores as AllStores

LONG = "The pump of berth four is switched off at night, because its noise wakes the neighbours. "
OTHER = Tenant("p", "main", "0123456789abcdef")


@pytest.fixture(params=["sqlite", "postgres", "two files", "embedded and qdrant", "embedded and chroma folder"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Stores(AllStores):
    """An opened store with a journal."""

    journal: Journal


def version(written: Document, *texts: str, revision: Revision = PLAIN, with_vectors: bool = True) -> Version:
    """As the indexer makes it: ids of chunks follow from the id of the document."""
    chunks = chunks_of(written, *texts)
    ids = chunk_ids(written.id, [(chunk.context, chunk.text) for chunk in chunks])
    chunks = [replace(chunk, id=id_) for chunk, id_ in zip(chunks, ids, strict=True)]
    vectors = unit_vectors(len(chunks)) if with_vectors else None
    return Version(written, chunks, vectors, revision=revision)


async def entries(store: Stores, tenant: Tenant = DEFAULT_TENANT) -> list[Entry]:
    """Oldest first."""
    return (await store.journal.entries(tenant, before=None, limit=100))[::-1]


async def ranking(store: Stores, tenant: Tenant = DEFAULT_TENANT) -> tuple[object, ...]:
    """All that answers are made of; where another store has the vectors, those of what has moved follow first."""
    for id_ in await store.documents.pending(100):
        stored = await store.documents.stored(id_)
        assert stored is not None
        assert await store.documents.attach(id_, stored.content_hash, unit_vectors(len(stored.chunk_ids)))
    where = Filter(tenant)
    found = await store.vectors.search(axis(0), limit=20, where=where)
    keywords = await store.texts.search("pump berth night text", limit=20, where=where)
    ids = [hit.chunk.id for hit in found] + [hit.chunk.id for hit in keywords]
    listed = await store.documents.listing(where, limit=20)
    neighbours = await store.documents.neighbours(ids)
    passages = await store.documents.passages(ids)
    return found, keywords, neighbours, passages, listed, await store.documents.matching(where, 20)


async def undo(store: Stores, entry: Entry) -> Entry:
    places = {id_: link.place for id_, link in (await store.journal.links(ids_of([entry]))).items()}
    assert entry.may_be_undone(places)
    return await store.journal.make(reverted(entry, "tester", NOON))


def forgetting(*documents: Document, action: Action = Action.FORGET) -> Change:
    moves = []
    for each in documents:
        place = Location(each.id, each.content_hash)
        after = None if action is Action.PURGE else Location("", each.content_hash, Shelf.TRASH)
        moves.append(Move(place, after, forgets=True))
    reason = None if action is Action.PURGE else "no longer true"
    return Change(action, DEFAULT_TENANT, moves, "tester", NOON, reason)


async def write(store: Stores, *versions: Version) -> None:
    for each in versions:
        await store.documents.write(each)


async def test_what_is_stored_replaced_and_deleted_is_recorded_with_it(store: Stores) -> None:
    first = document("a", "one")
    second = replace(first, content="two", content_hash="2" * 64)
    with acting("maria"):
        await write(store, version(first), version(second), version(second))
        await store.documents.delete(first.id)
    recorded = await entries(store)
    assert [(each.action, each.by, each.document_ids) for each in recorded] == [
        (action, "maria", [first.id]) for action in (Action.INDEX, Action.REPLACE, Action.DELETE)
    ]
    assert recorded[0].moves == (Move(None, Location(first.id, first.content_hash)),)
    assert await store.journal.entry(recorded[0].sequence) == recorded[0]
    assert await store.journal.entry(10**6) is None
    assert await store.journal.entries(OTHER, before=None, limit=5) == []
    assert await store.journal.entries(DEFAULT_TENANT, before=recorded[2].sequence, limit=1) == [recorded[1]]


async def test_vectors_and_new_chunks_are_no_changes(store: Stores) -> None:
    written = document("a", "one two")
    await write(store, version(written, with_vectors=False))
    await store.documents.attach(written.id, written.content_hash, unit_vectors(1))
    await store.documents.rechunk(version(written, "one", "two"))
    assert [each.action for each in await entries(store)] == [Action.INDEX]


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_correction_hides_the_old_version_and_its_undoing_shows_it(store: Stores, *, is_same: bool) -> None:
    old, beside = document("a", LONG), document("b", "Text about the night.")
    await write(store, version(old, LONG[:40], LONG[40:]), version(beside))
    before = await ranking(store)
    new = replace(document("a" if is_same else "c", "The pump runs at night."), timestamp=NOON + timedelta(hours=1))
    await write(store, version(new, revision=Revision(Action.CORRECT, (old.id,), "it is quiet now")))
    after = await ranking(store)
    hidden = await ranking(store, DEFAULT_TENANT.on(Shelf.SUPERSEDED))
    assert after != before
    (corrected,) = [each for each in await entries(store) if each.action is Action.CORRECT]
    chain = await store.journal.chain(new.id, DEFAULT_TENANT)
    assert [(link.place.content_hash, link.reason) for link in chain] == [
        (old.content_hash, "it is quiet now"),
        (new.content_hash, None),
    ]
    assert chain[0].place.superseded_by == new.id
    kept = await store.documents.get(chain[0].place.id)
    assert kept is not None
    assert (kept.content, kept.tenant) == (LONG, DEFAULT_TENANT.on(Shelf.SUPERSEDED))
    undone = await undo(store, corrected)
    assert await ranking(store) == before
    restored = await undo(store, undone)
    assert await ranking(store) == after
    assert await ranking(store, DEFAULT_TENANT.on(Shelf.SUPERSEDED)) == hidden
    await undo(store, restored)
    assert await ranking(store) == before


async def test_corrections_of_corrections_make_a_chain(store: Stores) -> None:
    versions = [replace(document("a", f"Version {number} of the text."), timestamp=NOON + timedelta(hours=number))
                for number in range(4)]  # fmt: skip
    await write(store, version(versions[0]))
    for each in versions[1:]:
        await write(store, version(each, revision=Revision(Action.CORRECT, (each.id,))))
    last = replace(document("z", "Another source."), timestamp=NOON + timedelta(hours=9))
    await write(store, version(last, revision=Revision(Action.CORRECT, (versions[0].id,))))
    for id_ in (last.id, versions[0].id):
        chain = await store.journal.chain(id_, DEFAULT_TENANT)
        assert [link.place.content_hash for link in chain] == [each.content_hash for each in (*versions, last)]
        following = [link.place.id for link in chain][1:]
        assert [link.place.superseded_by for link in chain] == [*following, None]
    assert await store.documents.matching(Filter(), 10) == [last.id]
    for entry in (await entries(store))[:0:-1]:
        await undo(store, entry)
    assert await store.documents.matching(Filter(), 10) == [versions[0].id]
    assert [link.place.superseded_by for link in await store.journal.chain(versions[0].id, DEFAULT_TENANT)] == [None]


@pytest.mark.parametrize("store_name", ["sqlite", "postgres"], indirect=True)  # others narrow after the search
async def test_superseded_versions_are_narrowed_to_those_that_were_current(store: Stores) -> None:
    hour = timedelta(hours=1)
    said = [replace(document(name, "Text of the night."), occurred_at=NOON + number * hour)
            for number, name in enumerate("abc")]  # fmt: skip
    await write(store, version(said[0]))
    for old, new in pairwise(said):
        await write(store, version(new, revision=Revision(supersedes=(old.id,))))
    shelf = DEFAULT_TENANT.on(Shelf.SUPERSEDED)
    for late, current in ((0.5, said[0]), (1, said[1]), (1.5, said[1]), (2, None)):
        moment = NOON + late * hour
        where = Filter(shelf, until=moment + timedelta(microseconds=1), superseded_after=moment)
        expected = [] if current is None else [current.id]
        by_vector = await store.vectors.search(axis(0), limit=5, where=where)
        by_keywords = await store.texts.search("night", limit=5, where=where)
        assert [hit.chunk.document_id for hit in by_vector] == expected
        assert [hit.chunk.document_id for hit in by_keywords] == expected


async def test_only_what_is_visible_to_its_tenant_can_be_superseded(store: Stores) -> None:
    mine, theirs, new = document("a", "one"), document("b", "two", tenant=OTHER), document("c", "three")
    await write(store, version(mine), version(theirs))
    for id_, error in ((theirs.id, InvalidInputError), ("unknown", InvalidInputError)):
        with pytest.raises(error):
            await store.documents.write(version(new, revision=Revision(supersedes=(id_,))))
    with pytest.raises(InvalidInputError, match="says this already"):
        await store.documents.write(version(mine, revision=Revision(supersedes=(mine.id,))))
    await write(store, version(new, revision=Revision(supersedes=(mine.id,))))
    with pytest.raises(ConflictError, match=new.id):
        await store.documents.write(version(document("d", "four"), revision=Revision(supersedes=(mine.id,))))
    assert len(await entries(store)) == 2
    assert await store.documents.matching(Filter(), 10) == [new.id]


async def test_one_of_many_corrections_of_a_document_is_made(store: Stores) -> None:
    old = document("a", "one")
    await write(store, version(old))
    revision = Revision(Action.CORRECT, (old.id,))
    results = await asyncio.gather(
        *(store.documents.write(version(document(name, name), revision=revision)) for name in "bcd"),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in results) == ["ConflictError", "ConflictError", "bool"]
    assert [each.action for each in await entries(store)] == [Action.INDEX, Action.CORRECT]


async def test_a_newer_version_of_a_superseded_source_is_visible_and_the_old_one_stays_hidden(store: Stores) -> None:
    old, new = document("a", "one"), document("b", "two")
    await write(store, version(old), version(new, revision=Revision(supersedes=(old.id,))))
    newer = replace(old, content="three", content_hash="3" * 64)
    await write(store, version(newer))
    assert sorted(await store.documents.matching(Filter(), 10)) == sorted([old.id, new.id])
    hidden, shown = await store.journal.chain(new.id, DEFAULT_TENANT)
    assert (hidden.place.content_hash, hidden.place.superseded_by) == (old.content_hash, new.id)
    assert shown.place.id == new.id
    await undo(store, (await entries(store))[-1])
    assert await store.documents.matching(Filter(), 10) == [new.id]
    (link,) = (await store.journal.links([old.id])).values()
    assert (link.place.content_hash, link.place.shelf) == (old.content_hash, Shelf.SUPERSEDED)


async def test_what_is_forgotten_is_not_stored_again_and_comes_back_exactly(store: Stores) -> None:
    kept, gone = document("a", "Text of the night."), document("b", LONG)
    await write(store, version(kept), version(gone, LONG[:40], LONG[40:]))
    before = await ranking(store)
    forgotten = await store.journal.make(forgetting(gone))
    assert await store.documents.matching(Filter(), 10) == [kept.id]
    assert await store.documents.get(gone.id) is None
    elsewhere = document("c", LONG, source="copy.md")
    key = content_key(DEFAULT_TENANT, LONG)
    asked = {gone.id: None, elsewhere.id: key, kept.id: content_key(DEFAULT_TENANT, kept.content)}
    assert await store.journal.forgotten(asked) == {gone.id, elsewhere.id}
    for each in (gone, elsewhere):
        with pytest.raises(ForgottenError):
            await store.documents.write(version(each))
    back = await undo(store, forgotten)
    assert back.action is Action.RESTORE
    assert await ranking(store) == before
    assert await store.journal.forgotten(asked) == set()
    await undo(store, back)
    assert await store.journal.forgotten(asked) == {gone.id, elsewhere.id}
    await write(store, version(elsewhere, revision=Revision(is_forced=True)))
    assert await store.journal.forgotten(asked) == set()


async def test_undoing_what_was_indexed_takes_it_away_and_it_may_come_again(store: Stores) -> None:
    written = document("a", LONG)
    await write(store, version(written))
    undone = await undo(store, (await entries(store))[0])
    assert await store.documents.matching(Filter(), 10) == []
    await write(store, version(written))
    places = {id_: link.place for id_, link in (await store.journal.links(ids_of([undone]))).items()}
    assert not undone.may_be_undone(places)
    assert await store.documents.matching(Filter(), 10) == [written.id]


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_can_be_undone_is_undone_and_done_again_exactly(store: Stores, seed: int) -> None:
    rng, undone = random.Random(seed), 0
    for number in range(20):
        name = rng.choice("abc")
        written = replace(document(name, f"Text {number} about the {name}."), timestamp=NOON + timedelta(number))
        visible = [each.id for each in await store.documents.listing(Filter(), limit=9)]
        match rng.randrange(5):
            case 0 | 1:
                await write(store, version(written, revision=Revision(is_forced=True)))
            case 2 if visible:
                revision = Revision(Action.CORRECT, (rng.choice(visible),), is_forced=True)
                await write(store, version(written, revision=revision))
            case 3 if visible:
                gone = await store.documents.get(rng.choice(visible))
                assert gone is not None
                await store.journal.make(forgetting(gone))
            case 4 if visible and not number % 3:
                await store.documents.delete(rng.choice(visible))
        recorded = await entries(store)
        places = {id_: link.place for id_, link in (await store.journal.links(ids_of(recorded))).items()}
        if undoable := [each for each in recorded if each.may_be_undone(places)]:
            before = await ranking(store)
            back = await undo(store, rng.choice(undoable))
            if rng.random() < 0.7:  # else it stays undone
                await undo(store, back)
                assert await ranking(store) == before
                undone += 1
        followed: dict[str, Location] = {}
        for move in (move for each in await entries(store) for move in each.moves):
            if move.before is not None:
                del followed[move.before.id]
            if move.after is not None:
                followed[move.after.id] = replace(move.after, superseded_by=None)
        links = await store.journal.links(list(followed))
        assert {id_: replace(link.place, superseded_by=None) for id_, link in links.items()} == followed
    assert undone > 5


async def test_what_cannot_be_undone_is_not_said_to_be(store: Stores) -> None:
    first = document("a", "one")
    second = replace(first, content="two", content_hash="2" * 64)
    pinned = Revision(pinned=True, expires_at=NOON)
    await write(store, version(first), version(second), version(second, revision=pinned))
    await store.journal.make(forgetting(second, action=Action.PURGE))
    recorded = await entries(store)
    assert [each.action for each in recorded] == [Action.INDEX, Action.REPLACE, Action.PIN, Action.PURGE]
    places = {id_: link.place for id_, link in (await store.journal.links(ids_of(recorded))).items()}
    assert not any(each.may_be_undone(places) for each in recorded)


async def test_a_change_is_made_as_a_whole_or_not_at_all(store: Stores) -> None:
    one, other = document("a", "one"), document("b", "two")
    await write(store, version(one), version(other))
    before = await ranking(store)
    with pytest.raises(ConflictError, match=other.id):
        await store.journal.make(forgetting(one, replace(other, content_hash="changed")))
    assert await ranking(store) == before
    assert len(await entries(store)) == 2


async def test_a_selection_takes_earlier_versions_with_it(store: Stores) -> None:
    old, new, beside = document("a", LONG), document("b", "Short."), document("c", "Else.", source="c.md")
    await write(store, version(old), version(beside), version(new, revision=Revision(supersedes=(old.id,))))
    await store.journal.make(forgetting(beside))

    async def selected(shelves: Sequence[Shelf | None], **names: str) -> list[str]:
        selection = Selection(**names)
        return [link.source for link in await store.journal.selected(DEFAULT_TENANT, selection, shelves, 10)]

    visible = (None, Shelf.SUPERSEDED)
    assert await selected(visible, document_id=new.id) == ["source.md", "source.md"]
    assert await selected(visible, contains="NEIGHBOURS") == ["source.md"]
    assert await selected(visible, source="c.md") == []
    assert await selected((*visible, Shelf.TRASH), source="c.md") == ["c.md"]
    assert await selected(visible, session_id="session") == ["source.md", "source.md"]
    assert await selected(visible, tag="none") == []
    assert await selected(visible, agent="none") == []


async def test_the_receipt_counts_what_is_stored(store: Stores) -> None:
    written = document("a", LONG)
    await write(store, version(written, LONG[:40], LONG[40:]))
    await store.documents.record_retrievals([written.id], NOON)
    documents, *vectors = (await store.journal.sizes([written.id, "unknown"])).values()
    assert replace(documents, vectors=0) in {Size(1, 2, 0, 0), Size(1, 2, 0, 1)}
    assert [each.vectors for each in (documents, *vectors)] == ([0, 2] if vectors else [2])
    assert [each.passages for each in vectors] == [2] * len(vectors), "a copy with each vector"
    await store.journal.make(forgetting(written, action=Action.PURGE))
    assert set((await store.journal.sizes([written.id])).values()) == {Size()}
    assert (await store.documents.counts()).documents == 0
    with pytest.raises(ForgottenError):
        await store.documents.write(version(written))


async def test_a_purge_takes_the_reasons_with_it(store: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_journal, "REASONS_AT_ONCE", 2)
    others = [document(name, f"Text of {name}.") for name in "cdefg"]
    await write(store, *(version(each, revision=Revision(reason=f"why {each.source}")) for each in others))
    old, new = document("a", LONG), document("b", "Short.")
    await write(store, version(old), version(new, revision=Revision(supersedes=(old.id,), reason="Maria moved away")))
    forgotten = await store.journal.make(forgetting(new))
    shelved = forgotten.moves[0].after
    assert shelved is not None
    assert shelved.id != new.id
    await store.journal.make(Change(Action.PURGE, DEFAULT_TENANT, [Move(shelved, None)], "tester", NOON))
    reasons = [each.reason for each in await entries(store)]
    assert reasons == [*(f"why {each.source}" for each in others), None, None, None, None]


async def test_reasons_stay_as_long_as_the_versions_that_they_are_about(store: Stores) -> None:
    kept, deleted, replaced = (document(name, f"Text of {name}.") for name in "abc")
    for name, written in zip("abc", (kept, deleted, replaced), strict=True):
        await write(store, version(written, revision=Revision(reason=f"why {name}")))
    pinned = Revision(reason="why it stays", pinned=True)
    await write(store, version(replaced, revision=pinned))
    assert await reasons(store) == ["why a", "why b", "why c", "why it stays"]
    await store.documents.delete(deleted.id)
    assert await reasons(store) == ["why a", "why c", "why it stays"]
    newer = replace(replaced, content="Another text.", content_hash="2" * 64)
    await write(store, version(newer, revision=Revision(reason="it was wrong")))
    assert await reasons(store) == ["why a", "it was wrong"]


async def reasons(store: Stores) -> list[str | None]:
    return [each.reason for each in await entries(store) if each.reason is not None]


async def test_the_journal_of_a_project_without_documents_has_a_hash_of_its_name(store: Stores) -> None:
    first, second = (document(name, tenant=OTHER) for name in "ab")
    await write(store, version(first), version(second), version(document("c")))
    await store.documents.delete(first.id)
    assert {each.tenant for each in await entries(store, OTHER)} == {OTHER}
    await store.journal.make(replace(forgetting(second), tenant=OTHER))  # to the trash, from which it may come back
    (forgotten,) = (each for each in await entries(store, OTHER) if each.action is Action.FORGET)
    assert forgotten.tenant == OTHER
    (shelved,) = (move.after for move in forgotten.moves)
    assert shelved is not None
    purge = Change(Action.PURGE, OTHER, [Move(shelved, None)], "tester", NOON)
    await store.journal.make(purge)
    recorded = await entries(store, OTHER)
    assert [each.action for each in recorded] == [
        Action.INDEX,
        Action.INDEX,
        Action.DELETE,
        Action.FORGET,
        Action.PURGE,
    ]
    assert {each.tenant for each in recorded} == {hidden(OTHER)}
    assert {each.tenant for each in await entries(store)} == {DEFAULT_TENANT}
    await write(store, version(replace(first, content="new", content_hash="3" * 64)))
    assert [each.tenant for each in await entries(store, OTHER)] == [*5 * [hidden(OTHER)], OTHER]


async def test_what_expires_is_due_unless_it_is_pinned(store: Stores) -> None:
    names = ("expired", "pinned", "later", "old", "old and pinned")
    documents = [document(name, name, content_type="chat" if "old" in name else "decision") for name in names]
    hour = timedelta(hours=1)
    said = [
        Revision(expires_at=NOON),
        Revision(expires_at=NOON, pinned=True),
        Revision(expires_at=NOON + hour),
        Revision(),
        Revision(pinned=True),
    ]
    await write(store, *(version(each, revision=revision) for each, revision in zip(documents, said, strict=True)))
    # It lasts as long as its file.
    await write(store, version(document("file", "old", content_type="chat", tenant=Tenant("shop", "main", "aa"))))

    async def due(*, kept: bool) -> list[str]:
        since = {"chat": NOON + hour} if kept else {}
        links = await store.journal.due(NOON, since, NOON, 10)
        return [link.place.id for link in links]

    assert await due(kept=False) == [documents[0].id]
    assert sorted(await due(kept=True)) == sorted([documents[0].id, documents[3].id])
    await write(store, version(replace(documents[1], content="new", content_hash="n" * 64)))
    (link,) = (await store.journal.links([documents[1].id])).values()
    assert (link.expires_at, link.is_pinned) == (NOON, True)
    expiring = replace(forgetting(documents[0], action=Action.EXPIRE), at=NOON - hour)
    expired = await store.journal.make(expiring)
    (trashed,) = await store.journal.due(NOON, {}, NOON, 10)
    assert trashed.place.shelf is Shelf.TRASH
    await undo(store, expired)
    assert await due(kept=False) == []
