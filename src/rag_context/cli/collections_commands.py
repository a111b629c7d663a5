"""Named sets of documents with vectors, embedded or on a server of their own.

The commands for collections and their providers. Those that stream documents do it in `collections_batches`.
"""

# ruff: noqa: PLC0415  (what takes long to load is imported by the command that needs it)

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_context.api import collections as wire
from rag_context.api.collection_documents import RESERVED_ID
from rag_context.api.collection_operations import ProvidersResponse
from rag_context.api.operations import Operation, Response, routes
from rag_context.api.operations import collections as operations
from rag_context.api.operations.routes import Route
from rag_context.cli.command_line import EPILOG, ExitCode, first_paragraph, run_to_end
from rag_context.cli.connecting import open_client
from rag_context.cli.console import Console, Part, ask_first, counted, safe
from rag_context.cli.operation_options import Fields, Name, with_fields
from rag_context.cli.options import Options, Yes, option, with_options
from rag_context.collections.labels import OWN_EMBEDDER
from rag_context.errors import InvalidInputError

_TEXT_CHARS = 300

group = typer.Typer(no_args_is_help=True, help=first_paragraph(__doc__))

_NAMES: Mapping[str, Name] = {
    "name": Name(None, "NAME", "Name of the collection.", is_argument=True),
    "text": Name(None, "TEXT", "A query text, if this server embeds the collection's texts.", is_argument=True),
    "field": Name(None, "FIELD", "A metadata field; a.b is a field of an object.", is_argument=True),
    "id": Name(None, "ID", "Id of the document.", is_argument=True),
    "embedding": Name(None, "JSON", "A vector instead of a text, as a list of numbers.", is_json=True),
    "where": Name(None, "JSON", """Only documents that pass this filter, e.g. '{"doc_type":"code"}'.""", is_json=True),
    "metadata": Name(None, "JSON", "Metadata: a JSON object.", is_json=True),
    "top_k": Name("--limit", "N", "Maximum number of results."),
    "min_score": Name(None, "X", "Minimum score."),
    "mode": Name(None, None, "Vector search, keyword search, or hybrid search."),
    "limit": Name(None, "N", "Maximum number of documents, up to 1000."),
    "offset": Name(None, "N", "Number of documents to skip."),
    "ids": Name("--id", "ID", "Only the document of this id; may be repeated."),
    "merge": Name(None, None, "Set these keys and keep the others."),
    "embedding_provider": Name(
        None, "LABEL", "Label of what makes the vectors; rag-context: the server embeds the texts."
    ),
    "embedding_model": Name(None, "LABEL", "Label of the model that makes the vectors."),
    "dry_run": Name(None, None, "With --where: only report what would be deleted."),
    "connection": Name(None, "ID", "Connection (connections.<id>); without it, the one named default."),
}
_JSON_ARGUMENT = Name(None, "JSON", "A JSON object.", is_argument=True, is_json=True)


def _command(
    operation: Operation[Any, Any], names: Mapping[str, Name] = {}, name: str | None = None
) -> Callable[[Callable[..., ExitCode | None]], Callable[..., None]]:
    """A command of the group with an option for each field of its operation."""
    return lambda run: group.command(name, epilog=EPILOG)(with_fields(operation, {**_NAMES, **names})(run))


def _run(route: Route[Response], fields: Fields, options: Options, show: Callable[[Response, Console], None]) -> None:
    async def response() -> Response:
        async with open_client(options.load_available()) as client:
            return await client.send(route, fields)

    options.show(run_to_end(response()), show)


@_command(operations.COLLECTION_LIST, name="list")
def list_collections(fields: Fields, options: Options) -> None:
    """List the collections of a connection."""
    _run(routes.LIST_COLLECTIONS, fields, options, _show_list)


@_command(operations.COLLECTION_GET)
def show(fields: Fields, options: Options) -> None:
    """Show a collection: its labels, its metadata, its number of documents."""
    _run(routes.GET_COLLECTION, fields, options, _show_one)


@_command(operations.COLLECTION_CREATE)
def create(
    fields: Fields,
    *,
    own_vectors: bool = option(False, "Each document brings its vector; texts are not embedded."),
    options: Options,
) -> None:
    """Create an empty collection, whose texts the server embeds; an existing name is an error.

    With --own-vectors, or with labels of another embedder, each document must bring its vector.
    """
    if not own_vectors and not {"embedding_provider", "embedding_model"} & fields.keys():
        fields = {**fields, "embedding_provider": OWN_EMBEDDER}
    embeds = fields.get("embedding_provider") == OWN_EMBEDDER

    def show(created: wire.CreatedCollectionResponse, console: Console) -> None:
        vectors = "The server embeds its texts." if embeds else "Each document brings its vector."
        console.note(f"Created {created.name} on connection {created.connection}. {vectors}")

    _run(routes.CREATE_COLLECTION, fields, options, show)


