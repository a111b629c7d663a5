"""The work of the commands for collections, but for those that take long."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table
from rich.text import Text

from rag_context.cli.collections_client import Answer, CollectionsClient, open_client
from rag_context.cli.console import Screen, ask_first, safe
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen, load_available
from rag_context.errors import InvalidInputError

_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True)
class Named:
    """A collection, and how to tell of it."""

    name: str
    connection: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What to find; `embedding` and `where` are JSON."""

    text: str | None
    embedding: str | None
    where: str | None
    limit: int
    mode: str
    min_score: float | None


@dataclass(frozen=True, slots=True)
class Page:
    """Which documents; `where` is JSON."""

    where: str | None
    limit: int
    offset: int
    ids: Sequence[str] | None
    embeddings: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """Which documents go: those of the ids, or those that pass a filter (JSON)."""

    ids: Sequence[str]
    where: str | None
    dry_run: bool
    confirm: bool


_Work = Callable[[CollectionsClient], Awaitable[Answer]]
_Print = Callable[[Answer, Screen], None]


def run_list(chosen: Chosen, connection: str | None, *, as_json: bool) -> ExitCode:
    """All collections."""
    return _run(chosen, connection, lambda client: client.ask("GET", "collections"), _show_list, as_json=as_json)


def run_show(chosen: Chosen, named: Named) -> ExitCode:
    """One collection."""
    return _about(chosen, named, lambda client: client.ask("GET", "collections", named.name), _show_one)


def run_create(chosen: Chosen, named: Named, metadata: str | None, labels: Mapping[str, str | None]) -> ExitCode:
    """A new collection."""
    body = {"name": named.name, "metadata": json_of(metadata, "--metadata"), **labels}
    return _about(
        chosen,
        named,
        lambda client: client.tell("POST", "collections", body=body),
        lambda answer, screen: screen.note(f"Created {safe(answer['name'])} on connection {answer['connection']}."),
    )


def run_delete(chosen: Chosen, named: Named, *, yes: bool) -> ExitCode:
    """A collection goes, if that is meant."""
    if not yes:
        ask_first(f"Delete the collection {safe(named.name)} with all documents in it?")
    return _about(
        chosen,
        named,
        lambda client: client.ask("DELETE", "collections", named.name),
        lambda answer, screen: screen.note(f"Deleted {safe(answer['collection'])}."),
    )


def run_empty(chosen: Chosen, named: Named, *, yes: bool) -> ExitCode:
    """All documents go, if that is meant."""
    if not yes:
        ask_first(f"Delete all documents of the collection {safe(named.name)}?")
    return _about(
        chosen,
        named,
        lambda client: client.ask("DELETE", "collections", named.name, "documents", "all"),
        lambda answer, screen: screen.note(f"{_documents(answer['count_deleted'])} deleted."),
    )


def run_remove(chosen: Chosen, named: Named, what: Removal) -> ExitCode:
    """Documents go: by a filter at once, by ids one after the other."""
    if (what.where is None) == (not what.ids):
        raise InvalidInputError("Say what to delete: one or more IDs, or --where '{...}'.")
    if what.where is not None:
        return _remove_matching(chosen, named, what)
    if what.dry_run:
        raise InvalidInputError(
            "--dry-run goes with --where; `rag-context collections documents --id` shows documents."
        )
    ids = what.ids

    async def work(client: CollectionsClient) -> Answer:
        for id_ in ids:
            if id_ == "all":
                raise InvalidInputError("No document has the id 'all'; `rag-context collections empty` deletes all.")
            await client.ask("DELETE", "collections", named.name, "documents", id_)
        return {"status": "deleted", "collection": named.name, "ids": list(ids)}

    return _about(chosen, named, work, lambda answer, screen: screen.note(f"{_documents(len(answer['ids']))} deleted."))


def _remove_matching(chosen: Chosen, named: Named, what: Removal) -> ExitCode:
    fields = {
        "where": what.where,
        "dry_run": "true" if what.dry_run else "false",
        "confirm": "true" if what.confirm else "false",
    }

    def show(answer: Answer, screen: Screen) -> None:
        for id_ in answer["ids"]:
            screen.show(safe(id_))
        more = answer["count_deleted"] - len(answer["ids"])
        rest = f" (the first {len(answer['ids'])} are listed)" if more > 0 else ""
        done = "would be deleted" if answer["status"] == "preview" else "deleted"
        screen.note(f"{_documents(answer['count_deleted'])} {done}{rest}.")

    return _about(
        chosen, named, lambda client: client.ask("DELETE", "collections", named.name, "documents", fields=fields), show
    )


def run_update(chosen: Chosen, named: Named, id_: str, metadata: str, merge: str) -> ExitCode:
    """Other metadata of a document."""
    body, steps = {"metadata": json_of(metadata, "JSON")}, ("collections", named.name, "documents", id_, "metadata")
    return _about(
        chosen,
        named,
        lambda client: client.tell("PUT", *steps, body=body, fields={"merge": merge}),
        lambda answer, screen: screen.show(safe(_compact(answer["metadata"]))),
    )


