"""The workers of one server to each other: what only the first can do is sent on to it, and one reports for all.

The first worker follows the files of projects, knows who has activated which, and does the work on the whole index. A
request reaches it as it came, checked and with its caller: ASGI's own scope and messages, pickled, over a socket file
in a folder of this user's. The worker that reports health or metrics requests those of the others in the same way.
"""

import asyncio
import json
import logging
import pickle
import struct
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.api.handlers import Handler
from rag_context.api.maintenance import ComponentHealth, HealthResponse
from rag_context.api.operations import Access
from rag_context.api.operations.memory import HEALTH, REINDEX
from rag_context.api.operations.routes import OPERATIONS, ROUTES
from rag_context.api.toolsets import Toolset
from rag_context.domain.documents import Status
from rag_context.memory.meters import METRICS
from rag_context.memory.service import Service
from rag_context.server import failures, middleware, requests, supervisor
from rag_context.server.options import ANYONE, ServerOptions

FIRST = 1

_LENGTH = struct.Struct("!Q")
_CALLER = "rag_context.caller"
_HOP = frozenset({b"connection", b"x-request-id"})
"""Headers of a connection, not of what is sent on; ids are set on both sides."""

_FIRST_ONLY = frozenset(
    each.name
    for each in OPERATIONS.values()
    if each.toolset is Toolset.PROJECTS
    or (each.toolset is Toolset.COLLECTIONS and each.access is Access.WRITE)
    or each is REINDEX
)
"""Operations of the first worker: projects, and what must not run beside the reindexing of a collection."""


class Forwarding:
    def __init__(self, routes: ASGIApp, file: Path) -> None:
        self._routes = routes
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
        elif _is_addressed_to_first(scope):
            await exchange(self._file, scope, receive, send)
        elif scope["path"] == "/mcp" or scope["path"].startswith("/tools/"):
            # The body names the tool and its project, so it is read here, and given once more to what answers.
            body = await requests.read_body(receive) if scope["method"] == "POST" else b""
            replayed = _replayed(body, receive) if scope["method"] == "POST" else receive
            if needs_first(scope["path"], scope["query_string"], body):
                await exchange(self._file, scope, replayed, send)
            else:
                await self._routes(scope, replayed, send)
        else:
            await self._routes(scope, receive, send)


def _is_addressed_to_first(scope: Scope) -> bool:
    """Whether the address alone says it. Lines of a stream may name projects, so the stream goes as a whole."""
    path, method = scope["path"], scope["method"]
    if path == "/bulk":
        return True
    return any(
        route.method == method and route.operation.name in _FIRST_ONLY and route.pattern.fullmatch(path)
        for route in ROUTES
    )


def needs_first(path: str, query: bytes, body: bytes) -> bool:
    """Whether a call of a tool, over HTTP or MCP, is for the first worker: by its name, or because it names a project.

    What cannot be read is not: any worker rejects it.
    """
    arguments: Any = dict(parse_qsl(query.decode("latin-1")))
    with suppress(ValueError, RecursionError):
        arguments = json.loads(body) if body else arguments
    name: Any = path.removeprefix("/tools/")
    if path == "/mcp":
        match arguments:
            case {"method": "tools/call", "params": {"name": name, **params}}:
                arguments = params.get("arguments")
            case _:
                return False
    names_project = isinstance(arguments, dict) and arguments.get("project") is not None
    return isinstance(name, str) and name in OPERATIONS and (name in _FIRST_ONLY or names_project)


def _replayed(body: bytes, receive: Receive) -> Receive:
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return rest.pop() if rest else await receive()

    return replay


