"""Retrieval quality on labelled collections, by searches and by the project tools."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.interface_quality import TOOLS, InterfaceOutcomes, evaluate_projects
from benchmarks.quality_page import page

from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError
from rag_context.evaluation.datasets import Dataset, LabelledQuestion, LabelledText, load_dataset
from rag_context.evaluation.quality import (
    BUDGET_TOKENS,
    evaluate,
    measuring,
    open_measured,
    ranked_documents,
    within_budget,
)
from rag_context.evaluation.report import Outcomes
from rag_context.search.query import Mode, Query
from rag_context.settings import Settings
from rag_context.testing import Fault
from tests.evaluation.collections import write_graded, write_spans
from tests.memory.harness import ServiceHarness


@pytest.fixture
async def harness() -> ServiceHarness:
    made = ServiceHarness()
    await made.bound.bind()
    return made


def quiet(_doing: str, _done: int, _total: int) -> None:
    """Ignore the progress."""


async def test_a_collection_of_graded_documents_is_measured_in_every_mode(
    harness: ServiceHarness, tmp_path: Path
) -> None:
    """R-4: text, vector and hybrid side by side."""
    outcome = await evaluate(harness.service, load_dataset(write_graded(tmp_path / "animals")), quiet)
    assert (outcome.dataset, outcome.documents, outcome.queries) == ("animals", 3, 2)
    assert set(outcome.scores) == {Mode.TEXT, Mode.VECTOR, Mode.HYBRID}
    hybrid = outcome.scores[Mode.HYBRID]
    assert set(hybrid) == {"nDCG@10", "recall@10", "MRR@10", "success@3"}
    assert hybrid["nDCG@10"] == [1.0, 1.0]
    assert outcome.lost == 0.0


async def test_answering_characters_are_found_where_the_title_moved_them(
    harness: ServiceHarness, tmp_path: Path
) -> None:
    dataset = load_dataset(write_spans(tmp_path / "spans"))
    outcome = await evaluate(harness.service, dataset, quiet)
    assert outcome.scores[Mode.TEXT] == {"answer in 1000 tokens": [1.0]}
    assert outcome.lost is None


async def test_progress_is_reported_up_to_the_end(harness: ServiceHarness, tmp_path: Path) -> None:
    received: list[tuple[str, int, int]] = []
    dataset = load_dataset(write_graded(tmp_path / "animals"))
    await evaluate(harness.service, dataset, lambda *reported: received.append(reported))
    assert received[2] == ("Indexing", 3, 3)
    assert received[-1] == ("Searching", 6, 6)


async def test_a_relevant_document_below_the_threshold_counts_as_lost(harness: ServiceHarness) -> None:
    """Half of the judged documents share one word in three with the query and lie below the gate."""
    texts = (
        LabelledText("near", "", "foxes hunt voles"),
        LabelledText("far", "", "foxes " + "and other words entirely " * 20),
    )
    asked = LabelledQuestion("1", "foxes hunt voles", {"near": 1, "far": 1})
    outcome = await evaluate(harness.service, Dataset("d", texts, (asked,), by_spans=False), quiet)
    assert outcome.lost == pytest.approx(0.5)


async def test_ten_documents_are_ranked_although_one_fills_the_first_passages(harness: ServiceHarness) -> None:
    long = " ".join(f"Foxes hunt voles in field {i}, and {'more ' * 60}is said." for i in range(60))
    short = tuple(LabelledText(f"s{i}", "", f"Voles are small, number {i}.") for i in range(11))
    asked = LabelledQuestion("1", "foxes hunt voles", {"s0": 1})
    dataset = Dataset("d", (LabelledText("long", "", long), *short), (asked,), by_spans=False)
    answers: list[int] = []
    outcome = await evaluate(harness.service, dataset, lambda *reported: answers.append(reported[1]))
    first = await harness.service.rank(Query("foxes hunt voles", limit=20, mode=Mode.TEXT, min_score=0.0))
    assert len({result.passage.document_id for result in first.results}) == 1
    assert outcome.scores[Mode.TEXT]["recall@10"] == [1.0]


async def test_queries_that_are_labelled_unanswerable_are_counted(harness: ServiceHarness) -> None:
    texts = (LabelledText("fox", "", "foxes hunt voles at dusk"),)
    questions = (
        LabelledQuestion("1", "foxes hunt voles", {"fox": 1}),
        LabelledQuestion("2", "price of copper", {"fox": 1}),
    )
    outcome = await evaluate(harness.service, Dataset("d", texts, questions, by_spans=False), quiet)
    assert outcome.unanswerable == pytest.approx(0.5)


async def test_a_failing_part_ends_the_measurement_instead_of_spoiling_it(
    harness: ServiceHarness, tmp_path: Path
) -> None:
    dataset = load_dataset(write_graded(tmp_path / "animals"))
    await evaluate(harness.service, dataset, quiet)
    harness.embedder.fault = Fault(BackendDataError("embedder", "nonsense"))
    with pytest.raises(BackendUnavailableError, match="level 2"):
        await evaluate(harness.service, dataset, quiet)


async def test_a_document_that_got_no_vectors_ends_the_measurement(harness: ServiceHarness, tmp_path: Path) -> None:
    harness.embedder.fault = Fault(BackendDataError("embedder", "nonsense"))
    with pytest.raises(InvalidInputError, match="was deferred"):
        await evaluate(harness.service, load_dataset(write_graded(tmp_path / "animals")), quiet)


async def test_a_document_that_no_index_accepts_is_named(harness: ServiceHarness) -> None:
    dataset = Dataset("d", (LabelledText("a", "", "foxes\0hunt"),), (LabelledQuestion("q", "foxes", {"a": 1}),), False)
    with pytest.raises(InvalidInputError, match="document 'a' cannot be indexed: content must not hold the NUL"):
        await evaluate(harness.service, dataset, lambda *_: None)


async def test_only_what_fits_the_budget_is_read(harness: ServiceHarness) -> None:
    words = " ".join(f"w{i}" for i in range(3000))
    for number in range(3):
        await harness.index(f"fox {number}. {words}", source=f"s{number}")
    answer = await harness.service.rank(Query("fox w1 w2", limit=200, min_score=0.0))
    names = {result.passage.document_id: result.passage.source for result in answer.results}
    read = within_budget(answer.results, names, harness.fake.tokenizer)
    lengths = [
        len(harness.fake.tokenizer.offsets(result.passage.chunk.text[: end - start]))
        for result, (_, start, end) in zip(answer.results, read, strict=False)
    ]
    assert sum(lengths) == BUDGET_TOKENS
    assert len(answer.results) > len(read)
    assert len(ranked_documents(answer.results, names)) == len(names)


def test_a_measurement_has_its_own_folder_and_all_the_time_it_needs(tmp_path: Path) -> None:
    settings = measuring(Settings(), tmp_path)
    assert settings.data_dir == tmp_path
    assert settings.search.deadline_ms >= 10_000
    assert settings.indexing.redaction == "off"
    assert Settings().search.deadline_ms == 450


def nothing(_doing: str, _done: int, _total: int) -> None:
    """No one watches."""


PROMOTED = "---\npromotion_level: critical\n---\n"
"""Before a document, it puts it in front of equals for the tools, and means nothing to a plain search."""


async def test_the_tools_rank_as_a_search_does_and_a_difference_shows(tmp_path: Path) -> None:
    dataset = load_dataset(write_graded(tmp_path / "graded"))
    async with open_measured(Settings(), tmp_path / "index") as service:
        found = await evaluate_projects(service, dataset, tmp_path / "project", nothing)
        assert (found.documents, found.queries) == (3, 2)
        assert found.same_order == dict.fromkeys(TOOLS, 1.0)
        assert {tuple(found.scores[tool]["nDCG@10"]) for tool in TOOLS} == {(1.0, 1.0)}
        outcomes = InterfaceOutcomes(by_tool=[found])
        (row, *_) = outcomes.as_object()["projects"]
        assert row["tools"] == dict.fromkeys(TOOLS, 1.0)
        assert "| graded | first ten as in the search | 100.0% | 100.0% | 100.0% |" in page(
            Outcomes(), outcomes, Path("q.md")
        )
        *others, last = dataset.documents  # which answers neither question
        other = replace(dataset, documents=(*others, LabelledText(last.id, "", f"{PROMOTED}{last.content}")))
        worse = await evaluate_projects(service, other, tmp_path / "other", nothing)
        assert worse.same_order == {"search": 1.0, "semantic_search": 0.0, "rag_query": 0.0}


async def test_a_collection_that_is_graded_by_spans_is_rejected(tmp_path: Path) -> None:
    dataset = load_dataset(write_spans(tmp_path / "spans"))
    async with open_measured(Settings(), tmp_path / "index") as service:
        with pytest.raises(InvalidInputError, match="judged by spans"):
            await evaluate_projects(service, dataset, tmp_path / "project", nothing)
