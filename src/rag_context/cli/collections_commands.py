"""The commands for collections and their providers. Those that stream documents do it in `collections_batches`."""

# ruff: noqa: PLC0415  (what takes long to load is imported by the command that needs it)

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from rag_context.api.operations import Operation
from rag_context.api.operations import collections as operations
from rag_context.cli.command_line import EPILOG, ExitCode, run_to_end
from rag_context.cli.connecting import CollectionsClient, JsonObject, open_client
from rag_context.cli.console import Console, ask_first, counted, safe
from rag_context.cli.operation_options import Fields, Name, with_fields
from rag_context.cli.options import Options, Yes, with_options
from rag_context.errors import InvalidInputError

_TEXT_CHARS = 300

group = typer.Typer(
    no_args_is_help=True,
    help="Named sets of documents with vectors, embedded or on a server of their own.",
)

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

_Work: TypeAlias = Callable[[CollectionsClient], Awaitable[JsonObject]]
_Print: TypeAlias = Callable[[JsonObject, Console], None]


@dataclass(frozen=True, slots=True)
class _Call:
    """What was typed."""

    fields: Fields
    options: Options

    @property
    def steps(self) -> tuple[str, str]:
        """The address of the collection."""
        return "collections", self.fields["name"]


def _command(
    operation: Operation[Any, Any], names: Mapping[str, Name] = {}, name: str | None = None
) -> Callable[[Callable[..., ExitCode | None]], Callable[..., None]]:
    """A command of the group with an option for each field of its operation."""
    return lambda run: group.command(name, epilog=EPILOG)(with_fields(operation, {**_NAMES, **names})(run))


def _run(call: _Call, work: _Work, show: _Print) -> None:
    """Do the work of a command, and print the answer."""
    console = Console()
    loaded = call.options.load_available()

    async def done() -> JsonObject:
        async with open_client(loaded, call.fields.get("connection")) as client:
            return await work(client)

    answer = run_to_end(done())
    if call.options.as_json:
        console.line(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer, console)


@_command(operations.COLLECTION_LIST, name="list")
def list_collections(fields: Fields, options: Options) -> None:
    """List the collections of a connection."""
    call = _Call(fields, options)
    _run(call, lambda client: client.send("GET", "collections"), _show_list)


@_command(operations.COLLECTION_GET)
def show(fields: Fields, options: Options) -> None:
    """Show a collection: its labels, its metadata, its number of documents."""
    call = _Call(fields, options)
    _run(call, lambda client: client.send("GET", *call.steps), _show_one)


@_command(operations.COLLECTION_CREATE)
def create(fields: Fields, options: Options) -> None:
    """Create an empty collection; an existing name is an error."""
    body = {name: value for name, value in fields.items() if name != "connection"}
    _run(
        _Call(fields, options),
        lambda client: client.send("POST", "collections", body=body),
        lambda answer, console: console.note(f"Created {answer['name']} on connection {answer['connection']}."),
    )


