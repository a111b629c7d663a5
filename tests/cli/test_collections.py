"""The commands for collections: with and without a running server, on the same data directory."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_context.cli.command_line import app
from tests.servers.process import free_port

from .run_command import Commands, Ended, Served, serving

POEMS = [
    {"id": "a", "text": "The pump in the cellar is blue.", "metadata": {"kind": "fact", "n": 1}},
    {"id": "b", "text": "Valve seven opens at nine bar.", "metadata": {"kind": "rule", "n": 2}},
]


@contextmanager
def logging_kept() -> Iterator[None]:
    """A command sets up logging for its process, which here is that of all tests."""
    root, own = logging.getLogger(), logging.getLogger("rag_context")
    handlers, levels = root.handlers[:], (root.level, own.level)
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        own.setLevel(levels[1])


@dataclass(frozen=True)
class Inside:
    """The same commands within this process: starting one takes longer than what it does."""

    commands: Commands

    def __call__(self, *words: str) -> Ended:
        own = self.commands._environment()
        with chdir(self.commands.folder), logging_kept():
            done = CliRunner().invoke(app, words, env={**dict.fromkeys(os.environ), **own}, catch_exceptions=False)
        return Ended(done.exit_code, done.stdout, done.stderr)

    def write(self, name: str, content: str) -> None:
        self.commands.write(name, content)


def lines(*documents: object) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A folder with a configuration of two connections."""
    folder = tmp_path_factory.mktemp("collected") / "here"
    folder.mkdir()
    commands = Commands(folder)
    chroma = folder.parent / "chroma"
    commands.write(
        "rag-context.toml", f'[connections.archive]\nprovider = "chroma"\nfolder = {json.dumps(str(chroma))}\n'
    )
    return commands


@pytest.fixture(scope="module")
def server(place: Commands) -> Iterator[Served]:
    with serving(place) as served:
        yield served


@pytest.fixture
def beside(place: Commands, server: Served) -> Inside:
    """Commands beside a running server."""
    return Inside(place)


def test_without_a_server_the_directory_is_opened(place: Commands) -> None:
    """M-2: each command opens it, and finds what the one before left."""
    alone = Inside(place)
    made = place("collections", "create", "alone", "--metadata", '{"owner": "docs"}', "--embedding-model", "m")
    assert (made.status, made.out, made.err) == (
        0,
        "",
        "Created alone on connection default. Each document brings its vector.\n",
    )
    again = alone("collections", "create", "alone")
    assert (again.status, again.err) == (1, "error: Collection 'alone' already exists.\n")
    place.write("three.jsonl", lines(*({**poem, "embedding": [1.0, n]} for n, poem in enumerate(POEMS))) + "\noops\n")
    added = alone("collections", "add", "alone", "three.jsonl", "--json")
    assert (added.status, added.json()) == (1, {"stored": 2, "refused": 1})
    assert added.err == "warning: line 4: not valid JSON\n"
    shown = alone("collections", "show", "alone", "--json").json()
    assert (shown["count"], shown["dimension"], shown["metadata"]) == (2, 2, {"owner": "docs", "embedding_model": "m"})


def test_beside_a_server_it_does_the_work(beside: Inside) -> None:
    """M-2 and V-4: texts are embedded by the server's own model where the label says so."""
    assert beside("collections", "create", "poems/1 ü").status == 0
    beside.write("poems.jsonl", lines(*POEMS))
    added = beside("collections", "add", "poems/1 ü", "poems.jsonl")
    assert (added.status, added.err) == (0, "2 documents stored.\n")
    found = beside("collections", "query", "poems/1 ü", "which colour has the pump", "--limit", "1")
    score, _, id_ = found.out.splitlines()[0].partition("  ")
    assert (id_, 0.5 < float(score) < 1) == ("a", True)
    assert found.out.splitlines()[1:] == ["    The pump in the cellar is blue.", '    {"kind": "fact", "n": 1}']


