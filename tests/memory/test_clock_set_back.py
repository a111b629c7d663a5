"""The wall clock of the machine may be set back at any moment."""

from datetime import timedelta
from itertools import count
from pathlib import Path

from rag_context.api.changes import CorrectRequest
from rag_context.api.handlers import CallContext
from rag_context.api.index import IndexRequest
from rag_context.domain.documents import utc_now
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

ABOUT = {"contentType": "decision", "sessionId": "s", "source": "payments.md"}


async def test_a_correction_is_acknowledged_while_the_clock_is_set_back(tmp_path: Path) -> None:
    context, calls = CallContext("r-1"), count()
    async with open_service(Settings(data_dir=tmp_path / "data")) as service:
        await service.wait_ready(30.0)
        service.changes.now = lambda: utc_now() - timedelta(days=next(calls))
        await service.index(IndexRequest.model_validate({"content": "Retried three times.", **ABOUT}), context)
        correction = CorrectRequest.model_validate({"source": ABOUT["source"], "content": "Retried five times."})
        response = await service.changes.correct(correction, context)
    assert response.success
    assert response.latency_ms >= 0.0
