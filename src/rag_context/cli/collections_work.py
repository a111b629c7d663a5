"""The work of the commands for collections, but for those that take long."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from rag_context.cli.commands import ExitCode
from rag_context.cli.connecting import CollectionsClient, JsonObject, open_client
from rag_context.cli.console import Screen, ask_first, safe
from rag_context.cli.operation_options import Fields, Name
from rag_context.cli.shared_options import Chosen, load_available
from rag_context.errors import InvalidInputError

_TEXT_CHARS = 300


NAMES: Mapping[str, Name] = {
    "name": Name(None, "NAME", "Name of the collection.", is_argument=True),
    "text": Name(None, "TEXT", "A query text, if this server embeds the collection's texts.", is_argument=True),
    "field": Name(None, "FIELD", "A metadata field; a.b is a field of an object.", is_argument=True),
    "id": Name(None, "ID", "Id of the document.", is_argument=True),
    "embedding": Name(None, "JSON", "A vector instead of a text, as a list of numbers.", is_json=True),
    "where": Name(None, "JSON", """Only documents that pass this filter, e.g. '{"doc_type":"code"}'.""", is_json=True),
    "metadata": Name(None, "JSON", "Metadata: a JSON object.", is_json=True),
    "top_k": Name("--limit", "N", "Most results."),
    "min_score": Name(None, "X", "Minimum score."),
    "mode": Name(None, None, "Vector search, keyword search, or hybrid search."),
    "limit": Name(None, "N", "Most documents, up to 1000."),
    "offset": Name(None, "N", "Number of documents to skip."),
    "ids": Name("--id", "ID", "Only the document of this id; may be repeated."),
    "merge": Name(None, None, "Set these keys and keep the others."),
    "embedding_provider": Name(None, "LABEL", "Who makes the vectors; rag-context: texts are embedded here."),
    "embedding_model": Name(None, "LABEL", "Which model makes them."),
    "dry_run": Name(None, None, "With --where: only say what would go."),
    "connection": Name(
        None, "ID", "Connection that it lives on (connections.<id>); without it, the one named default."
    ),
}
JSON_ARGUMENT = Name(None, "JSON", "A JSON object.", is_argument=True, is_json=True)


_Work = Callable[[CollectionsClient], Awaitable[JsonObject]]
_Print = Callable[[JsonObject, Screen], None]


def run_list(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """All collections."""
    return _run(chosen, fields, lambda client: client.ask("GET", "collections"), _show_list, as_json=as_json)


def run_show(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """One collection."""
    return _run(
        chosen, fields, lambda client: client.ask("GET", "collections", fields["name"]), _show_one, as_json=as_json
    )


def run_create(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """A new collection."""
    body = {name: value for name, value in fields.items() if name != "connection"}
    return _run(
        chosen,
        fields,
        lambda client: client.tell("POST", "collections", body=body),
        lambda answer, screen: screen.note(f"Created {safe(answer['name'])} on connection {answer['connection']}."),
        as_json=as_json,
    )


def run_delete(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    """Delete a collection, after a confirmation."""
    if not yes:
        ask_first(f"Delete the collection {safe(fields['name'])} with all documents in it?")
    return _run(
        chosen,
        fields,
        lambda client: client.ask("DELETE", "collections", fields["name"]),
        lambda answer, screen: screen.note(f"Deleted {safe(answer['collection'])}."),
        as_json=as_json,
    )


def run_empty(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    """Delete all documents of a collection, after a confirmation."""
    if not yes:
        ask_first(f"Delete all documents of the collection {safe(fields['name'])}?")
    return _run(
        chosen,
        fields,
        lambda client: client.ask("DELETE", "collections", fields["name"], "documents", "all"),
        lambda answer, screen: screen.note(f"{_documents(answer['count_deleted'])} deleted."),
        as_json=as_json,
    )


def run_remove(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    """Documents go: by a filter at once, by ids one after the other."""
    if ("where" in fields) == ("ids" in fields):
        raise InvalidInputError("Say what to delete: one or more IDs, or --where '{...}'.")
    if "where" in fields:
        return _remove_matching(chosen, fields, yes=yes, as_json=as_json)
    if "dry_run" in fields:
        raise InvalidInputError(
            "--dry-run goes with --where; `rag-context collections documents --id` shows documents."
        )
    ids = fields["ids"]

    async def work(client: CollectionsClient) -> JsonObject:
        for id_ in ids:
            if id_ == "all":
                raise InvalidInputError("No document has the id 'all'; `rag-context collections empty` deletes all.")
            await client.ask("DELETE", "collections", fields["name"], "documents", id_)
        return {"status": "deleted", "collection": fields["name"], "ids": list(ids)}

    return _run(
        chosen,
        fields,
        work,
        lambda answer, screen: screen.note(f"{_documents(len(answer['ids']))} deleted."),
        as_json=as_json,
    )


def _remove_matching(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    query = {
        "where": json.dumps(fields["where"]),
        "dry_run": "true" if "dry_run" in fields else "false",
        "confirm": "true" if yes else "false",
    }

    def show(answer: JsonObject, screen: Screen) -> None:
        for id_ in answer["ids"]:
            screen.show(safe(id_))
        more = answer["count_deleted"] - len(answer["ids"])
        rest = f" (the first {len(answer['ids'])} are listed)" if more > 0 else ""
        done = "would be deleted" if answer["status"] == "preview" else "deleted"
        screen.note(f"{_documents(answer['count_deleted'])} {done}{rest}.")

    return _run(
        chosen,
        fields,
        lambda client: client.ask("DELETE", "collections", fields["name"], "documents", fields=query),
        show,
        as_json=as_json,
    )


def run_update(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Other metadata of a document."""
    body, steps = (
        {"metadata": fields["metadata"]},
        ("collections", fields["name"], "documents", fields["id"], "metadata"),
    )
    return _run(
        chosen,
        fields,
        lambda client: client.tell("PUT", *steps, body=body, fields=_merge(fields)),
        lambda answer, screen: screen.show(safe(_compact(answer["metadata"]))),
        as_json=as_json,
    )


