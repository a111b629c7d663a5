"""The options that commands share, the settings these lead to, and how a function becomes a command."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
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


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for a confirmation.")]
_CONFIGURATION = "Configuration"
_MADE_BY = "made_by"


def option(default: Any, text: str, *names: str, **more: Any) -> Any:
    """An option with its help, as a field of a dataclass of options or a parameter of a command's function.

    It is named `--field-name`, unless `names` say another; `more` is for Typer.
    """

    def info(name: str) -> Any:
        return typer.Option(*(names or (f"--{name.replace('_', '-')}",)), help=text, **more)

    return field(default=default, metadata={_MADE_BY: info})


def argument(text: str, metavar: str, *, default: Any = MISSING, **more: Any) -> Any:
    """An argument with its help, as a field of a dataclass of options."""
    info = typer.Argument(metavar=metavar, help=text, **more)
    return field(default=default, metadata={_MADE_BY: lambda _name: info})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """The options that every command has: where its settings and the index are."""

    data_dir: Path | None = option(
        None, "Folder of the index (data_dir).", metavar="DIR", parser=named_path, rich_help_panel=_CONFIGURATION
    )
    config: Path | None = option(
        None,
        "Configuration file instead of ./rag-context.toml or the user's own.",
        metavar="FILE",
        readable=False,  # reported like any other configuration that cannot work
        rich_help_panel=_CONFIGURATION,
    )

    def load(self, flags: Mapping[str, object] = {}) -> Loaded:
        """The settings as this command line, the environment and the files make them.

        `flags` are further options by dotted key, None where they were not used.

        Raises: ConfigurationError (something cannot be used).
        """
        return load_settings(flags={**flags, "data_dir": self.data_dir}, config_file=self.config, cwd=Path.cwd())

    def load_available(self, flags: Mapping[str, object] = {}) -> Loaded:
        loaded = self.load(flags)
        check_available(loaded.settings, loaded.sources)
        return loaded

    def load_for_work(self) -> Loaded:
        """The settings of a command that works on the index itself, and logs nothing but errors."""
        from rag_context.logs import configure_logging  # noqa: PLC0415

        loaded = self.load_available()
        configure_logging("error")
        return loaded


Answer = TypeVar("Answer", bound="WireResponse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConfigOptions):
    as_json: bool = option(False, "Print JSON for programs.", "--json")

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
        option
        for name, each in own.items()
        for option in (all_sources[name][0] if name in all_sources else [_stated(each, each.default)])
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
    parameters = signature(kind, eval_str=True).parameters
    options = [_stated(parameters[each.name], each) for each in fields(kind)]
    return sorted(options, key=lambda each: depth[each.name]), lambda typed: kind(**typed)


def _stated(parameter: Parameter, declared: Any) -> Parameter:
    """The parameter as Typer reads it, where `option` or `argument` made what declares it."""
    if not isinstance(declared, Field) or _MADE_BY not in declared.metadata:
        return parameter
    default = Parameter.empty if declared.default is MISSING else declared.default
    info = declared.metadata[_MADE_BY](parameter.name)
    return parameter.replace(default=default, annotation=Annotated[parameter.annotation, info])


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
