"""A knowledge base of a thousand documents: indexed again unchanged, edited, and queried, beside a plain search."""

import asyncio
import json
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from rag_context.api.handlers import CallContext
from rag_context.api.project_queries import RagQueryRequest, SemanticSearchRequest
from rag_context.api.projects import ActivateProjectRequest
from rag_context.api.search import SearchRequest
from rag_context.domain.callers import CallerId
from rag_context.evaluation.measures import percentile
from rag_context.memory.service import Service
from rag_context.projects.project_service import ProjectService
from rag_context.settings import Settings, load_settings
from rag_context.wiring.opening import open_service

DOCUMENTS = 1_000
QUESTIONS = 100
WARM_UP = 10
EDITS = 5
MOST_TOKENS = 8_000
TIMEOUT_S = 600.0
CRITICAL = 3
LINKS = 3

PAGES = 300
LARGE = 3
LARGE_CHARS = 1024 * 1024

_CONTEXT = CallContext("benchmark", caller=CallerId(session="benchmark"))


def measure(scratch: Path, documents: int = DOCUMENTS) -> list[Figure]:
    """Write the files, index them, and measure in a second process's place: the same index, opened again."""
    config = _written(scratch / "repository", documents)
    return asyncio.run(_measure(scratch, config, documents))


async def _measure(scratch: Path, config: Path, documents: int) -> list[Figure]:
    async with open_service(_settings(scratch)) as service:
        projects = await _opened(service)
        while not (await projects.activate(_activation(config), _CONTEXT)).complete:
            pass
    async with open_service(_settings(scratch)) as service:
        projects = await _opened(service)
        started = time.perf_counter()
        activated = await projects.activate(_activation(config), _CONTEXT)
        activation_s = time.perf_counter() - started
        assert (activated.complete, activated.total_docs) == (True, documents)
        edit_s = [await _edit(projects, config.parent.parent / "docs" / _name(number)) for number in range(EDITS)]
        plain, context = await _asked(service, projects, activated.project_name, activated.path_hash)
    return [
        Figure(f"activation of {documents} unchanged documents", activation_s, "s", 1),
        Figure("an edit is visible in answers", max(edit_s), "s", 2, note=f"the slowest of {EDITS}"),
        Figure("context assembly / plain search", context / plain, "x", 3, note="p50, in turn"),
        Figure("context assembly, p50", context, "ms"),
        Figure("plain search in the same documents, p50", plain, "ms"),
    ]


def beside_large(scratch: Path, pages: int, large_chars: int = LARGE_CHARS) -> list[Figure]:
    """The same questions to two indexes of the same pages, alternately; one has three large documents as well."""
    return asyncio.run(_beside_large(scratch, pages, large_chars))


