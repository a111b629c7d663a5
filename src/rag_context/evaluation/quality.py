"""Measures retrieval quality on a labelled collection: every judged query in every mode.

A collection is indexed as an index of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rag_context.api.index import BulkLine
from rag_context.api.parsing import read_fields
from rag_context.api.search import MAX_LIMIT
from rag_context.domain.documents import DOCUMENTATION
from rag_context.errors import BackendUnavailableError, InvalidInputError
from rag_context.evaluation import measures
from rag_context.evaluation.datasets import Dataset, LabelledQuestion, LabelledText
from rag_context.memory.service import Service
from rag_context.ports.models import Tokenizer
from rag_context.search.query import Answer, Level, Mode, Query, Result
from rag_context.search.ranking import passes
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

MODES = (Mode.TEXT, Mode.VECTOR, Mode.HYBRID)
BUDGET_TOKENS = 1000
"""How much of an answer is read when spans are judged."""

FIRST = 10
"""Distinct documents that a ranking must hold, where there are as many."""

DEEP = 200
"""Passages searched for relevant documents that the default threshold would hide."""

TIMEOUT_MS = 60_000
MODEL_TIMEOUT_S = 60.0
TOGETHER = 4

OnProgress = Callable[[str, int, int], None]
"""Called with the present step, how much of it is done, and of how much."""


QualityScores: TypeAlias = dict[str, list[float]]
"""One value a query for each measure, by its name; queries in the dataset's order."""


def quality_scores(rows: Sequence[Mapping[str, float]]) -> QualityScores:
    return {measure: [row[measure] for row in rows] for measure in rows[0]}


@dataclass(frozen=True, slots=True)
class QualityOutcome:
    """The measurements of one collection.

    `lost` is the share of the judged relevant documents among the first `DEEP` passages of hybrid searches of which
    no passage passes the default threshold, None if judgements are by spans; `unanswerable` the share of queries
    labelled `noAnswer`.
    """

    dataset: str
    documents: int
    queries: int
    by_spans: bool
    scores: dict[Mode, QualityScores]
    lost: float | None
    unanswerable: float


def measuring(settings: Settings, data_dir: Path) -> Settings:
    """The settings with a data directory of their own, and timeouts that are never reached.

    Redaction is off, because it would move the character positions of spans.
    """
    return settings.model_copy(
        update={
            "data_dir": data_dir,
            "search": settings.search.model_copy(update={"deadline_ms": TIMEOUT_MS}),
            "indexing": settings.indexing.model_copy(update={"timeout_s": TIMEOUT_MS / 1000.0, "redaction": "off"}),
        }
    )


@asynccontextmanager
async def open_measured(settings: Settings, data_dir: Path) -> AsyncIterator[Service]:
    """A service on a data directory of its own, with its model loaded. Raises: BackendUnavailableError."""
    async with open_service(measuring(settings, data_dir)) as service:
        if not await service.wait_ready(MODEL_TIMEOUT_S):
            raise BackendUnavailableError("embedder", "The embedding model is not available; nothing can be measured.")
        yield service


async def evaluate(service: Service, dataset: Dataset, on_progress: OnProgress) -> QualityOutcome:
    """Index a collection and run all its queries in every mode, with `minScore` 0.

    Raises:
        InvalidInputError: a document cannot be indexed.
        BackendError: a component failed, so that the measurement would be incomplete.
    """
    files = [[(text.id, _fields(text))] for text in dataset.documents]
    names = {id_: name for name, id_ in await index_groups(service, "document", files, on_progress)}
    offsets = {text.id: text.offset for text in dataset.documents}
    answers = await _answers(service, dataset, on_progress)
    scores: dict[Mode, QualityScores] = {}
    for mode in MODES:
        rows = [
            _by_spans(question, answer, names, offsets, service.tokenizer)
            if dataset.by_spans
            else by_grades(ranked_documents(answer.results, names), question.grades)
            for question, answer in zip(dataset.questions, answers[mode], strict=True)
        ]
        scores[mode] = quality_scores(rows)
    hybrid = answers[Mode.HYBRID]
    return QualityOutcome(
        dataset=dataset.name,
        documents=len(dataset.documents),
        queries=len(dataset.questions),
        by_spans=dataset.by_spans,
        scores=scores,
        lost=None if dataset.by_spans else await _lost(service, dataset.questions, names),
        unanswerable=sum(answer.unanswerable for answer in hybrid) / len(hybrid),
    )


