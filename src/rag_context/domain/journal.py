"""The journal: what changed, when, by whom and why, as moves of documents between places; and how to undo it.

A document is visible, superseded by a newer one, or in the trash. Those that are not visible belong to a tenant of
their own, so that no search, list or statistic of the visible ones meets them. An entry has no content.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid5

from rag_context.domain.documents import NAMESPACE, Document, Shelf, Tenant, is_uuid, utc_now
from rag_context.errors import ConflictError, FieldError, InvalidInputError


class Action(StrEnum):
    """What an entry says was done."""

    INDEX = "index"
    REPLACE = "replace"
    CORRECT = "correct"
    PIN = "pin"
    DELETE = "delete"
    FORGET = "forget"
    EXPIRE = "expire"
    PURGE = "purge"
    KEEP = "keep"
    """A decision that documents stay as they are; its reason is the kind of suggestion that is not made again."""
    UNDO = "undo"
    RESTORE = "restore"
    """An undo of an undo, or of forgetting."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a document is: its id, the version, and its shelf."""

    id: str
    content_hash: str
    shelf: Shelf | None = None
    superseded_by: str | None = None
    """The id of the document that took the place of a superseded one."""


@dataclass(frozen=True, slots=True)
class Move:
    """One document before and after a change; None where it was not stored. `forgets`: tombstones follow it."""

    before: Location | None
    after: Location | None
    forgets: bool = False

    def inverse(self) -> "Move":
        """The move back. What was stored first by this one goes to the trash, where it gets an id of its own."""
        before = self.before
        if before is None and self.after is not None:
            before = Location("", self.after.content_hash, Shelf.TRASH)
        return Move(self.after, before, self.forgets)


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. `undoes` is the sequence of the entry that it takes back."""

    sequence: int
    at: datetime
    by: str
    action: Action
    tenant: Tenant
    moves: tuple[Move, ...]
    reason: str | None = None
    undoes: int | None = None

    @property
    def document_ids(self) -> list[str]:
        """The documents that it is about, as they were called before it, or are called since."""
        places = (move.before or move.after for move in self.moves)
        return [place.id for place in places if place is not None]

    def may_be_undone(self, places: Mapping[str, Location]) -> bool:
        """Whether undoing it leaves exactly what was before; `places`: where the documents of `ids_of` are now."""
        after = {move.after.id: move.after for move in self.moves if move.after is not None}
        if self.action in {Action.PIN, Action.KEEP} or len(after) < len(self.moves) or not self.moves:
            return False
        return all(places.get(id_) == place for id_, place in after.items()) and all(
            move.before is None
            or (
                (move.after is not None and move.before.content_hash == move.after.content_hash)
                and (move.before.id in after or move.before.id not in places)
            )
            for move in self.moves
        )


def ids_of(entries: Collection[Entry]) -> list[str]:
    """The ids of all documents that `Entry.may_be_undone` has to know of."""
    places = (place for entry in entries for move in entry.moves for place in (move.before, move.after))
    return list({place.id: None for place in places if place is not None})


@dataclass(frozen=True, slots=True)
class Change:
    """A change to make: all of it in one transaction, with its entry."""

    action: Action
    tenant: Tenant
    moves: Sequence[Move]
    by: str
    at: datetime
    reason: str | None = None
    undoes: int | None = None
    pins: bool = False
    """Whether the documents are pinned, because they would expire again."""

    @property
    def moves_nothing(self) -> bool:
        return self.action in {Action.PIN, Action.KEEP}

    def noted(self, sequence: int) -> Entry:
        moves = tuple(self.moves)
        return Entry(sequence, self.at, self.by, self.action, self.tenant, moves, self.reason, self.undoes)


@dataclass(frozen=True, slots=True)
class Link:
    """A stored document, as the journal knows it; `timestamp` is when this version was indexed."""

    place: Location
    tenant: Tenant
    source: str
    timestamp: datetime
    reason: str | None = None
    """Why it was superseded."""
    superseded_at: datetime | None = None
    expires_at: datetime | None = None
    is_pinned: bool = False

    def changes_with(self, document: Document, revision: "Revision") -> bool:
        """Whether another version is written, or more is said of this one; new chunks of it alone change nothing."""
        is_same = self.tenant == document.tenant and self.place.content_hash == document.content_hash
        return not is_same or revision.changes_more

    @property
    def says_something(self) -> bool:
        return self.place.shelf is not None or self.is_pinned or self.expires_at is not None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What was forgotten: the id of the document, and the `content_key` of its content."""

    identity: str
    content: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class History:
    """A part of what a journal holds, to be taken over by that of another index."""

    tombstones: tuple[Tombstone, ...] = ()
    entries: tuple[Entry, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Documents of a tenant: one by its id, or all with this source, session, agent or tag, or that contain a text."""

    document_id: str | None = None
    source: str | None = None
    session_id: str | None = None
    agent: str | None = None
    tag: str | None = None
    contains: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """What a store has of some documents: rows of documents, passages, vectors, and rows derived from them."""

    documents: int = 0
    passages: int = 0
    vectors: int = 0
    derived: int = 0


@dataclass(frozen=True, slots=True)
class Revision:
    """What is said of a document beside its content, when it is indexed.

    `supersedes` are ids of documents that it takes the place of, for `reason`. `expires_at` and `pinned` stay as they
    were where they are None. `is_forced` stores what was forgotten.
    """

    action: Action = Action.INDEX
    supersedes: tuple[str, ...] = ()
    reason: str | None = None
    expires_at: datetime | None = None
    pinned: bool | None = None
    is_forced: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing: any store can do this."""
        return self == PLAIN

    @property
    def changes_more(self) -> bool:
        return bool(self.supersedes) or self.expires_at is not None or self.pinned is not None


PLAIN = Revision()


@dataclass(frozen=True, slots=True)
class Cause:
    by: str
    at: datetime
    only_adds: bool = False

    @classmethod
    def now(cls) -> "Cause":
        """That of the call under way."""
        by, only_adds = _ACTOR.get()
        return cls(by, utc_now(), only_adds)


LOCAL = "local"
"""Who changes something where no caller is known: a program on this machine, or background work."""

_ACTOR: ContextVar[tuple[str, bool]] = ContextVar("rag_context_actor", default=(LOCAL, False))


@contextmanager
def acting(by: str | None, *, only_adds: bool = False) -> Iterator[None]:
    """What changes inside the block is done by this key or client, which may only add; None: by the one around it."""
    around, only_added = _ACTOR.get()
    token = _ACTOR.set((by or around, only_adds or only_added))
    try:
        yield
    finally:
        _ACTOR.reset(token)


SHORT = 64
"""Shorter texts are too common to be recognised by their content alone."""


def content_key(tenant: Tenant, content: str) -> str | None:
    """What a tombstone keeps of a content: a hash, by which it is recognised under another name; None of short ones."""
    if len(content) < SHORT:
        return None
    visible = tenant.visible
    names = "\0".join((visible.project, visible.branch, visible.path_hash, content))
    return hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()


def shelved_id(document_id: str, content_hash: str, key: int) -> str:
    """The id of a version that gives its own to another one; `key` is the number of its row."""
    namespace = UUID(document_id) if is_uuid(document_id) else NAMESPACE
    return str(uuid5(namespace, f"{document_id}:{content_hash}:{key}"))


def reverted(entry: Entry, by: str, at: datetime) -> Change:
    """The change that takes an entry back: its moves, back, the last one first."""
    action = Action.RESTORE if entry.action in {Action.UNDO, Action.FORGET, Action.EXPIRE} else Action.UNDO
    moves = [move.inverse() for move in reversed(entry.moves)]
    return Change(action, entry.tenant, moves, by, at, undoes=entry.sequence, pins=entry.action is Action.EXPIRE)


def with_ids(moves: Sequence[Move], ids: Mapping[int, str]) -> tuple[Move, ...]:
    """The moves with the ids that a store gave to some of them, by their numbers."""
    return tuple(
        replace(move, after=replace(move.after, id=ids[number])) if number in ids and move.after is not None else move
        for number, move in enumerate(moves)
    )


def as_json(moves: Sequence[Move]) -> list[list[object]]:
    return [[_listed(move.before), _listed(move.after), move.forgets] for move in moves]


def from_json(stored: Sequence[Sequence[object]]) -> tuple[Move, ...]:
    return tuple(Move(_location(before), _location(after), bool(forgets)) for before, after, forgets in stored)


def _listed(place: Location | None) -> list[object] | None:
    if place is None:
        return None
    return [place.id, place.content_hash, place.shelf, place.superseded_by]


def _location(stored: object) -> Location | None:
    if not isinstance(stored, list):
        return None
    id_, content_hash, shelf, superseded_by = stored
    return Location(id_, content_hash, None if shelf is None else Shelf(shelf), superseded_by)


def action_of(revision: Revision, move: Move) -> Action:
    """What the move of a document that was written is called."""
    if revision.action is not Action.INDEX or move.before is None:
        return revision.action
    return Action.PIN if move.before == move.after else Action.REPLACE


def location_of(document: Document) -> Location:
    return Location(document.id, document.content_hash, document.tenant.shelf)


def room_for(document: Document, revision: Revision, links: Mapping[str, Link]) -> tuple[list[Move], Location | None]:
    """The earlier versions that a document leaves on a shelf; and the place of the one that it replaces for good.

    `links`: what is stored of it and of what it supersedes. Raises: ConflictError (that is superseded already),
    InvalidInputError (that is not there, or is this very version).
    """
    moves = []
    for id_ in dict.fromkeys(revision.supersedes):
        place = _superseded(id_, links.get(id_), document)
        new_id = "" if id_ == document.id else id_
        moves.append(Move(place, Location(new_id, place.content_hash, Shelf.SUPERSEDED, document.id)))
    now = links.get(document.id)
    if now is None or document.id in revision.supersedes:
        return moves, None
    if now.place.shelf is not None:  # an earlier version of it that another document took the place of
        return [Move(now.place, replace(now.place, id="")), *moves], None
    return moves, now.place


def _superseded(id_: str, link: Link | None, document: Document) -> Location:
    if link is None or link.tenant.visible != document.tenant or link.place.shelf is Shelf.TRASH:
        message = f"There is no document {id_} to supersede"
    elif link.place.shelf is not None:
        raise ConflictError(f"Document {id_} is superseded by {link.place.superseded_by} already: correct that one")
    elif id_ == document.id and link.place.content_hash == document.content_hash:
        message = f"Document {id_} says this already"
    else:
        return link.place
    raise InvalidInputError(message, [FieldError("supersedes", message)])


def require_locations(moves: Sequence[Move], places: Mapping[str, Location]) -> None:
    """Check that documents are where a change moves them from, and their new ids are free. Raises: ConflictError."""
    before = {move.before.id: move.before for move in moves if move.before is not None}
    changed = sorted(id_ for id_, place in before.items() if places.get(id_) != place)
    if changed:
        raise ConflictError(f"Document {changed[0]} was changed meanwhile; nothing was done")
