"""The command line: the list of its commands, how they are loaded and shown, and how each ends.

A command is imported on first use, so that no other one waits for what it needs.
"""

import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from rag_context import errors
from rag_context._version import __version__

if TYPE_CHECKING:
    from rag_context.cli.console import Console

T = TypeVar("T")

_COMMANDS = {
    "install": "install:install",
    "uninstall": "install:uninstall",
    "serve": "serve:serve",
    "embed-server": "serve:embed_server",
    "index": "index_files:index",
    "watch": "index_files:watch",
    "import-history": "history_commands:import_history",
    "remember": "verbs:remember",
    "recall": "verbs:recall",
    "search": "search_command:search",
    "get": "memory_commands:get",
    "list": "memory_commands:list_documents",
    "similar": "memory_commands:similar",
    "delete": "memory_commands:delete",
    "correct": "memory_commands:correct",
    "history": "memory_commands:history",
    "forget": "memory_commands:forget",
    "log": "memory_commands:log",
    "review": "memory_commands:review",
    "undo": "memory_commands:undo",
    "status": "status:status",
    "health": "status:health",
    "doctor": "doctor:doctor",
    "stats": "status:stats",
    "why": "memory_commands:why",
    "clear-queries": "status:clear_queries",
    "config": "configure:show_config",
    "key": "configure:key",
    "reindex": "maintenance_commands:reindex",
    "check": "maintenance_commands:check",
    "export": "transfer_commands:export_index",
    "import": "transfer_commands:import_index",
    "backup": "transfer_commands:backup",
    "restore": "transfer_commands:restore_backup",
    "adopt": "adopt:adopt",
    "move": "maintenance_commands:move",
    "eval": "measure:measure",
    "validate": "server_checks:validate",
    "bench": "server_checks:bench",
    "collections": "collections_commands:group",
    "project": "project_commands:group",
    "mcp": "mcp:mcp",
}
"""The module and the function, or the group, of each command, in the order of `--help`."""

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
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = unwrapped(self.help)

    def get_params(self, ctx: Any) -> Any:
        return plain(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """A command in the list of commands; its module is imported when it or its own help is run."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(name)
        self._module, _, self._attribute = place.partition(":")
        self._loaded: Any = None

    def load(self) -> Any:
        if self._loaded is None:
            module = import_module(f"rag_context.cli.{self._module}")
            self._loaded = _built(str(self.name), getattr(module, self._attribute))
        return self._loaded

    def summary(self) -> str:
        """The first paragraph of its help, from its source: to list commands none of them is imported."""
        texts = _docstrings(self._module)
        return first_paragraph(texts.get(self._attribute, texts[""]))

    def make_context(self, *args: Any, **options: Any) -> Any:
        """The command's own context: with it, it takes the place of this one."""
        command = self.load()
        if not gc.isenabled():
            gc.freeze()  # no collection visits what was loaded
            gc.enable()
        return command.make_context(*args, **options)


@cache
def _docstrings(module: str) -> dict[str, str | None]:
    """Those of a module of commands, by the names of its functions; its own has none."""
    import ast  # noqa: PLC0415  (only for the list of commands)

    parsed = ast.parse(Path(__file__).with_name(f"{module}.py").read_text("utf-8"))
    functions = (node for node in parsed.body if isinstance(node, ast.FunctionDef))
    return {"": ast.get_docstring(parsed), **{node.name: ast.get_docstring(node) for node in functions}}


def first_paragraph(text: str | None) -> str:
    """The beginning of a docstring, in one line."""
    return " ".join(str(text).split("\n\n", maxsplit=1)[0].split())


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
        if not isinstance(param.process_value, partial):  # the same parameters are listed several times
            param.process_value = partial(_processed, param, param.process_value)
        if param.param_type_name == "argument":
            name = param.metavar or param.name.upper()
            param.get_usage_pieces = lambda _ctx, name=name: [name]
            param.display_type_rich = _nothing
        elif param.is_flag:
            param.metavar = ""
    return shown


def _processed(param: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """The value of a parameter; what was not typed, or is a text as it is, needs none of Typer's converters.

    Those are made by pydantic, one for each option of the command.
    """
    is_one = param.nargs == 1 and not param.multiple
    kind = getattr(param, "type_descriptor", None)
    parser = kind and kind.parameter_info.parser
    if value is None and not param.required:
        value = None if is_one else ()
    elif value and isinstance(value, str) and is_one and kind is not None and (parser or kind.annotation is str):
        value = parser(value) if parser else value
    else:
        return convert(ctx, value)
    return value if param.callback is None else param.callback(ctx, param, value)


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
        for name, place in _COMMANDS.items():
            self.add_command(LazyCommand(name, place))

    def list_commands(self, ctx: Any) -> Any:
        """The names of the commands, whose summaries are needed with them."""
        for command in self.commands.values():
            if isinstance(command, LazyCommand) and command.help is None:
                command.help = command.summary()
        return super().list_commands(ctx)

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
    if sys.argv[1:2] not in ([name] for name in _SERVING):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a command as Ctrl-C does
    app(obj=begun)


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """What `asyncio.run` returns of the work of a command; SIGTERM ends it as Ctrl-C does.

    Raises: KeyboardInterrupt (it was ended; what it has done so far stays).
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
        from rag_context.cli.command_line import tune_interpreter  # noqa: PLC0415  (most commands need none)

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
            gc.freeze()  # no later collection visits what is alive now
            self._left -= 1


def tune_interpreter() -> None:
    gc.callbacks.append(FreezeSurvivors())
    sys.setswitchinterval(SWITCH_S)
