"""`mcp`: serve one MCP client over stdin and stdout, on the index itself.

The opening request is answered before anything heavy is loaded; the index and its model follow behind it.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from rag_context.api.toolsets import Toolset, Toolsets, toolsets_named
from rag_context.cli.command_line import ExitCode, exit_code, report
from rag_context.cli.console import Console
from rag_context.cli.options import ConfigOptions, option, with_options
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.logs import configure_logging
from rag_context.server.hook_socket import answering_hooks
from rag_context.server.mcp.handshake import CATEGORY, Opening, OpeningReader, claim_wire
from rag_context.settings import Settings

if TYPE_CHECKING:
    from rag_context.agents.answering import HookAnswers
    from rag_context.server.mcp.protocol import Memory

_QUIET = "warning"


@with_options
def mcp(
    context: typer.Context,
    tools: str = option(
        Toolset.MEMORY.value,
        "Which tools to offer, separated by commas: memory (the agents' memory), operations, projects (their "
        "documents), collections, search-fetch (the two that ChatGPT calls), or all.",
        metavar="SETS",
    ),
    structured: bool = option(False, "Answer with structured content, for programs, instead of text."),
    print_config: str | None = option(None, "Print what goes into a client's configuration file.", metavar="CLIENT"),
    url: str | None = option(None, "With --print-config: a running server's address, not a command.", metavar="URL"),
    *,
    options: ConfigOptions,
) -> ExitCode:
    """Serve one MCP client over stdin and stdout, on the index itself; clients run this.

    Any number of them may use one data directory at the same time, beside a server. Logs go to stderr.
    `rag-context install` writes what clients need to run it.
    """
    if print_config is not None:
        from rag_context.cli.install import Target, run_print  # noqa: PLC0415  (a client that starts this waits)

        return run_print(print_config, Target(tools, url, options))
    if url is not None:
        raise InvalidInputError("--url goes with --print-config CLIENT, or with `rag-context install CLIENT`")
    return _run(options, toolsets_named(tools), context.find_object(OpeningReader), structured=structured)


def _run(
    options: ConfigOptions, toolsets: Toolsets, conversation: OpeningReader | None, *, structured: bool
) -> ExitCode:
    loaded = options.load_available()
    # Until the loop runs there is nothing to finish.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(ExitCode.OK))
    if sys.stdin.isatty():
        Console().note("Waiting for an MCP client on stdin. Clients start this by themselves: rag-context install")
    if conversation is None:
        opening = Opening(toolsets, listed_words(loaded.settings), structured=structured)
        conversation = OpeningReader(claim_wire(), opening)
        conversation.wait_until_needed()
    if conversation.is_over:
        return ExitCode.OK
    log = loaded.settings.log
    configure_logging(log.level if loaded.sources["log.level"] != "default" else _QUIET, log.format)

    async def serve() -> ExitCode:
        memory = _OpenedMemory(loaded.settings)
        async with answering_hooks(loaded.settings.data_dir, "mcp", memory.hooks):
            return await _serve_client(memory, toolsets, conversation, structured=structured)

    return asyncio.run(serve())


def listed_words(settings: Settings) -> dict[str, Sequence[str]]:
    """The values of listed fields to which the configuration adds some."""
    added = settings.vocabulary
    if not (added.content_types or added.categories):
        return {}
    from rag_context.api.wire import Vocabulary  # noqa: PLC0415  (a client that starts this waits)

    words = Vocabulary.extended(added.content_types, added.categories)
    return {"contentType": words.content_types, **({CATEGORY: words.categories} if added.categories else {})}


async def _serve_client(
    memory: "_OpenedMemory", toolsets: Toolsets, conversation: OpeningReader, *, structured: bool
) -> ExitCode:
    # The protocol's library takes most of a second to load, after the opening was answered.
    from rag_context.server.mcp.stdio import serve_stdio  # noqa: PLC0415

    keeper = asyncio.create_task(memory.keep(), name="memory")
    serving = asyncio.create_task(serve_stdio(conversation, memory.opened, toolsets, structured=structured), name="mcp")
    with suppress(NotImplementedError):  # Windows has no such signal to wait for
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await serving
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})
    if not keeper.cancelled():
        keeper.result()  # a bug while opening surfaces here
    return exit_code(memory.failure) if memory.failure is not None else ExitCode.OK


class _OpenedMemory:
    """The memory, opened behind the conversation. If that fails, every call gets the reason, and so does stderr."""

    def __init__(self, settings: Settings) -> None:
        self.failure: RagContextError | None = None
        self._settings = settings
        self._memory: asyncio.Future[Memory] = asyncio.get_running_loop().create_future()

    async def opened(self) -> "Memory":
        """The memory. Raises: MCPError (it cannot be opened, and why)."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415
        from mcp_types import INTERNAL_ERROR  # noqa: PLC0415

        # One caller that gives up must not take the opening from the others.
        try:
            return await asyncio.shield(self._memory)
        except RagContextError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None

    async def hooks(self) -> "HookAnswers":
        """What answers hooks of agents. Raises: RagContextError (the memory cannot be opened)."""
        hooks = (await asyncio.shield(self._memory)).service.hooks
        assert hooks is not None  # noqa: S101  (every service that settings open has them)
        return hooks

    async def keep(self) -> None:
        try:
            # In a thread beside the conversation: what the memory is made of takes a second to load.
            mcp_memory = await asyncio.to_thread(import_module, "rag_context.cli.mcp_memory")
            await mcp_memory.hold(self._settings, self._memory)
        except RagContextError as error:
            self.failure = error
            report(error, Console())
            self._fail(error)
        except Exception:
            self._fail(RagContextError("The memory could not be opened; the log says why"))
            raise

    def _fail(self, error: RagContextError) -> None:
        if not self._memory.done():
            self._memory.set_exception(error)
            self._memory.exception()  # retrieved: there may never be a call
