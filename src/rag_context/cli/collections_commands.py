"""The commands for collections and their providers: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Chosen, Config, DataDir, Yes

group = typer.Typer(
    no_args_is_help=True,
    help="Named sets of documents with vectors, embedded or on a server of their own.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]
OnConnection = Annotated[
    str | None,
    typer.Option("--connection", metavar="ID", help="Connection that it lives on (connections.<id>); default."),
]
Where = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="""Only documents that pass this filter, e.g. '{"doc_type":"code"}'."""),
]
Json = Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="Metadata: a JSON object.")]


@group.command(name="list", epilog=EPILOG)
def list_collections(
    connection: OnConnection = None, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None
) -> None:
    """List the collections of a connection."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_list(_chosen(config, data_dir), connection, as_json=as_json))


@group.command(epilog=EPILOG)
def show(
    name: Name,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Show a collection: its labels, its metadata, its number of documents."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_show(_chosen(config, data_dir), work.Named(name, connection, as_json)))


@group.command(epilog=EPILOG)
def create(
    name: Name,
    metadata: Json = None,
    embedding_provider: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Who makes the vectors; rag-context: texts are embedded here."),
    ] = None,
    embedding_model: Annotated[str | None, typer.Option(metavar="LABEL", help="Which model makes them.")] = None,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Create an empty collection; an existing name is an error."""
    from rag_context.cli import collections as work

    labels = {"embedding_provider": embedding_provider, "embedding_model": embedding_model}
    named = work.Named(name, connection, as_json)
    raise typer.Exit(work.run_create(_chosen(config, data_dir), named, metadata, labels))


@group.command(epilog=EPILOG)
def delete(
    name: Name,
    yes: Yes = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete a collection with all documents in it."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_delete(_chosen(config, data_dir), work.Named(name, connection, as_json), yes=yes))


@group.command(epilog=EPILOG)
def add(
    name: Name,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines of id, text, metadata, embedding; - is stdin.")
    ],
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Store the documents of a file, one on a line; a known id is replaced.

    Lines that cannot be stored are reported, and the others are stored; exits 1 then. Running it again changes nothing.
    """
    from rag_context.cli import collections_add as work

    what = work.Addition(name, file, connection, as_json)
    raise typer.Exit(work.run(_chosen(config, data_dir), what))


@group.command(epilog=EPILOG)
def query(
    name: Name,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="A query text, if this server embeds the collection's texts."),
    ] = None,
    embedding: Annotated[
        str | None, typer.Option(metavar="JSON", help="A vector instead of a text, as a list of numbers.")
    ] = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Most results.")] = 10,
    mode: Annotated[
        str, typer.Option(metavar="vector|text|hybrid", help="Vector search, keyword search, or hybrid search.")
    ] = "vector",
    min_score: Annotated[float | None, typer.Option(metavar="X", help="Minimum score.")] = None,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Find documents by a text or a vector."""
    from rag_context.cli import collections as work

    question = work.Question(text, embedding, where, limit, mode, min_score)
    raise typer.Exit(work.run_query(_chosen(config, data_dir), work.Named(name, connection, as_json), question))


@group.command(epilog=EPILOG)
def documents(
    name: Name,
    where: Where = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Most documents, up to 1000.")] = 100,
    offset: Annotated[int, typer.Option(metavar="N", help="Number of documents to skip.")] = 0,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only the document of this id; may be repeated.")
    ] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="With --json: the vectors too.")] = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List documents by id, and how many there are in all."""
    from rag_context.cli import collections as work

    page = work.Page(where, limit, offset, ids, embeddings)
    raise typer.Exit(work.run_documents(_chosen(config, data_dir), work.Named(name, connection, as_json), page))


@group.command(epilog=EPILOG)
def values(
    name: Name,
    field: Annotated[str, typer.Argument(metavar="FIELD", help="A metadata field; a.b is a field of an object.")],
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the distinct values of a metadata field."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_values(_chosen(config, data_dir), work.Named(name, connection, as_json), field))


@group.command(epilog=EPILOG)
def metadata(
    name: Name,
    values: Annotated[str, typer.Argument(metavar="JSON", help="A JSON object.")],
    merge: Annotated[bool, typer.Option("--merge", help="Set these keys and keep the others.")] = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Replace the metadata of a collection, or with --merge a part of it."""
    from rag_context.cli import collections as work

    named = work.Named(name, connection, as_json)
    raise typer.Exit(work.run_metadata(_chosen(config, data_dir), named, values, "true" if merge else "false"))


@group.command(epilog=EPILOG)
def update(
    name: Name,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of the document.")],
    values: Annotated[str, typer.Argument(metavar="JSON", help="A JSON object.")],
    merge: Annotated[bool, typer.Option("--merge", help="Set these keys and keep the others.")] = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Replace the metadata of one document, or with --merge a part of it; text and vector stay."""
    from rag_context.cli import collections as work

    named = work.Named(name, connection, as_json)
    raise typer.Exit(work.run_update(_chosen(config, data_dir), named, id_, values, "true" if merge else "false"))


@group.command(epilog=EPILOG)
def remove(
    name: Name,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of documents.")] = None,
    where: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --where: only say what would go.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --where: also more than 100 documents, or more than half.")
    ] = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete documents by id, or those that pass a filter."""
    from rag_context.cli import collections as work

    what = work.Removal(ids or [], where, dry_run, yes)
    raise typer.Exit(work.run_remove(_chosen(config, data_dir), work.Named(name, connection, as_json), what))


@group.command(epilog=EPILOG)
def empty(
    name: Name,
    yes: Yes = False,
    connection: OnConnection = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete all documents of a collection, or none; the collection stays."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_empty(_chosen(config, data_dir), work.Named(name, connection, as_json), yes=yes))


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
    from rag_context.cli import collections_copy as work

    raise typer.Exit(work.run(_chosen(config, data_dir), work.Copy(source, target, overwrite, as_json)))


@group.command(epilog=EPILOG)
def providers(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the kinds of provider, what they can do, and the connections to them."""
    from rag_context.cli import collections as work

    raise typer.Exit(work.run_providers(_chosen(config, data_dir), as_json=as_json))


def _chosen(config: Path | None, data_dir: Path | None) -> Chosen:
    return Chosen(config, {"data_dir": data_dir})