def test_documents_are_listed_and_filtered(beside: Inside) -> None:
    beside("collections", "create", "listed", "--own-vectors")
    beside.write("listed.jsonl", lines(*({**poem, "embedding": [1, 2]} for poem in POEMS)))
    beside("collections", "add", "listed", "listed.jsonl")
    page = beside("collections", "documents", "listed", "--where", '{"n":{"$gt":1}}')
    assert page.out == 'b\n    Valve seven opens at nine bar.\n    {"kind": "rule", "n": 2}\n'
    assert page.err == "1 to 1 of 1 document.\n"
    assert beside("collections", "values", "listed", "kind").out == "fact\nrule\n"
    wrong = beside("collections", "documents", "listed", "--where", '{"n":{"$near":1}}')
    assert wrong.status == 2
    assert wrong.err.startswith("error: Invalid 'where' filter: ")


def test_rejected_lines_are_reported_and_the_others_are_indexed(beside: Inside) -> None:
    beside("collections", "create", "partly", "--own-vectors")
    good = {"text": "good", "embedding": [1, 2]}
    beside.write(
        "partly.jsonl",
        "\ufeff"
        + lines({**good, "id": "1"}, {"text": "bare"}, {**good, "id": "2", "embedding": [1]}, {**good, "id": "1"}),
    )
    added = beside("collections", "add", "partly", "partly.jsonl")
    assert added.status == 1
    assert added.err.splitlines() == [
        "warning: line 2: All documents must include pre-computed embeddings",
        "warning: line 3: Embedding dimension mismatch: line 1 has 2 dimensions and line 3 has 1",
        "2 documents stored, 2 rejected.",
        "Texts are embedded here in collections made with --embedding-provider rag-context.",
    ]
    assert beside("collections", "show", "partly", "--json").json()["count"] == 1


def test_a_line_that_is_there_twice_is_no_fault(beside: Inside) -> None:
    """With an id and without one: the same document has the same id."""
    beside("collections", "create", "twice", "--own-vectors")
    bare, named = {"text": "bare", "embedding": [1, 2]}, {"id": "n", "text": "named", "embedding": [2, 1]}
    beside.write("twice.jsonl", lines(bare, named, {**bare, "metadata": None, "id": None}, named))
    assert beside("collections", "add", "twice", "twice.jsonl").status == 0
    assert beside("collections", "show", "twice", "--json").json()["count"] == 2


def test_a_condition_that_json_would_lose_is_rejected(beside: Inside) -> None:
    beside("collections", "create", "strict", "--own-vectors")
    rejected = beside("collections", "query", "strict", "--embedding", "[1]", "--where", '{"$not": {"a": 1, "a": 2}}')
    assert (rejected.status, rejected.err) == (2, "error: --where has 'a' twice.\n")


@pytest.mark.parametrize("typed", ["false", "null", "0", "[]"])
def test_json_that_is_no_object_is_rejected_and_not_left_out(beside: Inside, typed: str) -> None:
    beside("collections", "create", "strict", "--embedding-provider", "rag-context")
    replaced = beside("collections", "metadata", "strict", typed)
    assert (replaced.status, "metadata" in replaced.err) == (2, True)
    if typed != "null":  # which means absent, as on the wire
        found = beside("collections", "query", "strict", "anything", "--where", typed)
        assert (found.status, "where" in found.err) == (2, True)
    beside("collections", "delete", "strict", "--yes")


