"""The memory behind `rag-context mcp`: the index, opened beside the conversation, and the tools over it.

One of them indexes files of the agent's own machine. It is not offered over HTTP: there the files would be those of the
server's machine and user, not of the client's.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rag_context.agents.workspace import Workspace, workspace
from rag_context.api import index, parsing, search, verbs, wire
from rag_context.api.handlers import CallContext, Handler
from rag_context.api.operations.memory import INDEX, INDEX_FILES, SEARCH
from rag_context.cli.index_files import open_sync
from rag_context.cli.local_connection import MODEL_WAIT_S, InProcess
from rag_context.cli.summary import FirstFiles, Summary
from rag_context.domain.journal import acting
from rag_context.errors import FieldError, InvalidInputError
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import Gone
from rag_context.files.walk import check_reach, folders_of_work, roots
from rag_context.memory.accesses import recorded_by
from rag_context.memory.service import Service
from rag_context.server.mcp.protocol import Memory
from rag_context.server.tools import build_tools
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service


async def hold(settings: Settings, opened: "asyncio.Future[Memory]") -> None:
    """Open the index, set the result of `opened`, and keep it open until cancelled."""
    words = wire.Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories)
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(open_service(settings))
        stack.enter_context(recorded_by(service.record_access))

        async def ready() -> bool:
            return await service.wait_ready(MODEL_WAIT_S)

        intake = FileIntake(service, settings, Path.cwd())
        handlers: dict[str, Handler] = {
            INDEX_FILES.name: intake.run,
            INDEX.name: partial(_index, service, Path.cwd()),
            SEARCH.name: partial(_search, service, Path.cwd()),
        }
        service.work_on(workspace(Path.cwd()))
        opened.set_result(Memory(service, build_tools(service, words, handlers), ready))
        try:
            await asyncio.Event().wait()
        finally:
            await intake.close()


async def _index(
    service: Service, started_in: Path, request: index.IndexRequest, context: CallContext
) -> index.IndexResponse:
    """Store a document, with the tag of the project that the client works on.

    A document that names a project, by a tag or as one of its project documents, keeps that.
    """
    here = await _workspace(started_in, context)
    if here is not None and request.project is None:
        metadata = request.metadata or parsing.read_fields(index.MetadataFields, {})
        tags = verbs.with_workspace(metadata.tags or (), here.tag)
        request = request.model_copy(update={"metadata": metadata.model_copy(update={"tags": tags})})
    with acting(request.agent):
        return await service.index(request, context)


async def _search(
    service: Service, started_in: Path, request: search.SearchRequest, context: CallContext
) -> search.SearchResponse:
    """Search, where what passages cite is checked against the project that the client works on."""
    here = await _workspace(started_in, context)
    service.work_on(here)
    return await service.search(request, replace(context, project=None if here is None else here.tag))


async def _workspace(started_in: Path, context: CallContext) -> Workspace | None:
    here = workspace(started_in)
    if here is None:  # programs with windows start their servers in the home folder, and name their folders on request
        roots = await context.client_roots() or ()
        here = workspace(Path(roots[0])) if len(roots) == 1 else None
    return here


ANSWER_S = 30.0
"""A call is answered after this long, done or not: clients give up on calls that take much longer."""


@dataclass(slots=True)
class _McpRun:
    task: "asyncio.Task[None]"
    summary: Summary


@dataclass
class FileIntake:
    """Takes files and folders into an open memory; one run for each path at a time.

    A call is answered after `answer_s` while its run goes on.
    """

    service: Service
    settings: Settings
    started_in: Path
    answer_s: float = ANSWER_S
    _runs: dict[tuple[Path, tuple[str, ...]], _McpRun] = field(default_factory=dict)

    async def run(self, request: index.IndexFilesRequest, context: CallContext) -> index.IndexFilesResponse:
        """Take a path in, or say how far the run for it is.

        Raises: InvalidInputError (it is not there, or lies outside of the folders that an agent may index).
        """
        client_roots = await context.client_roots()
        path = await asyncio.to_thread(self._found, request.path, client_roots)
        key = (path, tuple(request.include or ()))
        run = self._runs.get(key)
        if run is None:
            summary = Summary()
            run = self._runs[key] = _McpRun(
                asyncio.create_task(self._take_in(*key, summary), name="index files"), summary
            )
            run.task.add_done_callback(lambda _task: self._runs.pop(key, None))
        end = asyncio.get_running_loop().time() + self.answer_s
        while not run.task.done() and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait({run.task}, timeout=min(left, 1.0))
            seen = run.summary.kept + run.summary.rejected.total + run.summary.skipped.total
            await context.on_progress(seen, seen)
        if run.task.done():
            run.task.result()
        return _response(run.summary, is_done=run.task.done())

    async def close(self) -> None:
        """End what is running; what was acknowledged is skipped by the next run."""
        tasks = [run.task for run in self._runs.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _found(self, given: str, client_roots: Sequence[str] | None) -> Path:
        """The file or folder at a path, if it may be indexed. Raises: InvalidInputError."""
        try:
            folders = [Path(root).resolve() for root in client_roots or ()]
            if client_roots is None:
                folders = folders_of_work(self.started_in, Path.home())
            folders += [Path(root).expanduser().resolve() for root in self.settings.indexing.roots]
            path = (self.started_in / Path(given).expanduser()).resolve()
            check_reach(path, folders)
            if path.exists():
                return path
            sentence = f"There is no file or folder at {path.as_posix()}"
        except (OSError, RuntimeError, ValueError) as error:
            sentence = f"The path cannot be used: {error}"
        raise InvalidInputError(sentence, [FieldError("path", sentence)])

    async def _take_in(self, path: Path, include: tuple[str, ...], summary: Summary) -> None:
        target = InProcess(self.service, self.settings)
        with open_sync(target, self.settings, Labels(), Gone.REPORT, summary.add, include) as sync:
            await sync.run(roots([path]))


def _response(summary: Summary, *, is_done: bool) -> index.IndexFilesResponse:
    return index.IndexFilesResponse(
        status="done" if is_done else "running",
        indexed=summary.counts["indexed"] + summary.counts["deferred"],
        replaced=summary.counts["replaced"],
        unchanged=summary.counts["unchanged"],
        pending=summary.counts["deferred"],
        rejected=summary.rejected.total,
        skipped=summary.skipped.total,
        gone=summary.gone.total,
        left_out=[*_named(summary.rejected), *_named(summary.skipped)][: index.MAX_NAMED],
    )


def _named(files: FirstFiles) -> list[index.LeftOutFile]:
    return [index.LeftOutFile(source=source, reason=reason) for source, reason in files.first]
