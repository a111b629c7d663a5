"""The journal of an index on its way into another: what was forgotten, what was changed, what is known of documents.

Entries and tombstones go before the documents, so that nothing that was forgotten comes back. Links name documents, and
are taken over when all of these are there.
"""

from collections.abc import AsyncIterator, Sequence

from rag_context.api.export_lines import ExportedChanges, ExportedEntry, ExportedLink, ExportedTombstone
from rag_context.domain import journal
from rag_context.domain.documents import Tenant
from rag_context.domain.journal import Entry, History, Link, Location, Tombstone
from rag_context.errors import InvalidInputError
from rag_context.ports.writing import Journal
from rag_context.transfer.lines import fields_of

PAGE = 500


async def earlier(source: Journal, project: str | None = None) -> AsyncIterator[History]:
    """Tombstones and entries, part by part; of a project its entries alone, because tombstones name none."""
    after = ""
    while project is None and (tombstones := await source.tombstones(after, PAGE)):
        yield History(tombstones=tuple(tombstones))
        after = tombstones[-1].identity
    sequence = 0
    while entries := await source.recorded(sequence, PAGE):
        sequence = entries[-1].sequence
        kept = tuple(entry for entry in entries if project in (None, entry.tenant.project))
        if kept:
            yield History(entries=kept)


async def known_of(source: Journal, document_ids: Sequence[str]) -> History:
    """The links of those documents of which the journal says something."""
    links = (await source.links(document_ids)).values()
    return History(links=tuple(link for link in links if link.says_something))


def changes_line(history: History) -> bytes:
    return ExportedChanges(
        tombstones=tuple(ExportedTombstone(**fields_of(each)) for each in history.tombstones),
        entries=tuple(map(_entry_line, history.entries)),
        links=tuple(map(_link_line, history.links)),
    ).to_json()


def read_changes(line: ExportedChanges) -> History:
    return History(
        tuple(Tombstone(**dict(each)) for each in line.tombstones),
        tuple(map(_entry, line.entries)),
        tuple(map(_link, line.links)),
    )


def _entry_line(entry: Entry) -> ExportedEntry:
    fields = {**fields_of(entry, "tenant"), **fields_of(entry.tenant), "moves": journal.as_json(entry.moves)}
    return ExportedEntry(**fields)


def _entry(line: ExportedEntry) -> Entry:
    tenant = Tenant(line.project, line.branch, line.path_hash)
    try:
        moves = journal.from_json(line.moves)
    except (TypeError, ValueError):
        raise InvalidInputError(f"The moves of entry {line.sequence} are not valid") from None
    return Entry(line.sequence, line.at, line.by, line.action, tenant, moves, line.reason, line.undoes)


def _link_line(link: Link) -> ExportedLink:
    known = fields_of(link, "place", "tenant", "is_pinned")
    return ExportedLink(**known, **fields_of(link.place, "shelf"), **fields_of(link.tenant), pinned=link.is_pinned)


def _link(line: ExportedLink) -> Link:
    tenant = Tenant(line.project, line.branch, line.path_hash)
    place = Location(line.id, line.content_hash, tenant.shelf, line.superseded_by)
    times = line.superseded_at, line.expires_at
    return Link(place, tenant, line.source, line.timestamp, line.reason, *times, line.pinned)
