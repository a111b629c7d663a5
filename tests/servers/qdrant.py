"""A stand-in for a Qdrant server: its endpoints, over Qdrant's own engine in this process.

    python -m tests.servers.qdrant --port 6333 [--grpc-port 6334] [--api-key KEY]    serve on 127.0.0.1 until killed

It answers as Qdrant does, errors included, and records the requests. There is one node, which has one copy of
everything, and no optimiser in the background: below some thousands of vectors nothing would be built by it either.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import uvicorn
from pydantic import BaseModel, TypeAdapter, ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import QueryResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.servers.qdrant_engine import Engine, EngineError

VERSION = "1.19.0"


class RejectedError(Exception):
    """What the server says no with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def rejection_of(error: EngineError) -> RejectedError:
    """What the server makes of the engine's errors."""
    reason = str(error)
    if reason.startswith("No point with id"):
        return RejectedError(404, f"Not found: {reason} found")
    return RejectedError(400, f"Wrong input: {reason}")


@dataclass
class StubServer:
    """A server's contents, and the calls that changed or read them: method, path, body."""

    api_key: str | None = None
    engine: Engine = field(default_factory=Engine)
    made: dict[str, models.CreateCollection] = field(default_factory=dict)
    indexes: dict[str, dict[str, models.PayloadIndexInfo]] = field(default_factory=dict)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    parameters: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """The query strings of the calls."""

    statuses: list[models.UpdateStatus] = field(default_factory=list)
    """What the next updates are answered with, which are not done before an update is answered otherwise."""

    version: str = VERSION

    async def reset(self) -> None:
        """Forget everything."""
        for name in list(self.made):
            await self.remove(name)
        self.calls.clear()
        self.parameters.clear()

    async def create(self, name: str, asked: models.CreateCollection) -> bool:
        if name in self.made:
            raise RejectedError(409, f"Wrong input: Collection `{name}` already exists!")
        self.engine.create(name, asked)
        self.made[name], self.indexes[name] = asked, {}
        return True

    async def remove(self, name: str) -> bool:
        self.indexes.pop(name, None)
        if self.made.pop(name, None) is None:
            return False
        self.engine.drop(name)
        return True

    async def index(self, name: str, asked: models.CreateFieldIndex) -> models.UpdateResult:
        schema = asked.field_schema
        if schema is None:
            raise RejectedError(400, "Wrong input: the type of the index is needed")
        self.engine.index(self.known(name), asked.field_name, schema)
        kind = schema if isinstance(schema, models.PayloadSchemaType) else models.PayloadSchemaType(schema.type.value)
        params = None if isinstance(schema, models.PayloadSchemaType) else schema
        self.indexes[name][asked.field_name] = models.PayloadIndexInfo(data_type=kind, params=params, points=0)
        return _DONE

    async def describe(self, name: str) -> models.CollectionInfo:
        info, asked = self.engine.describe(self.known(name)), self.made[name]
        return models.CollectionInfo(
            status=models.CollectionStatus.GREEN,
            optimizer_status=models.OptimizersStatusOneOf.OK,
            points_count=info.points_count,
            indexed_vectors_count=info.indexed_vectors_count,
            segments_count=info.segments_count,
            config=models.CollectionConfig(
                params=models.CollectionParams(
                    vectors=asked.vectors,
                    shard_number=asked.shard_number or 1,
                    replication_factor=asked.replication_factor or 1,
                    on_disk_payload=asked.on_disk_payload,
                ),
                hnsw_config=models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10000),
                optimizer_config=models.OptimizersConfig(
                    deleted_threshold=0.2, vacuum_min_vector_number=1000, default_segment_number=0, flush_interval_sec=5
                ),
                wal_config=models.WalConfig(wal_capacity_mb=32, wal_segments_ahead=0),
                quantization_config=asked.quantization_config,
            ),
            payload_schema=self.indexes[name],
        )

    async def upsert(self, name: str, points: Sequence[models.PointStruct]) -> models.UpdateResult:
        self.engine.upsert(self.known(name), points)
        return self.updated()

    async def delete(self, name: str, selector: models.PointsSelector) -> models.UpdateResult:
        self.engine.delete(self.known(name), selector)
        return self.updated()

    def updated(self) -> models.UpdateResult:
        """An update's answer: as a busy server gives it, where one is requested."""
        return _DONE.model_copy(update={"status": self.statuses.pop(0)}) if self.statuses else _DONE

    async def retrieve(self, name: str, asked: models.PointRequest) -> list[models.Record]:
        with_payload = True if asked.with_payload is None else asked.with_payload
        return self.engine.retrieve(self.known(name), asked.ids, with_payload, asked.with_vector or False)

    async def query(self, name: str, asked: models.QueryRequest) -> QueryResponse:
        return QueryResponse(points=self.engine.query(self.known(name), asked, _at_least_one(asked.limit)))

    async def scroll(self, name: str, asked: models.ScrollRequest) -> models.ScrollResult:
        points, following = self.engine.scroll(self.known(name), asked, _at_least_one(asked.limit))
        return models.ScrollResult(points=points, next_page_offset=following)

    async def count(self, name: str, where: models.Filter | None) -> models.CountResult:
        return models.CountResult(count=self.engine.count(self.known(name), where))

    async def set_payload(self, name: str, asked: models.SetPayload) -> models.UpdateResult:
        self.engine.set_payload(self.known(name), asked.payload, asked.points or [], asked.key)
        return _DONE

    def known(self, name: str) -> str:
        if name not in self.made:
            raise RejectedError(404, f"Not found: Collection `{name}` doesn't exist!")
        return name


