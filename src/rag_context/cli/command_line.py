"""The command line: the list of its commands, and what holds for all of them.

A command is imported on first use, so that no other one waits for what it needs.
"""

import gc
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rag_context._version import __version__
from rag_context.cli.commands import EPILOG, ExitCode, Group, LazyCommand, report
from rag_context.errors import RagContextError

_COMMANDS = {
    "serve": ("serve:serve", "Serve HTTP until SIGTERM or Ctrl-C."),
    "embed-server": (
        "serve:embed_server",
        "Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.",
    ),
    "index": (
        "index_files:index",
        "Index files, folders and streams of documents; changed files are replaced, unchanged ones are not read.",
    ),
    "watch": ("watch:watch", "Index files and folders and follow their changes, until SIGTERM or Ctrl-C."),
    "search": ("memory_commands:search", "Search for the passages that answer a question."),
    "get": ("memory_commands:get", "Print one document in full."),
    "list": ("memory_commands:list_documents", "List the stored documents, newest first."),
    "similar": ("memory_commands:similar", "Find the documents that are most similar to a stored one."),
    "delete": (
        "memory_commands:delete",
        "Delete a document, or all of a source or session, for good, after a confirmation that says how many.",
    ),
    "health": ("memory_commands:health", "Check every component; exits 1 when the system is not healthy."),
    "stats": ("memory_commands:stats", "Show statistics of the searches of a time range."),
    "config": ("configure:show_config", "Print every setting and its source, secrets masked."),
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
        "export_import:export_index",
        "Write all documents with their chunks and vectors to a file, beside a running server.",
    ),
    "import": (
        "export_import:import_index",
        "Import an export, beside a running server; existing documents stay unchanged.",
    ),
    "eval": (
        "measure:measure",
        "Measure retrieval quality on labelled collections: nDCG@10, recall, MRR and success by mode.",
    ),
    "validate": (
        "validate:validate",
        "Check that a running server is fit for work: parts, vectors, retrieval accuracy, latency; exits 1 if not.",
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
    "mcp": ("mcp:group", "Serve one MCP client over stdin and stdout, on the index itself; what clients run."),
}
"""Where each command is, in the order of `--help`, and its line there: the first paragraph of its own help."""

_ANSWERING = ("serve", "embed-server", "mcp")
"""Commands that keep others waiting while they pause. In the rest garbage collection is left alone: Ctrl-C during one
would be raised in the callback of the collector, and be lost there."""


class Commands(Group):
    """Turns our own errors into one sentence and an exit status; a bug keeps its traceback."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (place, summary) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"rag_context.cli.{place}", summary))

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command."""
        try:
            return super().invoke(ctx)
        except RagContextError as error:
            from rag_context.cli.console import Screen  # noqa: PLC0415  (what prints takes long to load)

            raise typer.Exit(report(error, Screen())) from error
        except KeyboardInterrupt:
            from rag_context.cli.console import Screen  # noqa: PLC0415

            Screen().note("interrupted.")
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


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rag-context {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""
    if ctx.invoked_subcommand in _ANSWERING:
        tune_interpreter()


LONG_S = 0.01
MOST = 16
"""Freezes at most: cycles among frozen objects that are dropped later stay in memory."""

SWITCH_S = 0.0005
"""Longest time for which a thread keeps the interpreter's lock while others wait for it.

A search passes the lock between threads some fifty times. Beside a thread that computes in Python (parsing, diffing),
each of these passes takes a switch interval; at Python's default of 5 ms that is a quarter of a second and more. At
0.5 ms, beside the activation of a repository of large Markdown files on two busy cores, the 95th percentile of searches
fell from 0.43 to 0.20 s, the longest from 0.9 to 0.4 s.
"""

_OLDEST = 2


class FreezeSurvivors:
    """A `gc.callbacks` entry that freezes the survivors of a long full collection.

    A process of ours keeps half a million objects from its start to its end: modules, schemas, the tokeniser. A full
    collection goes through all of them, which takes a tenth of a second and more, in which no request is answered. So
    what outlives a full collection that took long is set aside, and is not visited by the next ones.

    Args:
        long_s: a full collection that took longer than these seconds is long.
        most: how often its survivors are set aside.
    """

    def __init__(self, long_s: float = LONG_S, most: int = MOST) -> None:
        self._long_s = long_s
        self._left = most
        self._started = 0.0

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """`phase` is `start` or `stop`; `info` holds the generation."""
        if info["generation"] != _OLDEST or not self._left:
            return
        if phase == "start":
            self._started = time.perf_counter()
        elif time.perf_counter() - self._started > self._long_s:
            gc.freeze()
            self._left -= 1


def tune_interpreter() -> None:
    """Shorten pauses, from now on until the process ends."""
    gc.callbacks.append(FreezeSurvivors())
    sys.setswitchinterval(SWITCH_S)
