"""Measures retrieval on labelled documents through collections: whole documents, one vector each, in every mode."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rag_context.api.collections import CreateCollectionRequest, QueryRequest
from rag_context.api.reading import read_fields
from rag_context.collections.labels import OWN_EMBEDDER
from rag_context.errors import ConflictError, InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceQuestion, EvidenceSet
from rag_context.evaluation.quality import FIRST, MODES, OnProgress, Scores, by_grades
from rag_context.search.query import Mode
from rag_context.service.collection_service import CollectionService
from rag_context.service.service import Service

BATCH = 100


@dataclass(frozen=True, slots=True)
class CollectionOutcome:
    """Scores by mode of the documents that a collection's `query` returns."""

    dataset: str
    documents: int
    queries: int
    scores: dict[Mode, Scores]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A question, its grades, and the collection in which it is answered."""

    text: str
    grades: Mapping[str, int]
    collection: str


async def evaluate_collections(
    service: Service, dataset: Dataset | EvidenceSet, on_progress: OnProgress
) -> CollectionOutcome:
    """Store a set as a collection of documents, one collection for each of its projects, and run all its queries.

    Raises:
        InvalidInputError: the set is judged by spans.
        BackendError: a component failed, so that the measurement would be incomplete.
    """
    collections = service.collections
    if collections is None or (isinstance(dataset, Dataset) and dataset.by_spans):
        raise InvalidInputError(f"{dataset.name} is judged by spans; collections are measured by documents")
    stored = _contents(dataset)
    for number, (name, documents) in enumerate(stored.items(), 1):
        await _store(collections, name, documents)
        on_progress("Filling collections", number, len(stored))
    questions = list(_judged(dataset))
    rows: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for number, question in enumerate(questions, 1):
        for mode in MODES:
            fields = {"text": question.text, "mode": mode.value, "top_k": FIRST}
            found = await collections.query(question.collection, read_fields(QueryRequest, fields))
            rows[mode].append(by_grades([result.id for result in found.results], question.grades))
        on_progress("Searching collections", number, len(questions))
    scores = {
        mode: Scores({measure: [row[measure] for row in found] for measure in found[0]}) for mode, found in rows.items()
    }
    return CollectionOutcome(dataset.name, sum(map(len, stored.values())), len(questions), scores)


async def _store(collections: CollectionService, name: str, documents: Sequence[Mapping[str, str]]) -> None:
    fields = {"name": name, "embedding_provider": OWN_EMBEDDER}
    with suppress(ConflictError):  # an index that was kept: the same documents are stored again under the same ids
        await collections.create(read_fields(CreateCollectionRequest, fields))
    for start in range(0, len(documents), BATCH):
        await collections.add(name, documents[start : start + BATCH])


def _contents(dataset: Dataset | EvidenceSet) -> dict[str, list[Mapping[str, str]]]:
    """The documents by the collection that holds them."""
    found: dict[str, list[Mapping[str, str]]] = {}
    if isinstance(dataset, Dataset):
        found[_name(None)] = [{"id": text.id, "text": text.content} for text in dataset.documents]
    else:
        for item in dataset.items:
            found.setdefault(_name(item.project), []).append({"id": item.id, "text": item.content})
    return found


def _judged(dataset: Dataset | EvidenceSet) -> Iterator[_Judged]:
    for question in dataset.questions:
        if not isinstance(question, EvidenceQuestion):
            yield _Judged(question.text, question.grades, _name(None))
        elif question.evidence:
            yield _Judged(question.text, dict.fromkeys(question.evidence, 1), _name(question.project))


def _name(project: str | None) -> str:
    return "eval" if project is None else f"eval-{project}"