def run_metadata(chosen: Chosen, named: Named, metadata: str, merge: str) -> ExitCode:
    """Other metadata."""
    body = {"metadata": json_of(metadata, "JSON")}
    return _about(
        chosen,
        named,
        lambda client: client.tell("PUT", "collections", named.name, "metadata", body=body, fields={"merge": merge}),
        lambda answer, screen: screen.show(safe(_compact(answer["metadata"]))),
    )


def run_documents(chosen: Chosen, named: Named, page: Page) -> ExitCode:
    """A page of documents."""
    fields = {
        "where": page.where,
        "limit": str(page.limit),
        "offset": str(page.offset),
        "ids": json.dumps(list(page.ids)) if page.ids else None,
        "include": "embeddings" if page.embeddings else None,
    }

    def show(answer: Answer, screen: Screen) -> None:
        _show_documents(answer["documents"], screen)
        first = page.offset + 1 if answer["count"] else 0
        screen.note(f"{first} to {page.offset + answer['count']} of {_documents(answer['total'])}.")

    return _about(
        chosen, named, lambda client: client.ask("GET", "collections", named.name, "documents", fields=fields), show
    )


def run_query(chosen: Chosen, named: Named, question: Question) -> ExitCode:
    """The nearest documents."""
    if question.text is None and question.embedding is None:
        raise InvalidInputError("Say what to find: a TEXT, or --embedding '[0.1, ...]'.")
    body = {
        "text": question.text,
        "embedding": json_of(question.embedding, "--embedding"),
        "where": json_of(question.where, "--where"),
        "top_k": question.limit,
        "mode": question.mode,
        "min_score": question.min_score,
    }

    async def work(client: CollectionsClient) -> Answer:
        if question.text is not None and question.mode != "text":
            await client.model_loaded()
        return await client.tell("POST", "collections", named.name, "query", body=body)

    def show(answer: Answer, screen: Screen) -> None:
        _show_documents(answer["results"], screen)
        if not answer["results"]:
            screen.note("Nothing found.")

    return _about(chosen, named, work, show)


def run_values(chosen: Chosen, named: Named, field: str) -> ExitCode:
    """The values of a field, one a line."""

    def show(answer: Answer, screen: Screen) -> None:
        for value in answer["values"]:
            screen.show(safe(value) if isinstance(value, str) else json.dumps(value))

    fields = {"field": field}
    return _about(
        chosen,
        named,
        lambda client: client.ask("GET", "collections", named.name, "metadata-values", fields=fields),
        show,
    )


def run_providers(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """All kinds of provider."""
    return _run(chosen, None, lambda client: client.ask("GET", "providers"), _show_providers, as_json=as_json)


def json_of(text: str | None, option: str) -> object:
    """What a JSON option says. Raises: InvalidInputError."""
    if text is None:
        return None
    try:
        value: object = json.loads(text, object_pairs_hook=partial(_distinct, option))
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{option} must be valid JSON.") from None
    return value


def _distinct(option: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, whose keys must differ: JSON would keep the last of two, and lose the other."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInputError(f"{option} has {safe(key)!r} twice.")
        found[key] = value
    return found


def _about(chosen: Chosen, named: Named, work: _Work, show: _Print) -> ExitCode:
    return _run(chosen, named.connection, work, show, as_json=named.as_json)


def _run(chosen: Chosen, connection: str | None, work: _Work, show: _Print, *, as_json: bool) -> ExitCode:
    screen = Screen()
    loaded = load_available(chosen)

    async def done() -> Answer:
        async with open_client(loaded, connection) as client:
            return await work(client)

    answer = asyncio.run(done())
    if as_json:
        screen.line(json.dumps(answer, ensure_ascii=False))
    else:
        show(answer, screen)
    return ExitCode.OK


def _show_list(answer: Answer, screen: Screen) -> None:
    if not answer["collections"]:
        screen.note("There are no collections yet; `rag-context collections create NAME` makes one.")
        return
    table = _table("Name", "Documents", "Dimension", "Embeddings")
    for one in answer["collections"]:
        table.add_row(safe(one["name"]), str(one["count"]), str(one.get("dimension", "")), safe(_labels(one)))
    screen.show(table)


def _show_one(answer: Answer, screen: Screen) -> None:
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


def _show_documents(documents: Sequence[Answer], screen: Screen) -> None:
    for document in documents:
        score = f"{document['score']:.3f}  " if "score" in document else ""
        screen.show(Text.assemble((score, "cyan"), (safe(document["id"]), "bold")))
        text = " ".join(document["text"].split())
        screen.show_below(safe(text[:_TEXT_CHARS] + ("…" if len(text) > _TEXT_CHARS else "")), "")
        if document["metadata"]:
            screen.show_below(safe(_compact(document["metadata"])), "dim")


def _show_providers(answer: Answer, screen: Screen) -> None:
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


def _labels(collection: Answer) -> str:
    labels = (collection.get("embedding_provider"), collection.get("embedding_model"))
    return " / ".join(label for label in labels if label)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _documents(number: int) -> str:
    return f"{number} document{'' if number == 1 else 's'}"
