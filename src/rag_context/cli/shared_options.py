"""Options that commands share, what they are read into, and the settings they lead to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from rag_context.settings import Loaded, check_available, load_settings


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
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says about the configuration."""

    config: Path | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    """Values by dotted key; None where a flag was not used."""


def load(chosen: Chosen) -> Loaded:
    """The settings as this command line, the environment and the files make them.

    Raises:
        ConfigurationError: Something cannot be used.
    """
    return load_settings(flags=chosen.flags, config_file=chosen.config, cwd=Path.cwd())


def load_available(chosen: Chosen) -> Loaded:
    """The same for a command that opens the index.

    Raises:
        ConfigurationError: Something cannot be used, or its client is not installed.
    """
    loaded = load(chosen)
    check_available(loaded.settings, loaded.sources)
    return loaded
