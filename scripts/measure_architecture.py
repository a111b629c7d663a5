"""Print the figures of docs/design/architecture.md: modules, lines, comments, and how many modules a request enters.

    python scripts/measure_architecture.py

The modules that a request enters are those of rag_context in which a function is called, in any thread, by a request to
an open service in this process that has served one of its kind before.
"""

import ast
import asyncio
import io
import json
import re
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_
from pathlib import Path
from types import FrameType
from typing import Any

from rag_context.api.operations.routes import OPERATIONS
from rag_context.server.app import create_app
from rag_context.server.options import ServerOptions
from rag_context.server.running import bind, build_server
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rag_context"
INTRICATE = ("search", "resilience", "ingest", "stores", "embedders", "files")
"""Packages with locks, caches, numerics and an order in time, in which comments have to say why."""

_INSIDE = f"{SOURCE}/"
GUARDS = ("resilience/dependency.py", "resilience/deadline.py")
APART_S = 0.5
"""So that the records of one request are written before the next."""
REPEATS = 4
"""How often each kind of request is made."""


@dataclass
class Calls:
    """What one request called of rag_context: how often each function, and how deep the stack was in each of them."""

    functions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By file and qualified name; a coroutine counts each time that it goes on."""
    deepest: int = 0

    @property
    def figures(self) -> tuple[int, int, int, int, int]:
        """Modules, functions, frames, frames of deadlines and breakers, and the deepest stack."""
        guards = sum(count for (file, _), count in self.functions.items() if file in GUARDS)
        modules = len({file for file, _ in self.functions})
        return modules, len(self.functions), self.functions.total(), guards, self.deepest


class Watch:
    """Records the calls of functions of rag_context, in any thread."""

    def __init__(self) -> None:
        self._calls: Calls | None = None

    def install(self) -> None:
        """Watch the calls of this thread and of every later one; `of` says when to record them."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    async def of(self, work: Callable[[], Awaitable[Any]]) -> Calls:
        """What `work` calls."""
        calls = self._calls = Calls()
        try:
            await work()
        finally:
            self._calls = None
        return calls

    def _record(self, frame: FrameType, event: str, _arg: Any) -> None:
        calls = self._calls
        if calls is not None and event == "call" and frame.f_code.co_filename.startswith(_INSIDE):
            code = frame.f_code
            calls.functions[code.co_filename.removeprefix(_INSIDE), code.co_qualname] += 1
            depth, outer = 0, frame.f_back
            while outer is not None:
                # From the handler of the operation on: what stands above it is the same for all of them.
                depth += outer.f_code.co_filename.startswith(_INSIDE)
                if outer.f_code.co_filename.endswith("_service.py"):
                    calls.deepest = max(calls.deepest, depth)
                outer = outer.f_back


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
    for what, calls in asyncio.run(_requests()).items():
        rows.append((f"modules, functions, frames (of guards; deepest) of {what}", calls.figures))
        if len(sys.argv) > 1:
            sys.stdout.writelines(f"{n} {f}:{q}\n" for (f, q), n in sorted(calls.functions.items()))
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


async def _requests() -> dict[str, Calls]:
    """What a request of each kind calls over HTTP, after a first one."""
    watch = Watch()
    watch.install()
    options = ServerOptions(port=0)
    with tempfile.TemporaryDirectory() as name:
        async with open_service(Settings(data_dir=Path(name) / "data")) as service:
            await service.wait_ready(60.0)
            listener = bind(options)
            server = build_server(create_app(service, options), options)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            calls = {}
            for what, work in (await _kinds(partial(_send, reader, writer), Path(name))).items():
                await work(1)
                found = []
                for number in range(REPEATS):
                    await asyncio.sleep(APART_S)
                    found.append(await watch.of(partial(work, 2 + number)))
                # Of each function the fewest calls: background work does not fall into every request.
                calls[what] = Calls(reduce(and_, [each.functions for each in found]), found[0].deepest)
            writer.close()
            server.stop()
            await serving
    sys.setprofile(None)
    return calls


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: object = None
) -> None:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    reply = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", reply)
    answer = await reader.readexactly(int(length[1])) if length else b""
    assert reply.split(maxsplit=2)[1] in (b"200", b"201"), answer


async def _kinds(send: Callable[..., Awaitable[None]], folder: Path) -> dict[str, Callable[[int], Awaitable[Any]]]:
    config = folder / "repository" / ".rag-context" / "config.json"
    page = folder / "repository" / "docs" / "pumps.md"
    for path, text in ((config, '{"project_name": "measure"}'), (page, "# Pumps\n\nThe pump restarts at noon.\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    tool = partial(send, "POST")
    await tool("/tools/activate_project", {"config_path": str(config)})
    await tool("/collections", {"name": "measure", "embedding_provider": "rag-context"})

    async def search(number: int) -> None:
        await tool("/tools/rag_context_search", {"query": f"When does pump {number} restart?"})

    async def index(number: int) -> None:
        fields = {"contentType": "documentation", "sessionId": "s", "source": f"{number}.md"}
        await tool("/tools/rag_context_index", {"content": f"Pump {number} restarts at noon.", **fields})

    async def project(number: int) -> None:
        await tool("/tools/rag_query", {"query": f"When does pump {number} restart?", "project": "measure"})

    async def collection(number: int) -> None:
        await tool("/collections/measure/query", {"text": f"pump {number}"})

    async def listing(_number: int) -> None:
        await send("GET", "/collections")

    await index(0)
    return {
        "a search": search,
        "an index call": index,
        "a project query": project,
        "a collection query": collection,
        "a list of collections": listing,
    }


if __name__ == "__main__":
    main()
