"""How the command line follows a server that embeds what was indexed."""

from collections.abc import Iterator
from typing import Any

import pytest

from rag_context.api.maintenance import HealthResponse, ReindexResponse
from rag_context.api.operations.memory import REINDEX
from rag_context.cli import connecting
from rag_context.cli.connecting import Remote
from rag_context.client._async.async_http import AsyncHttp
from rag_context.client.address import Address
from rag_context.domain.documents import Status

DOCUMENTS = 3


class Embedding(Remote):
    """A server with so many pending documents at one request after the other, well or not."""

    def __init__(self, pending: Iterator[int], *, healthy: bool) -> None:
        super().__init__(AsyncHttp(Address("http://localhost", None, None, None), 1.0), "stub")
        self._pending, self._healthy = pending, healthy

    async def run(self, operation: Any, _request: Any) -> Any:
        """Answer the two operations that are asked for here."""
        if operation is REINDEX:
            pending = next(self._pending)
            return ReindexResponse(status="running", documents=DOCUMENTS, done=DOCUMENTS - pending, pending=pending)
        return HealthResponse(
            healthy=self._healthy,
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


@pytest.mark.parametrize(("healthy", "left"), [(True, 0), (False, 2)])
async def test_a_large_document_is_waited_for_while_the_server_is_well(
    monkeypatch: pytest.MonkeyPatch, *, healthy: bool, left: int
) -> None:
    """Nothing is completed for longer than a stall may take; the vectors of one document are all made at last."""
    monkeypatch.setattr(connecting, "POLL_EVERY_S", 0.01)
    monkeypatch.setattr(connecting, "STALLED_S", 0.05)
    server, seen = Embedding(iter([3, *[2] * 30, 0]), healthy=healthy), []
    assert await server.embed_pending(lambda done, total: seen.append((done, total))) == left
    assert (1, 3) in seen
