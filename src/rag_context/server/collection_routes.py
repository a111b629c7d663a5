"""`/collections` and `/providers`: from an address to the operation that `api.operations.routes` declares for it.

A name may hold a slash, so an address is cut where it was written with one, before anything is decoded.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette import routing
from starlette.types import Receive, Scope

from rag_context.api.handlers import CallContext, Handler
from rag_context.api.operations.routes import ROUTES, Route
from rag_context.api.parsing import read_fields, read_json
from rag_context.api.wire import WireRequest, WireResponse, id_problem, name_problem
from rag_context.collections.collection_service import CollectionService
from rag_context.collections.provider_connections import CollectionRef
from rag_context.domain.journal import Cause, acting
from rag_context.errors import FieldError, InvalidInputError
from rag_context.memory import accesses
from rag_context.memory.bounded import require_collections
from rag_context.memory.service import Service
from rag_context.server import requests
from rag_context.server.options import ServerOptions

BODIES_AT_ONCE = 4
"""Large bodies, of the greatest size each, that may be in memory at the same time."""

_CHECKS = {"name": name_problem, "id": id_problem}

_BY_SHAPE: dict[tuple[int, str], list[Route[Any]]] = {}
"""Routes by how many steps they have and the last one, which is empty where it is a name."""

for _route in ROUTES:
    _last = "" if _route.steps[-1].startswith("{") else _route.steps[-1]
    _BY_SHAPE.setdefault((len(_route.steps), _last), []).append(_route)


def collection_routes(service: Service, options: ServerOptions) -> list[routing.Route]:
    """The addresses of collections and providers; none where they are not offered."""
    if service.collections is None:
        return []
    handlers = CollectionHandlers(service.collections, service.handlers(), options.collection_body_bytes)
    endpoint = requests.Endpoint(handlers.handle)
    tags = dict.fromkeys(route.tag for route in ROUTES)
    return [routing.Route(path, endpoint) for tag in tags for path in (f"/{tag}", f"/{tag}/{{rest:path}}")]


class CollectionHandlers:
    def __init__(self, service: CollectionService, handlers: Mapping[str, Handler], body_bytes: int) -> None:
        self._service = service
        self._handlers = handlers
        self._budget = _BodyBudget(body_bytes, BODIES_AT_ONCE * body_bytes)

    async def handle(self, scope: Scope, receive: Receive) -> requests.Reply:
        """Answer a request. Raises: RequestRejectedError, InvalidInputError, and what its operation raises."""
        request = requests.http_request(scope)
        route, names = matched(scope["method"], scope["raw_path"])
        requests.require(route.operation.access, request)
        context = CallContext(request.request_id, caller=requests.caller_id(request))
        query = read_query(route, names, requests.query_fields(scope))
        with acting(requests.actor_of(request)):
            if route.is_large:
                with self._budget.reserved(request):
                    answer = await self.perform(route, names, query, await _body(request, receive), context)
            else:
                has_body = route.body is not None and (route.body_required or request.has_body())
                work = self.perform(route, names, query, await _body(request, receive) if has_body else None, context)
                is_abandoned_with_its_caller = route.operation.read_only and route.body is not None
                answer = await (requests.while_connected(receive, work) if is_abandoned_with_its_caller else work)
        return requests.Reply(answer.to_json(), route.status)

    async def perform(
        self, route: Route[Any], names: Mapping[str, str], query: WireRequest, body: bytes | None, context: CallContext
    ) -> WireResponse:
        """Run the operation of an address. Raises: InvalidInputError, and what the operation raises."""
        if route.is_large:  # documents of any number, read from their bytes one by one: no model is made of the whole
            key, about = context.caller.key, [accesses.hashed(names["name"])]
            with accesses.recording(route.operation.name, key=key, client=Cause.now().by, target=about):
                require_collections(context.caller.bounds, CollectionRef(names["name"], dict(query)["connection"]))
                return await self._service.add_json(**names, body=body or b"", **dict(query))
        parts = [query]
        if route.body is not None and body is not None:
            parts.append(read_json(route.body, body))
        return await self._handlers[route.operation.name](route.request(names, *parts), context)


class _BodyBudget:
    """Memory for large bodies, counted before they are read."""

    def __init__(self, largest: int, total: int) -> None:
        self._largest = largest
        self._left = total

    @contextmanager
    def reserved(self, request: requests.HttpRequest) -> Iterator[None]:
        """Memory for one body. Raises: RequestRejectedError where there is none."""
        announced = request.headers.get(b"content-length", b"").strip()
        size = min(int(announced[:20]), self._largest) if announced.isdigit() else self._largest
        if size > self._left:
            raise requests.RequestRejectedError(503, "Too many large requests at once", retry_after_s=1)
        # Counted as announced, before a byte is read: bodies that grow at the same time would exceed it together.
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def matched(method: str, raw_path: bytes) -> tuple[Route[Any], Mapping[str, str]]:
    """The route of a request, and the names in its address. Raises: RequestRejectedError where there is none."""
    steps = _steps(raw_path)
    # All methods of an address: 405 names those that it has, 404 means that there is no such address.
    alike = (*_BY_SHAPE.get((len(steps), ""), ()), *_BY_SHAPE.get((len(steps), steps[-1]), ()))
    fitting = {route.method: (route, names) for route in alike if (names := route.names_in(steps)) is not None}
    if not fitting:
        raise requests.RequestRejectedError(404, "Not found")
    method = "GET" if method == "HEAD" else method
    if method not in fitting:
        allowed = sorted({*fitting, *({"HEAD"} if "GET" in fitting else ())})
        raise requests.RequestRejectedError(405, "Method not allowed", allow=", ".join(allowed))
    return fitting[method]


def read_query(route: Route[Any], names: Mapping[str, str], fields: Mapping[str, str]) -> WireRequest:
    """The query string, once the names in the address are checked. Raises: InvalidInputError."""
    checked = names if route.tag == "collections" else {}
    problems = [
        FieldError(field, f"{field} {problem}")
        for field, value in checked.items()
        if (problem := _CHECKS[field](value))
    ]
    if problems:
        raise InvalidInputError("; ".join(problem.message for problem in problems), problems)
    return read_fields(route.query, fields)


def _steps(raw_path: bytes) -> tuple[str, ...]:
    steps = []
    for part in raw_path.split(b"/")[1:]:
        try:
            steps.append(unquote_to_bytes(part).decode())
        except UnicodeDecodeError:
            message = "The address is not percent-encoded UTF-8"
            raise InvalidInputError(message, [FieldError("", message)]) from None
    return tuple(steps)


async def _body(request: requests.HttpRequest, receive: Receive) -> bytes:
    requests.check_media_type(request, requests.JSON_KINDS, requests.SEND_JSON)
    return await requests.read_body(receive)
