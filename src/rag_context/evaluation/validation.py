"""Validates a running server: whether its components answer, its vectors are valid, and its searches find documents.

Phases, samples, documents and questions are those of the project's original pre-validation script. The end-to-end test
indexes 50 documents, runs 50 queries, and expects the right document in the first three.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from rag_context.api.maintenance import HealthResponse
from rag_context.domain import samples
from rag_context.domain.documents import Status
from rag_context.errors import BackendDataError, BackendError, InvalidInputError
from rag_context.evaluation.measures import Latency
from rag_context.evaluation.remote import Api, RemoteServer, Scratch
from rag_context.memory.telemetry import VALIDATING_AGENT
from rag_context.wiring.probes import mongodb_version

REQUIRED_SUCCESS = 0.85
P99_LIMIT_MS = 500.0
FALLBACK_LIMIT = 0.05
FIRST = 3
EMBEDDED_S = 60.0


@dataclass(frozen=True, slots=True)
class EndToEnd:
    documents: int
    questions: int
    missed: tuple[str, ...]
    latency: Latency
    fallback_rate: float
    left_behind: int

    @property
    def success(self) -> float:
        return 1.0 - len(self.missed) / self.questions

    @property
    def summary(self) -> str:
        return (
            f"success@3 {self.success:.0%} (required: > {REQUIRED_SUCCESS:.0%}), "
            f"P99 {self.latency.p99_ms:.0f}ms (< {P99_LIMIT_MS:.0f}ms), "
            f"fallback rate {self.fallback_rate:.0%} (< {FALLBACK_LIMIT:.0%})"
        )

    @property
    def passed(self) -> bool:
        return (
            self.success > REQUIRED_SUCCESS
            and self.latency.p99_ms < P99_LIMIT_MS
            and self.fallback_rate < FALLBACK_LIMIT
        )


async def run_end_to_end(server: RemoteServer) -> EndToEnd:
    async with server.scratch() as scratch:
        ids = await _index(scratch)
        rows = samples.questions()
        missed: list[str] = []
        latencies_ms: list[float] = []
        fallbacks = 0
        for row in rows:
            started = time.perf_counter()
            answer = await server.search(
                query=row["question"], limit=FIRST, project=scratch.project, agent=VALIDATING_AGENT
            )
            latencies_ms.append((time.perf_counter() - started) * 1000.0)
            fallbacks += answer.fallback
            if ids[row["document"]] not in [result.document_id for result in answer.results]:
                missed.append(row["question"])
    return EndToEnd(
        documents=len(ids),
        questions=len(rows),
        missed=tuple(missed),
        latency=Latency.of(latencies_ms),
        fallback_rate=fallbacks / len(rows),
        left_behind=scratch.left_behind,
    )


async def _index(scratch: Scratch) -> dict[str, str]:
    """Server's document id by the id in the data."""
    ids: dict[str, str] = {}
    for row in samples.documents():
        body = {name: value for name, value in row.items() if name != "id"}
        ids[row["id"]] = (await scratch.index(**body)).document_id
    await scratch.embedded(EMBEDDED_S)
    return ids


NORM = (0.9, 1.1)
EMBEDDING_TARGET_MS = 100.0
P99_TARGET_MS = 500.0
REQUIRED_ACCURACY = 0.8
READY_S = 10.0
PREFERRED_MODEL = "nomic-embed-text-v1.5"
PREFERRED_FAMILY = "nomic"
_END_TO_END = "50 Documents, 50 Questions"


@dataclass(frozen=True, slots=True)
class ProbeDocument:
    """A document to index, and the question that must find its keyword among the first three passages."""

    content: str
    stated: Mapping[str, str]
    question: str
    keyword: str


_DATA = json.loads(Path(__file__).with_name("probes.json").read_text("utf-8"))
SAMPLES: Sequence[str] = _DATA["samples"]
"""Texts whose vectors are examined."""
PROBES = tuple(ProbeDocument(**row) for row in _DATA["probes"])


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a test; `detail` describes it, or says why it failed."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Check:
    question: str
    keyword: str
    found: bool
    latency_ms: float
    results: int


@dataclass(frozen=True, slots=True)
class Warned:
    text: str