def test_a_deletion_is_confirmed_at_the_prompt_or_with_yes(beside: Inside) -> None:
    beside("collections", "create", "doomed", "--own-vectors")
    beside.write("doomed.jsonl", lines(*({**poem, "embedding": [1]} for poem in POEMS)))
    beside("collections", "add", "doomed", "doomed.jsonl")
    for command in ("delete", "empty"):
        kept = beside("collections", command, "doomed")
        assert (kept.status, "Confirm with --yes" in kept.err) == (2, True)
    assert beside("collections", "remove", "doomed", "a").err == "1 document deleted.\n"
    missing = beside("collections", "remove", "doomed", "a")
    assert (missing.status, missing.err) == (1, "error: Document 'a' not found.\n")
    assert beside("collections", "remove", "doomed", "all").status == 2
    emptied = beside("collections", "empty", "doomed", "--yes", "--json")
    assert emptied.json() == {"status": "emptied", "collection": "doomed", "count_deleted": 1}
    assert beside("collections", "delete", "doomed", "-y").err == "Deleted doomed.\n"
    assert beside("collections", "show", "doomed").err == "error: Collection 'doomed' not found.\n"


def test_a_collection_is_copied_to_another_provider(beside: Inside) -> None:
    beside("collections", "create", "moving", "--own-vectors", "--metadata", '{"a": {"b": null}}')
    beside.write("moving.jsonl", lines(*({**poem, "embedding": [1, 2]} for poem in POEMS)))
    beside("collections", "add", "moving", "moving.jsonl")
    copied = beside("collections", "copy", "moving", "archive:moved here")
    assert (copied.status, copied.err) == (0, "2 copied. archive:moved here holds the same 2 documents as moving.\n")
    again = beside("collections", "copy", "moving", "archive:moved here", "--json").json()
    assert (again["copied"], again["skipped"], len(again["digest"])) == (0, 2, 64)
    beside.write("other.jsonl", lines({"id": "x", "text": "else", "embedding": [1, 2]}))
    beside("collections", "create", "other", "--own-vectors")
    beside("collections", "add", "other", "other.jsonl")
    rejected = beside("collections", "copy", "other", "archive:moved here")
    assert rejected.status == 1
    assert rejected.err.endswith("--overwrite makes it what the source is.\n")
    astray = beside("collections", "copy", "other", "archiv:x")
    assert astray.status == 2
    assert astray.err == (
        "error: There is no connection 'archiv' to make 'x' on; known are default, archive. "
        "A collection of the whole name is 'default:archiv:x'.\n"
    )
    assert beside("collections", "copy", "other", "default:archiv:x").status == 0
    assert beside("collections", "copy", "other", "archiv:x").status == 0
    missing = beside("collections", "copy", "none", "archive:x")
    assert (missing.status, missing.err) == (1, "error: Collection 'none' not found\n")


def test_providers_and_connections_are_listed(beside: Inside) -> None:
    rows = beside("collections", "providers").out.splitlines()
    assert [row.split()[0] for row in rows] == ["Name", "chroma", "embedded", "postgres", "qdrant"]
    listed = beside("collections", "list", "--connection", "elsewhere")
    assert listed.err == "error: Connection 'elsewhere' not found; known are default, archive.\n"


def test_a_provider_that_is_down_is_named_by_its_connection(tmp_path: Path) -> None:
    folder = tmp_path / "down"
    folder.mkdir()
    commands = Commands(folder)
    url = f"http://127.0.0.1:{free_port()}"
    commands.write("rag-context.toml", f'[connections.team]\nprovider = "chroma"\nurl = "{url}"\n')
    listed = commands("collections", "list", "--connection", "team")
    assert listed.status == 75
    assert listed.err.endswith(" (connection team) could not: Vector database unavailable. Try again.\n")


def test_a_connection_that_can_never_work_stops_the_start(tmp_path: Path) -> None:
    """M-5."""
    folder = tmp_path / "wrong"
    folder.mkdir()
    commands = Commands(folder)
    commands.write("rag-context.toml", '[connections.archive]\nprovider = "pinecone"\n')
    stopped = commands("serve", "--port", "0")
    assert stopped.status == 78
    assert stopped.err == (
        "error: connections.archive.provider is 'pinecone', which is unknown; "
        "choose one of chroma, embedded, postgres, qdrant.\n"
    )
