"""The command line: the list of its commands, how they are loaded and shown, and how each ends.

A command is imported on first use, so that no other one waits for what it needs.
"""

import gc
import signal
import sys
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from rag_context import errors
from rag_context._version import __version__

if TYPE_CHECKING:
    from rag_context.cli.console import Console

T = TypeVar("T")

_COMMANDS = {
    "install": (
        "install:install",
        "Connect agents to the memory: tools, hooks and instructions in the settings of their clients.",
    ),
    "uninstall": (
        "install:uninstall",
        "Remove what `install` wrote, in this user's settings and in all projects; the documents stay.",
    ),
    "serve": ("serve:serve", "Serve HTTP until SIGTERM or Ctrl-C."),
    "embed-server": (
        "serve:embed_server",
        "Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.",
    ),
    "index": (
        "index_files:index",
        "Index files, folders and streams of documents; changed files are replaced, unchanged ones are not read.",
    ),
    "watch": ("index_files:watch", "Index files and folders and follow their changes, until SIGTERM or Ctrl-C."),
    "import-history": (
        "history_commands:import_history",
        "Take in the sessions that agents' clients keep on this machine: what people and models said, no more.",
    ),
    "remember": (
        "verbs:remember",
        "Keep a decision, an instruction, a fix or a note in your own words; agents find it from now on.",
    ),
    "recall": ("verbs:recall", "Print the passages that answer a question, as agents read them."),
    "search": ("memory_commands:search", "Search for the passages that answer a question."),
    "get": ("memory_commands:get", "Print one document in full."),
    "list": ("memory_commands:list_documents", "List the stored documents, newest first."),
    "similar": ("memory_commands:similar", "Find the documents that are most similar to a stored one."),
    "delete": (
        "memory_commands:delete",
        "Delete a document, or all of a source or session, for good, after a confirmation that says how many.",
    ),
    "correct": (
        "change_commands:correct",
        "Store the right version of a document, and hide the wrong one; its content is kept.",
    ),
    "history": ("change_commands:history", "List the versions that corrections have made of a document, oldest first."),
    "forget": (
        "change_commands:forget",
        "Forget documents, after a list and a confirmation; `undo` restores them for 30 days, unless they are purged.",
    ),
    "log": ("change_commands:log", "List what was changed in the memory, newest first, and what of it can be undone."),
    "review": (
        "change_commands:review",
        "List what probably needs a decision; at a terminal, ask for it. Nothing happens by itself.",
    ),
    "undo": ("change_commands:undo", "Undo a change of the log; the undoing can be undone too."),
    "status": (
        "status:status",
        "Show the state of every component, the searches of the last day and the latest documents; exits as `health`.",
    ),
    "health": ("status:health", "Check every component; exits 1 when the system is not healthy."),
    "doctor": (
        "doctor:doctor",
        "Say what is wrong with this installation, and how to repair it; exits 1 when something is wrong.",
    ),
    "stats": ("status:stats", "Show statistics of the searches of a time range."),
    "why": (
        "change_commands:why",
        "Explain what one session of an agent was shown, moment by moment, with the passages and their scores.",
    ),
    "clear-queries": (
        "status:clear_queries",
        "Delete the records of searches for good: the queries, and the statistics made of them. Documents stay.",
    ),
    "config": (
        "configure:show_config",
        "Print what is set, and the settings of what is in use, each with its source; secrets are masked.",
    ),
    "key": ("configure:key", "Make an API key: stdout gets the key, stderr the lines for rag-context.toml."),
    "reindex": (
        "maintenance_commands:reindex",
        "Re-embed the whole index with the configured model; the old vectors answer until the new ones are complete.",
    ),
    "check": (
        "maintenance_commands:check",
        "Check the index for missing, damaged and inconsistent data, beside a running server.",
    ),
    "export": (
        "transfer_commands:export_index",
        "Write all documents with their chunks and vectors to a file, beside a running server.",
    ),
    "import": (
        "transfer_commands:import_index",
        "Import an export, beside a running server; existing documents stay unchanged.",
    ),
    "backup": (
        "transfer_commands:backup",
        "Write the data directory to one file, as it is at one moment, beside a running server.",
    ),
    "restore": (
        "transfer_commands:restore_backup",
        "Put a backup into an empty data directory, once all of it was read and checked.",
    ),
    "adopt": (
        "adopt:adopt",
        "Copy documents of other programs, in MongoDB, Qdrant or Chroma, into this index; the originals stay.",
    ),
    "move": (
        "maintenance_commands:move",
        "Move the whole index and its collections to PostgreSQL, or back to the data directory.",
    ),
    "eval": (
        "measure:measure",
        "Measure retrieval quality on labelled sets: recall, nDCG@10 and more, by mode, category and session.",
    ),
    "validate": (
        "server_checks:validate",
        "Check a running server: components, vectors, retrieval accuracy, latency; exits 1 if a check fails.",
    ),
    "bench": (
        "server_checks:bench",
        (
            "Measure a running server under load: latency, failures, and how complete its answers are; exits 1 beyond "
            "a limit."
        ),
    ),
    "collections": (
        "collections_commands:group",
        "Named sets of documents with vectors, embedded or on a server of their own.",
    ),
    "project": (
        "project_commands:group",
        (
            "Project documents: a repository's Markdown files, with links and promotion levels. The commands work "
            "on the project of the current folder, else on the one that is named."
        ),
    ),
    "mcp": ("mcp:mcp", "Serve one MCP client over stdin and stdout, on the index itself; clients run this."),
}
"""Where each command is, in the order of `--help`, and its line there: the first paragraph of its own help."""