@_command(operations.COLLECTION_DELETE)
def delete(fields: Fields, *, yes: Yes = False, options: Options) -> None:
    """Delete a collection with all documents in it."""
    if not yes:
        ask_first(f"Delete the collection {safe(fields['name'])} with all documents in it?")
    _run(
        routes.DELETE_COLLECTION,
        fields,
        options,
        lambda deleted, console: console.note(f"Deleted {deleted.collection}."),
    )


@_command(operations.COLLECTION_ADD)
def add(
    fields: Fields,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines of id, text, metadata, embedding; - is stdin.")
    ],
    options: Options,
) -> ExitCode:
    """Store the documents of a file, one on a line; a known id is replaced.

    Lines that cannot be stored are reported, and the others are stored; exits 1 then. Running it again changes nothing.
    """
    from rag_context.cli import collections_batches as batches

    return batches.run_add(options, fields, file)


@_command(operations.COLLECTION_QUERY)
def query(fields: Fields, options: Options) -> None:
    """Find documents by a text or a vector."""
    if "text" not in fields and "embedding" not in fields:
        raise InvalidInputError("Say what to find: a TEXT, or --embedding '[0.1, ...]'.")

    async def response() -> wire.QueryResponse:
        async with open_client(options.load_available()) as client:
            if "text" in fields and fields.get("mode") != "text":
                await client.model_loaded()
            return await client.send(routes.QUERY_COLLECTION, fields)

    def show(found: wire.QueryResponse, console: Console) -> None:
        for each in found.results:
            _show_document(each, console, (f"{each.score:.3f}  ", "cyan"))
        if not found.results:
            console.note("Nothing found.")

    options.show(run_to_end(response()), show)


@_command(operations.COLLECTION_DOCUMENTS)
def documents(
    fields: Fields, *, embeddings: bool = option(False, "With --json: the vectors too."), options: Options
) -> None:
    """List documents by id, and how many there are in all."""
    offset = fields.get("offset", 0)

    def show(page: wire.DocumentsResponse, console: Console) -> None:
        for each in page.documents:
            _show_document(each, console)
        first = offset + 1 if page.count else 0
        console.note(f"{first} to {offset + page.count} of {counted(page.total, 'document')}.")

    with_vectors = {"include": "embeddings"} if embeddings else {}
    _run(routes.LIST_DOCUMENTS, {**fields, **with_vectors}, options, show)


@_command(operations.COLLECTION_VALUES)
def values(fields: Fields, options: Options) -> None:
    """List the distinct values of a metadata field."""

    def show(found: wire.ValuesResponse, console: Console) -> None:
        for value in found.values:
            console.show(value if isinstance(value, str) else json.dumps(value))

    _run(routes.LIST_VALUES, fields, options, show)


@_command(operations.COLLECTION_SET_METADATA, {"metadata": _JSON_ARGUMENT})
def metadata(fields: Fields, options: Options) -> None:
    """Replace the metadata of a collection, or with --merge a part of it."""
    _run(routes.PUT_METADATA, fields, options, _show_metadata)


@_command(operations.COLLECTION_UPDATE_DOCUMENT, {"metadata": _JSON_ARGUMENT})
def update(fields: Fields, options: Options) -> None:
    """Replace the metadata of one document, or with --merge a part of it; text and vector stay."""
    _run(routes.PUT_DOCUMENT_METADATA, fields, options, _show_metadata)


@_command(operations.COLLECTION_DELETE_DOCUMENTS, {"ids": Name(None, "ID", "Ids of documents.", is_argument=True)})
def remove(
    fields: Fields,
    *,
    yes: bool = option(False, "With --where: also more than 100 documents, or more than half.", "--yes", "-y"),
    options: Options,
) -> None:
    """Delete documents by id, or those that pass a filter."""
    if ("where" in fields) == ("ids" in fields):
        raise InvalidInputError("Say what to delete: one or more IDs, or --where '{...}'.")
    if "where" in fields:
        _run(routes.DELETE_MATCHING, {**fields, "confirm": yes}, options, _show_matching)
        return
    if "dry_run" in fields:
        raise InvalidInputError(
            "--dry-run goes with --where; `rag-context collections documents --id` shows documents."
        )
    run_to_end(_remove(fields, options))
    ids = list(fields["ids"])
    if options.as_json:
        answer = {"status": "deleted", "collection": fields["name"], "ids": ids}
        Console().line(json.dumps(answer, ensure_ascii=False))
    else:
        Console().note(f"{counted(len(ids), 'document')} deleted.")


