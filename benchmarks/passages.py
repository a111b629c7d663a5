"""What the passages of answers look like, on public repositories with questions of our own.

    python -m benchmarks.passages HTTPX_FOLDER STARLETTE_FOLDER JEKYLL_FOLDER

A folder is a checkout, named as its table in `passage_set/questions.toml`. Counted among the passages that the
questions return: those of front matter alone; torn ones, which hold a part of a code fence that the model could read
whole; those that belong to an earlier passage of the answer, because they go on where it ends, or end where it begins,
in the same section, and those of them that do not follow it directly; further ones of its section, and those that stand
in the text before what is shown of it; and near-duplicates of an earlier one.
"""

import asyncio
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure, as_markdown
from rag_context.cli.index_files import open_sync
from rag_context.domain.documents import CODE, Metadata
from rag_context.domain.provenance import front_matter
from rag_context.evaluation.quality import TIMEOUT_MS, complete_answer
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import Gone
from rag_context.files.walk import roots
from rag_context.ingest.chunking.prose import fences
from rag_context.memory.background_maintenance import Duties
from rag_context.memory.hook_service import LocalTarget
from rag_context.memory.service import Service
from rag_context.search.query import Query, Result
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

QUESTIONS = Path(__file__).parent / "passage_set" / "questions.toml"
BUDGETS = (300, 1_000)
"""Tokens of an answer that are read."""

LIMIT = 5
KINDS = {
    "of front matter alone": 1.0,
    "with a torn fence": 1.0,
    "that belong to an earlier one": None,
    "that do not follow what they belong to": 1.0,
    "of a section already shown": None,
    "before what is shown of their section": 1.0,
    "near-duplicates": 1.0,
}
"""What is counted, and how many per cent are tolerated."""

ALIKE = 0.9
"""Share of their words, repeats counted, that near-duplicates have in common."""

_WORD = re.compile(r"\w+")


async def measure(folders: Sequence[Path]) -> list[Figure]:
    """The figures of all repositories together."""
    counts, answered, asked = Counter[str](), Counter[int](), 0
    questions = tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))
    for folder in folders:
        with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as scratch:
            settings = Settings(data_dir=Path(scratch))
            search = settings.search.model_copy(update={"deadline_ms": TIMEOUT_MS})
            settings = settings.model_copy(update={"search": search})
            async with open_service(settings, duties=Duties.ALL) as service:
                await _index(service, settings, folder)
                for question, answer in questions[folder.name].items():
                    results = (await complete_answer(service, question, Query(question, limit=LIMIT))).results
                    for kinds in _kinds(service, results):
                        counts.update(kinds)
                        counts["all"] += 1
                    asked += 1
                    answered.update(budget for budget in BUDGETS if _holds(service, results, answer, budget))
    shares = [
        Figure(f"passages {kind}", 100.0 * counts[kind] / counts["all"], "%", most) for kind, most in KINDS.items()
    ]
    found = [Figure(f"answered within {budget} tokens", answered[budget], "", note=f"of {asked}") for budget in BUDGETS]
    return [Figure("passages", counts["all"], ""), *shares, *found]


async def _index(service: Service, settings: Settings, folder: Path) -> None:
    await service.wait_ready(60)
    target, labels = LocalTarget(service, 4), Labels(None, None, Metadata())
    with open_sync(target, settings, labels, Gone.REPORT, lambda _: None) as sync:
        await sync.run(roots([folder]))
    while (await service.health()).pending_documents:  # noqa: ASYNC110  (no event says when)
        await asyncio.sleep(0.2)


def _kinds(service: Service, results: Sequence[Result]) -> Iterator[list[str]]:
    """What is wrong with each passage of an answer."""
    earlier: list[tuple[Result, Counter[str]]] = []
    for result in results:
        chunk, source = result.passage.chunk, result.passage.source
        start, end = chunk.span.start, chunk.span.start + len(chunk.text)
        kinds, words = [], Counter(_WORD.findall(chunk.text.lower()))
        is_prose = result.passage.content_type != CODE
        if is_prose:
            text = Path(source).read_text(encoding="utf-8", errors="replace")
            if not text[max(start, front_matter(text)[1]) : end].strip():
                kinds.append("of front matter alone")
            if any(
                first < end and start < last and not (start <= first and last <= end + 1)
                for first, last in fences(text)
                if len(service.tokenizer.offsets(text[first:last])) <= service.model().window
            ):
                kinds.append("with a torn fence")
        of_section = [
            other.passage.chunk.span
            for other, _ in earlier
            if is_prose and other.passage.source == source and other.passage.chunk.span.heading == chunk.span.heading
        ]
        if of_section:
            kinds.append("of a section already shown")
        if any(start < span.start for span in of_section):
            kinds.append("before what is shown of their section")
        if any(end == span.start or start == span.end for span in of_section):
            kinds.append("that belong to an earlier one")
            if earlier[-1][0].passage.source != source or earlier[-1][0].passage.chunk.span.end != start:
                kinds.append("that do not follow what they belong to")
        if any(_alike(words, others) for _, others in earlier):
            kinds.append("near-duplicates")
        earlier.append((result, words))
        yield kinds


def _alike(one: Counter[str], other: Counter[str]) -> bool:
    return (one & other).total() >= ALIKE * (one | other).total()


def _holds(service: Service, results: Sequence[Result], answer: str, budget: int) -> bool:
    """Whether the first tokens of an answer hold some words."""
    read = ""
    for result in results:
        text = result.passage.chunk.text
        tokens = service.tokenizer.offsets(text)[:budget]
        read += f"\n{text[: tokens[-1][1]] if tokens else ''}"
        budget -= len(tokens)
        if budget <= 0:
            break
    return " ".join(answer.split()) in " ".join(read.split())


if __name__ == "__main__":
    print(as_markdown(asyncio.run(measure([Path(folder).resolve() for folder in sys.argv[1:]]))))
