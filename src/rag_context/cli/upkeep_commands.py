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
    """Re-embed the whole index with the configured model; the old vectors answer until the new ones are complete."""
    from rag_context.cli import reindex as work

    raise typer.Exit(work.run(Chosen(config, {"data_dir": data_dir})))


@group.command(epilog=EPILOG)
def check(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired, and list the rest.")] = False,
    start_empty: Annotated[
        bool, typer.Option("--start-empty", help="Create an empty index where the earlier one is gone.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Check every page and every term; writers wait for a part of it.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Check the index for missing, damaged and inconsistent data, beside a running server.

    Exits 1 when something is wrong, or is left after a repair. Without --full, the terms of a large index are
    compared in a sample of its chunks. --start-empty changes nothing where there is an index; what is left of one
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

    The file gets its name once it is complete. `import` reads it into any other backend.
    """
    from rag_context.cli import transfer as work

    what = work.ExportRun(file, project, as_json=as_json)
    raise typer.Exit(work.run_export(Chosen(config, {"data_dir": data_dir}), what))


@group.command(name="import", epilog=EPILOG)
def import_index(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - is stdin.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Also replace newer versions in the index.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Import an export, beside a running server; existing documents stay unchanged.

    Vectors of another model are not used: their documents are embedded again. Exits 1 when lines could not be read,
    or are missing; the others came in.
    """
    from rag_context.cli import transfer as work
    from rag_context.transfer.transfer import Conflict

    conflict = Conflict.OVERWRITE if overwrite else Conflict.KEEP
    what = work.ImportRun(file, conflict, as_json=as_json)
    raise typer.Exit(work.run_import(Chosen(config, {"data_dir": data_dir}), what))
