"""The commands that run until they are told to stop: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import Chosen, Config, DataDir

group = typer.Typer()


@group.command(epilog=EPILOG)
def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Port; 0 selects a free one (server.port).")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Re-embed the index if another model made its vectors.")
    ] = False,
    watch: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Index this folder and follow its changes; may be given several times."),
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    from rag_context.cli import serve as work

    flags = {"server.host": host, "server.port": port, "log.level": log_level, "data_dir": data_dir}
    raise typer.Exit(work.run(Chosen(config, flags), reindex=reindex, watch=watch or ()))


@group.command(name="embed-server", epilog=EPILOG)
def embed_server(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (server.host).")] = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 selects a free one.")] = 8080,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Texts embedded at once (embedder.workers).")] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key that clients must send (server.api_key).")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error (log.level).")
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.

    Several servers can share one such model, and so can any OpenAI client. No index is opened. A key is better given
    in the environment (RAG_CONTEXT_API_KEY) than on the command line, which other users of the machine can see.
    """
    from rag_context.cli import embed_server as work

    flags = {
        "server.host": host,
        "server.api_key": api_key,
        "embedder.workers": workers,
        "log.level": log_level,
        "data_dir": data_dir,
    }
    raise typer.Exit(work.run(Chosen(config, flags), port=port))