async def _beside_large(scratch: Path, pages: int, large_chars: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        both = []
        for name, large in (("pages", 0), ("large", LARGE)):
            config = _written(scratch / name / "repository", pages, large, large_chars)
            service = await stack.enter_async_context(open_service(_settings(scratch / name)))
            projects = await _opened(service)
            while not (activated := await projects.activate(_activation(config), _CONTEXT)).complete:
                pass
            assert activated.total_docs == pages + large
            while (await service.health()).pending_documents:  # noqa: ASYNC110  (nothing tells when)
                await asyncio.sleep(0.1)
            both.append(projects)
        without, beside, shown = await _asked_both(*both)
    name = f"context among {pages} pages and {LARGE} documents of 1 MiB"
    return [
        Figure(f"{name} / without those", statistics.median(beside) / statistics.median(without), "x", 1.5, note="p50"),
        Figure(f"{name} / without those, p95", percentile(beside, 0.95) / percentile(without, 0.95), "x"),
        Figure(f"{name}, p50", statistics.median(beside), "ms"),
        Figure(f"questions whose context had a large document, of {QUESTIONS}", shown, ""),
    ]


async def _asked_both(without: ProjectService, beside: ProjectService) -> tuple[list[float], list[float], int]:
    """Milliseconds of each question, and how many of the contexts contained a part of a large document."""
    writer = Writer(seed=29)
    times: tuple[list[float], list[float]] = ([], [])
    shown = 0
    for number in range(QUESTIONS + WARM_UP):
        question = RagQueryRequest(query=writer.question())
        for projects, taken in zip((without, beside), times, strict=True):
            started = time.perf_counter()
            answer = await projects.questions.query(question, _CONTEXT)
            if number >= WARM_UP:
                taken.append((time.perf_counter() - started) * 1000.0)
            assert 0 < answer.token_count <= MOST_TOKENS
        shown += number >= WARM_UP and any(source.excerpt for source in answer.sources)
    return *times, shown


async def _opened(service: Service) -> ProjectService:
    assert await service.wait_ready(TIMEOUT_S)
    assert service.projects is not None
    return service.projects


async def _edit(projects: ProjectService, path: Path) -> float:
    """Seconds from a changed file to the answer that holds the change."""
    word = f"zyx{path.stem}zyx"
    started = time.perf_counter()
    _append(path, f"\n\nThe new word is {word}.\n")
    while True:
        found = await projects.questions.search(SemanticSearchRequest(query=word), _CONTEXT)
        if any(result.path == path.name for result in found.results):
            return time.perf_counter() - started
        assert time.perf_counter() - started < TIMEOUT_S
        await asyncio.sleep(0.02)


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


async def _asked(service: Service, projects: ProjectService, project: str, path_hash: str) -> tuple[float, float]:
    """p50 of a plain search and of an assembled context in milliseconds; every question is new to both."""
    writer = Writer(seed=23)
    plain, context = [], []
    for _ in range(QUESTIONS):
        search = SearchRequest(query=writer.question(), project=project, branch="main", path_hash=path_hash)
        started = time.perf_counter()
        await service.search(search, _CONTEXT)
        plain.append((time.perf_counter() - started) * 1000.0)
        question = RagQueryRequest(query=writer.question())
        started = time.perf_counter()
        await projects.questions.query(question, _CONTEXT)
        context.append((time.perf_counter() - started) * 1000.0)
    return statistics.median(plain), statistics.median(context)


def _written(repository: Path, documents: int, large: int = 0, large_chars: int = 0) -> Path:
    """The repository: documents of a few sections, each with links to others; returns its configuration.

    The large ones have the same text in more sections, and links as well.
    """
    writer = Writer(seed=19)
    docs = repository / "docs"
    docs.mkdir(parents=True)
    for number in range(documents):
        level = "critical" if number < CRITICAL else "standard"
        links = " ".join(f"[see]({_name((number * 7 + step * 13) % documents)})" for step in range(1, LINKS + 1))
        sections = "\n\n".join(f"## Part {part}\n\n{writer.passage(3)}" for part in range(3))
        front = f"---\ntitle: Document {number}\npromotion_level: {level}\n---\n"
        text = f"{front}# Document {number}\n\n{writer.passage(2)} {links}\n\n{sections}\n"
        (docs / _name(number)).write_text(text, encoding="utf-8")
    for number in range(large):
        (docs / f"large-{number}.md").write_text(_large(writer, number, large_chars, documents), encoding="utf-8")
    config = repository / ".rag-context" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"project_name": "benchmark"}), encoding="utf-8")
    return config


def _large(writer: Writer, number: int, chars: int, documents: int) -> str:
    parts = [f"# Large document {number}"]
    size = 0
    while size < chars:
        target = _name(len(parts) * 7 % documents)
        parts.append(f"## Chapter {len(parts)}\n\n{writer.passage(9)}\n\n{writer.passage(9)} [see]({target})")
        size += len(parts[-1]) + 2
    return "\n\n".join(parts)[:chars]  # a larger file is not read


def _name(number: int) -> str:
    return f"document-{number:04d}.md"


def _activation(config: Path) -> ActivateProjectRequest:
    return ActivateProjectRequest(config_path=str(config), branch_name="main")


def _settings(scratch: Path) -> Settings:
    return load_settings(flags={"data_dir": scratch / "index"}, environ={}, cwd=scratch).settings