_SERVING = ("serve", "embed-server", "mcp")
"""Commands that keep others waiting while they pause. In the rest garbage collection is left alone: Ctrl-C during one
would be raised in the callback of the collector, and be lost there."""


class Command(TyperCommand):
    """A command whose usage reads `index [OPTIONS] PATH...`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = unwrapped(self.help)

    def get_params(self, ctx: Any) -> Any:
        return plain(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands, shown the same way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = unwrapped(self.help)

    def get_params(self, ctx: Any) -> Any:
        return plain(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """What the list of commands shows of one; its module is imported when it or its own help is run.

    `place` is the `module:attribute` of the function or the group that does it, `summary` the first paragraph of its
    help.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._place = place
        self._loaded: Any = None

    def load(self) -> Any:
        if self._loaded is None:
            module, _, attribute = self._place.partition(":")
            self._loaded = _built(str(self.name), getattr(import_module(module), attribute))
        return self._loaded

    def make_context(self, *args: Any, **options: Any) -> Any:
        """The command's own context: with it, it takes the place of this one."""
        command = self.load()
        if not gc.isenabled():
            gc.freeze()  # no collection visits what was loaded
            gc.enable()
        return command.make_context(*args, **options)


def _built(name: str, what: Any) -> Any:
    around = typer.Typer()
    if isinstance(what, typer.Typer):
        for command in what.registered_commands:
            command.cls = Command
        around.add_typer(what, name=name, cls=Group, epilog=EPILOG)
    else:
        around.command(name, cls=Command, epilog=EPILOG)(what)
    return typer.main.get_group(around).commands[name]


def unwrapped(text: str | None) -> str | None:
    """Paragraphs of a docstring, one line each, so that the terminal's width alone breaks them."""
    return text and "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def plain(params: Iterable[Any]) -> list[Any]:
    """The same parameters: an argument is its name in the usage, and neither it nor a flag has a type beside it."""
    shown = list(params)
    for param in shown:
        if param.param_type_name == "argument":
            name = param.metavar or param.name.upper()
            param.get_usage_pieces = lambda _ctx, name=name: [name]
            param.display_type_rich = _nothing
        elif param.is_flag:
            param.metavar = ""
    return shown


def _nothing(ctx: Any) -> None:
    """What stands in the column of types."""


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    TRY_AGAIN = 75
    CONFIGURATION = 78
    INTERRUPTED = 130


EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "a failure, or an unhealthy state",
    ExitCode.USAGE: "invalid usage",
    ExitCode.TRY_AGAIN: "the server is unavailable or busy: try again",
    ExitCode.CONFIGURATION: "invalid configuration",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM",
}

EPILOG = "Exit status: " + ", ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
"""What stands below the help of every command."""


def exit_code(error: errors.RagContextError) -> ExitCode:
    match error:
        case errors.ConfigurationError() | errors.ForeignIndexError():
            return ExitCode.CONFIGURATION
        case errors.InvalidInputError():
            return ExitCode.USAGE
        case errors.BackendUnavailableError():
            return ExitCode.TRY_AGAIN
        case _:
            return ExitCode.FAILED


def report(error: errors.RagContextError, console: "Console") -> ExitCode:
    """Say what went wrong, a line per problem."""
    for line in str(error).splitlines():
        console.error(_for_people(line))
    return exit_code(error)


def _for_people(sentence: str) -> str:
    """A sentence whose advice names the command instead of the tool: services write it for agents, as servers do."""
    command = "un `rag-context project activate`"
    return sentence.replace("Call activate_project", f"R{command}").replace("call activate_project", f"r{command}")


class Commands(Group):
    """Turns our own errors into one sentence and an exit status; a bug keeps its traceback."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (place, summary) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"rag_context.cli.{place}", summary))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except errors.RagContextError as error:
            from rag_context.cli.console import Console  # noqa: PLC0415  (what prints takes long to load)

            raise typer.Exit(report(error, Console())) from error
        except KeyboardInterrupt:
            from rag_context.cli.console import Console  # noqa: PLC0415

            Console().note("interrupted.")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    name="rag-context",
    cls=Commands,
    help="The memory that AI agents share: index chats, decisions, code and documents; search for the few passages "
    "that matter.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def loaded() -> Any:
    """The command line with all its commands, for what reads it as a whole."""
    command_line: Any = typer.main.get_command(app)
    command_line.commands = {name: command.load() for name, command in command_line.commands.items()}
    return command_line


def main(begun: object = None) -> None:
    """Run the command line; `begun` is the conversation with its client that `mcp` began before this was loaded."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A file name or a passage that the terminal cannot show must not end a command with a traceback.
            reconfigure(errors="backslashreplace")
    app(obj=begun)


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """What `asyncio.run` returns of the work of a command; SIGTERM ends it as Ctrl-C does.

    Raises:
        KeyboardInterrupt: it was ended. What it has done so far stays.
    """
    import asyncio  # noqa: PLC0415  (help is shown without it)

    async def interruptible() -> T:
        task = asyncio.current_task()
        # Not through SIGINT, which a shell's job in the background ignores. Windows and other threads cannot do this.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task and task.cancel())
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"rag-context {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand in _SERVING:
        from rag_context.cli.interpreter import tune_interpreter  # noqa: PLC0415  (most commands need none)

        tune_interpreter()
