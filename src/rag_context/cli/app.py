"""The command line: the list of its commands, and what holds for all of them.

A command is imported when it is asked for, so that no other one waits for what it needs.
"""

import sys
from typing import Annotated, Any

import typer

from rag_context._version import __version__
from rag_context.cli.commands import Group, LazyCommand
from rag_context.cli.exits import EPILOG, ExitCode, report
from rag_context.cli.gc_tuning import tune_interpreter
from rag_context.errors import RagContextError

_COMMANDS = {
    "serve": ("serve:serve", "Serve HTTP until SIGTERM or Ctrl-C."),
    "embed-server": (
        "embed_server:embed_server",
        "Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.",
    ),
    "index": (
        "index:index",
        "Index files, folders and streams of documents; changed files are replaced, unchanged ones are not read.",
    ),
    "watch": ("watch:watch", "Index files and folders and follow their changes, until SIGTERM or Ctrl-C."),
    "search": ("search:search", "Search for the passages that answer a question."),
    "get": ("documents:get", "Print one document in full."),
    "list": ("documents:list_documents", "List the stored documents, newest first."),
    "similar": ("documents:similar", "Find the documents that are most similar to a stored one."),
    "delete": (
        "documents:delete",
        "Delete a document, or all of a source or session, for good; asks first, and says how many there are.",
    ),
    "health": ("status:health", "Check every component; exits 1 when the system is not healthy."),
    "stats": ("status:stats", "Show statistics of the searches of a time range."),
    "config": ("configure:show_config", "Print every setting and its source, secrets masked."),
    "key": ("configure:key", "Make an API key: stdout gets the key, stderr the lines for rag-context.toml."),
    "reindex": (
        "maintenance:reindex",
        "Re-embed the whole index with the configured model; the old vectors answer until the new ones are complete.",
    ),
    "check": (
        "maintenance:check",
        "Check the index for missing, damaged and inconsistent data, beside a running server.",
    ),
    "export": (
        "transfer:export_index",
        "Write all documents with their chunks and vectors to a file, beside a running server.",
    ),
    "import": (
        "transfer:import_index",
        "Import an export, beside a running server; existing documents stay unchanged.",
    ),
    "eval": (
        "evaluate:measure",
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
"""Commands that keep others waiting while they pause. In the rest a collection is left alone: Ctrl-C during one would
be raised in the callback that hears of it, and be lost there."""


class Commands(Group):
    """Turns our own errors into one sentence and an exit status; a bug keeps its traceback."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (place, summary) in _COMMANDS.items():
            self.add_command(LazyCommand(name, f"rag_context.cli.{place}", summary))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
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