async def _remove(fields: Fields, options: Options) -> None:
    """Delete documents one by one: no address takes several ids."""
    async with open_client(options.load_available()) as client:
        for id_ in fields["ids"]:
            if id_ == RESERVED_ID:
                raise InvalidInputError("No document has the id 'all'; `rag-context collections empty` deletes all.")
            await client.send(routes.DELETE_DOCUMENT, {**fields, "id": id_})


@_command(operations.COLLECTION_EMPTY)
def empty(fields: Fields, *, yes: Yes = False, options: Options) -> None:
    """Delete all documents of a collection, or none; the collection stays."""
    if not yes:
        ask_first(f"Delete all documents of the collection {safe(fields['name'])}?")
    _run(
        routes.EMPTY_COLLECTION,
        fields,
        options,
        lambda emptied, console: console.note(f"{counted(emptied.count_deleted, 'document')} deleted."),
    )


@group.command(epilog=EPILOG)
@with_options
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="NAME, or CONNECTION:NAME.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="NAME, or CONNECTION:NAME; created when missing.")],
    overwrite: bool = option(False, "Replace a target that holds other documents."),
    *,
    options: Options,
) -> ExitCode:
    """Copy a collection with its vectors, to any provider, and compare both when it is done.

    Run an interrupted copy again to resume it. It works beside a running server.
    """
    from rag_context.cli import collections_batches as batches

    return batches.run_copy(options, source, target, overwrite=overwrite)


@group.command(epilog=EPILOG)
@with_options
def providers(options: Options) -> None:
    """List the kinds of provider, what they can do, and the connections to them."""
    _run(routes.LIST_PROVIDERS, {}, options, _show_providers)


def _show_metadata(stored: wire.MetadataResponse | wire.UpdatedDocumentResponse, console: Console) -> None:
    console.show(_compact(stored.metadata))


def _show_matching(deleted: wire.DeletedMatchingResponse, console: Console) -> None:
    for id_ in deleted.ids:
        console.show(id_)
    more = deleted.count_deleted - len(deleted.ids)
    rest = f" (the first {len(deleted.ids)} are listed)" if more > 0 else ""
    done = "would be deleted" if deleted.status == "preview" else "deleted"
    console.note(f"{counted(deleted.count_deleted, 'document')} {done}{rest}.")


def _show_list(found: wire.CollectionsResponse, console: Console) -> None:
    if not found.collections:
        console.note("There are no collections yet; `rag-context collections create NAME` makes one.")
        return
    rows = [(each.name, str(each.count), str(each.dimension or ""), _labels(each)) for each in found.collections]
    titles = ("Name", "Documents", "Dimension", "Embeddings")
    console.show_table(titles, rows, right={"Documents", "Dimension"})


def _show_one(found: wire.CollectionResponse, console: Console) -> None:
    console.show_fields(
        (
            ("Name", found.name),
            ("Connection", found.connection),
            ("Documents", str(found.count)),
            ("Dimension", str(found.dimension or "none yet")),
            ("Embeddings", _labels(found)),
            ("Model", found.model.name if found.model is not None else ""),
            ("Made by", "another program; it can only be read" if found.read_only else ""),
            ("Created", found.created.isoformat().replace("+00:00", "Z") if found.created is not None else ""),
            ("Metadata", _compact(found.metadata)),
        )
    )


def _show_document(document: wire.StoredDocument | wire.QueryResult, console: Console, *before: Part) -> None:
    console.show(*before, (document.id, "bold"))
    text = " ".join(document.text.split())
    console.show_below(text[:_TEXT_CHARS] + ("…" if len(text) > _TEXT_CHARS else ""), "")
    if document.metadata:
        console.show_below(_compact(document.metadata), "dim")


def _show_providers(found: ProvidersResponse, console: Console) -> None:
    rows = []
    for each in found.providers:
        able = [] if each.capabilities is None else [name for name, value in each.capabilities if value is True]
        name = (each.name, "" if each.available else "dim")
        rows.append((name, each.title, ", ".join(able), ", ".join(each.connections), each.reason or ""))
    console.show_table(("Name", "Provider", "Can", "Connections", "Note"), rows)


def _labels(collection: wire.CollectionResponse) -> str:
    labels = (collection.embedding_provider, collection.embedding_model)
    return " / ".join(label for label in labels if label)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
