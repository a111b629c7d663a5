"""The engine behind the stand-in for a Qdrant server: Qdrant's own, in this process, a shard for each collection."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import qdrant_edge as edge
from qdrant_client import models

_DESCRIPTION = "collection.json"

_SHARED_MEMORY = Path("/dev/shm")
"""A file system in memory, on which making a collection does not wait for a disk; Linux has it."""

_THREADS = 1

Request: TypeAlias = Any
Answer: TypeAlias = Any
"""The engine's own classes, half of which it does not export."""

_DISTANCES = {
    models.Distance.COSINE: edge.Distance.Cosine,
    models.Distance.EUCLID: edge.Distance.Euclid,
    models.Distance.DOT: edge.Distance.Dot,
    models.Distance.MANHATTAN: edge.Distance.Manhattan,
}


class EngineError(Exception):
    """The engine rejects a request; the message says why."""


class Engine:
    """Collections, read and changed as the client's requests say. All methods but `load` and `create` may raise
    EngineError.

    Args:
        folder: where they are kept, those of an earlier process included, with a log that outlives `kill -9`; None for
            a temporary folder without logs.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._keeps_log = folder is not None
        if folder is None:
            shared = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
            self._temporary = TemporaryDirectory(prefix="qdrant-", dir=shared)
            folder = Path(self._temporary.name)
        self._folder = folder
        self._shards: dict[str, edge.EdgeShard] = {}

    def close(self) -> None:
        """Close all collections; those of a temporary folder are gone."""
        for shard in self._shards.values():
            shard.close()
        if not self._keeps_log:
            self._temporary.cleanup()

    def load(self) -> Mapping[str, models.CreateCollection]:
        """Open what the folder holds; returns how each collection was created, by name."""
        found = {}
        for path in sorted(self._folder.glob(f"*/{_DESCRIPTION}")):
            described = json.loads(path.read_text(encoding="utf-8"))
            self._shards[described["name"]] = edge.EdgeShard.load(str(path.parent / "shard"))
            found[described["name"]] = models.CreateCollection.model_validate(described["asked"])
        return found

    def create(self, name: str, asked: models.CreateCollection) -> None:
        """Make a collection, which must not exist."""
        place = self._place(name)
        config = edge.EdgeConfig(
            vectors=_vector_params(asked.vectors),
            on_disk_payload=asked.on_disk_payload,
            max_search_threads=_THREADS,
            wal_enabled=self._keeps_log,
        )
        (place / "shard").mkdir(parents=True)
        self._shards[name] = edge.EdgeShard.create(str(place / "shard"), config)
        description = {"name": name, "asked": asked.model_dump(mode="json", exclude_none=True)}
        (place / _DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")

    def drop(self, name: str) -> None:
        """Remove a collection with its files."""
        (self._place(name) / _DESCRIPTION).unlink()
        self._shards.pop(name).close()
        shutil.rmtree(self._place(name), ignore_errors=True)

    def describe(self, name: str) -> Answer:
        """How many points and segments there are."""
        return self._shards[name].info()

    def index(self, name: str, field: str, schema: models.PayloadFieldSchema) -> None:
        """Make a payload index."""
        self._update(name, edge.UpdateOperation.create_field_index(field, _schema(schema)))

    def upsert(self, name: str, points: Sequence[models.PointStruct]) -> None:
        """Store points, in place of those of the same ids."""
        stored = [edge.Point(each.id, cast(Any, each.vector), each.payload or {}) for each in points]
        self._update(name, edge.UpdateOperation.upsert_points(stored))

    def delete(self, name: str, selector: models.PointsSelector) -> None:
        """Remove the points that are named or pass a filter."""
        if isinstance(selector, models.PointIdsList):
            operation = edge.UpdateOperation.delete_points(selector.points)
        else:
            operation = edge.UpdateOperation.delete_points_by_filter(_filter(selector.filter))
        self._update(name, operation)

    def set_payload(
        self, name: str, payload: models.Payload, ids: Sequence[models.ExtendedPointId], key: str | None
    ) -> None:
        """Set fields of points."""
        self._update(name, edge.UpdateOperation.set_payload(list(ids), payload, key))

    def retrieve(
        self, name: str, ids: Sequence[models.ExtendedPointId], payload: Any = True, vectors: Any = False
    ) -> list[models.Record]:
        """Those of the given points that exist."""
        with _rejections():
            return [_record(each) for each in self._shards[name].retrieve(list(ids), _fields(payload), vectors)]

    def query(self, name: str, asked: models.QueryRequest, limit: int) -> list[models.ScoredPoint]:
        """The nearest points, or the first ones where no vector is given."""
        request = edge.QueryRequest(
            limit=limit,
            offset=asked.offset,
            query=None if asked.query is None else edge.Query.Nearest(_nearest(asked.query), asked.using),
            with_vector=asked.with_vector or False,
            with_payload=_fields(asked.with_payload or False),
            filter=_filter(asked.filter),
            score_threshold=asked.score_threshold,
            params=_search_params(asked.params),
        )
        with _rejections():
            return [_scored(each) for each in self._shards[name].query(request)]

    def scroll(
        self, name: str, asked: models.ScrollRequest, limit: int
    ) -> tuple[list[models.Record], models.ExtendedPointId | None]:
        """A page of points in the order of their ids, and where the next one begins."""
        request = edge.ScrollRequest(
            offset=asked.offset,
            limit=limit,
            filter=_filter(asked.filter),
            with_payload=_fields(True if asked.with_payload is None else asked.with_payload),
            with_vector=asked.with_vector or False,
        )
        with _rejections():
            records, following = self._shards[name].scroll(request)
        return [_record(each) for each in records], None if following is None else _id(following)

    def count(self, name: str, where: models.Filter | None) -> int:
        """How many points pass a filter, exactly."""
        with _rejections():
            found: int = self._shards[name].count(edge.CountRequest(exact=True, filter=_filter(where)))
        return found

    def _update(self, name: str, operation: Request) -> None:
        with _rejections():
            self._shards[name].update(operation)

    def _place(self, name: str) -> Path:
        """The folder of a collection, which may be called anything."""
        return self._folder / blake2b(name.encode(), digest_size=16).hexdigest()


@contextmanager
def _rejections() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:  # it has no class of its own
            raise
        raise EngineError(str(error)) from error


def _vector_params(asked: models.VectorsConfig | None) -> Any:
    if isinstance(asked, models.VectorParams):
        return edge.EdgeVectorParams(asked.size, _DISTANCES[asked.distance], on_disk=asked.on_disk)
    return {name: _vector_params(params) for name, params in (asked or {}).items()}


def _schema(schema: models.PayloadFieldSchema) -> Any:
    if isinstance(schema, models.PayloadSchemaType):
        return getattr(edge.PayloadSchemaType, schema.value.capitalize())
    return getattr(edge, type(schema).__name__)(**schema.model_dump(exclude={"type"}, exclude_none=True))


def _search_params(params: models.SearchParams | None) -> Request:
    if params is None:
        return None
    return edge.SearchParams(hnsw_ef=params.hnsw_ef, exact=bool(params.exact), indexed_only=bool(params.indexed_only))


def _nearest(query: models.QueryInterface) -> Any:
    return query.nearest if isinstance(query, models.NearestQuery) else query


def _fields(selected: Any) -> Any:
    return selected.include if isinstance(selected, models.PayloadSelectorInclude) else selected


def _filter(where: models.Filter | None) -> Request:
    if where is None:
        return None
    return edge.Filter(must=_all(where.must), should=_all(where.should), must_not=_all(where.must_not))


def _all(conditions: Any) -> list[Any] | None:
    """One condition is as good as a list of one; over gRPC, which cannot leave a list out, an empty one is none."""
    if not conditions:
        return None
    return [_condition(each) for each in (conditions if isinstance(conditions, list) else [conditions])]


def _condition(condition: models.Condition) -> Any:
    match condition:
        case models.Filter():
            return _filter(condition)
        case models.FieldCondition():
            return edge.FieldCondition(condition.key, match=_match(condition.match), range=_range(condition.range))
        case models.IsEmptyCondition():
            return edge.IsEmptyCondition(condition.is_empty.key)
        case models.HasIdCondition():
            return edge.HasIdCondition(set(condition.has_id))
        case models.NestedCondition():
            return edge.NestedCondition(condition.nested.key, _filter(condition.nested.filter))
    raise ValueError(f"the stand-in does not know the condition {type(condition).__name__}")


def _match(match: models.Match | None) -> Any:
    if match is None:
        return None
    ((_, value),) = match
    return getattr(edge, type(match).__name__)(value)


def _range(range_: models.RangeInterface | None) -> Any:
    if range_ is None:
        return None
    bounds = {name: bound for name, bound in range_ if bound is not None}
    if isinstance(range_, models.DatetimeRange):
        return edge.RangeDateTime(**{name: bound.isoformat() for name, bound in bounds.items()})
    return edge.RangeFloat(**bounds)


def _record(record: Answer) -> models.Record:
    return models.Record(id=_id(record.id), payload=record.payload, vector=record.vector)


def _scored(point: Answer) -> models.ScoredPoint:
    return models.ScoredPoint(
        id=_id(point.id), version=point.version, score=point.score, payload=point.payload, vector=point.vector
    )


def _id(id_: Any) -> models.ExtendedPointId:
    return id_ if isinstance(id_, int) else str(id_)
