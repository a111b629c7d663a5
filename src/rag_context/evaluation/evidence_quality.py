"""Measures retrieval on a set with evidence: by item and by session, in every mode, and at the limits callers use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_context.api.search import MAX_LIMIT
from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import InvalidInputError
from rag_context.evaluation import measures, quality
from rag_context.evaluation.datasets import EvidenceQuestion, EvidenceSet, LabelledItem
from rag_context.memory.service import Service
from rag_context.search.query import Mode, Query

LIMITS = (1, 3, 5, 10, 20)
"""Values of `limit` at which answers are compared."""

FIRST_SESSIONS = 5

FIRST_SIDES = 5
"""Among so many items should both a correction and what it corrects be."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What one answer holds at a `limit`, without `minScore`: how much evidence, in how many tokens of passages."""

    evidence: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One question, and what was measured of it, by its name in reports; what says nothing of this question is absent.

    `by_mode`: `recall` and `ndcg` are of the first ten items; `correctionFirst` says whether an item of the evidence
    stands above all that it corrects and among the first ten. `shares` are of a hybrid search: `bothSides` whether it
    and what it corrects are among the first five items, `anySession` and `allSessions` whether one, or every, session
    with evidence is among the first five sessions, `noAnswer` whether it was labelled so, `standing` whether the list
    of standing instructions has some of the evidence, and `listed` how long that list is.
    """

    question: EvidenceQuestion
    by_mode: Mapping[str, Mapping[Mode, float]]
    shares: Mapping[str, float]
    at_limit: Mapping[int, Returned]
    """By limit; empty if nothing answers the question."""


@dataclass(frozen=True, slots=True)
class EvidenceOutcome:
    dataset: str
    items: int
    sessions: int
    measured: tuple[Measured, ...]


async def evaluate_evidence(service: Service, dataset: EvidenceSet, on_progress: quality.OnProgress) -> EvidenceOutcome:
    """Index a set, and run all its questions in every mode and at every limit.

    Raises:
        InvalidInputError: an item cannot be indexed.
        BackendError: a component failed, so that the measurement would be incomplete.
    """
    names = await index_items(service, dataset.items, on_progress)
    sessions = {item.id: item.session for item in dataset.items}
    measured = []
    for done, question in enumerate(dataset.questions, 1):
        measured.append(await _measure(service, question, names, sessions if dataset.has_sessions else {}))
        on_progress("Searching", done, len(dataset.questions))
    return EvidenceOutcome(
        dataset.name, len(dataset.items), len({session for session in sessions.values() if session}), tuple(measured)
    )


async def index_items(
    service: Service, items: Sequence[LabelledItem], on_progress: quality.OnProgress
) -> dict[str, str]:
    """Index everything, the messages of a session one after the other; returns each item's id by its document id."""
    sessions: dict[tuple[str | None, str], list[tuple[str, Mapping[str, object]]]] = {}
    for item in items:
        sessions.setdefault((item.project, item.session or item.id), []).append((item.id, bulk_fields(item)))
    names: dict[str, str] = {}
    for id_, document_id in await quality.index_groups(service, "item", list(sessions.values()), on_progress):
        if names.setdefault(document_id, id_) != id_:
            raise InvalidInputError(f"item {id_!r} is the same document as {names[document_id]!r}")
    return names


def bulk_fields(item: LabelledItem) -> Mapping[str, object]:
    """The fields of `BulkLine` for an item; its time is a `datetime`, what it does not have is None."""
    return {
        "content": item.content,
        "contentType": item.content_type,
        "sessionId": item.session or "files",
        "source": f"/{item.path}" if item.path else item.id,
        "fromFile": bool(item.path),
        "project": item.project,
        "occurredAt": item.occurred_at,
    }


async def _measure(
    service: Service, question: EvidenceQuestion, names: dict[str, str], sessions: dict[str, str]
) -> Measured:
    least = min(quality.FIRST, len(names))
    queries = {mode: _query(question, MAX_LIMIT, mode, min_score=0.0) for mode in quality.MODES}
    answers = {mode: await quality.answer_with(service, question.id, query, least) for mode, query in queries.items()}
    rankings = {mode: quality.ranked_documents(answer.results, names) for mode, answer in answers.items()}
    hybrid = answers[Mode.HYBRID]
    listed = {names[each.passage.document_id] for each in hybrid.standing}
    grades = dict.fromkeys(question.evidence, 1)
    by_mode: dict[str, Mapping[Mode, float]] = {}
    shares: dict[str, float] = {
        "noAnswer": hybrid.unanswerable,
        "standing": not listed.isdisjoint(question.evidence),
        "listed": len(hybrid.standing),
    }
    if grades:
        by_mode["recall"] = {mode: measures.recall(ranking, grades) for mode, ranking in rankings.items()}
        by_mode["ndcg"] = {mode: measures.ndcg(ranking, grades) for mode, ranking in rankings.items()}
    if question.outdated:
        nearest = set(rankings[Mode.HYBRID][:FIRST_SIDES])
        by_mode["correctionFirst"] = {mode: corrected(ranking, question) for mode, ranking in rankings.items()}
        shares["bothSides"] = not (nearest.isdisjoint(question.evidence) or nearest.isdisjoint(question.outdated))
    if sessions and question.evidence:
        distinct = dict.fromkeys(sessions[id_] for id_ in rankings[Mode.HYBRID] if id_ in sessions)
        first = set(list(distinct)[:FIRST_SESSIONS])
        expected = {sessions.get(id_, "") for id_ in question.evidence}
        shares |= {"anySession": bool(expected & first), "allSessions": expected <= first}
    at_limit = {limit: await _returned(service, question, limit, names) for limit in LIMITS} if grades else {}
    return Measured(question, by_mode, shares, at_limit)


def corrected(ranking: Sequence[str], question: EvidenceQuestion) -> bool:
    """Whether the first item of the evidence is among the first ten, and no outdated item stands above it."""
    for id_ in ranking[: quality.FIRST]:
        if id_ in question.evidence:
            return True
        if id_ in question.outdated:
            return False
    return False


async def _returned(service: Service, question: EvidenceQuestion, limit: int, names: dict[str, str]) -> Returned:
    results = (await quality.complete_answer(service, question.id, _query(question, limit))).results
    found = {names[result.passage.document_id] for result in results}
    tokens = sum(len(service.tokenizer.offsets(result.passage.chunk.text)) for result in results)
    return Returned(len(found.intersection(question.evidence)), tokens)


def _query(question: EvidenceQuestion, limit: int, mode: Mode = Mode.HYBRID, min_score: float | None = None) -> Query:
    where = Filter(Tenant(question.project or ""))
    return Query(question.text, limit=limit, where=where, mode=mode, min_score=min_score)