Event = Heading | Step | Check | Warned | Latency


@dataclass(slots=True)
class ValidationReport:
    steps: list[Step] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    skipped_accuracy: bool = False
    end_to_end: EndToEnd | None = None

    @property
    def sound(self) -> bool:
        return all(step.passed for step in self.steps)

    @property
    def accuracy(self) -> float | None:
        """Share of the searches that found their keyword; None if this test was skipped."""
        if self.skipped_accuracy:
            return None
        return sum(check.found for check in self.checks) / len(PROBES)

    @property
    def accurate(self) -> bool:
        return self.accuracy is None or self.accuracy >= REQUIRED_ACCURACY

    @property
    def passed(self) -> bool:
        return self.sound and self.accurate and (self.end_to_end is None or self.end_to_end.passed)

    @property
    def latency(self) -> Latency:
        return Latency.of(self.latencies_ms)


@dataclass
class Validation:
    server: RemoteServer
    timeout_s: float
    on_event: Callable[[Event], None]
    lm_studio: Api | None = None
    """This and the next two are checked directly; for one that is None, the server's health report counts."""
    qdrant: Api | None = None
    mongodb_uri: str | None = None
    report: ValidationReport = field(default_factory=ValidationReport)
    _health: HealthResponse | None = None
    _models: list[str] = field(default_factory=list)

    async def infrastructure(self) -> None:
        """Phase 1: every component answers."""
        self.on_event(Heading("Phase 1: Infrastructure Health"))
        await self.server.wait_ready(min(self.timeout_s, READY_S))
        await self._step("MCP Server Health", self._examine())
        if self.qdrant is not None:
            await self._step("Qdrant Health Check", _answers(self.qdrant, "/healthz"))
        else:
            await self._step("Vector Store Health Check", self._role("qdrant_status", "vectors"))
        name = "LM Studio API Availability" if self.lm_studio is not None else "Embedding Model Availability"
        await self._step(name, self._list_models())
        if self.mongodb_uri is not None:
            await self._step("MongoDB Connectivity", mongodb_version(self.mongodb_uri, self.timeout_s / 2))
        else:
            await self._step("Document Store Health Check", self._role("mongo_status", "documents"))

    async def embeddings(self) -> None:
        """Phase 2: vectors have one dimension and length 1."""
        self.on_event(Heading("Phase 2: Embedding Quality Validation"))
        own = self._health.embedding_model if self._health is not None else None
        dimensions = {own.dimension} if own is not None and self.lm_studio is None else set()
        for number, text in enumerate(SAMPLES, 1):
            await self._step(f"Embedding Quality Sample {number}/{len(SAMPLES)}", self._sample(text, dimensions))

    async def accuracy(self) -> None:
        """Phase 3: what was indexed is found, by question and filter."""
        self.on_event(Heading("Phase 3: Retrieval Accuracy Gate"))
        try:
            async with self.server.scratch() as scratch:
                await self._step("Index Test Documents", self._index(scratch))
                for probe in PROBES:
                    await self._check(probe, scratch.project)
        except BackendError as error:
            self._note(Step("Retrieval Accuracy", False, str(error)))
        else:
            self._warn_of(scratch.left_behind)

    def latency(self) -> None:
        """Phase 4: latencies."""
        self.on_event(Heading("Phase 4: Performance Analysis"))
        self.on_event(self.report.latency)
        if self.report.latency.p99_ms > P99_TARGET_MS:
            self._warn(f"P99 latency exceeds {P99_TARGET_MS:.0f}ms target")

    async def end_to_end(self) -> None:
        """Phase 5, optional: 50 documents and 50 questions."""
        self.on_event(Heading("Phase 5: End to End"))
        try:
            ended = await run_end_to_end(self.server)
        except BackendError as error:
            self._note(Step(_END_TO_END, False, str(error)))
            return
        self.report.end_to_end = ended
        self._note(Step(_END_TO_END, ended.passed, ended.summary))
        self._warn_of(ended.left_behind)

    def _warn_of(self, left_behind: int) -> None:
        if left_behind:
            self._warn(f"{left_behind} test documents could not be deleted; they stay in a project that no agent uses")

    async def _examine(self) -> str:
        self._health = await self.server.health()
        if not self._health.healthy:
            failing = [part.name for part in self._health.components if part.status is not Status.HEALTHY]
            raise BackendDataError("server", f"MCP server unhealthy: {', '.join(failing) or 'no reason given'}")
        return f"rag-context {self._health.version}, {self._health.indexed_documents} documents"

    async def _role(self, name: str, role: str) -> str:
        if self._health is None:
            raise BackendDataError("server", "the server's health report is missing")
        status: Status = getattr(self._health, name)
        if status is not Status.HEALTHY:
            raise BackendDataError("server", f"{role}: {status.value}")
        return next((part.detail or part.name for part in self._health.components if part.name == role), status.value)

    async def _list_models(self) -> str:
        api = self.lm_studio or self.server.api
        self._models = await api.models()
        if self.lm_studio is not None and PREFERRED_FAMILY not in self._model().lower():
            self._warn(f"{PREFERRED_MODEL} not found, using available model {self._model()}")
        return ", ".join(self._models)

    def _model(self) -> str:
        """The preferred model, with any prefix and suffix, else the first that may be an embedding model."""
        for part in (PREFERRED_FAMILY, "embed", ""):
            for name in self._models:
                if part in name.lower():
                    return name
        return PREFERRED_MODEL

    async def _sample(self, text: str, dimensions: set[int]) -> str:
        api = self.lm_studio or self.server.api
        started = time.perf_counter()
        vector = await api.embed(text, self._model())
        latency_ms = (time.perf_counter() - started) * 1000.0
        self.report.latencies_ms.append(latency_ms)
        dimension = len(vector)
        if dimensions and dimension not in dimensions:
            raise BackendDataError("embedder", f"Expected {max(dimensions)} dimensions, got {dimension}")
        dimensions.add(dimension)
        norm = math.sqrt(math.fsum(number * number for number in vector))
        if not NORM[0] <= norm <= NORM[1]:
            raise BackendDataError("embedder", f"Vector magnitude {norm:.3f} outside [{NORM[0]}, {NORM[1]}]")
        if latency_ms > EMBEDDING_TARGET_MS:
            self._warn(f"Embedding latency {latency_ms:.0f}ms > {EMBEDDING_TARGET_MS:.0f}ms target")
        return f"Dimensions: {dimension}, Magnitude: {norm:.3f}, Latency: {latency_ms:.0f}ms"

    async def _index(self, scratch: Scratch) -> str:
        pending = 0
        for probe in PROBES:
            receipt = await scratch.index(
                content=probe.content,
                contentType="documentation",
                sessionId=f"preval-test-{uuid4()}",
                source="pre-validation",
                metadata=dict(probe.stated),
            )
            pending += receipt.status == "pending"
        if pending and not await scratch.embedded(self.timeout_s / 2):
            self._warn("The test documents have no vectors yet; keyword search finds them")
        return f"{len(PROBES)} documents in project {scratch.project}"

    async def _check(self, probe: ProbeDocument, project: str) -> None:
        started = time.perf_counter()
        answer = await self.server.search(
            query=probe.question, limit=3, project=project, agent=VALIDATING_AGENT, **probe.stated
        )
        latency_ms = (time.perf_counter() - started) * 1000.0
        self.report.latencies_ms.append(latency_ms)
        found = any(probe.keyword in result.content for result in answer.results)
        self._note(Check(probe.question, probe.keyword, found, latency_ms, len(answer.results)))

    async def _step(self, name: str, work: Awaitable[str]) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                step = Step(name, True, await work)
        except TimeoutError:
            step = Step(name, False, f"Timeout after {self.timeout_s:g}s")
        except (BackendError, InvalidInputError) as error:
            step = Step(name, False, str(error))
        self._note(step)

    def _note(self, found: Step | Check) -> None:
        if isinstance(found, Step):
            self.report.steps.append(found)
        else:
            self.report.checks.append(found)
        self.on_event(found)

    def _warn(self, text: str) -> None:
        self.report.warnings.append(text)
        self.on_event(Warned(text))


async def _answers(api: Api, path: str) -> str:
    await api.reply("GET", path)
    return "answered 200"
