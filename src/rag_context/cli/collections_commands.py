"""The commands for collections and their providers: their options and their help."""

# ruff: noqa: PLC0415  (what takes long to load is imported by the command that needs it)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.api.operations import collections as operations
from rag_context.cli import collections_work as work
from rag_context.cli.commands import EPILOG
from rag_context.cli.operation_options import Fields, Name, exit_with, with_fields
from rag_context.cli.shared_options import AsJson, Chosen, Config, DataDir, Yes

group = typer.Typer(
    no_args_is_help=True,
    help="Named sets of documents with vectors, embedded or on a server of their own.",
)


@group.command(name="list", epilog=EPILOG)
@with_fields(operations.COLLECTION_LIST, work.NAMES)
def list_collections(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the collections of a connection."""
    exit_with(work.run_list(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_GET, work.NAMES)
def show(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Show a collection: its labels, its metadata, its number of documents."""
    exit_with(work.run_show(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_CREATE, work.NAMES)
def create(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Create an empty collection; an existing name is an error."""
    exit_with(work.run_create(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_DELETE, work.NAMES)
def delete(
    fields: Fields, yes: Yes = False, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None
) -> None:
    """Delete a collection with all documents in it."""
    exit_with(work.run_delete(_chosen(config, data_dir), fields, yes=yes, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_ADD, work.NAMES)
def add(
    fields: Fields,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines of id, text, metadata, embedding; - is stdin.")
    ],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Store the documents of a file, one on a line; a known id is replaced.

    Lines that cannot be stored are reported, and the others are stored; exits 1 then. Running it again changes nothing.
    """
    from rag_context.cli import collections_batches as batches

    what = batches.Addition(fields["name"], file, fields.get("connection"), as_json)
    exit_with(batches.run_add(_chosen(config, data_dir), what))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_QUERY, work.NAMES)
def query(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Find documents by a text or a vector."""
    exit_with(work.run_query(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_DOCUMENTS, work.NAMES)
def documents(
    fields: Fields,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="With --json: the vectors too.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List documents by id, and how many there are in all."""
    exit_with(work.run_documents(_chosen(config, data_dir), fields, embeddings=embeddings, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_VALUES, work.NAMES)
def values(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the distinct values of a metadata field."""
    exit_with(work.run_values(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_SET_METADATA, {**work.NAMES, "metadata": work.JSON_ARGUMENT})
def metadata(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Replace the metadata of a collection, or with --merge a part of it."""
    exit_with(work.run_metadata(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_UPDATE_DOCUMENT, {**work.NAMES, "metadata": work.JSON_ARGUMENT})
def update(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Replace the metadata of one document, or with --merge a part of it; text and vector stay."""
    exit_with(work.run_update(_chosen(config, data_dir), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(
    operations.COLLECTION_DELETE_DOCUMENTS,
    {**work.NAMES, "ids": Name(None, "ID", "Ids of documents.", is_argument=True)},
)
def remove(
    fields: Fields,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --where: also more than 100 documents, or more than half.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete documents by id, or those that pass a filter."""
    exit_with(work.run_remove(_chosen(config, data_dir), fields, yes=yes, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.COLLECTION_EMPTY, work.NAMES)
def empty(
    fields: Fields, yes: Yes = False, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None
) -> None:
    """Delete all documents of a collection, or none; the collection stays."""
    exit_with(work.run_empty(_chosen(config, data_dir), fields, yes=yes, as_json=as_json))


@group.command(epilog=EPILOG)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="NAME, or CONNECTION:NAME.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="NAME, or CONNECTION:NAME; made when missing.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also where the target holds something else, which goes.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Copy a collection with its vectors, to any provider, and compare both when it is done.

    Interrupted, it goes on where it was when it is run again. It works beside a running server.
    """
    from rag_context.cli import collections_batches as batches

    exit_with(batches.run_copy(_chosen(config, data_dir), batches.Copy(source, target, overwrite, as_json)))


@group.command(epilog=EPILOG)
def providers(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the kinds of provider, what they can do, and the connections to them."""
    exit_with(work.run_providers(_chosen(config, data_dir), as_json=as_json))


def _chosen(config: Path | None, data_dir: Path | None) -> Chosen:
    return Chosen(config, {"data_dir": data_dir})
