"""The commands that examine, mend and move the index itself: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Chosen, Config, DataDir

group = typer.Typer()


@group.command(epilog=EPILOG)
def reindex(data_dir: DataDir = None, config: Config = None) -> None:
    """Make all vectors again with the configured model; the old ones answer until the new ones are complete."""
    from rag_context.cli import reindex as work

    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir})))


@group.command(epilog=EPILOG)
def check(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended, and say what is left.")] = False,
    start_empty: Annotated[
        bool, typer.Option("--start-empty", help="Begin an empty index where the one that was there is gone.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every page and every term; writers wait for a part of it.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Examine the index itself, beside a running server: is everything there, and does it agree?

    Exits 1 when something is wrong, or is left after a repair. Without --full, the terms of a large index are
    compared in a sample of its chunks. --start-empty touches nothing where there is an index; what is left of one
    that is gone is set aside.
    """
    from rag_context.cli import check as work
    from rag_context.domain.integrity import Thoroughness

    if start_empty:
        raise typer.Exit(work.start_empty(Chosen(config, {"data_dir": data_dir})))
    thoroughness = Thoroughness.FULL if full else Thoroughness.QUICK
    what = work.Check(repair=repair, thoroughness=thoroughness, as_json=as_json)
    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir}), what))


@group.command(name="export", epilog=EPILOG)
def export_index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - is stdout.")],
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this project; '' for the agents' own memory.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Write all documents with their chunks and vectors to a file, beside a running server.

    The file takes its name when it is whole. `import` reads it into any other backend.
    """
    from rag_context.cli import transfer as work

    what = work.ExportRun(file, project, as_json=as_json)
    raise typer.Exit(work.run_export(Chosen(config, {"data_dir": data_dir}), what))


@group.command(name="import", epilog=EPILOG)
def import_index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is stdin.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also in place of newer versions that the index has.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Take an export in, beside a running server; what is there already is left as it is.

    Vectors of another model are not used: their documents are embedded anew. Exits 1 when lines could not be read,
    or are missing; the others came in.
    """
    from rag_context.cli import transfer as work
    from rag_context.transfer.transfer import Conflict

    conflict = Conflict.OVERWRITE if overwrite else Conflict.KEEP
    what = work.ImportRun(file, conflict, as_json=as_json)
    raise typer.Exit(work.run_import(Chosen(config, {"data_dir": data_dir}), what))
