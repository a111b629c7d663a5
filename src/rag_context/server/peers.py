"""The workers of one server to each other: what only the first can do is sent on to it, and one reports for all.

The first worker follows the files of projects, knows who has activated which, and does the work on the whole index. A
request reaches it as it came, over a socket file in a folder of this user's; it was checked where it came in, and goes
with the name of its caller. The worker that reports health or metrics requests those of the others in the same way.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

import httptools
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
from rag_context.server import requests
from rag_context.server.failures import RequestIdMiddleware
from rag_context.server.middleware import BodyLimit
from rag_context.server.options import ANYONE, Caller, ServerOptions
from rag_context.server.supervisor import WorkerSlot

FIRST = 1
CALLER = b"x-rag-worker-caller"

_READ_BYTES = 64 * 1024
_HOP = frozenset({b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"expect", b"x-request-id", CALLER})
_OURS = frozenset({b"connection", b"date", b"server", b"transfer-encoding", b"x-request-id"})
"""Headers of an answer that the receiving worker sets itself."""

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

    HTTP clients send a whole body before they read an answer; the receipts of a stream of documents come while it is
    still sent.

    Raises:
        RequestRejectedError: the worker is not there, or ended before it answered; or the body was rejected.
        ClientGoneError: the client has gone.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(file)
    except OSError:
        raise _unavailable("is being started again") from None
    sending = asyncio.create_task(_send_request(scope, receive, writer))
    relaying = asyncio.create_task(_relay(reader, send, scope["method"] == "HEAD"))
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


async def _send_request(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    request = requests.http_request(scope)
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    headers = [(name, value) for name, value in scope["headers"] if name not in _HOP]
    headers += [(b"connection", b"close"), (b"x-request-id", request.request_id.encode())]
    if request.caller is not None:
        # Keys were compared where the request came in; the first worker takes the result.
        named = None if request.caller is ANYONE else asdict(request.caller)
        headers.append((CALLER, json.dumps(named).encode()))
    is_chunked = b"transfer-encoding" in request.headers
    try:
        writer.write(b"%s %s%s HTTP/1.1\r\n" % (scope["method"].encode(), scope["raw_path"], query))
        writer.write(b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n")
        while (message := await receive())["type"] == "http.request":
            body = message.get("body", b"")
            if body:
                writer.write(b"%x\r\n%s\r\n" % (len(body), body) if is_chunked else body)
            if is_chunked and not message.get("more_body", False):
                writer.write(b"0\r\n\r\n")
            await writer.drain()
    except OSError:  # the other side has ended, or has answered already: what it sent says which
        await asyncio.Event().wait()
    raise requests.ClientGoneError


class _Answer:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.is_begun = False
        self.is_complete = False
        self.status: Callable[[], int] = lambda: 0
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _OURS:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_begun = True
        self.messages.append({"type": "http.response.start", "status": self.status(), "headers": self._headers})

    def on_body(self, body: bytes) -> None:
        self.messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_complete = True
        self.messages.append({"type": "http.response.body", "body": b"", "more_body": False})


async def _relay(reader: asyncio.StreamReader, send: Send, is_head: bool) -> None:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    answer.status = parser.get_status_code
    while not answer.is_complete:
        try:
            received = await reader.read(_READ_BYTES)
        except OSError:
            received = b""
        if not received:
            if not answer.is_begun:
                raise _unavailable("ended before it answered")
            raise ConnectionAbortedError("a worker ended in the middle of an answer")
        parser.feed_data(received)
        if is_head and answer.is_begun and not answer.is_complete:  # a length, and no body
            answer.on_message_complete()
        messages, answer.messages = answer.messages, []
        for message in messages:
            await send(message)


TIMEOUT_S = 2.0
"""Longest wait for the health or the metrics of another worker."""

_LABEL = "worker"


class Peers:
    def __init__(self, slot: WorkerSlot) -> None:
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

        scope: Scope = {"method": "GET", "raw_path": path.encode(), "query_string": b"", "headers": [(b"host", b"-")]}
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


def inner_app(service: Service, routes: ASGIApp, options: ServerOptions) -> ASGIApp:
    """What answers the other workers: this worker's own state, and what they send on."""

    async def trusted(scope: Scope, receive: Receive, send: Send) -> None:
        request = requests.http_request(scope)
        if (header := request.header(CALLER)) is not None:
            caller = json.loads(header)
            request.caller = ANYONE if caller is None else Caller.from_json(caller)
        scope["app"] = trusted  # which lets the router raise what it does not know
        # Its own state only: a report that requested those of the other workers here would never end.
        if scope["path"] == "/health":
            await requests.Reply((await service.health()).to_json()).send(send)
        elif scope["path"] == "/metrics":
            await requests.Reply(await service.prometheus()).send(send)
        else:
            await routes(scope, receive, send)

    # Bodies were counted where they came in; here it is only noted when one was read.
    counted = BodyLimit(
        trusted, default=options.collection_body_bytes, paths={"/bulk": None}, timeout_s=options.body_timeout_s
    )
    return RequestIdMiddleware(counted, max_requests=options.max_requests, log=_quiet)
