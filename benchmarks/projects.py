"""A knowledge base of a thousand documents: taken up again unchanged, edited, and asked, beside a plain search."""

import asyncio
import json
import statistics
import time
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from rag_context.api.project_tenants import ActivateProjectRequest
from rag_context.api.projects import RagQueryRequest, SemanticSearchRequest
from rag_context.api.search import SearchRequest
from rag_context.projects.callers import CallerId
from rag_context.service.projects import ProjectService
from rag_context.service.service import Service
from rag_context.settings import Settings, load_settings
from rag_context.wiring import open_service

DOCUMENTS = 1_000
QUESTIONS = 100
EDITS = 5
PATIENCE_S = 600.0
CRITICAL = 3
LINKS = 3

_CALLER = CallerId(session="benchmark")


def measure(scratch: Path, documents: int = DOCUMENTS) -> list[Figure]:
    """Write the files, index them, and measure in a second process's place: the same index, opened anew."""
    config = _written(scratch / "repository", documents)
    return asyncio.run(_measure(scratch, config, documents))


async def _measure(scratch: Path, config: Path, documents: int) -> list[Figure]:
    async with open_service(_settings(scratch)) as service:
        projects = await _opened(service)
        while not (await projects.activate(_activation(config), _unheard, caller=_CALLER)).complete:
            pass
    async with open_service(_settings(scratch)) as service:
        projects = await _opened(service)
        started = time.perf_counter()
        activated = await projects.activate(_activation(config), _unheard, caller=_CALLER)
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


async def _opened(service: Service) -> ProjectService:
    assert await service.wait_ready(PATIENCE_S)
    assert service.projects is not None
    return service.projects


async def _edit(projects: ProjectService, path: Path) -> float:
    """Seconds from a changed file to the answer that holds the change."""
    word = f"zyx{path.stem}zyx"
    started = time.perf_counter()
    _append(path, f"\n\nThe new word is {word}.\n")
    while True:
        found = await projects.search(SemanticSearchRequest(query=word), caller=_CALLER, request_id="benchmark")
        if any(result.path == path.name for result in found.results):
            return time.perf_counter() - started
        assert time.perf_counter() - started < PATIENCE_S
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
        await service.search(search, request_id="benchmark")
        plain.append((time.perf_counter() - started) * 1000.0)
        question = RagQueryRequest(query=writer.question())
        started = time.perf_counter()
        await projects.query(question, caller=_CALLER, request_id="benchmark")
        context.append((time.perf_counter() - started) * 1000.0)
    return statistics.median(plain), statistics.median(context)


def _written(repository: Path, documents: int) -> Path:
    """The repository: documents of a few sections, each with links to others; returns its configuration."""
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
    config = repository / ".rag-context" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"project_name": "benchmark"}), encoding="utf-8")
    return config


def _name(number: int) -> str:
    return f"document-{number:04d}.md"


def _activation(config: Path) -> ActivateProjectRequest:
    return ActivateProjectRequest(config_path=str(config), branch_name="main")


def _settings(scratch: Path) -> Settings:
    return load_settings(flags={"data_dir": scratch / "index"}, environ={}, cwd=scratch).settings


async def _unheard(_done: int, _total: int) -> None:
    """Nobody listens."""
