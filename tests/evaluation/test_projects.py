"""A collection through the project tools: they rank as a plain search does, and a difference shows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Text, load_dataset
from rag_context.evaluation.quality import TOOLS, evaluate_projects, open_measured
from rag_context.evaluation.report import as_json, page
from rag_context.settings import Settings
from tests.evaluation.collections import write_graded, write_spans


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
        assert {tuple(found.scores[tool].by_measure["nDCG@10"]) for tool in TOOLS} == {(1.0, 1.0)}
        (row, *_) = json.loads(as_json([], [found]))["projects"]
        assert row["tools"] == dict.fromkeys(TOOLS, 1.0)
        assert "| graded | first ten as in the search | 100.0% | 100.0% | 100.0% |" in page([], Path("q.md"), [found])
        *others, last = dataset.documents  # which answers neither question
        other = replace(dataset, documents=(*others, Text(last.id, "", f"{PROMOTED}{last.content}")))
        worse = await evaluate_projects(service, other, tmp_path / "other", nothing)
        assert worse.same_order == {"search": 1.0, "semantic_search": 0.0, "rag_query": 0.0}


async def test_a_collection_that_is_graded_by_spans_is_rejected(tmp_path: Path) -> None:
    dataset = load_dataset(write_spans(tmp_path / "spans"))
    async with open_measured(Settings(), tmp_path / "index") as service:
        with pytest.raises(InvalidInputError, match="judged by spans"):
            await evaluate_projects(service, dataset, tmp_path / "project", nothing)