async def index_groups(
    service: Service, kind: str, groups: Sequence[Sequence[tuple[str, Mapping[str, object]]]], on_progress: OnProgress
) -> list[tuple[str, str]]:
    """Index the lines of a set, those of a group one after the other; returns each one's id with its document id.

    `kind` names a line in errors; groups hold ids with the fields of `BulkLine`.

    Raises: InvalidInputError (a line cannot be indexed).
    """
    indexed: list[tuple[str, str]] = []
    total = sum(map(len, groups))
    semaphore = asyncio.Semaphore(TOGETHER)

    async def index(group: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        async with semaphore:
            for id_, fields in group:
                try:
                    line = read_fields(BulkLine, fields)
                except InvalidInputError as error:
                    raise InvalidInputError(f"{kind} {id_!r} cannot be indexed: {error}") from error
                (receipt,) = await service.bulk_all([line], request_id="eval")
                if isinstance(receipt, Exception):
                    raise receipt
                if receipt.document_id is None or receipt.status == "deferred":
                    raise InvalidInputError(f"{kind} {id_!r} was {receipt.status}: {receipt.reason}")
                indexed.append((id_, receipt.document_id))
                on_progress("Indexing", len(indexed), total)

    try:
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(index(group))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return indexed


def _fields(text: LabelledText) -> Mapping[str, object]:
    """A document as if it were a file."""
    return {
        "content": text.content,
        "contentType": DOCUMENTATION,
        "sessionId": "files",
        "source": f"/{text.id}.md",
        "fromFile": True,
    }


async def _answers(service: Service, dataset: Dataset, on_progress: OnProgress) -> dict[Mode, list[Answer]]:
    answers: dict[Mode, list[Answer]] = {mode: [] for mode in MODES}
    least = 0 if dataset.by_spans else min(FIRST, len(dataset.documents))
    done = 0
    for question in dataset.questions:
        for mode in MODES:
            answers[mode].append(await answer_with(service, question.id, _query(question, mode, MAX_LIMIT), least))
            done += 1
            on_progress("Searching", done, len(dataset.questions) * len(MODES))
    return answers


async def answer_with(service: Service, question: str, query: Query, least: int) -> Answer:
    """The answer to a query; if it has passages of fewer than `least` documents, that of a larger limit.

    Raises: BackendUnavailableError (as `complete_answer`).
    """
    found = -1
    while True:
        answer = await complete_answer(service, question, query)
        documents = {result.passage.document_id for result in answer.results}
        # Pieces of a section are joined: fewer results than the limit do not mean that there are no others.
        if len(documents) >= least or len(answer.results) == found:
            return answer
        found, query = len(answer.results), replace(query, limit=2 * query.limit)


async def complete_answer(service: Service, question: str, query: Query) -> Answer:
    """The answer to a query, at level 1 and without a warning; `question` is its id.

    Raises: BackendUnavailableError (a component failed).
    """
    answer = await service.rank(query)
    if answer.level is not Level.PRIMARY or answer.warning is not None:
        raise BackendUnavailableError(
            "search", f"Query {question!r} was answered at level {answer.level}: {answer.error or answer.warning}"
        )
    return answer


def _query(question: LabelledQuestion, mode: Mode, limit: int) -> Query:
    return Query(question.text, limit=limit, mode=mode, min_score=0.0)


def by_grades(ranking: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    return {
        "nDCG@10": measures.ndcg(ranking, grades),
        "recall@10": measures.recall(ranking, grades),
        "MRR@10": measures.reciprocal_rank(ranking, grades),
        "success@3": measures.success(ranking, grades),
    }


def _by_spans(
    question: LabelledQuestion, answer: Answer, names: dict[str, str], offsets: dict[str, int], tokenizer: Tokenizer
) -> dict[str, float]:
    read = [
        (start, end)
        for name, start, end in within_budget(answer.results, names, tokenizer)
        if name == question.document
    ]
    moved = offsets[question.document]
    spans = [(start + moved, end + moved) for start, end in question.spans]
    return {"answer in 1000 tokens": measures.covered(spans, read)}


def ranked_documents(results: Iterable[Result], names: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(names[result.passage.document_id] for result in results))


def within_budget(results: Iterable[Result], names: dict[str, str], tokenizer: Tokenizer) -> list[tuple[str, int, int]]:
    """Document, start and end of the passages that fit into the budget; the last is cut after its last token."""
    left = BUDGET_TOKENS
    read: list[tuple[str, int, int]] = []
    for result in results:
        chunk = result.passage.chunk
        tokens = tokenizer.offsets(chunk.text)[:left]
        if tokens:
            read.append((names[result.passage.document_id], chunk.span.start, chunk.span.start + tokens[-1][1]))
        left -= len(tokens)
        if left <= 0:
            break
    return read


async def _lost(service: Service, questions: Sequence[LabelledQuestion], names: dict[str, str]) -> float | None:
    threshold = service.model().calibration.threshold
    relevant = lost = 0
    for question in questions:
        kept: dict[str, bool] = {}
        answer = await complete_answer(service, question.id, _query(question, Mode.HYBRID, DEEP))
        for result in answer.results:
            name = names[result.passage.document_id]
            ranked = result.ranked
            kept[name] = kept.get(name, False) or passes(ranked.candidate, ranked.score, threshold)
        found = [name for name in kept if question.grades.get(name, 0) > 0]
        relevant += len(found)
        lost += sum(not kept[name] for name in found)
    return lost / relevant if relevant else None
