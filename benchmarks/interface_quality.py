"""Measures retrieval on labelled documents through the features above a plain search: project tools and collections.

For the project tools the documents are the files of a project: the tools and a plain search of the same tenant must
bring the same documents in the same order, so a regression of the order shows as a difference between columns.
A collection holds whole documents, one vector each.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rag_context.api.collection_operations import AddDocumentsRequest, NewCollectionRequest, QueryCollectionRequest
from rag_context.api.handlers import CallContext
from rag_context.api.parsing import read_fields
from rag_context.api.project_queries import RagQueryRequest, SemanticSearchRequest
from rag_context.api.projects import ActivateProjectRequest
from rag_context.api.search import QUERY_CHARS
from rag_context.collections.collection_service import CollectionService
from rag_context.collections.labels import OWN_EMBEDDER
from rag_context.domain.callers import CallerId
from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import BackendUnavailableError, ConflictError, InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceQuestion, EvidenceSet, LabelledQuestion, LabelledText
from rag_context.evaluation.measures import estimate
from rag_context.evaluation.quality import FIRST, MODES, OnProgress, QualityScores, by_grades, quality_scores
from rag_context.evaluation.report import LEADING, Grid, percent, with_interval
from rag_context.memory.service import Service
from rag_context.projects.project_service import ProjectService
from rag_context.search.query import Level, Mode, Query

BATCH = 100

TOOLS = ("search", "semantic_search", "rag_query")
"""The columns: a plain search of the project's tenant, and the two tools."""

CHUNKS_PER_DOCUMENT = 4
_NAME = "eval"
_CONTEXT = CallContext(_NAME, caller=CallerId(session=_NAME))


@dataclass(frozen=True, slots=True)
class ProjectOutcome:
    """Scores by tool, and for which share of the queries each tool ranks the first ten as the search does."""

    dataset: str
    documents: int
    queries: int
    scores: dict[str, QualityScores]
    same_order: dict[str, float]


async def evaluate_projects(
    service: Service, dataset: Dataset, directory: Path, on_progress: OnProgress
) -> ProjectOutcome:
    """Write a collection's documents into a project of its own, and run all its queries with the tools.

    Raises:
        InvalidInputError: the files cannot be written, or the collection is judged by spans.
        BackendError: a component failed, so that the measurement would be incomplete.
    """
    projects = service.projects
    if dataset.by_spans or projects is None:
        raise InvalidInputError(f"{dataset.name} is judged by spans; the project tools are measured by documents")
    names = _write(directory, dataset.documents)
    tenant = await _activate(projects, directory, on_progress)
    rankings: dict[str, list[list[str]]] = {tool: [] for tool in TOOLS}
    for number, question in enumerate(dataset.questions, 1):
        paths = await _ranked_paths(service, projects, tenant, question.text[:QUERY_CHARS])
        for tool, found in paths.items():
            rankings[tool].append([names[path] for path in found])
        on_progress("Searching projects", number, len(dataset.questions))
    scores = {}
    for tool, ranked in rankings.items():
        rows = [
            by_grades(ranking, question.grades) for question, ranking in zip(dataset.questions, ranked, strict=True)
        ]
        scores[tool] = quality_scores(rows)
    plain = rankings[TOOLS[0]]
    same = {
        tool: sum(ours == theirs for ours, theirs in zip(rankings[tool], plain, strict=True)) / len(plain)
        for tool in TOOLS
    }
    return ProjectOutcome(dataset.name, len(names), len(dataset.questions), scores, same)