_DONE = models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)

Operation: TypeAlias = Callable[[StubServer, str, bytes], Awaitable[object]]


async def _create(server: StubServer, name: str, body: bytes) -> object:
    return await server.create(name, models.CreateCollection.model_validate_json(body))


async def _describe(server: StubServer, name: str, body: bytes) -> object:
    return await server.describe(name)


async def _remove(server: StubServer, name: str, body: bytes) -> object:
    return await server.remove(name)


async def _exists(server: StubServer, name: str, body: bytes) -> object:
    return {"exists": name in server.made}


async def _index(server: StubServer, name: str, body: bytes) -> object:
    return await server.index(name, models.CreateFieldIndex.model_validate_json(body))


async def _upsert(server: StubServer, name: str, body: bytes) -> object:
    asked = models.PointsList.model_validate_json(body)
    return await server.upsert(name, asked.points)


async def _delete(server: StubServer, name: str, body: bytes) -> object:
    selector: models.PointsSelector = TypeAdapter(models.PointsSelector).validate_json(body)
    return await server.delete(name, selector)


async def _set_payload(server: StubServer, name: str, body: bytes) -> object:
    return await server.set_payload(name, models.SetPayload.model_validate_json(body))


async def _retrieve(server: StubServer, name: str, body: bytes) -> object:
    return await server.retrieve(name, models.PointRequest.model_validate_json(body))


async def _query(server: StubServer, name: str, body: bytes) -> object:
    return await server.query(name, models.QueryRequest.model_validate_json(body))


async def _query_batch(server: StubServer, name: str, body: bytes) -> object:
    return [await server.query(name, asked) for asked in models.QueryRequestBatch.model_validate_json(body).searches]


async def _scroll(server: StubServer, name: str, body: bytes) -> object:
    return await server.scroll(name, models.ScrollRequest.model_validate_json(body))


async def _count(server: StubServer, name: str, body: bytes) -> object:
    return await server.count(name, models.CountRequest.model_validate_json(body).filter)


async def _list(server: StubServer, name: str, body: bytes) -> object:
    return {"collections": [{"name": each} for each in server.made]}


async def _reset(server: StubServer, name: str, body: bytes) -> object:
    await server.reset()
    return True


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/collections"): _list,
    ("PUT", "/collections/{name}"): _create,
    ("GET", "/collections/{name}"): _describe,
    ("DELETE", "/collections/{name}"): _remove,
    ("GET", "/collections/{name}/exists"): _exists,
    ("PUT", "/collections/{name}/index"): _index,
    ("PUT", "/collections/{name}/points"): _upsert,
    ("POST", "/collections/{name}/points"): _retrieve,
    ("POST", "/collections/{name}/points/delete"): _delete,
    ("POST", "/collections/{name}/points/payload"): _set_payload,
    ("POST", "/collections/{name}/points/query"): _query,
    ("POST", "/collections/{name}/points/query/batch"): _query_batch,
    ("POST", "/collections/{name}/points/scroll"): _scroll,
    ("POST", "/collections/{name}/points/count"): _count,
    ("POST", "/reset"): _reset,
}
"""Qdrant's own, and one more: `/reset` forgets everything."""


def create_app(server: StubServer) -> Starlette:
    """The stub as an ASGI application."""
    routes = [
        Route(path, _endpoint(server, operation), methods=[method]) for (method, path), operation in OPERATIONS.items()
    ]
    routes.append(
        Route("/", lambda _: JSONResponse({"title": "qdrant - vector search engine", "version": server.version}))
    )
    routes.append(Route("/healthz", lambda _: PlainTextResponse("healthz check passed")))
    routes.append(Route("/readyz", lambda _: PlainTextResponse("all shards are ready")))
    return Starlette(routes=routes)


