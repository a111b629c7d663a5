"""Retrieval quality through collections."""

from pathlib import Path

import pytest
from benchmarks.interface_quality import InterfaceOutcomes, evaluate_collections
from benchmarks.quality_page import page

from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceQuestion, EvidenceSet, LabelledItem, load_dataset
from rag_context.evaluation.quality import open_measured
from rag_context.evaluation.report import Outcomes
from rag_context.search.query import Mode
from rag_context.settings import Settings
from tests.evaluation.collections import BREAD, FOX, WHALE, write_graded, write_spans


def quiet(_doing: str, _done: int, _total: int) -> None:
    """Ignore progress."""


async def test_documents_are_measured_as_a_collection(tmp_path: Path) -> None:
    """B-1: collections."""
    dataset = load_dataset(write_graded(tmp_path / "graded"))
    async with open_measured(Settings(), tmp_path / "index") as service:
        found = await evaluate_collections(service, dataset, quiet)
        again = await evaluate_collections(service, dataset, quiet)
    assert again == found
    assert (found.dataset, found.documents, found.queries) == ("graded", 3, 2)
    assert {mode: scores["nDCG@10"] for mode, scores in found.scores.items()} == {
        Mode.TEXT: [1.0, 1.0],
        Mode.VECTOR: [1.0, 1.0],
        Mode.HYBRID: [1.0, 1.0],
    }
    outcomes = InterfaceOutcomes(in_collections=[found])
    assert outcomes.as_object()["collections"][0]["modes"] == {"text": 1.0, "vector": 1.0, "hybrid": 1.0}
    assert "| graded | nDCG@10 | 1.000 (1.000 to 1.000) |" in page(Outcomes(), outcomes, Path("quality.md"))


async def test_each_project_of_a_set_is_a_collection_of_its_own(tmp_path: Path) -> None:
    items = tuple(
        LabelledItem(id_, text, "documentation", project=project)
        for id_, text, project in (("fox", FOX, "wood"), ("bread", BREAD, "wood"), ("whale", WHALE, "sea"))
    )
    asked = (
        EvidenceQuestion("1", "whales that sing", ("whale",), project="sea"),
        EvidenceQuestion("2", "whales that sing", ("fox",), project="wood"),
        EvidenceQuestion("3", "price of copper", project="wood"),
    )
    async with open_measured(Settings(), tmp_path / "index") as service:
        found = await evaluate_collections(service, EvidenceSet("d", items, asked), quiet)
    assert (found.documents, found.queries) == (3, 2)
    assert found.scores[Mode.TEXT]["recall@10"] == [1.0, 0.0]
    assert found.scores[Mode.VECTOR]["recall@10"] == [1.0, 1.0]


async def test_a_set_that_is_judged_by_spans_is_rejected(tmp_path: Path) -> None:
    dataset = load_dataset(write_spans(tmp_path / "spans"))
    assert isinstance(dataset, Dataset)
    async with open_measured(Settings(), tmp_path / "index") as service:
        with pytest.raises(InvalidInputError, match="collections are measured by documents"):
            await evaluate_collections(service, dataset, quiet)