def _write(directory: Path, documents: Sequence[LabelledText]) -> dict[str, str]:
    """Write every document as a file; returns its own id by its path."""
    names = {f"{number}.md": document.id for number, document in enumerate(documents)}
    try:
        (directory / ".rag-context").mkdir(parents=True, exist_ok=True)
        (directory / ".rag-context" / "config.json").write_text(json.dumps({"project_name": _NAME}))
        (directory / "docs").mkdir(exist_ok=True)
        for path, document in zip(names, documents, strict=True):
            (directory / "docs" / path).write_text(document.content, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{directory} cannot be written: {error.strerror}") from error
    return names


async def _activate(projects: ProjectService, directory: Path, on_progress: OnProgress) -> Tenant:
    async def note(done: int, total: int) -> None:
        on_progress("Indexing a project", done, total)

    request = read_fields(ActivateProjectRequest, {"config_path": str(directory)})
    context = replace(_CONTEXT, on_progress=note)
    while True:
        reply = await projects.activate(request, context)
        if reply.complete:
            break
    if reply.warnings:
        raise InvalidInputError(f"A file of the project was not indexed: {reply.warnings[0]}")
    return Tenant(reply.project_name, reply.branch_name, reply.path_hash)


async def _ranked_paths(
    service: Service, projects: ProjectService, tenant: Tenant, question: str
) -> dict[str, list[str]]:
    """The paths of the first documents that each tool returns."""
    query = Query(
        question,
        limit=2 * CHUNKS_PER_DOCUMENT * FIRST,
        min_score=0.0,
        where=Filter(tenant),
        per_document=CHUNKS_PER_DOCUMENT,
    )
    answer = await service.rank(query)
    listed = await projects.questions.search(
        read_fields(SemanticSearchRequest, {"query": question, "limit": FIRST, "min_relevance_score": 0.0}), _CONTEXT
    )
    fields = {"query": question, "max_sources": FIRST, "min_relevance_score": 0.0, "link_depth": 0}
    context = await projects.questions.query(read_fields(RagQueryRequest, fields), _CONTEXT)
    for level in (answer.level, Level(listed.fallback_level), Level(context.fallback_level)):
        if level is not Level.PRIMARY:
            raise BackendUnavailableError("search", f"A question was answered at level {level}")
    ranked = dict.fromkeys(str(result.passage.metadata.extra["path"]) for result in answer.results)
    return {
        "search": list(ranked)[:FIRST],
        "semantic_search": [source.path for source in listed.results],
        "rag_query": [source.path for source in context.sources],
    }


@dataclass(frozen=True, slots=True)
class CollectionOutcome:
    """Scores by mode of the documents that a collection's `query` returns."""

    dataset: str
    documents: int
    queries: int
    scores: dict[Mode, QualityScores]


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
            fields = {"name": question.collection, "text": question.text, "mode": mode.value, "top_k": FIRST}
            found = await collections.query(read_fields(QueryCollectionRequest, fields))
            rows[mode].append(by_grades([result.id for result in found.results], question.grades))
        on_progress("Searching collections", number, len(questions))
    scores = {mode: quality_scores(found) for mode, found in rows.items()}
    return CollectionOutcome(dataset.name, sum(map(len, stored.values())), len(questions), scores)


async def _store(collections: CollectionService, name: str, documents: Sequence[Mapping[str, str]]) -> None:
    fields = {"name": name, "embedding_provider": OWN_EMBEDDER}
    with suppress(ConflictError):  # an index that was kept: the same documents are stored again under the same ids
        await collections.create(read_fields(NewCollectionRequest, fields))
    for start in range(0, len(documents), BATCH):
        batch = {"name": name, "documents": documents[start : start + BATCH]}
        await collections.add(read_fields(AddDocumentsRequest, batch))


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


def project_dataset(dataset: EvidenceSet) -> Dataset:
    """The same set as documents with grades, for the project tools."""
    texts = tuple(LabelledText(item.id, "", item.content) for item in dataset.items)
    questions = tuple(
        LabelledQuestion(question.id, question.text, dict.fromkeys(question.evidence, 1))
        for question in dataset.questions
        if question.evidence
    )
    return Dataset(dataset.name, texts, questions, by_spans=False)


Extra: TypeAlias = Literal["projects", "collections"]
"""An interface whose answers are measured too: tools of projects, or collections."""


@dataclass(frozen=True, slots=True)
class InterfaceOutcomes:
    """What interfaces return for the sets of one run.

    `extras` are measured with every set that allows it, the tools of projects always with a set that is a project.
    """

    extras: Collection[Extra] = ()
    by_tool: list[ProjectOutcome] = field(default_factory=list)
    in_collections: list[CollectionOutcome] = field(default_factory=list)

    async def measure(
        self, service: Service, dataset: Dataset | EvidenceSet, directory: Path, on_progress: OnProgress
    ) -> None:
        """Measure one set, whose index is in the directory."""
        if isinstance(dataset, EvidenceSet):
            documents = project_dataset(dataset) if dataset.is_project else None
        else:
            documents = dataset if "projects" in self.extras and not dataset.by_spans else None
        if documents is not None:
            self.by_tool.append(await evaluate_projects(service, documents, directory / "project", on_progress))
        if "collections" in self.extras and not (isinstance(dataset, Dataset) and dataset.by_spans):
            self.in_collections.append(await evaluate_collections(service, dataset, on_progress))

    def as_object(self) -> dict[str, Any]:
        """The measurements for JSON."""
        return {
            "projects": [
                {
                    "dataset": each.dataset,
                    "measure": measure,
                    "tools": {tool: estimate(each.scores[tool][measure]).mean for tool in TOOLS},
                    "sameOrder": each.same_order,
                }
                for each in self.by_tool
                for measure in each.scores[TOOLS[0]]
            ],
            "collections": [
                {
                    "dataset": each.dataset,
                    "measure": measure,
                    "modes": {mode.value: estimate(each.scores[mode][measure]).mean for mode in MODES},
                }
                for each in self.in_collections
                for measure in each.scores[Mode.HYBRID]
            ],
        }

    def grids(self) -> list[Grid]:
        """A table of each interface that was measured."""
        found = []
        if self.by_tool:
            headings: tuple[str, ...] = ("collection", "measure", *TOOLS)
            found.append(Grid("Through the project tools", headings, tuple(_tool_rows(self.by_tool)), len(headings)))
        if self.in_collections:
            headings = ("set", "measure", *(mode.value for mode in MODES))
            found.append(Grid("As collections", headings, tuple(_collection_rows(self.in_collections)), len(headings)))
        return found


def _collection_rows(outcomes: Sequence[CollectionOutcome]) -> Iterator[tuple[str, ...]]:
    for each in outcomes:
        for measure in (LEADING, "recall@10"):
            means = (with_interval(estimate(each.scores[mode][measure])) for mode in MODES)
            yield each.dataset, measure, *means


def _tool_rows(by_tool: Sequence[ProjectOutcome]) -> Iterator[tuple[str, ...]]:
    for each in by_tool:
        for measure in each.scores[TOOLS[0]]:
            means = (with_interval(estimate(each.scores[tool][measure])) for tool in TOOLS)
            yield each.dataset, measure, *means
        yield each.dataset, "first ten as in the search", *(percent(each.same_order[tool]) for tool in TOOLS)