def _endpoint(server: StubServer, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        key = request.headers.get("api-key")
        if server.api_key is not None and key is None:
            return PlainTextResponse("Must provide an API key or an Authorization bearer token", 401)
        if server.api_key is not None and key != server.api_key:
            return PlainTextResponse("Invalid API key or JWT", 401)
        body = await request.body()
        server.calls.append((request.method, request.url.path, json.loads(body) if body else None))
        server.parameters.append((request.method, request.url.path, dict(request.query_params)))
        try:
            result = await operation(server, request.path_params.get("name", ""), body)
        except (EngineError, RejectedError) as error:
            refusal = rejection_of(error) if isinstance(error, EngineError) else error
            return _error(refusal.status, refusal.reason)
        except ValidationError as error:
            return _error(400, f"Format error in JSON body: {error.errors()[0]['msg']}")
        except ValueError as error:
            return _error(400, str(error))
        return JSONResponse({"result": _plain(result), "status": "ok", "time": 0.0001})

    return answer


def _error(status: int, reason: str) -> Response:
    return JSONResponse({"status": {"error": reason}, "time": 0.0001}, status)


def _plain(result: object) -> object:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", exclude_none=True)
    return [_plain(each) for each in result] if isinstance(result, list) else result


def _at_least_one(limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise RejectedError(422, f"Validation error in JSON body: [limit: value {limit} invalid, must be 1 or larger]")
    return 10 if limit is None else limit


@dataclass(frozen=True)
class Running:
    """A stub that listens, and where."""

    url: str
    grpc_port: int
    server: StubServer

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """The calls over HTTP so far: method, path, body."""
        return self.server.calls


@contextmanager
def running(api_key: str | None = None, port: int = 0, grpc_port: int = 0) -> Iterator[Running]:
    """Serve on 127.0.0.1, on free ports where none are named, in threads of its own until the block ends."""
    from tests.servers.qdrant_grpc import serving

    listener = socket.create_server(("127.0.0.1", port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits for an acknowledgement
    loop = asyncio.new_event_loop()
    stub_server = StubServer(api_key)
    server = uvicorn.Server(uvicorn.Config(create_app(stub_server), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(sockets=[listener])))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        with serving(stub_server, loop, grpc_port) as taken:
            yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", taken, stub_server)
    finally:
        server.should_exit = True
        thread.join()
        loop.close()
        stub_server.engine.close()


@dataclass(frozen=True)
class Endpoint:
    """Where a Qdrant answers, real or not."""

    url: str
    grpc_port: int
    api_key: str | None = None
    is_real: bool = False


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """The real server at RAG_TEST_QDRANT_URL, where that is set; else a stub."""
    url = os.environ.get("RAG_TEST_QDRANT_URL")
    if url is not None:
        port = int(os.environ.get("RAG_TEST_QDRANT_GRPC_PORT", "6334"))
        yield Endpoint(url, port, os.environ.get("RAG_TEST_QDRANT_API_KEY"), is_real=True)
        return
    with running() as stub_server:
        yield Endpoint(stub_server.url, stub_server.grpc_port)


OF_TESTS = "test-"
"""How the names of collections begin that tests create; no other one is removed."""


@contextmanager
def real_server_as_found() -> Iterator[None]:
    """Remove from the real server, where one is used, what a test created: tests see all collections that are there."""
    url = os.environ.get("RAG_TEST_QDRANT_URL")
    if url is None:
        yield
        return
    client = QdrantClient(url, api_key=os.environ.get("RAG_TEST_QDRANT_API_KEY"), check_compatibility=False)
    try:
        found = _collections(client)
        yield
        for name in _collections(client) - found:
            if name.startswith(OF_TESTS):
                client.delete_collection(name)
    finally:
        client.close()


def _collections(client: QdrantClient) -> set[str]:
    return {each.name for each in client.get_collections().collections}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A stand-in for a Qdrant server, in memory.")
    parser.add_argument("--port", type=int, default=6333)
    parser.add_argument("--grpc-port", type=int, default=6334)
    parser.add_argument("--api-key")
    asked = parser.parse_args()
    with running(asked.api_key, asked.port, asked.grpc_port) as stub_server:
        print(stub_server.url, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    import_module("tests.servers.qdrant").main()  # under the name by which the gRPC half knows its errors
