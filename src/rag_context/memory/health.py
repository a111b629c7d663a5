"""Health reports: what the checks of the components and the counts of the index say."""

import time
from collections.abc import Callable, Sequence

from rag_context._version import __version__
from rag_context.api.maintenance import ComponentHealth, HealthResponse, ModelName
from rag_context.domain.documents import Counts, Status, counted
from rag_context.domain.vectors import EmbeddingModel
from rag_context.resilience.component_checks import ComponentFinding

STALLED_S = 120.0
"""Pending documents without progress for this long are reported as a fault."""

ROLES = ("vectors", "embedder", "documents")
"""The components that a search at level 1 needs. Without another one (the cache) searches are slower."""


class IndexingProgress:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Counts | None = None
        self._moved_at = 0.0

    def vector_problem(self, counts: Counts | None, problem: str | None) -> str | None:
        """Why vectors stay missing; None if embedding makes progress. `problem`: of the last attempt."""
        if counts is None:
            return None
        last, self._last = self._last, counts
        if last is None or not last.pending or counts.pending < last.pending or counts.vectors > last.vectors:
            self._moved_at = self._clock()
        if not counts.pending:
            return "no document is pending: run `rag-context check`" if missing_vectors(counts) else None
        if self._clock() - self._moved_at >= STALLED_S:
            return f"none of {counts.pending} pending documents was completed within {STALLED_S:.0f} s"
        return problem


def health_response(
    findings: Sequence[ComponentFinding],
    counts: Counts | None,
    vector_problem: str | None,
    *,
    breaker_closed: bool,
    model: EmbeddingModel | None,
    latency_ms: float,
) -> HealthResponse:
    status = {finding.name: _status(finding, vector_problem) for finding in findings}
    return HealthResponse(
        healthy=breaker_closed and all(status[role] is Status.HEALTHY for role in ROLES),
        qdrant_status=status["vectors"],
        lm_studio_status=status["embedder"],
        mongo_status=status["documents"],
        latency=round(latency_ms, 3),
        indexed_documents=counts.documents if counts else 0,
        circuit_breaker_open=not breaker_closed,
        components=[
            ComponentHealth(
                name=finding.name,
                role=finding.role,
                status=status[finding.name],
                latency_ms=round(finding.latency_ms, 3),
                detail=_detail(finding, counts, vector_problem),
            )
            for finding in findings
        ],
        embedding_model=None if model is None else ModelName(name=model.name, dimension=model.dimension),
        pending_documents=counts.pending if counts else 0,
        indexing=counts is not None and counts.pending > 0,
        version=__version__,
    )


def _status(finding: ComponentFinding, vector_problem: str | None) -> Status:
    """A store that rejects writes or misses vectors is degraded, and so is the service without its cache."""
    if finding.name not in ROLES and finding.status is Status.UNAVAILABLE:
        return Status.DEGRADED
    if finding.status is Status.HEALTHY and (finding.write_error or (finding.name == "vectors" and vector_problem)):
        return Status.DEGRADED
    return finding.status


def _detail(finding: ComponentFinding, counts: Counts | None, vector_problem: str | None) -> str:
    if finding.status is not Status.HEALTHY:
        return finding.detail
    sentences = [finding.write_error, finding.detail]
    if finding.name == "vectors" and counts is not None:
        missing = missing_vectors(counts)
        sentences += [f"{counted(missing, 'chunk')} without a vector so far" if missing else None, vector_problem]
    return "; ".join(each.rstrip(".") for each in sentences if each)


def lost_vectors(lost: int) -> str | None:
    """A sentence about vectors that are lost; None if none are."""
    return f"{counted(lost, 'vector')} of indexed documents are gone: those are embedded again" if lost else None


def missing_vectors(counts: Counts) -> int:
    return max(counts.chunks - counts.vectors, 0)
