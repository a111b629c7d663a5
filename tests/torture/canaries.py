"""Scan all bytes for what was purged: `python -m tests.torture.canaries [--canaries N] [--backend postgres]`.

Words that stand in no other text are written over HTTP, MCP, the command line and the Python client, one by one and
many at once: as texts, sources, tags, agents, reasons, corrected and forgotten versions, project documents, entries of
a collection, and questions; then purged. They must be in no file of the data directory or the backend, in no log, and
in no backup or export made after. The command exits 1 if any is left.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from rag_context import Client
from tests.end_to_end.process import TIMEOUT_S, Served, command, served, wait_until
from tests.outcomes.bounds import MCP
from tests.outcomes.changes import done
from tests.outcomes.repositories import Caller, repository
from tests.outcomes.test_forgetting import ERASED_SOON, RETRIES, fill_with
from tests.torture.backends import BACKENDS, DIGITS, MARK, backend, erased, in_files

COLLECTION, SHOP = "canaries", "shop"
WRITERS, PART = 8, 50
ONE_BY_ONE = 300
"""Words of each interface that takes one at a time, at most; the others take the rest."""

Fill: TypeAlias = Callable[[Sequence[str], int], None]
FOUND = 0.9
"""Share of the words that a scan must find before the purge: the others are cut by the end of a page."""


def main() -> int:
    """Write, purge, copy and scan."""
    parser = argparse.ArgumentParser(prog="canaries", description=__doc__)
    parser.add_argument("--canaries", type=int, default=10_000)
    parser.add_argument("--backend", choices=BACKENDS, default="embedded")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rag-context-canaries-") as name:
        left, found = purged(Path(name), arguments.canaries, arguments.backend)
    return 1 if left or found < FOUND * arguments.canaries else 0


def bounds_of(number: int) -> list[int]:
    """Where the words of each way end: HTTP, MCP, client, many over HTTP and client, files, project, collection."""
    single = [min(ONE_BY_ONE, number * percent // 100) for percent in (25, 15, 10)]
    rest = number - sum(single)
    many = [rest * percent // 100 for percent in (20, 20, 15, 10)]
    return [*accumulate([*single, *many]), number]


def stored_documents(number: int) -> int:
    """How many documents `fill` makes outside of projects and collections: one a word, two where it was corrected."""
    over_http, *_, files, _, _ = bounds_of(number)
    return files + len(range(3, over_http, 5))


def purged(place: Path, number: int, kind: str) -> tuple[int, int]:
    """Words that are left, and those that a scan found before."""
    rng, started = random.Random(number), time.monotonic()
    words = [f"{MARK.decode()}{rng.randrange(10**DIGITS):0{DIGITS}}" for _ in range(number)]
    place.mkdir(exist_ok=True)
    data_dir = place / "data"
    with tempfile.TemporaryDirectory(prefix="rag-context-texts-") as folder, backend(kind, place) as (stores, maintain):
        with served(data_dir, **ERASED_SOON, **stores) as server:
            server.wait_ready()
            # Others stay: of a table without rows PostgreSQL keeps the statistics of those that it had.
            server.index("The buoys of berth 4 are red.", source="buoys.md", metadata={"tags": ["buoys"]})
            _in_collection(server, ["buoys"], "kept")
            fill(server, words, Path(folder), data_dir, stores)
            found = len(in_files(place, words))
            print(f"{found} of {number} words in files after {time.monotonic() - started:.0f} s", flush=True)
            counts = purge(server, data_dir, stores)
            expected = stored_documents(number)
            assert (counts["documents"], counts["passages"], counts["vectors"]) == (expected,) * 3, counts
            erased(place, words, maintain)
            for copy in ("backup", "export"):
                if copy == "export" or kind != "postgres":  # of PostgreSQL `pg_dump` is the backup
                    ended = command(copy, str(place / copy), data_dir=data_dir, **stores)
                    assert ended.returncode == 0, ended.stderr
        left = erased(place, words, maintain)
    print("".join(f"{word} is left in {file}\n" for word, file in left.items()), end="")
    print(f"purged {counts}; {len(left)} words left after {time.monotonic() - started:.0f} s ({kind})", flush=True)
    return len(left), found


def fill(server: Served, words: Sequence[str], folder: Path, data_dir: Path, stores: dict[str, str]) -> None:
    """A share of the words over each interface."""
    ways: list[Fill] = [
        lambda part, first: fill_with(server, part, first),
        lambda part, first: _by_mcp(server, part, first),
        lambda part, _: _by_client(server, part),
        lambda part, _: _many_over_http(server, part),
        lambda part, _: _many_by_client(server, part),
        lambda part, first: _by_command(part, first, folder, data_dir, stores),
        lambda part, _: _as_project(server, part, folder),
        lambda part, _: _in_collection(server, part),
    ]
    begins = 0
    with ThreadPoolExecutor(WRITERS) as writers:
        for ends, (number, write) in zip(bounds_of(len(words)), enumerate(ways), strict=True):
            size = ends - begins if number in {5, 6} else PART  # a process or a project for all of its words
            firsts = range(begins, ends, size)
            list(writers.map(lambda at: write(words[at : min(at + size, ends)], at), firsts))  # noqa: B023
            print(f"{ends} words after the {number + 1}. way", flush=True)
            begins = ends


def _drafts(words: Sequence[str]) -> list[dict[str, Any]]:
    """A document for each word: in its text, its source, or its tags and agent."""
    about = {"contentType": "decision", "sessionId": "canaries"}
    places: list[Callable[[str], dict[str, Any]]] = [
        lambda word: {"content": f"{RETRIES} {word}"},
        lambda word: {"content": RETRIES, "source": f"{word}.md"},
        lambda word: {"content": f"{RETRIES} {word}", "metadata": {"tags": [word], "agent": word}},
    ]
    return [
        {"source": f"{word[-DIGITS:]}.md", **about, **places[at % len(places)](word)} for at, word in enumerate(words)
    ]


def _many_over_http(server: Served, words: Sequence[str]) -> None:
    lines = "".join(f"{json.dumps(draft)}\n" for draft in _drafts(words))
    headers = {"Content-Type": "application/x-ndjson"}
    reply = httpx2.post(f"{server.url}/bulk", content=lines, headers=headers, timeout=TIMEOUT_S)
    receipts = [json.loads(line) for line in reply.text.splitlines()]
    assert sum("documentId" in each for each in receipts) == len(words), receipts[-1]


def _many_by_client(server: Served, words: Sequence[str]) -> None:
    with Client(server.url) as client:
        receipts = list(client.bulk(_drafts(words)))
    assert sum(receipt.document_id is not None for receipt in receipts) == len(words), receipts[-1]


def _by_mcp(server: Served, words: Sequence[str], first: int) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with httpx2.Client(base_url=server.url, headers=MCP, timeout=TIMEOUT_S) as http:

        def send(method: str, params: dict[str, Any]) -> httpx2.Response:
            reply = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            assert reply.status_code == 200, reply.text
            assert '"isError":true' not in reply.text, reply.text
            return reply

        http.headers["mcp-session-id"] = send("initialize", about).headers["mcp-session-id"]
        http.headers["mcp-protocol-version"] = about["protocolVersion"]  # type: ignore[assignment]
        for place, word in enumerate(words, first):
            stored = {"content": f"{RETRIES} {word}", "contentType": "decision", "sessionId": "canaries"}
            tags = {"metadata": {"tags": [word]}}
            call = {"name": "rag_context_index", "arguments": {**stored, "source": f"mcp-{place}.md", **tags}}
            send("tools/call", call)
            send("tools/call", {"name": "rag_context_search", "arguments": {"query": word}})


def _by_client(server: Served, words: Sequence[str]) -> None:
    with Client(server.url) as client:
        for word in words:
            client.index(f"{RETRIES} {word}", content_type="decision", session_id="canaries", source=f"{word}.md")
            client.search(word)


def _by_command(words: Sequence[str], first: int, folder: Path, data_dir: Path, stores: dict[str, str]) -> None:
    notes = folder / f"notes-{first}"
    notes.mkdir()
    for word in words:
        (notes / f"{word}.md").write_text(f"# {word}\n\n{RETRIES} {word}\n")
    for arguments in (("index", str(notes)), ("search", *words[:1])):
        ended = command(*arguments, data_dir=data_dir, **stores)
        assert ended.returncode == 0, ended.stderr


def _as_project(server: Served, words: Sequence[str], folder: Path) -> None:
    texts = {word: f"# {word}\n\n{RETRIES} {word}\n" for word in words}
    shop = repository(folder, SHOP, **texts)
    caller = Caller(server.url)
    caller.call("activate_project", config_path=shop.config)
    caller.call("semantic_search", query=" ".join(words[:1]), project=SHOP)


def _in_collection(server: Served, words: Sequence[str], name: str = COLLECTION) -> None:
    created = {"name": name, "metadata": {}, "embedding_provider": "rag-context"}
    server.post("/collections", created)  # which the first one does
    entries = [{"id": word, "text": f"Berth {word}", "metadata": {"key": word}} for word in words]
    # A busy server says 503.
    wait_until(lambda: server.post(f"/collections/{name}/documents", {"documents": entries}).is_success)


def purge(server: Served, data_dir: Path, stores: dict[str, str]) -> dict[str, int]:
    """All of it; returns what the receipts count."""
    receipts: list[dict[str, Any]] = []
    for selected in ({"sessionId": "canaries"}, {"contains": MARK.decode()}):
        while True:
            receipts.append(done(server, "forget", **selected, purge=True, confirm=True, clearQueries=True))
            if not receipts[-1]["documents"]:
                break
    Caller(server.url).call("delete_documents", project_name=SHOP)
    assert httpx2.delete(f"{server.url}/collections/{COLLECTION}", timeout=TIMEOUT_S).is_success
    cleared = command("clear-queries", "--yes", data_dir=data_dir, **stores)
    assert cleared.returncode == 0, cleared.stderr
    names = ("documents", "passages", "vectors", "derived", "queries")
    return {name: sum(receipt[name] for receipt in receipts) for name in names}


if __name__ == "__main__":
    sys.exit(main())
