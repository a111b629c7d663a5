"""The commands that tell how things are and how they are set: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from typing import Annotated, Literal

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Chosen, Config, DataDir

group = typer.Typer()


@group.command(epilog=EPILOG)
def health(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Check every component; exits 1 when the system is not healthy."""
    from rag_context.cli import status as work

    raise typer.Exit(work.run_health(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@group.command(epilog=EPILOG)
def stats(
    time_range: Annotated[
        Literal["1h", "24h", "7d", "30d"],
        typer.Option("--range", metavar="1h|24h|7d|30d", help="Time range."),
    ] = "24h",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Show statistics of the searches of a time range."""
    from rag_context.cli import status as work

    raise typer.Exit(work.run_stats(Chosen(config, {"data_dir": data_dir}), time_range, as_json=as_json))


@group.command(name="config", epilog=EPILOG)
def show_config(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Print every setting and its source, secrets masked."""
    from rag_context.cli import configure as work

    raise typer.Exit(work.run_config(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@group.command(epilog=EPILOG)
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner.")],
    read_only: Annotated[bool, typer.Option("--read-only", help="The key may search, but not index.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Make an API key: stdout gets the key, stderr the lines for rag-context.toml."""
    from rag_context.cli import configure as work

    raise typer.Exit(work.run_key(Chosen(config, {"data_dir": data_dir}), name, read_only=read_only))
