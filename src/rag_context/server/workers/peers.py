"""The workers of one server to each other: the one that gets a request for health or metrics reports for all."""

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.api.maintenance import ComponentHealth, HealthResponse
from rag_context.api.operations import Access
from rag_context.domain.documents import Status
from rag_context.server.failures import RequestIdMiddleware
from rag_context.server.middleware import BodyLimit
from rag_context.server.options import ANYONE, Caller, ServerOptions
from rag_context.server.requests import (
    ClientGoneError,
    HttpRequest,
    Reply,
    RequestRejectedError,
    attach_request,
    http_request,
)
from rag_context.server.tools import Service
from rag_context.server.workers.forwarding import CALLER, FIRST, Forwarding, exchange
from rag_context.server.workers.supervisor import Place
from rag_context.service.meters import METRICS

TIMEOUT_S = 2.0
"""Longest wait for what another worker says of itself."""

_LABEL = "worker"


class Peers:
    """The workers of one server, as one of them sees them.

    Args:
        place: its own.
    """

    def __init__(self, place: Place) -> None:
        self.number = place.number
        self.count = place.count
        self._folder = place.folder

    def file(self, number: int) -> Path:
        """The socket file of a worker."""
        return self._folder / f"{number}.sock"

    def front(self, routes: ASGIApp) -> ASGIApp:
        """What stands before the routes of this worker."""
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
        attach_request(scope, HttpRequest("", {}))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await exchange(self.file(number), scope, receive, send)
        except (RequestRejectedError, OSError, ClientGoneError):
            return None
        return b"".join(parts) if status == HTTPStatus.OK else None


class _Shared:
    """A service whose health and metrics are those of all workers. All else is the worker's own service."""

    def __init__(self, own: Service, peers: Peers) -> None:
        self._own = own
        self._peers = peers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    async def health(self) -> HealthResponse:
        """This worker's report, with a component for each worker; healthy if all of them are."""
        own = await self._own.health()
        said = await self._peers.each(own.to_json(), "/health")
        workers = [self._component(number, body) for number, body in said.items()]
        return own.model_copy(
            update={
                "healthy": own.healthy and all(each.status is Status.HEALTHY for each in workers),
                "components": [*own.components, *workers],
            }
        )

    async def prometheus(self) -> bytes:
        """The metrics of all workers, each with its number as a label."""
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


def shared(own: Service, peers: Peers) -> Service:
    """A service that reports health and metrics for all workers."""
    return cast("Service", _Shared(own, peers))


@dataclass(frozen=True, eq=False)
class _Families(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def labelled(texts: dict[int, bytes | None]) -> bytes:
    """The metrics of several workers in one text, with the label `worker`; `rag_worker_up` says which answered."""
    declared = METRICS["rag_worker_up"]
    up = GaugeMetricFamily(declared.name, declared.says, labels=declared.labels)
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


def inner_app(own: Service, routes: ASGIApp, options: ServerOptions) -> ASGIApp:
    """What answers the other workers: this worker's own state, and what they send on."""

    async def trusted(scope: Scope, receive: Receive, send: Send) -> None:
        opened = http_request(scope)
        if (said := opened.header(CALLER)) is not None:
            named = json.loads(said)
            opened.caller = ANYONE if named is None else Caller(named[0], Access(named[1]))
        scope["app"] = trusted  # which lets the router raise what it does not know
        if scope["path"] == "/health":
            await Reply((await own.health()).to_json()).send(send)
        elif scope["path"] == "/metrics":
            await Reply(await own.prometheus()).send(send)
        else:
            await routes(scope, receive, send)

    # Bodies were counted where they came in; here it is only noted when one was read.
    counted = BodyLimit(
        trusted, default=options.collection_body_bytes, paths={"/bulk": None}, timeout_s=options.body_timeout_s
    )
    return RequestIdMiddleware(counted, max_requests=options.max_requests, log=_quiet)
