"""Options that every command shares, and the settings they lead to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder of the index (data_dir).", rich_help_panel="Configuration"),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # told as any other configuration that cannot work
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says about the configuration."""

    config: Path | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    """Values by dotted key; None where a flag was not used."""
