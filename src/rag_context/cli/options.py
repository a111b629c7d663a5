"""The options that commands share, the settings these lead to, and how a function becomes a command."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from rag_context.cli.command_line import ExitCode, exit_code
from rag_context.cli.console import Console
from rag_context.errors import BackendUnavailableError
from rag_context.settings import Loaded, check_available, load_settings

if TYPE_CHECKING:
    from rag_context.api.wire import WireResponse


def named_path(text: str) -> Path:
    """The path that was typed. Raises: BadParameter if it is empty, for `Path("")` is the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty. The current folder is '.'")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=named_path,
        help="Folder of the index (data_dir).",
        rich_help_panel="Configuration",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # reported like any other configuration that cannot work
        help="Configuration file instead of ./rag-context.toml or the user's own.",
        rich_help_panel="Configuration",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for a confirmation.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """The options that every command has: where its settings and the index are."""

    data_dir: DataDir = None
    config: Config = None

    def load(self, flags: Mapping[str, object] = {}) -> Loaded:
        """The settings as this command line, the environment and the files make them.

        `flags` are further options by dotted key, None where they were not used.

        Raises:
            ConfigurationError: Something cannot be used.
        """
        return load_settings(flags={**flags, "data_dir": self.data_dir}, config_file=self.config, cwd=Path.cwd())

    def load_available(self, flags: Mapping[str, object] = {}) -> Loaded:
        loaded = self.load(flags)
        check_available(loaded.settings, loaded.sources)
        return loaded


Answer = TypeVar("Answer", bound="WireResponse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConfigOptions):
    as_json: AsJson = False

    def show(self, answer: Answer, print_for_people: Callable[[Answer, Console], None]) -> None:
        console = Console()
        if self.as_json:
            console.line(answer.to_json().decode())
        else:
            print_for_people(answer, console)


Source: TypeAlias = tuple[Sequence[Parameter], Callable[[Mapping[str, Any]], Any]]
"""Options as parameters, and what makes one value of what was typed."""


def with_options(run: Callable[..., ExitCode | None], sources: Mapping[str, Source] = {}) -> Callable[..., None]:
    """Make a command of a function: a parameter whose type is a dataclass becomes the options that it declares.

    The command ends with the status that the function returns. `sources` says where further parameters come from, by
    their names.
    """
    own = signature(run, eval_str=True).parameters
    declared = {name: _declared(each.annotation) for name, each in own.items() if is_dataclass(each.annotation)}
    all_sources = {**declared, **sources}

    @wraps(run)
    def command(**typed: Any) -> None:
        for name, (options, read) in all_sources.items():
            typed[name] = read({each.name: typed.pop(each.name) for each in options})
        status = run(**typed)
        if status is not None:
            raise typer.Exit(status)

    # Typer reads the options from the signature and the annotations, and `__wrapped__` would lead it past both.
    found = [
        option for name, each in own.items() for option in (all_sources[name][0] if name in all_sources else [each])
    ]
    parameters = sorted(found, key=lambda each: each.default is not Parameter.empty)
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__
    return command


def _declared(kind: Any) -> Source:
    """The options that a dataclass declares, those of its bases behind its own."""
    depth = {name: level for level, base in reversed([*enumerate(kind.__mro__)]) for name in get_annotations(base)}
    options = sorted(signature(kind, eval_str=True).parameters.values(), key=lambda each: depth[each.name])
    return options, lambda typed: kind(**typed)


@contextmanager
def resumable(console: Console, safe_so_far: Callable[[], str]) -> Iterator[None]:
    """End the command where a backend is unavailable or the person interrupts it, and say how to continue."""
    try:
        yield
    except BackendUnavailableError as error:
        console.error(f"{str(error).rstrip('.')}. {safe_so_far()}")
        raise typer.Exit(exit_code(error)) from error
    except KeyboardInterrupt:
        console.note(f"interrupted. {safe_so_far()}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