def run_metadata(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Other metadata."""
    body = {"metadata": fields["metadata"]}
    return _run(
        chosen,
        fields,
        lambda client: client.tell("PUT", "collections", fields["name"], "metadata", body=body, fields=_merge(fields)),
        lambda answer, screen: screen.show(safe(_compact(answer["metadata"]))),
        as_json=as_json,
    )


def run_documents(chosen: Chosen, fields: Fields, *, embeddings: bool, as_json: bool) -> ExitCode:
    """A page of documents."""
    offset = fields.get("offset", 0)
    query = {
        "where": json.dumps(fields["where"]) if "where" in fields else None,
        "limit": str(fields["limit"]) if "limit" in fields else None,
        "offset": str(offset),
        "ids": json.dumps(fields["ids"]) if "ids" in fields else None,
        "include": "embeddings" if embeddings else None,
    }

    def show(answer: JsonObject, screen: Screen) -> None:
        _show_documents(answer["documents"], screen)
        first = offset + 1 if answer["count"] else 0
        screen.note(f"{first} to {offset + answer['count']} of {_documents(answer['total'])}.")

    return _run(
        chosen,
        fields,
        lambda client: client.ask("GET", "collections", fields["name"], "documents", fields=query),
        show,
        as_json=as_json,
    )


def run_query(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """The nearest documents."""
    if "text" not in fields and "embedding" not in fields:
        raise InvalidInputError("Say what to find: a TEXT, or --embedding '[0.1, ...]'.")
    body = {name: value for name, value in fields.items() if name not in ("name", "connection")}

    async def work(client: CollectionsClient) -> JsonObject:
        if "text" in fields and fields.get("mode") != "text":
            await client.model_loaded()
        return await client.tell("POST", "collections", fields["name"], "query", body=body)

    def show(answer: JsonObject, screen: Screen) -> None:
        _show_documents(answer["results"], screen)
        if not answer["results"]:
            screen.note("Nothing found.")

    return _run(chosen, fields, work, show, as_json=as_json)


def run_values(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """The values of a field, one a line."""

    def show(answer: JsonObject, screen: Screen) -> None:
        for value in answer["values"]:
            screen.show(safe(value) if isinstance(value, str) else json.dumps(value))

    return _run(
        chosen,
        fields,
        lambda client: client.ask(
            "GET", "collections", fields["name"], "metadata-values", fields={"field": fields["field"]}
        ),
        show,
        as_json=as_json,
    )


def run_providers(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """All kinds of provider."""
    return _run(chosen, {}, lambda client: client.ask("GET", "providers"), _show_providers, as_json=as_json)


def _merge(fields: Fields) -> dict[str, str | None]:
    return {"merge": "true" if "merge" in fields else "false"}


def _run(chosen: Chosen, fields: Fields, work: _Work, show: _Print, *, as_json: bool) -> ExitCode:
    screen = Screen()
    loaded = load_available(chosen)

    async def done() -> JsonObject:
        async with open_client(loaded, fields.get("connection")) as client:
            return await work(client)

    answer = asyncio.run(done())
    if as_json:
        screen.line(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer, screen)
    return ExitCode.OK


def _show_list(answer: JsonObject, screen: Screen) -> None:
    if not answer["collections"]:
        screen.note("There are no collections yet; `rag-context collections create NAME` makes one.")
        return
    table = _table("Name", "Documents", "Dimension", "Embeddings")
    for one in answer["collections"]:
        table.add_row(safe(one["name"]), str(one["count"]), str(one.get("dimension", "")), safe(_labels(one)))
    screen.show(table)


def _show_one(answer: JsonObject, screen: Screen) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for title, value in (
        ("Name", answer["name"]),
        ("Connection", answer["connection"]),
        ("Documents", str(answer["count"])),
        ("Dimension", str(answer.get("dimension", "none yet"))),
        ("Embeddings", _labels(answer)),
        ("Model", answer.get("model", {}).get("name", "")),
        ("Made by", "another program; it can only be read" if answer.get("read_only") else ""),
        ("Created", answer.get("created", "")),
        ("Metadata", _compact(answer["metadata"])),
    ):
        if value:
            table.add_row(title, safe(value))
    screen.show(table)


def _show_documents(documents: Sequence[JsonObject], screen: Screen) -> None:
    for document in documents:
        score = f"{document['score']:.3f}  " if "score" in document else ""
        screen.show(Text.assemble((score, "cyan"), (safe(document["id"]), "bold")))
        text = " ".join(document["text"].split())
        screen.show_below(safe(text[:_TEXT_CHARS] + ("…" if len(text) > _TEXT_CHARS else "")), "")
        if document["metadata"]:
            screen.show_below(safe(_compact(document["metadata"])), "dim")


def _show_providers(answer: JsonObject, screen: Screen) -> None:
    table = _table("Name", "Provider", "Can", "Connections", "Note")
    for one in answer["providers"]:
        able = [name for name, value in one.get("capabilities", {}).items() if value is True]
        note = one.get("reason", "")
        name = Text(safe(one["name"]), style="" if one["available"] else "dim")
        table.add_row(name, safe(one["title"]), ", ".join(able), safe(", ".join(one["connections"])), safe(note))
    screen.show(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in {"Documents", "Dimension"} else "left")
    return table


def _labels(collection: JsonObject) -> str:
    labels = (collection.get("embedding_provider"), collection.get("embedding_model"))
    return " / ".join(label for label in labels if label)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _documents(number: int) -> str:
    return f"{number} document{'' if number == 1 else 's'}"