async def exchange(file: Path, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a request to the worker behind a socket file, and its answer to the client, both as they come.

    The receipts of a stream of documents come while it is still sent.

    Raises:
        RequestRejectedError: the worker is not there, or ended before it answered; or the body was rejected.
        ClientGoneError: the client has gone.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(file)
    except OSError:
        raise _unavailable("is being started again") from None
    sending = asyncio.create_task(_send_request(scope, receive, writer))
    relaying = asyncio.create_task(_relay(reader, send))
    try:
        # The request ends by an exception only: of its body, or because the client goes away.
        await asyncio.wait({sending, relaying}, return_when=asyncio.FIRST_COMPLETED)
        (relaying if relaying.done() else sending).result()
    finally:
        for task in (sending, relaying):
            task.cancel()
        # Both have ended before the connection is closed: neither uses it after that.
        await asyncio.wait({sending, relaying})
        writer.close()


def _unavailable(what: str) -> requests.RequestRejectedError:
    message = f"The worker that does this {what}: try again"
    return requests.RequestRejectedError(503, message, retry_after_s=1)


def _packed(content: object) -> bytes:
    packed = pickle.dumps(content)
    return _LENGTH.pack(len(packed)) + packed


async def _next(reader: asyncio.StreamReader) -> Any:
    """What the other side sent next; None where it has ended."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(size))  # noqa: S301  (from a process of ours, over a file of ours)
    except (OSError, asyncio.IncompleteReadError):
        return None


def _onward(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _HOP]


async def _send_request(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    request = requests.http_request(scope)
    # Keys were compared where the request came in; the other worker takes the result.
    caller = (request.caller, request.caller is ANYONE)
    headers = [*_onward(scope["headers"]), (b"x-request-id", request.request_id.encode())]
    plain = {name: value for name, value in scope.items() if name not in {"app", "state"}}
    try:
        writer.write(_packed({**plain, "headers": headers, _CALLER: caller}))
        while (message := await receive())["type"] == "http.request":
            writer.write(_packed(message))
            await writer.drain()
    except OSError:  # the other side has ended, or has answered already: what it sent says which
        await asyncio.Event().wait()
    raise requests.ClientGoneError


async def _relay(reader: asyncio.StreamReader, send: Send) -> None:
    message: Message | None = None
    while message is None or message["type"] == "http.response.start" or message.get("more_body", False):
        has_begun, message = message is not None, await _next(reader)
        if message is None:
            if not has_begun:
                raise _unavailable("ended before it answered")
            raise ConnectionAbortedError("a worker ended in the middle of an answer")
        if not has_begun:
            message = {**message, "headers": _onward(message.get("headers", ()))}
        await send(message)


TIMEOUT_S = 2.0
"""Longest wait for the health or the metrics of another worker."""

_LABEL = "worker"


class Peers:
    def __init__(self, slot: supervisor.WorkerSlot) -> None:
        self.number = slot.number
        self.count = slot.count
        self._folder = slot.folder

    def file(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def front(self, routes: ASGIApp) -> ASGIApp:
        return routes if self.number == FIRST else Forwarding(routes, self.file(FIRST))

    async def each(self, own: bytes, path: str) -> dict[int, bytes | None]:
        """The answer of every worker to a GET, with this one's own; None where one does not answer."""
        others = [number for number in range(1, self.count + 1) if number != self.number]
        answers = await asyncio.gather(*(self._get(number, path) for number in others))
        return dict(sorted([(self.number, own), *zip(others, answers, strict=True)]))

    async def _get(self, number: int, path: str) -> bytes | None:
        status, parts = 0, []

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        scope: Scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        requests.attach_request(scope, requests.HttpRequest("", {}))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await exchange(self.file(number), scope, receive, send)
        except (requests.RequestRejectedError, OSError, requests.ClientGoneError):
            return None
        return b"".join(parts) if status == HTTPStatus.OK else None


class _Shared:
    """A service whose health and metrics are those of all workers. All else is the worker's own service."""

    def __init__(self, own: Service, peers: Peers) -> None:
        self._own = own
        self._peers = peers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def handlers(self) -> dict[str, Handler]:
        return {**self._own.handlers(), HEALTH.name: lambda _request, _context: self.health()}

    async def health(self) -> HealthResponse:
        own = await self._own.health()
        reports = await self._peers.each(own.to_json(), "/health")
        workers = [self._component(number, body) for number, body in reports.items()]
        return own.model_copy(
            update={
                "healthy": own.healthy and all(each.status is Status.HEALTHY for each in workers),
                "components": [*own.components, *workers],
            }
        )

    async def prometheus(self) -> bytes:
        return labelled(await self._peers.each(await self._own.prometheus(), "/metrics"))

    def _component(self, number: int, body: bytes | None) -> ComponentHealth:
        report = None if body is None else HealthResponse.model_validate_json(body)
        name, role = f"worker {number}", f"server process {number} of {self._peers.count}"
        if report is None:
            return ComponentHealth(name=name, role=role, status=Status.UNAVAILABLE, detail="it does not answer")
        problems = ["its circuit breaker is open"] if report.circuit_breaker_open else []
        problems += [f"{each.name}: {each.detail}" for each in report.components if each.status is not Status.HEALTHY]
        return ComponentHealth(
            name=name,
            role=role,
            status=Status.HEALTHY if report.healthy else Status.DEGRADED,
            latency_ms=report.latency,
            detail="; ".join(problems) or None,
        )


def shared(service: Service, peers: Peers) -> Service:
    return cast("Service", _Shared(service, peers))


@dataclass(frozen=True, eq=False)
class _Families(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def labelled(texts: dict[int, bytes | None]) -> bytes:
    """The metrics of several workers in one text, with the label `worker`; `rag_worker_up` says which answered."""
    declared = METRICS["rag_worker_up"]
    up = GaugeMetricFamily(declared.name, declared.description, labels=declared.labels)
    families: dict[str, Metric] = {}
    for number, text in texts.items():
        up.add_metric([str(number)], float(text is not None))
        for family in text_string_to_metric_families(text.decode() if text is not None else ""):
            samples = [each._replace(labels={_LABEL: str(number), **each.labels}) for each in family.samples]
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type)).samples += samples
    registry = CollectorRegistry()
    registry.register(_Families([up, *families.values()]))
    return generate_latest(registry)


_quiet = logging.getLogger("rag_context.access.inner")
_quiet.setLevel(logging.WARNING)
"""A request of another worker is in the log once, where it came in."""


def answering(
    service: Service, routes: ASGIApp, options: ServerOptions
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
    """What answers the other workers: this worker's own state, and what they send on."""

    async def trusted(scope: Scope, receive: Receive, send: Send) -> None:
        caller, is_anyone = scope[_CALLER]
        requests.http_request(scope).caller = ANYONE if is_anyone else caller
        scope["app"] = trusted  # which lets the router raise what it does not know
        # Its own state only: a report that requested those of the other workers here would never end.
        if scope["path"] == "/health":
            await requests.Reply((await service.health()).to_json()).send(send)
        elif scope["path"] == "/metrics":
            await requests.Reply(await service.prometheus()).send(send)
        else:
            await routes(scope, receive, send)

    # Bodies were counted where they came in; here it is only noted when one was read.
    counted = middleware.BodyLimit(
        trusted, default=options.collection_body_bytes, paths={"/bulk": None}, timeout_s=options.body_timeout_s
    )
    app = failures.RequestIdMiddleware(counted, max_requests=options.max_requests, log=_quiet)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def receive() -> Message:
            return await _next(reader) or {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            with suppress(OSError):  # the other worker has given up, which `receive` says
                writer.write(_packed(message))
                await writer.drain()

        try:
            if (scope := await _next(reader)) is not None:
                await app(scope, receive, send)
        finally:
            writer.close()

    return answer
