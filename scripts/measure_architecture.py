"""Print the figures of docs/architecture.md: modules, lines, comments, and how many modules a request enters.

    python scripts/measure_architecture.py

The modules that a request enters are those of rag_context in which a function is called, in any thread, by a request to
an open service in this process that has served one of its kind before.
"""

import ast
import asyncio
import io
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rag_context.api.collection_operations import NewCollectionRequest, QueryCollectionRequest
from rag_context.api.handlers import CallContext
from rag_context.api.index import IndexRequest
from rag_context.api.operations.routes import OPERATIONS
from rag_context.api.project_queries import RagQueryRequest
from rag_context.api.projects import ActivateProjectRequest
from rag_context.api.search import SearchRequest
from rag_context.domain.callers import CallerId
from rag_context.memory.service import Service
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rag_context"
INTRICATE = ("search", "resilience", "ingest", "stores", "embedders", "files")
"""Packages with locks, caches, numerics and an order in time, in which comments have to say why."""

CONTEXT = CallContext("r", caller=CallerId(session="measure"))
REPEATS = 4
"""The fewest modules of so many requests are counted: background work may fall into one of them."""


class Entered:
    """Records the modules in which a function is called."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._records = False

    def install(self) -> None:
        """Watch the calls of this thread and of every later one; `of` says when to record them."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    async def of(self, work: Callable[[], Awaitable[Any]]) -> int:
        """How many modules `work` enters."""
        self.files, self._records = set(), True
        try:
            await work()
        finally:
            self._records = False
        return len(self.files)

    def _record(self, frame: FrameType, event: str, _arg: Any) -> None:
        if self._records and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(str(SOURCE)):
                self.files.add(name)


def main() -> None:
    """Print the figures as a table."""
    modules = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    importers = _importers(modules)
    short = [path for path in modules if _lines(modules[path]) < 60 and path.name != "__init__.py"]
    names = Counter(path.name for path in modules if path.name not in {"__init__.py", "__main__.py"})
    rows: list[tuple[str, object]] = [
        ("modules", len(modules)),
        ("lines", sum(map(_lines, modules.values()))),
        ("modules above 400 lines", sum(_lines(text) > 400 for text in modules.values())),
        ("modules below 60 lines with one importer", sum(len(importers[path]) == 1 for path in short)),
        ("file names that stand more than once", sum(count > 1 for count in names.values())),
        ("lines with a comment", f"{_comment_share(modules.values()):.1%}"),
        *(
            (f"lines with a comment in `{name}/`", f"{_comment_share(_package(modules, name)):.1%}")
            for name in INTRICATE
        ),
        ("operations, each declared once", len(OPERATIONS)),
    ]
    rows += [(f"modules that {what} enters", count) for what, count in asyncio.run(_requests()).items()]
    for what, value in rows:
        sys.stdout.write(f"| {what} | {value} |\n")


def _lines(text: str) -> int:
    return text.count("\n")


def _importers(modules: dict[Path, str]) -> dict[Path, set[Path]]:
    known = {_dotted(path): path for path in modules}
    found: dict[Path, set[Path]] = defaultdict(set)
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
                for name in named:
                    if name in known and known[name] != path:
                        found[known[name]].add(path)
    return found


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(modules: dict[Path, str], name: str) -> list[str]:
    return [text for path, text in modules.items() if path.is_relative_to(SOURCE / name)]


def _comment_share(texts: Collection[str]) -> float:
    tokens = (token for text in texts for token in tokenize.generate_tokens(io.StringIO(text).readline))
    return sum(token.type == tokenize.COMMENT for token in tokens) / sum(map(_lines, texts))


async def _requests() -> dict[str, int]:
    """How many modules a request of each kind enters, after a first one."""
    entered = Entered()
    entered.install()
    with tempfile.TemporaryDirectory() as name:
        async with open_service(Settings(data_dir=Path(name) / "data")) as service:
            await service.wait_ready(60.0)
            kinds = await _kinds(service, Path(name))
            counts = {}
            for what, work in kinds.items():
                await work(1)
                counts[what] = min([await entered.of(partial(work, 2 + number)) for number in range(REPEATS)])
    sys.setprofile(None)
    return counts


async def _kinds(service: Service, folder: Path) -> dict[str, Callable[[int], Awaitable[Any]]]:
    projects, collections = service.projects, service.collections
    assert projects is not None
    assert collections is not None
    config = folder / "repository" / ".rag-context" / "config.json"
    page = folder / "repository" / "docs" / "pumps.md"
    for path, text in ((config, '{"project_name": "measure"}'), (page, "# Pumps\n\nThe pump restarts at noon.\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    await projects.activate(ActivateProjectRequest(config_path=str(config)), CONTEXT)
    await collections.create(NewCollectionRequest(name="measure", embedding_provider="rag-context"))

    async def search(number: int) -> None:
        await service.search(SearchRequest(query=f"When does pump {number} restart?"), CONTEXT)

    async def index(number: int) -> None:
        fields = {"contentType": "documentation", "sessionId": "s", "source": f"{number}.md"}
        request = IndexRequest.model_validate({"content": f"Pump {number} restarts at noon.", **fields})
        await service.index(request, CONTEXT)

    async def project(number: int) -> None:
        await projects.questions.query(RagQueryRequest(query=f"When does pump {number} restart?"), CONTEXT)

    async def collection(number: int) -> None:
        await collections.query(QueryCollectionRequest(name="measure", text=f"pump {number}"))

    await index(0)
    return {"a search": search, "an index call": index, "a project query": project, "a collection query": collection}


if __name__ == "__main__":
    main()
