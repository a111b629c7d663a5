"""The state of the index: records with the counters of all and of each tenant, version, model and generation.

A change takes three steps, since a lone server has no transactions: a number is drawn (`begun` grows), the document's
one record is changed, and the counters follow (`version` grows). An interrupted change shows in the difference of the
two numbers; once nothing has changed for a while, the counters are counted again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar
from uuid import uuid4

from cachetools import LRUCache
from pymongo import DeleteOne, ReturnDocument, UpdateOne
from pymongo.errors import DuplicateKeyError
from pymongo.write_concern import WriteConcern

from rag_context.domain.documents import Tenant, wire_name
from rag_context.domain.vectors import EmbeddingModel, Generations, Rebuild
from rag_context.errors import BackendError, BackendRejectedError
from rag_context.ports.writing import require_comparable
from rag_context.stores.mongodb.document_records import INDEXED, OURS, PENDING, Entry, is_ours, tenant_from
from rag_context.stores.mongodb.filters import tenant_of
from rag_context.stores.mongodb.mongo import Mongo
from rag_context.stores.server_stores import log_failure

T = TypeVar("T")

_ID = "index"
_EPOCH = {"epoch": 1}
"""Added where something changes that answers of every tenant can show."""

TENANTS = 1000
"""Tenants whose counters are remembered."""

_SWIFTLY = WriteConcern(w=1)
"""For the number of a change: if it is lost with its server, the counters are counted again, nothing else."""

_ATTEMPTS = 3

_CLOSING_S = 3.0
"""How long changes under way may take when the store is closed."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The counters, or a change of them; `vectors` are the chunks of indexed documents."""

    documents: int = 0
    pending: int = 0
    chunks: int = 0
    vectors: int = 0
    terms: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(one + two for one, two in zip(self._values(), other._values(), strict=True)))

    def __sub__(self, other: "Totals") -> "Totals":
        return Totals(*(one - two for one, two in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[int, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


NOTHING = Totals()


@dataclass(frozen=True, slots=True)
class TenantTotals:
    """A tenant's counters as they were read. `stamp` differs after each change that its answers can show, and `made`
    for each record that the tenant ever had: its record goes with its last document.
    """

    stamp: str
    turnover: int
    totals: Totals
    made: str = ""


@dataclass(frozen=True, slots=True)
class MongoSnapshot:
    """The record as it was read. `turnover` counts all chunks ever added or removed."""

    name: str
    begun: int
    version: int
    turnover: int
    totals: Totals
    recount: bool
    epoch: int = 0
    model: Mapping[str, Any] | None = None
    by_tenant: bool = False
    """Whether tenants are counted: an index of an earlier version is counted again first."""
    adopted: int | None = None
    """How many documents of other programs were taken over, all there were at that time; None: never all of them."""

    @property
    def fingerprint(self) -> str | None:
        return None if self.model is None else str(self.model["fingerprint"])

    @property
    def is_consistent(self) -> bool:
        """Whether the counters follow from all changes that were begun."""
        return self.begun == self.version and not self.recount and self.by_tenant


def totals_of(entry: Entry | None) -> Totals:
    """What a document's record adds to the totals; zero for no record, or another program's."""
    if entry is None or not is_ours(entry):
        return NOTHING
    chunks, indexed = entry["chunkCount"], entry["status"] == INDEXED
    return Totals(1, 0 if indexed else 1, chunks, chunks if indexed else 0, entry["termCount"])


@dataclass(slots=True)
class MongoChange:
    """A change under way: its number, the model recorded when it began, and what it adds up to."""

    number: int
    fingerprint: str | None
    delta: Totals = NOTHING
    turnover: int = 0
    tenants: dict[str, tuple[Totals, int]] = field(default_factory=dict)
    """The same of each tenant, by the id of its record."""
    is_of_all: bool = False
    """Whether answers of every tenant can show it."""
    complete: bool = False

    def replaced(self, before: Entry | None, after: Entry | None) -> None:
        one, other = totals_of(before), totals_of(after)
        self._add(before or after, other - one, one.chunks + other.chunks)

    def marked(self, before: Entry, status: str) -> None:
        self._add(before, totals_of({**before, "status": status}) - totals_of(before), 0)

    def _add(self, entry: Entry | None, delta: Totals, turnover: int) -> None:
        if entry is None:
            return
        id_ = _id_of(entry.get("tenant"))
        own, own_turnover = self.tenants.get(id_, (NOTHING, 0))
        self.tenants[id_] = own + delta, own_turnover + turnover
        self.delta, self.turnover = self.delta + delta, self.turnover + turnover


def _id_of(tenant: object) -> str:
    """The id of a tenant's record, from the field `tenant` of a document."""
    owner = tenant_from(tenant)
    return f"tenant:{json.dumps([owner.project, owner.branch, owner.path_hash])}"


class MongoIndexState:
    """The record of the state, with this process's copy of it."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._writing = mongo.writing
        self._records = mongo.writing.state
        self._last: MongoSnapshot | None = None
        self._tenants: LRUCache[Tenant, tuple[int, TenantTotals]] = LRUCache(TENANTS)
        """Each with the version at which it was read."""
        self._doubt = ""
        """A part of stamps that no other process has, since a change whose outcome is unknown."""
        self._base = 0
        self._changes: set[asyncio.Task[Any]] = set()

    @property
    def version(self) -> int:
        return self._base + (self._last.version if self._last is not None else 0)

    @property
    def finds_others(self) -> bool:
        """Whether documents of other programs are found: once taken over, their copies are found instead."""
        return self._last is None or self._last.adopted is None

    async def current(self) -> MongoSnapshot:
        """The last known state, read from the server only if there is none. Raises: BackendError."""
        return self._last or await self.refresh()

    async def of_tenant(self, tenant: Tenant) -> TenantTotals:
        """A tenant's counters, read again once this process knows of a change of the index. Raises: BackendError."""
        seen = await self.current()
        if not seen.by_tenant:
            return TenantTotals(f"{seen.name}:{seen.version}", seen.turnover, seen.totals)
        version = self.version  # read before the query: a later change must not count as seen
        known = self._tenants.get(tenant)
        if known is None or known[0] != version:
            async with self._mongo.reached():
                entry = await self._mongo.state.find_one({"_id": _id_of(tenant_of(tenant))}) or {}
            made = entry.get("made", "")
            stamp = f"{seen.name}:{seen.epoch}:{self._doubt}:{made}:{entry.get('version', 0)}"
            totals = Totals(**entry.get("totals", {}))
            known = self._tenants[tenant] = version, TenantTotals(stamp, entry.get("turnover", 0), totals, made)
        return known[1]

    async def refresh(self) -> MongoSnapshot:
        """Read the record; it is created if it is missing. Raises: BackendError."""
        async with self._mongo.reached():
            entry = await self._mongo.state.find_one({"_id": _ID})
        if entry is None:
            async with self._writing.reached():
                entry = await self._begin(0)
        return self._publish(entry)

    async def change(self, work: Callable[[MongoChange], Awaitable[T]]) -> T:
        """Do `work` on the documents, then update the counters, even if the caller is cancelled."""
        # A task of its own, shielded: half a change would leave the counters wrong until they are counted again.
        task = asyncio.create_task(self._change(work))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        task.add_done_callback(log_failure("a change failed"))
        return await asyncio.shield(task)

    async def entry(self) -> Entry:
        async with self._mongo.reached():
            return await self._mongo.state.find_one({"_id": _ID}) or {}

    async def record(self, where: Entry, fields: Entry, increments: Entry | None = None) -> bool:
        """Set fields of the record if it is as `where` says; returns whether it was. Raises: BackendError."""
        update = {"$set": fields, **({"$inc": increments} if increments else {})}
        async with self._writing.reached():
            return await self._update(where, update)

    async def count_by_tenant(self) -> dict[str, Totals]:
        group = {
            "_id": {"tenant": "$tenant", "status": "$status"},
            "documents": {"$sum": 1},
            "chunks": {"$sum": "$chunkCount"},
            "terms": {"$sum": "$termCount"},
        }
        async with self._mongo.reached():
            found = await (await self._mongo.documents.aggregate([{"$match": OURS}, {"$group": group}])).to_list()
        tenants: dict[str, Totals] = {}
        for each in found:
            id_, indexed = _id_of(each["_id"].get("tenant")), each["_id"]["status"] == INDEXED
            documents, chunks = each["documents"], each["chunks"]
            part = Totals(documents, 0 if indexed else documents, chunks, chunks if indexed else 0, each["terms"])
            tenants[id_] = tenants.get(id_, NOTHING) + part
        return tenants

    async def recorded_tenants(self) -> dict[str, Totals]:
        async with self._mongo.reached():
            found = self._mongo.state.find({"_id": {"$regex": "^tenant:"}}, {"totals": 1})
            return {entry["_id"]: Totals(**entry["totals"]) async for entry in found}

    async def correct(self, seen: MongoSnapshot, counted: Mapping[str, Totals]) -> bool:
        """Correct the counters, unless the record has changed since it was `seen`; the version grows."""
        # Above both: the version must grow, or cached answers would stay.
        number = max(seen.begun, seen.version) + 1
        totals = sum(counted.values(), NOTHING)
        right = {"totals": asdict(totals), "begun": number, "version": number, "recount": True}
        if not await self.record({"name": seen.name, "begun": seen.begun, "version": seen.version}, right):
            return False
        tenants = dict.fromkeys(await self.recorded_tenants(), NOTHING) | dict(counted)
        corrections = [
            UpdateOne(
                {"_id": id_},
                {
                    "$set": {"totals": asdict(own)},
                    "$inc": {"version": 1, "turnover": own.chunks + 1},
                    "$setOnInsert": _made(),
                },
                upsert=True,
            )
            if own.documents
            else DeleteOne({"_id": id_})
            for id_, own in tenants.items()
        ]
        if corrections:
            async with self._writing.reached():
                await self._records.bulk_write(corrections, ordered=False)
        # A change that began meanwhile may have been lost in one of these: then all are counted again.
        done = {"recount": False, "byTenant": True}
        return await self.record({"name": seen.name, "begun": number, "version": number}, done, _EPOCH)

    async def close(self) -> None:
        if self._changes:
            await asyncio.wait(self._changes, timeout=_CLOSING_S)

    async def _change(self, work: Callable[[MongoChange], Awaitable[T]]) -> T:
        async with self._writing.reached():
            # Before the work: if the process ends during it, `begun` and `version` differ, and the counters are counted
            # again.
            begun = _snapshot(await self._begin(1))
        change = MongoChange(begun.begun, begun.fingerprint)
        try:
            async with self._writing.reached():
                result = await work(change)
                await self._complete(change)
        except BackendRejectedError:
            with suppress(BackendError):
                async with self._writing.reached():
                    await self._complete(change)  # a rejected change must not stay open
            raise
        finally:
            if not change.complete:
                # Cached answers must not outlive a change whose outcome is unknown.
                self._base += 1  # it may have happened
                self._doubt = uuid4().hex
        return result

    async def _begin(self, growth: int) -> Entry:
        """The record with `begun` increased; created if it is missing, and then existing documents must be counted."""
        growing = {"$inc": {"begun": growth}}
        records = self._records.with_options(write_concern=_SWIFTLY)
        entry = await records.find_one_and_update({"_id": _ID}, growing, return_document=ReturnDocument.AFTER)
        while entry is None:
            recount = await self._writing.documents.find_one(OURS, {"_id": 1}) is not None
            new = {
                "name": uuid4().hex,
                "version": 0,
                "epoch": 0,
                "turnover": 0,
                "recount": recount,
                "byTenant": not recount,
                "totals": asdict(NOTHING),
            }
            with suppress(DuplicateKeyError):  # another process was faster
                entry = await records.find_one_and_update(
                    {"_id": _ID}, {**growing, "$setOnInsert": new}, upsert=True, return_document=ReturnDocument.AFTER
                )
        return entry

    async def _complete(self, change: MongoChange) -> None:
        # Before the record of the index: who sees its version must find what has changed.
        for id_, (delta, turnover) in change.tenants.items():
            await self._add_to_tenant(id_, {**_growth(delta), "version": 1, "turnover": turnover})
            if delta.documents < 0:
                # Only at zero: what another process is about to add makes the record again.
                await self._records.delete_one({"_id": id_, **dict.fromkeys(_growth(NOTHING), 0)})
        growth = {**_growth(change.delta), **(_EPOCH if change.is_of_all else {})}
        await self._update({}, {"$inc": {**growth, "version": 1, "turnover": change.turnover}})
        change.complete = True

    async def _update(self, where: Entry, update: Entry) -> bool:
        """Update the record of the index, if it is as in `where`, and show the new one."""
        changed = {"_id": _ID, **where}
        entry = await self._records.find_one_and_update(changed, update, return_document=ReturnDocument.AFTER)
        if entry is not None:
            self._publish(entry)
        return entry is not None

    async def _add_to_tenant(self, id_: str, growth: Entry) -> None:
        for _ in range(_ATTEMPTS):
            with suppress(DuplicateKeyError):  # another process has just made the record
                await self._records.update_one({"_id": id_}, {"$inc": growth, "$setOnInsert": _made()}, upsert=True)
                return

    def _publish(self, entry: Entry) -> MongoSnapshot:
        """Keep the record, unless a newer one is known; the count starts again for another index."""
        seen, last = _snapshot(entry), self._last
        if last is None or last.name != seen.name:
            # Another index under the same name counts from 0; the version that callers see never goes back.
            self._base = self.version + (0 if last is None else 1)
            self._last = seen
        elif seen.version >= last.version:
            self._last = seen
        return seen


def _made() -> Entry:
    return {"made": uuid4().hex}


def _growth(delta: Totals) -> Entry:
    return {f"totals.{name}": count for name, count in asdict(delta).items()}


def _snapshot(entry: Entry) -> MongoSnapshot:
    kept = {each.name: entry[wire_name(each.name)] for each in fields(MongoSnapshot) if wire_name(each.name) in entry}
    return MongoSnapshot(**{**kept, "totals": Totals(**entry["totals"])})


class MongoRegistry:
    """`ModelRegistry` and `GenerationRegistry` over the record of the index's state."""

    def __init__(self, mongo: Mongo, state: MongoIndexState) -> None:
        self._mongo = mongo
        self._documents = mongo.documents
        self._written = mongo.writing.documents
        self._state = state

    async def recorded_model(self) -> EmbeddingModel | None:
        return _model_of((await self._state.refresh()).model)

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Vectors without a recorded model do not count."""
        while True:
            recorded = _model_of((await self._state.refresh()).model)
            if recorded is None:
                await self._state.change(self._await_vectors)
            else:
                async with self._mongo.reached():
                    has_indexed = await self._documents.find_one({"status": INDEXED}, {"_id": 1}) is not None
                if has_indexed:
                    require_comparable(recorded, model)
            instead_of = recorded.fingerprint if recorded else None
            if await self._state.record({"model.fingerprint": instead_of}, {"model": asdict(model)}):
                return

    async def drop_vectors(self) -> int:
        await self._state.current()
        # No model is recorded; the counters are counted again, since much changes at once.
        forget = {"$unset": {"model": "", "next": ""}, "$set": {"recount": True}, "$inc": _EPOCH}
        async with self._mongo.writing.reached():
            await self._mongo.writing.state.update_one({"_id": _ID}, forget)
        await self._state.change(self._await_vectors)
        return (await self._state.current()).totals.documents

    async def generations(self) -> Generations:
        entry = await self._state.entry()
        model, building = entry.get("model"), _model_of(entry.get("next"))
        return Generations(
            int(entry.get("generation", 0)),
            None if model is None else str(model["fingerprint"]),
            None if building is None else Rebuild(building, float(entry.get("nextTouched", 0.0))),
            entry.get("debris"),
        )

    async def record_generations(self, before: Generations, after: Generations) -> bool:
        """The version grows where another generation becomes the active one."""
        await self._state.refresh()  # creates the record if it is missing
        run, increments = after.run, Entry()
        fields: Entry = {"next": run and asdict(run.model), "nextTouched": run.touched if run else 0.0}
        fields["debris"] = after.inactive
        if after.active != before.active and before.run is not None:
            fields |= {"model": asdict(before.run.model), "generation": after.active}
            increments = {"begun": 1, "version": 1, **_EPOCH}
        where = {"next.fingerprint": before.building, "debris": before.inactive}
        return await self._state.record(where, fields, increments)

    async def _await_vectors(self, change: MongoChange) -> None:
        """Make all documents pending, and set the change of the totals."""
        vectors = (await self._state.current()).totals.vectors
        change.is_of_all = True
        marked = await self._written.update_many({"status": INDEXED}, {"$set": {"status": PENDING}})
        if marked.modified_count:
            change.delta = Totals(pending=marked.modified_count, vectors=-vectors)


def _model_of(entry: Mapping[str, Any] | None) -> EmbeddingModel | None:
    return None if entry is None else EmbeddingModel.from_record(entry)