@_command(operations.COLLECTION_DELETE)
def delete(fields: Fields, *, yes: Yes = False, options: Options) -> None:
    """Delete a collection with all documents in it."""
    if not yes:
        ask_first(f"Delete the collection {safe(fields['name'])} with all documents in it?")
    call = _Call(fields, options)
    _run(
        call,
        lambda client: client.send("DELETE", *call.steps),
        lambda answer, console: console.note(f"Deleted {answer['collection']}."),
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

    return batches.run_add(options, batches.Addition(fields["name"], file, fields.get("connection")))


@_command(operations.COLLECTION_QUERY)
def query(fields: Fields, options: Options) -> None:
    """Find documents by a text or a vector."""
    if "text" not in fields and "embedding" not in fields:
        raise InvalidInputError("Say what to find: a TEXT, or --embedding '[0.1, ...]'.")
    call = _Call(fields, options)
    body = {name: value for name, value in fields.items() if name not in ("name", "connection")}

    async def work(client: CollectionsClient) -> JsonObject:
        if "text" in fields and fields.get("mode") != "text":
            await client.model_loaded()
        return await client.send("POST", *call.steps, "query", body=body)

    def show(answer: JsonObject, console: Console) -> None:
        _show_documents(answer["results"], console)
        if not answer["results"]:
            console.note("Nothing found.")

    _run(call, work, show)


@_command(operations.COLLECTION_DOCUMENTS)
def documents(
    fields: Fields,
    *,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="With --json: the vectors too.")] = False,
    options: Options,
) -> None:
    """List documents by id, and how many there are in all."""
    call = _Call(fields, options)
    offset = fields.get("offset", 0)
    query = {
        "where": json.dumps(fields["where"]) if "where" in fields else None,
        "limit": str(fields["limit"]) if "limit" in fields else None,
        "offset": str(offset),
        "ids": json.dumps(fields["ids"]) if "ids" in fields else None,
        "include": "embeddings" if embeddings else None,
    }

    def show(answer: JsonObject, console: Console) -> None:
        _show_documents(answer["documents"], console)
        first = offset + 1 if answer["count"] else 0
        console.note(f"{first} to {offset + answer['count']} of {counted(answer['total'], 'document')}.")

    _run(call, lambda client: client.send("GET", *call.steps, "documents", fields=query), show)


@_command(operations.COLLECTION_VALUES)
def values(fields: Fields, options: Options) -> None:
    """List the distinct values of a metadata field."""
    call = _Call(fields, options)
    query = {"field": fields["field"]}

    def show(answer: JsonObject, console: Console) -> None:
        for value in answer["values"]:
            console.show(value if isinstance(value, str) else json.dumps(value))

    _run(call, lambda client: client.send("GET", *call.steps, "metadata-values", fields=query), show)


@_command(operations.COLLECTION_SET_METADATA, {"metadata": _JSON_ARGUMENT})
def metadata(fields: Fields, options: Options) -> None:
    """Replace the metadata of a collection, or with --merge a part of it."""
    _put_metadata(_Call(fields, options), "metadata")


@_command(operations.COLLECTION_UPDATE_DOCUMENT, {"metadata": _JSON_ARGUMENT})
def update(fields: Fields, options: Options) -> None:
    """Replace the metadata of one document, or with --merge a part of it; text and vector stay."""
    _put_metadata(_Call(fields, options), "documents", fields["id"], "metadata")


@_command(operations.COLLECTION_DELETE_DOCUMENTS, {"ids": Name(None, "ID", "Ids of documents.", is_argument=True)})
def remove(
    fields: Fields,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --where: also more than 100 documents, or more than half.")
    ] = False,
    options: Options,
) -> None:
    """Delete documents by id, or those that pass a filter."""
    call = _Call(fields, options)
    if ("where" in fields) == ("ids" in fields):
        raise InvalidInputError("Say what to delete: one or more IDs, or --where '{...}'.")
    if "where" in fields:
        _remove_matching(call, yes=yes)
        return
    if "dry_run" in fields:
        raise InvalidInputError(
            "--dry-run goes with --where; `rag-context collections documents --id` shows documents."
        )
    ids = fields["ids"]

    async def work(client: CollectionsClient) -> JsonObject:
        for id_ in ids:
            if id_ == "all":
                raise InvalidInputError("No document has the id 'all'; `rag-context collections empty` deletes all.")
            await client.send("DELETE", *call.steps, "documents", id_)
        return {"status": "deleted", "collection": fields["name"], "ids": list(ids)}

    _run(call, work, lambda answer, console: console.note(f"{counted(len(answer['ids']), 'document')} deleted."))


@_command(operations.COLLECTION_EMPTY)
def empty(fields: Fields, *, yes: Yes = False, options: Options) -> None:
    """Delete all documents of a collection, or none; the collection stays."""
    if not yes:
        ask_first(f"Delete all documents of the collection {safe(fields['name'])}?")
    call = _Call(fields, options)
    _run(
        call,
        lambda client: client.send("DELETE", *call.steps, "documents", "all"),
        lambda answer, console: console.note(f"{counted(answer['count_deleted'], 'document')} deleted."),
    )


