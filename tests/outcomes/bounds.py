"""Keys with bounds under random requests over HTTP and MCP, by a seed: what is out of bounds must never show.

python -m tests.outcomes.bounds --requests 12000 --servers 2 --redis     the whole run; prints what leaked

Every part of the memory has words that stand in no request (canaries, in contents, titles, sessions and metadata) and
words that may (handles: sources, tags, names, ids). An answer to a key shows neither of a part out of its bounds, but
for a handle that its own request has. What belongs to no key is the same afterwards.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import httpx2

from rag_context.api.operations import Access
from rag_context.api.operations.routes import PERFORMED
from rag_context.domain.callers import Bounds
from rag_context.memory.service import Service
from rag_context.server.app import create_app
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from rag_context.settings import Settings
from rag_context.settings.sections import SearchSettings, StoreSettings
from rag_context.wiring.opening import open_service
from tests.servers.redis import redis_server

OWNER = "owner"
ADDER = "adder"
"""May add, and change nothing of others."""
WORDS = ("pump", "valve", "sensor", "deploy", "billing", "retry", "cache", "error", "ticket", "release")
MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class Part:
    """A part of the memory: who may see it is decided by its place, and its words say whose they are."""

    name: str
    place: str
    """`agent`, `tag`, `project` or `collection`."""

    @property
    def canary(self) -> str:
        return f"zq{self.name}canary"

    @property
    def sources(self) -> str:
        """Begins its sources, which keys write to as well."""
        return f"file{PARTS.index(self)}"

    @property
    def handle(self) -> str:
        """Of an agent the tag, else its tag, project or collection."""
        return f"agent:{self.name}" if self.place == "agent" else self.name


PARTS = tuple(
    Part(name, place)
    for place, names in {
        "agent": ("alicia", "robert", "carola"),
        "tag": ("crimson", "azure", "vermilion"),
        "project": ("apollo", "borealis", "cygnus"),
        "collection": ("foliants", "ledgers", "vaultbox"),
    }.items()
    for name in names
)
"""The last of each place belongs to no key."""
NOBODYS = tuple(part for part in PARTS if part.name in {"carola", "vermilion", "cygnus", "vaultbox"})

SCOPES: Mapping[str, Bounds] = {
    "alicia": Bounds(agents=("alicia",)),
    "robert": Bounds(agents=("robert",)),
    "crimson": Bounds(tags=("crimson",), projects=("apollo",)),
    "mixed": Bounds(agents=("alicia", "robert"), collections=("foliants", "ledgers")),
    "project": Bounds(projects=("borealis",)),
    "books": Bounds(collections=("foliants",)),
    "nothing": Bounds(),
    "grouped": Bounds(agents=("robert",)).joined([Bounds(projects=("apollo",)), Bounds(collections=("ledgers",))]),
}


def sees(bounds: Bounds, part: Part) -> bool:
    of = {
        "agent": bounds.agents if not bounds.tags else (),
        "tag": bounds.tags if not bounds.agents else (),
        "project": bounds.projects,
        "collection": bounds.collections,
    }
    return part.name in of[part.place]


def keys() -> tuple[HashedKey, ...]:
    bound = [HashedKey.parse(name, hash_key(name), Access.ADMIN, bounds) for name, bounds in SCOPES.items()]
    whole = [HashedKey.parse(n, hash_key(n), access) for n, access in ((OWNER, Access.ADMIN), (ADDER, Access.ADD))]
    return (*whole, *bound)


@dataclass
class Memory:
    """One or several servers on one directory, in this process, without sockets."""

    services: list[Service]
    clients: list[httpx2.AsyncClient]
    ids: dict[str, list[str]] = field(default_factory=dict)
    sessions: dict[tuple[str, int], str] = field(default_factory=dict)

    async def send(self, key: str, method: str, url: str, server: int = 0, **options: Any) -> httpx2.Response:
        headers = {"x-api-key": key, **options.pop("headers", {})}
        return await self.clients[server].request(method, url, headers=headers, **options)

    async def call(self, key: str, tool: str, server: int = 0, **fields: Any) -> httpx2.Response:
        return await self.send(key, "POST", f"/tools/{tool}", server, json=fields)

    async def rpc(self, key: str, method: str, params: Mapping[str, Any], server: int = 0) -> httpx2.Response:
        """A message to `/mcp`, in a session of the key."""
        session = self.sessions.get((key, server))
        if session is None:
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
            opened = await self.send(key, "POST", "/mcp?tools=all", server, headers=MCP, json=body)
            session = self.sessions[key, server] = opened.headers["mcp-session-id"]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}
        headers = {**MCP, "mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
        return await self.send(key, "POST", "/mcp?tools=all", server, headers=headers, json=body)

    async def fill(self, parts: tuple[Part, ...] = PARTS, documents: int = 6) -> None:
        """Store the documents of some parts, as their owner."""
        for part in parts:
            if part.place == "collection":
                created = await self.send(OWNER, "POST", "/collections", json={"name": part.name})
                created.raise_for_status()
            for number in range(documents):
                await self._store(part, number)

    async def _store(self, part: Part, number: int) -> None:
        words = [WORDS[(number + step * 3) % len(WORDS)] for step in range(4)]
        text = f"{part.canary} {part.canary}{number}: the {' '.join(words)} of the {words[0]} failed, see {number}."
        if part.place == "collection":
            embedding = [float(number + 1), *(float(ord(sign) % 7) for sign in part.name[:3])]
            document: dict[str, Any] = {
                "id": f"{part.name}-{number}",
                "text": text,
                "embedding": embedding,
                "metadata": {"kind": "x"},
            }
            reply = await self.send(
                OWNER, "POST", f"/collections/{part.name}/documents", json={"documents": [document]}
            )
            reply.raise_for_status()
            self.ids.setdefault(part.name, []).append(document["id"])
            return
        fields: dict[str, Any] = {
            "content": text,
            "contentType": "chat" if part.place == "agent" else "documentation",
            # One session for all of them: what stands around a message may be another's.
            "sessionId": "shared" if part.place != "project" else part.canary,
            "source": f"{part.sources}/{number}",
            "metadata": {"tags": [part.handle], "note": part.canary},
        }
        if part.place == "project":
            fields["project"] = part.name
        if part.place == "agent":
            fields["metadata"]["agent"] = part.name
        reply = await self.call(OWNER, "rag_context_index", **fields)
        reply.raise_for_status()
        self.ids.setdefault(part.name, []).append(reply.json()["documentId"])

    async def state(self, parts: tuple[Part, ...]) -> dict[str, str]:
        """All that is stored of some parts, as their owner reads it."""
        found = {}
        for part in parts:
            for id_ in self.ids[part.name]:
                if part.place == "collection":
                    reply = await self.send(OWNER, "GET", f"/collections/{part.name}/documents?ids={id_}")
                    found[id_] = reply.text
                else:
                    project: dict[str, Any] = {"project": part.name} if part.place == "project" else {}
                    stored = (await self.call(OWNER, "rag_context_get", documentId=id_, **project)).json()
                    stored.pop("retrievalStats", None)
                    found[id_] = json.dumps(stored)
        return found


@asynccontextmanager
async def open_memory(data_dir: Path, servers: int = 1, redis_url: str | None = None) -> AsyncIterator[Memory]:
    """A memory for `keys`, with the real model, in a directory."""
    stores = (
        StoreSettings()
        if redis_url is None
        else StoreSettings.model_validate({"cache": "redis", "redis_url": redis_url, "redis_secret": "s" * 32})
    )
    settings = Settings(data_dir=data_dir, stores=stores, search=SearchSettings(deadline_ms=30_000))
    async with AsyncExitStack() as stack:
        services, clients = [], []
        for _ in range(servers):
            service = await stack.enter_async_context(open_service(settings))
            await service.wait_ready(60.0)
            app = create_app(service, ServerOptions(api_keys=keys()))
            await stack.enter_async_context(app.router.lifespan_context(app))  # type: ignore[attr-defined]
            transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
            client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)
            clients.append(await stack.enter_async_context(client))
            services.append(service)
        yield Memory(services, clients)


class Attacker:
    """Draws requests over every interface."""

    def __init__(self, memory: Memory, seed: int) -> None:
        self._memory = memory
        self._random = random.Random(seed)
        self.statuses: Counter[str] = Counter()
        self.written: set[str] = set()
        """Names that keys have stored something under."""

    async def attempt(self) -> tuple[str, str, str]:
        """One request: the key, what was sent, and all that came back."""
        key = self._random.choice(list(SCOPES))
        server = self._random.randrange(len(self._memory.clients))
        kind = self._random.choices(("tool", "mcp", "rest", "other", "resource", "stolen"), (5, 3, 3, 1, 1, 1))[0]
        sent, reply = await getattr(self, f"_{kind}")(key, server)
        self.statuses[f"{kind} {reply.status_code}"] += 1
        if "content" in sent or "metadata" in sent:  # what a key stored it sees again
            self.written |= {part.name for part in PARTS if part.name in sent}
        shown = f"{reply.text}\n{json.dumps(dict(reply.headers))}"
        return key, sent, shown

    def _text(self) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, 4)))

    def _id(self) -> str:
        return self._random.choice([*chain(*self._memory.ids.values()), "6f8a3a52-9d3e-5b0c-8f0a-6f4f9a3f5a11"])

    def _value(self, name: str) -> Any:
        """A value for a field by its name."""
        draw = self._random
        part = draw.choice(PARTS)
        source = f"{part.sources}/{draw.randrange(7)}"
        values: dict[str, Any] = {
            "query": self._text(),
            "content": self._text() + " written by the key",
            "text": self._text(),
            "userMessage": self._text(),
            "reason": "because",
            "contentType": draw.choice(("chat", "documentation")),
            "sessionId": "shared",
            "source": draw.choice((source, f"{part.sources}/*")),
            "documentId": self._id(),
            "document_path": source,
            "path": source,
            "id": self._id(),
            "ids": [self._id(), self._id()],
            "tag": part.handle,
            "tags": [part.handle],
            "agent": part.name,
            "project": part.name,
            "project_name": part.name,
            "name": part.name,
            "collections": [part.name],
            "connection": draw.choice(("default", "default", "other")),
            "metadata": draw.choice(({"tags": [part.handle]}, {}, {"kind": "x"})),
            "supersedes": [self._id()],
            "documents": [{"text": self._text(), "embedding": [1.0, 2.0, 3.0, 4.0]}],
            "embedding": [1.0, 2.0, 3.0, 4.0],
            "where": draw.choice(({"kind": "x"}, {})),
            "contains": self._text(),
            "limit": draw.randint(1, 20),
            "top_k": draw.randint(1, 20),
            "mode": draw.choice(("hybrid", "text", "vector")),
            "dryRun": draw.random() < 0.7,
            "dry_run": draw.random() < 0.7,
            "confirm": draw.random() < 0.5,
            "purge": draw.random() < 0.3,
            "explain": True,
            "facets": True,
            "includeSuperseded": True,
            "minScore": 0.0,
            "field": "kind",
            "doc_types": ["problem"],
            "version": 1,
        }
        return values.get(name)

    def _fields(self, name: str) -> dict[str, Any]:
        """Arguments of an operation: what it requires, and some of the others."""
        operation = PERFORMED[name]
        chosen = {}
        one_of = [operation.request.model_fields[each].alias or each for each in operation.request.exactly_one_of]
        single = self._random.choice(one_of) if one_of else None
        for own, declared in operation.request.model_fields.items():
            wire = declared.alias or own
            wanted = declared.is_required() or self._random.random() < 0.35 or wire == single
            if wanted and (wire not in one_of or wire == single) and (value := self._value(wire)) is not None:
                chosen[wire] = value
        return chosen

    async def _tool(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        name = self._random.choice([each.name for each in PERFORMED.values() if each.is_tool and each.name != "x"])
        fields = self._fields(name)
        return f"{name} {json.dumps(fields)}", await self._memory.call(key, name, server, **fields)

    async def _mcp(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        name = self._random.choice([each.name for each in PERFORMED.values() if each.is_tool])
        params = {"name": name, "arguments": self._fields(name)}
        return json.dumps(params), await self._memory.rpc(key, "tools/call", params, server)

    async def _resource(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        method, params = self._random.choice(
            (
                ("resources/list", {}),
                ("resources/read", {"uri": f"rag-context://documents/{self._id()}"}),
                ("prompts/get", {"name": "recall", "arguments": {"topic": self._text()}}),
                ("prompts/list", {}),
                ("resources/templates/list", {}),
                ("completion/complete", {"ref": {"type": "ref/prompt", "name": "recall"}, "argument": {}}),
                ("tools/list", {}),
            )
        )
        return json.dumps(params), await self._memory.rpc(key, method, params, server)

    async def _stolen(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        """A call in the MCP session of another key."""
        others = [id_ for (owner, _), id_ in self._memory.sessions.items() if owner != key]
        session = self._random.choice(others) if others else "none"
        body = {"jsonrpc": "2.0", "id": 1, "method": self._random.choice(("resources/list", "tools/list"))}
        headers = {**MCP, "mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
        method = self._random.choice(("POST", "POST", "DELETE"))
        return session, await self._memory.send(key, method, "/mcp", server, headers=headers, json=body)

    async def _rest(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        draw, name = self._random, quote(str(self._value("name")))
        one = f"/collections/{name}/documents/{quote(self._id())}"
        method, url, body = draw.choice(
            (
                ("GET", "/collections", None),
                ("GET", "/collections?connection=other", None),
                ("GET", f"/collections/{name}", None),
                ("GET", f"/collections/{name}/documents", None),
                ("GET", f"/collections/{name}/documents?include=embeddings&limit=5", None),
                ("GET", f"/collections/{name}/metadata-values?field=kind", None),
                ("POST", f"/collections/{name}/query", {"embedding": [1.0, 2.0, 3.0, 4.0], "top_k": 5}),
                ("POST", f"/collections/{name}/documents", {"documents": self._value("documents")}),
                ("PUT", f"/collections/{name}/metadata", {"metadata": {"owner": "key"}}),
                ("PUT", f"{one}/metadata", {"metadata": {"kind": "y"}}),
                ("DELETE", one, None),
                ("DELETE", f"/collections/{name}/documents?where=%7B%22kind%22%3A%22x%22%7D&confirm=true", None),
                ("DELETE", f"/collections/{name}/documents/all", None),
                ("DELETE", f"/collections/{name}", None),
                ("POST", "/collections", {"name": self._value("name")}),
                ("GET", "/providers", None),
                ("GET", "/providers/embedded", None),
                ("POST", "/providers/embedded/test", {}),
            )
        )
        options = {} if body is None else {"json": body}
        return f"{method} {url} {json.dumps(body)}", await self._memory.send(key, method, url, server, **options)

    async def _other(self, key: str, server: int) -> tuple[str, httpx2.Response]:
        draw = self._random
        line = {name: self._value(name) for name in ("content", "contentType", "sessionId", "metadata")}
        line = {**line, "source": f"{draw.choice(PARTS).sources}/1", "supersedes": self._value("supersedes")}
        ndjson = {"content-type": "application/x-ndjson"}
        versions = {"versions": {self._id(): "0" * 64}}
        method, url, options = draw.choice(
            (
                ("GET", "/metrics", {}),
                ("HEAD", "/events", {}),
                ("GET", "/health", {}),
                ("GET", "/tools", {}),
                ("GET", f"/tools/rag_context_search?query={quote(self._text())}&minScore=0", {}),
                ("GET", "/events?timeRange=24h", {}),
                ("GET", "/openapi.json", {}),
                ("GET", "/v1/models", {}),
                ("POST", "/v1/embeddings", {"json": {"input": [self._text()]}}),
                ("GET", "/.well-known/oauth-protected-resource", {}),
                ("GET", "/tools/rag_context_stats?timeRange=24h", {}),
                ("POST", "/bulk/versions", {"json": versions}),
                ("POST", "/bulk", {"content": json.dumps(line).encode() + b"\n", "headers": ndjson}),
            )
        )
        return f"{url} {options}", await self._memory.send(key, method, url, server, **options)


def leaks(key: str, sent: str, shown: str, written: Collection[str]) -> list[str]:
    """The words of parts out of bounds in an answer, but for names that this request, or one that stored, had."""
    shown = shown.casefold()
    found = []
    for part in PARTS:
        if sees(SCOPES[key], part):
            continue
        if part.canary in shown:
            found.append(part.canary)
        if part.name in shown and part.name not in sent and part.name not in {key, *written}:
            found.append(part.name)
    return found


async def run(memory: Memory, requests: int, seed: int, reindex_every: int = 0) -> tuple[list[str], Counter[str]]:
    """What leaked in so many requests, one line each; and what was answered."""
    attacker, found = Attacker(memory, seed), []
    for number in range(requests):
        if reindex_every and number % reindex_every == reindex_every - 1:
            await memory.call(OWNER, "rag_context_reindex", force=True)
        key, sent, shown = await attacker.attempt()
        known = {id_ for part in PARTS if sees(SCOPES[key], part) for id_ in memory.ids.get(part.name, ())}
        foreign = [id_ for ids in memory.ids.values() for id_ in ids if id_ not in known]
        words = leaks(key, sent, shown, attacker.written) + [id_ for id_ in foreign if id_ in shown and id_ not in sent]
        if words:
            found.append(f"{key}: {sent[:400]} -> {words} in {shown[:600]}")
    return found, attacker.statuses


async def _main(requests: int, seed: int, servers: int, *, redis: bool) -> int:
    began = time.monotonic()
    with TemporaryDirectory() as folder, redis_server() if redis else nullcontext() as cache:
        url = None if cache is None else f"redis://127.0.0.1:{cache.port}/0"
        async with open_memory(Path(folder) / "data", servers, url) as memory:
            await memory.fill()
            before = await memory.state(NOBODYS)
            found, statuses = await run(memory, requests, seed, reindex_every=max(requests // 20, 1))
            after = await memory.state(NOBODYS)
    for line in found[:20]:
        sys.stdout.write(f"{line}\n")
    changed = [id_ for id_, stored in before.items() if after[id_] != stored]
    sys.stdout.write(f"{dict(sorted(statuses.items()))}\n")
    sys.stdout.write(
        f"{requests} requests, seed {seed}, {servers} servers, {'with' if redis else 'without'} Redis, "
        f"{time.monotonic() - began:.0f} s: {len(found)} leaks, {len(changed)} changed of {len(before)}\n"
    )
    return 1 if found or changed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--redis", action="store_true")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.requests, options.seed, options.servers, redis=options.redis)))
