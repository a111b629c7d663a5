"""How the command line follows a server that embeds what was indexed."""

from collections.abc import Iterator

import httpx2
import pytest

from rag_context.api.maintenance import HealthResponse, ReindexResponse
from rag_context.api.operations.memory import REINDEX
from rag_context.cli.connecting import Remote
from rag_context.client.address import Address
from rag_context.client.async_http import AsyncHttp
from rag_context.domain.documents import Status

DOCUMENTS = 3


def server(pending: Iterator[int], *, healthy: bool) -> httpx2.MockTransport:
    """A server with so many pending documents at one request after the other, well or not."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == REINDEX.path:
            left = next(pending)
            reply = ReindexResponse(status="running", documents=DOCUMENTS, done=DOCUMENTS - left, pending=left)
            return httpx2.Response(200, content=reply.to_json())
        health = HealthResponse(
            healthy=healthy,
            qdrant_status=Status.HEALTHY,
            lm_studio_status=Status.HEALTHY,
            mongo_status=Status.HEALTHY,
            latency=1.0,
            indexed_documents=DOCUMENTS,
            circuit_breaker_open=False,
            components=[],
            pending_documents=DOCUMENTS,
            version="0",
        )
        return httpx2.Response(200, content=health.to_json())

    return httpx2.MockTransport(answer)


@pytest.mark.parametrize(("healthy", "left"), [(True, 0), (False, 2)])
async def test_a_large_document_is_waited_for_while_the_server_is_well(*, healthy: bool, left: int) -> None:
    """Nothing is completed for longer than a stall may take; the vectors of one document are all made at last."""
    transport, seen = server(iter([3, *[2] * 30, 0]), healthy=healthy), []
    http = AsyncHttp(Address("http://localhost", None, None, None), 1.0, lambda: transport)
    remote = Remote(http, "http://localhost", poll_every_s=0.01, stalled_s=0.05)
    assert await remote.embed_pending(lambda done, total: seen.append((done, total))) == left
    assert (1, 3) in seen