@group.command(epilog=EPILOG)
@with_options
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="NAME, or CONNECTION:NAME.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="NAME, or CONNECTION:NAME; created when missing.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a target that holds other documents.")
    ] = False,
    *,
    options: Options,
) -> ExitCode:
    """Copy a collection with its vectors, to any provider, and compare both when it is done.

    Run an interrupted copy again to resume it. It works beside a running server.
    """
    from rag_context.cli import collections_batches as batches

    return batches.run_copy(options, batches.Copy(source, target, overwrite))


@group.command(epilog=EPILOG)
@with_options
def providers(options: Options) -> None:
    """List the kinds of provider, what they can do, and the connections to them."""
    call = _Call({}, options)
    _run(call, lambda client: client.send("GET", "providers"), _show_providers)


def _put_metadata(call: _Call, *steps: str) -> None:
    """Put the metadata of a collection or of one of its documents."""
    body = {"metadata": call.fields["metadata"]}
    merge = {"merge": "true" if "merge" in call.fields else "false"}
    _run(
        call,
        lambda client: client.send("PUT", *call.steps, *steps, body=body, fields=merge),
        lambda answer, console: console.show(_compact(answer["metadata"])),
    )


def _remove_matching(call: _Call, *, yes: bool) -> None:
    query = {
        "where": json.dumps(call.fields["where"]),
        "dry_run": "true" if "dry_run" in call.fields else "false",
        "confirm": "true" if yes else "false",
    }

    def show(answer: JsonObject, console: Console) -> None:
        for id_ in answer["ids"]:
            console.show(id_)
        more = answer["count_deleted"] - len(answer["ids"])
        rest = f" (the first {len(answer['ids'])} are listed)" if more > 0 else ""
        done = "would be deleted" if answer["status"] == "preview" else "deleted"
        console.note(f"{counted(answer['count_deleted'], 'document')} {done}{rest}.")

    _run(call, lambda client: client.send("DELETE", *call.steps, "documents", fields=query), show)


def _show_list(answer: JsonObject, console: Console) -> None:
    if not answer["collections"]:
        console.note("There are no collections yet; `rag-context collections create NAME` makes one.")
        return
    rows = [
        (each["name"], str(each["count"]), str(each.get("dimension", "")), _labels(each))
        for each in answer["collections"]
    ]
    titles = ("Name", "Documents", "Dimension", "Embeddings")
    console.show_table(titles, rows, right={"Documents", "Dimension"})


def _show_one(answer: JsonObject, console: Console) -> None:
    fields = (
        ("Name", answer["name"]),
        ("Connection", answer["connection"]),
        ("Documents", str(answer["count"])),
        ("Dimension", str(answer.get("dimension", "none yet"))),
        ("Embeddings", _labels(answer)),
        ("Model", answer.get("model", {}).get("name", "")),
        ("Made by", "another program; it can only be read" if answer.get("read_only") else ""),
        ("Created", answer.get("created", "")),
        ("Metadata", _compact(answer["metadata"])),
    )
    console.show_fields(fields)


def _show_documents(documents: Sequence[JsonObject], console: Console) -> None:
    for document in documents:
        score = f"{document['score']:.3f}  " if "score" in document else ""
        console.show((score, "cyan"), (document["id"], "bold"))
        text = " ".join(document["text"].split())
        console.show_below(text[:_TEXT_CHARS] + ("…" if len(text) > _TEXT_CHARS else ""), "")
        if document["metadata"]:
            console.show_below(_compact(document["metadata"]), "dim")


def _show_providers(answer: JsonObject, console: Console) -> None:
    rows = []
    for each in answer["providers"]:
        able = [name for name, value in each.get("capabilities", {}).items() if value is True]
        name = (each["name"], "" if each["available"] else "dim")
        rows.append((name, each["title"], ", ".join(able), ", ".join(each["connections"]), each.get("reason", "")))
    console.show_table(("Name", "Provider", "Can", "Connections", "Note"), rows)


def _labels(collection: JsonObject) -> str:
    labels = (collection.get("embedding_provider"), collection.get("embedding_model"))
    return " / ".join(label for label in labels if label)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
