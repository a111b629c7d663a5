"""Options that commands share, what they are read into, and the settings they lead to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from rag_context.errors import InvalidInputError
from rag_context.settings import Loaded, check_available, load_settings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder of the index (data_dir).", rich_help_panel="Configuration"),
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
Project = Annotated[
    str | None, typer.Option(metavar="NAME", help="Documents of this project instead of the agents' own memory.")
]
Branch = Annotated[str | None, typer.Option(metavar="NAME", help="Branch of the project.")]
PathHash = Annotated[str | None, typer.Option("--path-hash", metavar="HASH", help="Checkout of the project.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ContentType = Annotated[
    str | None,
    typer.Option("--type", metavar="KIND", help="Kind of content: chat, decision, code or documentation."),
]
Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Session that the documents belong to.")]
Category = Annotated[str | None, typer.Option("--category", metavar="NAME", help="Category of the documents.")]
Game = Annotated[str | None, typer.Option("--game", metavar="NAME", help="Game that the documents are about.")]
Agent = Annotated[str | None, typer.Option(metavar="NAME", help="Agent that wrote the documents.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given several times.")]
Since = Annotated[str | None, typer.Option(metavar="WHEN", help="Only documents since: 7d, 2026-01-31 or RFC 3339.")]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="Only documents before this time.")]

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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


def parse_time(text: str, option: str, now: datetime) -> datetime:
    """Read `7d`, `2026-01-31` or `2026-01-31T12:00:00+01:00`; without an offset it is this machine's time.

    Raises:
        InvalidInputError: It is none of these.
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text.lower()):
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).astimezone(UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError(
            f"{option} {text!r} is not a moment: write 7d, 2026-01-31 or 2026-01-31T12:00:00Z."
        ) from None
