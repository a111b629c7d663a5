"""`/collections` and `/providers`: addresses to use cases.

A name may hold a slash, so an address is cut where it was written with one, before anything is decoded.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.routing import Route
from starlette.types import Receive, Scope

from rag_context.api.collection_fields import (
    ConnectionFields,
    DeleteFields,
    DocumentsFields,
    MetadataFields,
    NoFields,
    ValuesFields,
)
from rag_context.api.collections import CreateCollectionRequest, MetadataRequest, QueryRequest
from rag_context.api.documents import RESERVED_ID
from rag_context.api.failure import ErrorCode
from rag_context.api.operations import Access
from rag_context.api.providers import TestRequest
from rag_context.api.reading import read_fields, read_json
from rag_context.api.wire import WireRequest, WireResponse, id_problem, name_problem
from rag_context.errors import FieldError, InvalidInputError
from rag_context.server.endpoint import JSON_KINDS, SEND_JSON, Endpoint, check_media_type, may_write, query_fields
from rag_context.server.messages import Exchange, RefusalError, Reply, exchange, read_body, while_connected
from rag_context.server.options import ServerOptions
from rag_context.service.collections import CollectionService

DOCUMENT_WRITES = re.compile(r"/collections/.+/documents")
"""Addresses whose bodies may be large."""

BODIES_AT_ONCE = 4
"""Large bodies, of the greatest size each, that may be in memory at the same time."""

Request = TypeVar("Request", bound=WireRequest)


def collection_routes(collections: CollectionService | None, options: ServerOptions) -> list[Route]:
    """The addresses of collections and providers; none where they are not offered."""
    if collections is None:
        return []
    return CollectionDoors(collections, options.collection_body_bytes).routes()


@dataclass(frozen=True, slots=True)
class _Visit:
    """A request for a collection, its address taken apart."""

    names: tuple[str, ...]
    fields: Any
    opened: Exchange
    receive: Receive

    async def body(self) -> bytes:
        check_media_type(self.opened, JSON_KINDS, SEND_JSON)
        return await read_body(self.receive)

    async def read(self, model: type[Request]) -> Request:
        return read_json(model, await self.body())


@dataclass(frozen=True, slots=True)
class _Door:
    """What one method of one address does. `fields` is what may stand in its query string."""

    fields: type[WireRequest]
    access: Access
    run: Callable[[_Visit], Awaitable[WireResponse]]
    status: int = 200


class CollectionDoors:
    """The endpoints of collections and providers.

    Args:
        service: the use cases.
        body_bytes: greatest size of a body of documents.
    """

    def __init__(self, service: CollectionService, body_bytes: int) -> None:
        self._service = service
        self._room = _Room(body_bytes, BODIES_AT_ONCE * body_bytes)
        read, write = Access.READ, Access.WRITE
        self._doors: Mapping[tuple[str, ...], Mapping[str, _Door]] = {
            ("collections",): {
                "GET": _Door(ConnectionFields, read, self._list),
                "POST": _Door(ConnectionFields, write, self._create, status=201),
            },
            ("collections", "*"): {
                "GET": _Door(ConnectionFields, read, self._get),
                "DELETE": _Door(ConnectionFields, write, self._drop),
            },
            ("collections", "*", "metadata"): {"PUT": _Door(MetadataFields, write, self._put_metadata)},
            ("collections", "*", "documents"): {
                "GET": _Door(DocumentsFields, read, self._documents),
                "POST": _Door(ConnectionFields, write, self._add),
                "DELETE": _Door(DeleteFields, write, self._delete_matching),
            },
            ("collections", "*", "documents", "*"): {"DELETE": _Door(ConnectionFields, write, self._delete)},
            ("collections", "*", "documents", "*", "metadata"): {"PUT": _Door(MetadataFields, write, self._update)},
            ("collections", "*", "metadata-values"): {"GET": _Door(ValuesFields, read, self._values)},
            ("collections", "*", "query"): {"POST": _Door(ConnectionFields, read, self._query)},
            ("providers",): {"GET": _Door(NoFields, read, self._providers)},
            ("providers", "*"): {"GET": _Door(NoFields, read, self._provider)},
            ("providers", "*", "test"): {"POST": _Door(NoFields, write, self._test)},
        }

    def routes(self) -> list[Route]:
        """Everything below the two words."""
        endpoint = Endpoint(self._enter)
        return [
            Route(address, endpoint)
            for word in ("/collections", "/providers")
            for address in (word, f"{word}/{{rest:path}}")
        ]

    async def _enter(self, scope: Scope, receive: Receive) -> Reply:
        opened = exchange(scope)
        steps = _steps(scope)
        doors, names = self._found(steps)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        door = doors.get(method)
        if door is None:
            raise RefusalError(405, ErrorCode.METHOD_NOT_ALLOWED, "Method not allowed", allow=_allowed(doors))
        if door.access is Access.WRITE:
            may_write(opened)
        if steps[0] == "collections":
            _check_names(names)
        fields = read_fields(door.fields, query_fields(scope))
        answer = await door.run(_Visit(names, fields, opened, receive))
        return Reply(answer.to_json(), door.status)

    def _found(self, steps: tuple[str, ...]) -> tuple[Mapping[str, _Door], tuple[str, ...]]:
        for pattern, doors in self._doors.items():
            if len(pattern) == len(steps) and all(
                known in ("*", step) for known, step in zip(pattern, steps, strict=True)
            ):
                return doors, tuple(step for known, step in zip(pattern, steps, strict=True) if known == "*")
        raise RefusalError(404, ErrorCode.NOT_FOUND, "Not found")

    async def _list(self, visit: _Visit) -> WireResponse:
        return await self._service.listing(connection=visit.fields.connection)

    async def _create(self, visit: _Visit) -> WireResponse:
        request = await visit.read(CreateCollectionRequest)
        return await self._service.create(request, connection=visit.fields.connection)

    async def _get(self, visit: _Visit) -> WireResponse:
        return await self._service.get(visit.names[0], connection=visit.fields.connection)

    async def _drop(self, visit: _Visit) -> WireResponse:
        return await self._service.drop(visit.names[0], connection=visit.fields.connection)

    async def _put_metadata(self, visit: _Visit) -> WireResponse:
        request = await visit.read(MetadataRequest)
        put = self._service.merge_metadata if visit.fields.merge else self._service.replace_metadata
        return await put(visit.names[0], request, connection=visit.fields.connection)

    async def _add(self, visit: _Visit) -> WireResponse:
        with self._room.taken(visit.opened):
            body = await visit.body()
            return await self._service.add_json(visit.names[0], body, connection=visit.fields.connection)

    async def _documents(self, visit: _Visit) -> WireResponse:
        asked: DocumentsFields = visit.fields
        return await self._service.documents(
            visit.names[0],
            where=asked.where,
            limit=asked.limit,
            offset=asked.offset,
            ids=asked.id_list(),
            embeddings=asked.include is not None,
            connection=asked.connection,
        )

    async def _delete(self, visit: _Visit) -> WireResponse:
        name, id_ = visit.names
        if id_ == RESERVED_ID:
            return await self._service.empty(name, connection=visit.fields.connection)
        return await self._service.delete(name, id_, connection=visit.fields.connection)

    async def _delete_matching(self, visit: _Visit) -> WireResponse:
        asked: DeleteFields = visit.fields
        return await self._service.delete_matching(
            visit.names[0],
            asked.where,
            dry_run=asked.dry_run,
            confirm=asked.confirm,
            connection=asked.connection,
        )

    async def _update(self, visit: _Visit) -> WireResponse:
        name, id_ = visit.names
        request = await visit.read(MetadataRequest)
        asked: MetadataFields = visit.fields
        return await self._service.update(name, id_, request, merge=asked.merge, connection=asked.connection)

    async def _values(self, visit: _Visit) -> WireResponse:
        return await self._service.values(visit.names[0], visit.fields.field, connection=visit.fields.connection)

    async def _query(self, visit: _Visit) -> WireResponse:
        request = read_json(QueryRequest, await visit.body())
        answer = self._service.query(visit.names[0], request, connection=visit.fields.connection)
        return await while_connected(visit.receive, answer)

    async def _providers(self, _visit: _Visit) -> WireResponse:
        return await self._service.providers.listing()

    async def _provider(self, visit: _Visit) -> WireResponse:
        return await self._service.providers.get(visit.names[0])

    async def _test(self, visit: _Visit) -> WireResponse:
        request = await visit.read(TestRequest) if visit.opened.has_body() else TestRequest()
        return await self._service.providers.test(visit.names[0], request)


class _Room:
    """Memory for large bodies, counted before they are read."""

    def __init__(self, largest: int, whole: int) -> None:
        self._largest = largest
        self._left = whole

    @contextmanager
    def taken(self, opened: Exchange) -> Iterator[None]:
        """Room for one body. Raises: RefusalError where there is none."""
        announced = opened.headers.get(b"content-length", b"").strip()
        size = min(int(announced[:20]), self._largest) if announced.isdigit() else self._largest
        if size > self._left:
            raise RefusalError(503, ErrorCode.SERVICE_UNAVAILABLE, "Too many large requests at once", retry_after="1")
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def _steps(scope: Scope) -> tuple[str, ...]:
    """The parts of the address, decoded one by one."""
    steps = []
    for part in scope["raw_path"].split(b"/")[1:]:
        try:
            steps.append(unquote_to_bytes(part).decode())
        except UnicodeDecodeError:
            said = "The address is not percent-encoded UTF-8"
            raise InvalidInputError(said, [FieldError("", said)]) from None
    return tuple(steps)


def _check_names(names: tuple[str, ...]) -> None:
    checks = zip(("name", "id"), names, (name_problem, id_problem), strict=False)
    problems = [FieldError(field, f"{field} {problem}") for field, value, of in checks if (problem := of(value))]
    if problems:
        raise InvalidInputError("; ".join(problem.message for problem in problems), problems)


def _allowed(doors: Mapping[str, _Door]) -> str:
    methods = {*doors, *({"HEAD"} if "GET" in doors else ())}
    return ", ".join(sorted(methods))
