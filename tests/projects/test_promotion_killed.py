"""A promotion that is killed leaves the file intact, and the next activation completes it."""

import asyncio
import sys
from pathlib import Path

import pytest

from rag_context.projects.activation import Projects
from rag_context.projects.records import PromotionLevel
from tests.projects.sync_harness import configure, open_sync_harness, write

BEFORE = "---\ntitle: A\n---\n" + "\n\n".join(f"Paragraph {number}." for number in range(30))
STEPS = {
    "before-the-file": (PromotionLevel.STANDARD, PromotionLevel.STANDARD),
    "before-the-index": (PromotionLevel.CRITICAL, PromotionLevel.STANDARD),
    "after-the-index": (PromotionLevel.CRITICAL, PromotionLevel.CRITICAL),
}
"""What the file and what the index say afterwards, by the step at which the process is killed."""


@pytest.fixture
async def folders(tmp_path: Path) -> dict[str, Path]:
    """A project for each step, in which the promotion was killed there."""
    made = {step: tmp_path / step for step in STEPS}
    for folder in made.values():
        configure(folder / "repository")
        write(folder / "repository" / "docs" / "a.md", BEFORE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.projects.promotion_process", *map(str, made.values())
    )
    assert await process.wait() == len(STEPS)
    return made


async def test_a_killed_promotion_is_completed_or_never_was(folders: dict[str, Path]) -> None:
    for step, (in_file, in_index) in STEPS.items():
        folder = folders[step]
        path = folder / "repository" / "docs" / "a.md"
        critical = BEFORE.replace("title: A\n", "title: A\npromotion_level: critical\n")
        assert path.read_text() == (BEFORE if in_file is PromotionLevel.STANDARD else critical), step
        async with open_sync_harness(folder) as harness:
            projects = Projects(harness.indexer, harness.documents)
            tenant = next(iter(await harness.documents.tenants()))
            found = (await projects.document_lists.of(tenant)).by_path("a.md")
            assert found is not None
            assert found.promotion_level is in_index, step
            stored = await harness.documents.get(found.id)
            assert stored is not None
            assert (f"promotion:{in_index.label}" in stored.metadata.tags) is True
            activation = await projects.activate(str(folder / "repository"))
            await projects.aclose()
            found = (await projects.document_lists.of(activation.tenant)).by_path("a.md")
            assert found is not None
            assert found.promotion_level is in_file, step
            assert [document.path for document in (await projects.document_lists.of(tenant)).documents] == ["a.md"]
