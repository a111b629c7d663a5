"""Records searches and failures: counts them in the metrics at once, and queues them for the statistics."""

from collections.abc import Callable, Collection
from datetime import datetime

from rag_context.api.search import SearchRequest
from rag_context.domain.metrics import ErrorRecord, SearchRecord
from rag_context.errors import BackendError
from rag_context.projects.records import Label
from rag_context.search.query import Answer
from rag_context.service.mappers import UNKNOWN_AGENT, search_record
from rag_context.service.meters import Meters
from rag_context.service.telemetry import Telemetry

VALIDATING_AGENT = "rag-context validate"
"""The agent of test searches: they count in the metrics, but statistics of use leave them out."""


class SearchRecorder:
    """Counts and records searches and failures.

    Args:
        telemetry: stores the records, off the request path.
        meters: the metrics.
        now: the wall clock.
    """

    def __init__(self, telemetry: Telemetry, meters: Meters, now: Callable[[], datetime]) -> None:
        self._telemetry = telemetry
        self._meters = meters
        self._now = now

    def search(self, request: SearchRequest, answer: Answer, request_id: str, latency_ms: float) -> None:
        """Record a search in the memory of the agents."""
        self._meters.count(answer, latency_ms / 1000.0, request.agent or UNKNOWN_AGENT)
        if request.agent == VALIDATING_AGENT:
            return
        record = search_record(request, answer, request_id=request_id, latency_ms=latency_ms, timestamp=self._now())
        self._telemetry.record_search(record, {result.passage.document_id for result in answer.results})
        if answer.error is not None:
            self.error("search", BackendError("search", answer.error), request_id)

    def document_search(self, record: SearchRecord, label: Label, retrieved: Collection[str]) -> None:
        """Record a search in the documents of a project."""
        answer = Answer((), label.level, label.legs, 0)
        self._meters.count(answer, record.latency_ms / 1000.0, record.agent)
        self._telemetry.record_search(record, retrieved)

    def error(self, operation: str, error: BackendError, request_id: str) -> None:
        """Record a failure of a component."""
        self._telemetry.record_error(
            ErrorRecord(self._now(), "error", error.component, operation, str(error), request_id)
        )
