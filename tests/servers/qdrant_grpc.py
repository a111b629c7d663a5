"""The stub for a Qdrant server, spoken to over gRPC: the client library's own services and conversions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
from qdrant_client import grpc as wire
from qdrant_client import models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.grpc.collections_service_pb2_grpc import CollectionsServicer, add_CollectionsServicer_to_server
from qdrant_client.grpc.points_service_pb2_grpc import PointsServicer, add_PointsServicer_to_server

from tests.servers.qdrant import RejectedError, StubServer, rejection_of
from tests.servers.qdrant_engine import EngineError

T = TypeVar("T")

_CODES = {404: grpc.StatusCode.NOT_FOUND, 409: grpc.StatusCode.ALREADY_EXISTS}


class _Services:
    """Answers in the loop of the stub, so that nothing changes it from two threads."""

    def __init__(self, server: StubServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], context: Any) -> T:
        key = dict(context.invocation_metadata()).get("api-key")
        if self.server.api_key not in (None, key):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid API key or JWT")
        try:
            return asyncio.run_coroutine_threadsafe(work(), self._loop).result()
        except (EngineError, RejectedError) as error:
            refusal = rejection_of(error) if isinstance(error, EngineError) else error
            context.abort(_CODES.get(refusal.status, grpc.StatusCode.INVALID_ARGUMENT), refusal.reason)
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError  # `abort` never returns


class _Collections(_Services, CollectionsServicer):
    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        info = self.run(lambda: self.server.describe(request.collection_name), context)
        return wire.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(info))

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = models.CreateCollection(
            vectors=GrpcToRest.convert_vectors_config(request.vectors_config),
            shard_number=request.shard_number or None,
            replication_factor=request.replication_factor or None,
            on_disk_payload=request.on_disk_payload,
            quantization_config=GrpcToRest.convert_quantization_config(request.quantization_config)
            if request.HasField("quantization_config")
            else None,
        )
        made = self.run(lambda: self.server.create(request.collection_name, asked), context)
        return wire.CollectionOperationResponse(result=made)

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        gone = self.run(lambda: self.server.remove(request.collection_name), context)
        return wire.CollectionOperationResponse(result=gone)

    def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        async def work() -> list[str]:
            return list(self.server.made)

        names = self.run(work, context)
        return wire.ListCollectionsResponse(collections=[wire.CollectionDescription(name=name) for name in names])


class _Points(_Services, PointsServicer):
    def CreateFieldIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        params = request.field_index_params
        schema = GrpcToRest.convert_payload_schema_params(params)
        asked = models.CreateFieldIndex(field_name=request.field_name, field_schema=schema)
        return _done(self.run(lambda: self.server.index(request.collection_name, asked), context))

    def Upsert(self, request: Any, context: Any) -> Any:  # noqa: N802
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        return _done(self.run(lambda: self.server.upsert(request.collection_name, points), context))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        selector = GrpcToRest.convert_points_selector(request.points)
        return _done(self.run(lambda: self.server.delete(request.collection_name, selector), context))

    def SetPayload(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = models.SetPayload(
            payload=GrpcToRest.convert_payload(request.payload),
            points=[GrpcToRest.convert_point_id(each) for each in request.points_selector.points.ids],
            key=request.key if request.HasField("key") else None,
        )
        return _done(self.run(lambda: self.server.set_payload(request.collection_name, asked), context))

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = models.PointRequest(
            ids=[GrpcToRest.convert_point_id(each) for each in request.ids],
            with_payload=GrpcToRest.convert_with_payload_selector(request.with_payload),
            with_vector=GrpcToRest.convert_with_vectors_selector(request.with_vectors),
        )
        found = self.run(lambda: self.server.retrieve(request.collection_name, asked), context)
        return wire.GetResponse(result=[_record(each) for each in found])

    def Query(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = GrpcToRest.convert_query_points(request)
        found = self.run(lambda: self.server.query(request.collection_name, asked), context)
        return wire.QueryResponse(result=[_scored(each) for each in found.points])

    def Scroll(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = models.ScrollRequest(
            filter=GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None,
            limit=request.limit,
            offset=GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None,
            with_payload=GrpcToRest.convert_with_payload_selector(request.with_payload),
            with_vector=GrpcToRest.convert_with_vectors_selector(request.with_vectors),
        )
        page = self.run(lambda: self.server.scroll(request.collection_name, asked), context)
        following = page.next_page_offset
        return wire.ScrollResponse(
            result=[_record(each) for each in page.points],
            next_page_offset=None if following is None else RestToGrpc.convert_extended_point_id(following),
        )

    def Count(self, request: Any, context: Any) -> Any:  # noqa: N802
        where = GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None
        found = self.run(lambda: self.server.count(request.collection_name, where), context)
        return wire.CountResponse(result=RestToGrpc.convert_count_result(found))


def _record(record: models.Record) -> Any:
    return RestToGrpc.convert_retrieved_point(record.model_copy(update={"payload": record.payload or {}}))


def _scored(point: models.ScoredPoint) -> Any:
    return RestToGrpc.convert_scored_point(point.model_copy(update={"payload": point.payload or {}}))


def _done(result: models.UpdateResult) -> Any:
    return wire.PointsOperationResponse(result=RestToGrpc.convert_update_result(result))


@contextmanager
def serving(server: StubServer, loop: asyncio.AbstractEventLoop, port: int = 0) -> Iterator[int]:
    """Answer for `server`, which lives in `loop`, on a port of 127.0.0.1 until the block ends; yields the port."""
    listening = grpc.server(ThreadPoolExecutor(4))
    add_CollectionsServicer_to_server(_Collections(server, loop), listening)  # type: ignore[no-untyped-call]
    add_PointsServicer_to_server(_Points(server, loop), listening)  # type: ignore[no-untyped-call]
    taken = listening.add_insecure_port(f"127.0.0.1:{port}")
    listening.start()
    try:
        yield taken
    finally:
        listening.stop(grace=None).wait()
