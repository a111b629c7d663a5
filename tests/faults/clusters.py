"""Three nodes of Qdrant under load: `python -m tests.faults.clusters [--qdrant PROGRAM] [--named N] [--seed N]`.

Two servers over one data directory, whose address of Qdrant names all three nodes, in two orders; 16 clients of theirs
write and search, two more write to a collection at one server and read it at the other, and pairs of writes of one
document come to both servers at the same moment. Meanwhile a node is killed, one is stopped (SIGSTOP), and one is lost
with its disk. With `PROGRAM`, Qdrant's server, the nodes are a cluster with two replicas. Without it they are three
ways to the stand-in, which has one copy: then only what rag-context does is measured. Exits 1 where anything was not
as it should be.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2

from tests.end_to_end.process import Served, served, wait_until
from tests.faults.backends import COLLECTION, vectors_process
from tests.faults.harness import RELAXED_DEADLINE, MemoryHarness
from tests.faults.load import AnsweredSearch, Client, Record, examined
from tests.outcomes.quotations import index_all, texts
from tests.servers.faults import HangBefore, Pass, Refuse, ThreadedFaultProxy, fault_proxy_in_thread
from tests.servers.process import ServerProcess, free_port

NODES = 3
REPLICAS = 2
SHARDS = 6
CLIENTS = 8
"""Of each of the two servers."""

DOCUMENTS = 3000
CALM_S = 10.0
AWAY_S = 20.0
EVERY_S = 0.5
TRIES = 20
OK = httpx2.codes.OK
BOOKS = "books"


class Node(Protocol):
    """One node, or one way to the stand-in."""

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the stand-in, through a proxy."""

    proxy: ThreadedFaultProxy

    def kill(self) -> None:
        self.proxy.fault = Refuse()

    def freeze(self) -> None:
        self.proxy.fault = HangBefore()

    def start(self) -> None:
        self.proxy.fault = Pass()

    thaw = start


@dataclass(frozen=True)
class Cluster:
    """The nodes, with their addresses, as `host:port`."""

    nodes: Sequence[Node]
    hosts: Sequence[str]
    grpc_port: int
    folder: Path
    is_real: bool

    def address(self, first: int, named: int) -> str:
        """What a server is given: so many of the nodes."""
        return "http://" + ",".join([*self.hosts[first:], *self.hosts[:first]][:named])

    def ask(self, node: int, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        reply = httpx2.request(method, f"http://{self.hosts[node]}{path}", json=body, timeout=60.0, trust_env=False)
        assert reply.status_code == OK, f"{method} {path}: {reply.text}"
        return reply.json()["result"]

    def replicas(self, node: int, collection: str) -> Counter[tuple[int, str]]:
        """How many replicas each shard has, by its number and their state, as a node knows it."""
        found = self.ask(node, "GET", f"/collections/{collection}/cluster")
        return Counter((each["shard_id"], each["state"]) for each in found["local_shards"] + found["remote_shards"])

    def collections(self, node: int) -> list[str]:
        return [each["name"] for each in self.ask(node, "GET", "/collections")["collections"]]

    def is_whole(self, node: int = 0) -> bool:
        """Whether all replicas are there and active."""
        with suppress(httpx2.TransportError, AssertionError):
            known = [self.replicas(node, name) for name in self.collections(node)]
            return all(state == "Active" and count == REPLICAS for of in known for (_, state), count in of.items())
        return False

    def replace(self, lost: int) -> None:
        """What an administrator does after a node has lost its disk: remove it, start an empty one, fill it."""
        other = (lost + 1) % NODES
        peers = self.ask(other, "GET", "/cluster")["peers"]
        (old,) = [peer for peer, about in peers.items() if f"//{self.hosts[lost].split(':')[0]}:" in about["uri"]]
        self.ask(other, "DELETE", f"/cluster/peer/{old}?force=true")
        self.nodes[lost].start()
        new = self.ask(lost, "GET", "/cluster")["peer_id"]
        for name in self.collections(other):
            about = self.ask(other, "GET", f"/collections/{name}/cluster")
            places: dict[int, list[int]] = {}
            for shard in about["local_shards"] + about["remote_shards"]:
                places.setdefault(shard["shard_id"], []).append(shard.get("peer_id", about["peer_id"]))
            for shard_id, holders in places.items():
                if len(holders) < REPLICAS:
                    copy = {"shard_id": shard_id, "from_peer_id": holders[0], "to_peer_id": new}
                    self.ask(other, "POST", f"/collections/{name}/cluster", {"replicate_shard": copy})

    def differences(self) -> Iterator[str]:
        """Where two nodes answer differently: each reads the replicas that it has itself."""
        for name in self.collections(0):
            seen = []
            for node in range(NODES):
                body = {"limit": 100_000, "with_payload": True, "with_vector": False}
                points = self.ask(node, "POST", f"/collections/{name}/points/scroll", body)["points"]
                seen.append({json.dumps(point, sort_keys=True) for point in points})
            if any(points != seen[0] for points in seen[1:]):
                yield f"the nodes have different points of {name}: {[len(points) for points in seen]}"


@contextmanager
def cluster(program: Path | None, folder: Path) -> Iterator[Cluster]:
    """Three nodes, running; ended with the block."""
    with ExitStack() as stack:
        if program is None:
            server = vectors_process(folder)
            stack.callback(server.kill)
            server.start()
            proxies = [stack.enter_context(fault_proxy_in_thread(server.host, server.port)) for _ in range(NODES)]
            hosts = [proxy.url().removeprefix("http://") for proxy in proxies]
            yield Cluster([Way(proxy) for proxy in proxies], hosts, 0, folder, is_real=False)
            return
        http, grpc, between = free_port(), free_port(), free_port()
        nodes = [_node(program, folder, number, (http, grpc, between)) for number in range(NODES)]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        made = Cluster(nodes, [f"{_ip(number)}:{http}" for number in range(NODES)], grpc, folder, is_real=True)
        wait_until(lambda: all(len(made.ask(number, "GET", "/cluster")["peers"]) == NODES for number in range(NODES)))
        yield made


def _ip(number: int) -> str:
    return f"127.0.0.{number + 1}"


def _node(program: Path, folder: Path, number: int, ports: tuple[int, int, int]) -> ServerProcess:
    http, grpc, between = ports
    settings = {
        "QDRANT__CLUSTER__ENABLED": "true",
        "QDRANT__CLUSTER__P2P__PORT": str(between),
        "QDRANT__SERVICE__HOST": _ip(number),
        "QDRANT__SERVICE__HTTP_PORT": str(http),
        "QDRANT__SERVICE__GRPC_PORT": str(grpc),
        "QDRANT__STORAGE__STORAGE_PATH": str(folder / f"node{number}"),
        "QDRANT__STORAGE__SNAPSHOTS_PATH": str(folder / f"node{number}" / "snapshots"),
        "QDRANT_INIT_FILE_PATH": str(folder / f"node{number}.initialized"),
        "QDRANT__TELEMETRY_DISABLED": "true",
        "QDRANT__LOG_LEVEL": "WARN",
    }
    command = [str(program), "--uri", f"http://{_ip(number)}:{between}"]
    if number:
        command += ["--bootstrap", f"http://{_ip(0)}:{between}"]
    url = f"http://{_ip(number)}:{http}/readyz"

    def is_ready() -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(url, timeout=5.0, trust_env=False).status_code == OK
        return False

    return ServerProcess(command, http, folder / f"node{number}.log", is_ready, {**os.environ, **settings})


@dataclass
class Readers(threading.Thread):
    """Writes to a collection at one server, and reads it at once at the other."""

    writes_at: Served
    reads_at: Served
    name_of_mine: str
    stored: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Ids whose last write was not acknowledged."""
    replies: Counter[int] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Until `stop`."""
        number = 0
        while not self._over.wait(EVERY_S):
            number += 1
            id_ = f"{self.name_of_mine}{number % 200}"
            text = f"The book {id_} in its edition {number}."
            self.unknown.add(id_)
            with suppress(httpx2.TransportError):
                path = f"/collections/{BOOKS}/documents"
                reply = self.writes_at.post(path, {"documents": [{"id": id_, "text": text, "metadata": {"book": id_}}]})
                self.replies[reply.status_code] += 1
                if reply.is_success:
                    self.stored[id_] = text
                    self.unknown.discard(id_)
                    self.reads[self._read(id_)] += 1

    def _read(self, id_: str) -> str:
        reply = self.reads_at.get(f'/collections/{BOOKS}/documents?where={{"book":"{id_}"}}')
        if not reply.is_success:
            return "not answered"
        found = [document["text"] for document in reply.json()["documents"]]
        return "fresh" if found == [self.stored[id_]] else "stale" if found else "missing"

    def stop(self) -> None:
        """Wait for the last read."""
        self._over.set()
        self.join()

    def flaws(self) -> Iterator[str]:
        """What is not as it was acknowledged."""
        for id_ in self.stored.keys() - self.unknown:
            if (state := self._read(id_)) != "fresh":
                yield f"{id_} of the collection is {state}"


@dataclass
class Rivals(threading.Thread):
    """Sends two texts of one document to the two servers at the same moment."""

    servers: tuple[Served, Served]
    sources: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Until `stop`."""
        number = 0
        while not self._over.wait(2 * EVERY_S):
            number += 1
            source = f"rival{number % 20}q"
            markers = [f"{source}v{number}s{at}" for at in range(2)]
            self.sources.setdefault(source, set()).update(markers)
            writing = [
                threading.Thread(target=self._write, args=(server, source, marker))
                for server, marker in zip(self.servers, markers, strict=True)
            ]
            for thread in writing:
                thread.start()
            for thread in writing:
                thread.join()

    def _write(self, server: Served, source: str, marker: str) -> None:
        fields = {"contentType": "documentation", "sessionId": "rivals", "source": source}
        with suppress(httpx2.TransportError):
            server.tool("index", {"content": f"The entry {marker} is about a lighthouse.", **fields})

    def stop(self) -> None:
        """Wait for the last pair."""
        self._over.set()
        self.join()

    def _answer(self, query: Mapping[str, object]) -> dict[str, Any]:
        """One of level 1, or the last: searches are late where one machine runs everything."""
        for _ in range(TRIES):
            answer: dict[str, Any] = self.servers[0].tool("search", query).json()
            if answer.get("fallbackLevel") == 1:
                break
            time.sleep(EVERY_S)
        return answer

    def flaws(self) -> Iterator[str]:
        """What is there twice, not at all, or not by its vector."""
        for source, markers in self.sources.items():
            answers = {}
            for mode in ("text", "vector"):
                query = {"query": f"entry {source}", "mode": mode, "source": source, "minScore": 0}
                answer = self._answer(query)
                words = [word for each in answer.get("results", []) for word in each["content"].split()]
                answers[mode] = markers & set(words)
            if len(answers["text"]) != 1 or answers["text"] != answers["vector"]:
                yield f"after two writes at once {source} is {answers}"


@dataclass(frozen=True, slots=True)
class Phase:
    """What went on from `began` to `ended`, by `time.monotonic`; healed after `whole_s`, if that is known."""

    name: str
    began: float
    ended: float
    whole_s: float | None = None

    def summed_up(self, searches: Sequence[AnsweredSearch]) -> str:
        within = [each for each in searches if self.began <= each.began < self.ended]
        levels = Counter(each.label[0] if each.status == OK else 0 for each in within)
        others = [each.ended - self.began for each in within if each.label[0] != 1]
        told = ", ".join(f"{levels[level]} {f'at level {level}' if level else 'rejected'}" for level in sorted(levels))
        slowest = max((each.took_ms for each in within), default=0.0)
        back = f"; all at level 1 again after {max(others):.1f} s" if others else ""
        whole = "" if self.whole_s is None else f"; all replicas active {self.whole_s:.1f} s after its return"
        return f"{self.name}, {self.ended - self.began:.0f} s: {told}{back}, the slowest {slowest:.0f} ms{whole}"


@dataclass
class Run:
    """The cluster, the two memories, and what goes on."""

    cluster: Cluster
    harnesses: tuple[MemoryHarness, MemoryHarness]
    phases: list[Phase] = field(default_factory=list)

    def calm(self, name: str, seconds: float = CALM_S) -> None:
        self.phase(name, lambda: time.sleep(seconds), lambda: None)

    def phase(self, name: str, disturb: Callable[[], None], repair: Callable[[], None]) -> None:
        """Disturb for a while, repair it, and wait until all replicas are active."""
        began = time.monotonic()
        disturb()
        repaired = time.monotonic()
        repair()
        if self.cluster.is_real:
            wait_until(self.cluster.is_whole)
        ended = time.monotonic()
        self.phases.append(Phase(name, began, ended, ended - repaired if self.cluster.is_real else None))

    def disturbed(self) -> None:
        """The phases, one after the other."""
        nodes = self.cluster.nodes
        self.calm("undisturbed")
        self.phase("the first node killed", lambda: _away(nodes[0].kill), nodes[0].start)
        self.calm("then undisturbed")
        self.phase("the second node stopped (SIGSTOP)", lambda: _away(nodes[1].freeze), nodes[1].thaw)
        self.calm("then undisturbed")
        if self.cluster.is_real:
            self.phase("the third node lost with its disk", self._lose, lambda: self.cluster.replace(2))
            self.calm("then undisturbed")

    def _lose(self) -> None:
        _away(self.cluster.nodes[2].kill)
        shutil.rmtree(self.cluster.folder / "node2")


def _away(disturb: Callable[[], None]) -> None:
    disturb()
    time.sleep(AWAY_S)


def measured(folder: Path, arguments: argparse.Namespace, rng: random.Random) -> list[str]:
    """Runs, and prints what was measured; returns what was wrong."""
    with ExitStack() as stack:
        nodes = stack.enter_context(cluster(arguments.qdrant and arguments.qdrant.resolve(), folder))
        data_dir = folder / "data"
        data_dir.mkdir()
        harnesses = []
        for number in range(2):
            settings = {
                "QDRANT_URL": nodes.address(number, arguments.named),
                "RAG_CONTEXT_STORES__QDRANT_COLLECTION": COLLECTION,
                "RAG_CONTEXT_STORES__QDRANT_TRANSPORT": arguments.transport,
                "RAG_CONTEXT_STORES__QDRANT_SHARDS": str(SHARDS),
                "RAG_CONTEXT_STORES__QDRANT_REPLICAS": str(REPLICAS),
                **({"RAG_CONTEXT_STORES__QDRANT_GRPC_PORT": str(nodes.grpc_port)} if nodes.grpc_port else {}),
                **RELAXED_DEADLINE,
            }
            memory = stack.enter_context(served(data_dir, **settings))
            harnesses.append(MemoryHarness(memory, settings, data_dir))
        one, two = harnesses
        two.expected_sources = one.expected_sources
        one.fill()
        index_all(
            one.memory, [{"content": text, "source": f"{n}.md"} for n, text in enumerate(texts(arguments.documents))]
        )
        made = one.memory.post("/collections", {"name": BOOKS, "embedding_provider": "rag-context"})
        assert made.is_success, made.text
        for harness in harnesses:
            harness.wait_healthy()
        return _under_load(Run(nodes, (one, two)), rng)


def _under_load(run: Run, rng: random.Random) -> list[str]:
    one, two = run.harnesses
    records = [Record(), Record()]
    clients = [
        Client(CLIENTS * at + number, harness, records[at], random.Random(rng.random()))
        for at, harness in enumerate(run.harnesses)
        for number in range(CLIENTS)
    ]
    readers = [Readers(one.memory, two.memory, "a"), Readers(two.memory, one.memory, "b")]
    rivals = Rivals((one.memory, two.memory))
    for thread in (*readers, rivals):
        thread.start()
    try:
        run.disturbed()
    finally:
        sources = [source for client in clients for source in client.stop()]
        rivals.stop()
        for reader in readers:
            reader.stop()
    for harness in run.harnesses:
        harness.wait_healthy()
    wrong = [flaw for found in (rivals.flaws(), *(each.flaws() for each in readers)) for flaw in found]
    one.expected_sources.update((source.source, source) for source in sources)
    for harness in run.harnesses:
        harness.wait_healthy()
        wrong += harness.losses()
    wrong += examined(one)
    wrong += run.cluster.differences() if run.cluster.is_real else []
    return [*wrong, *_summed_up(run, records, readers, rivals)]


def _summed_up(run: Run, records: Sequence[Record], readers: Sequence[Readers], rivals: Rivals) -> Iterator[str]:
    searches = [each for record in records for each in record.searches]
    for phase in run.phases:
        print(phase.summed_up(searches), flush=True)
    rejected = [each for record in records for each in record.rejected]
    print(
        f"{len(searches)} searches; {sum(record.acknowledged for record in records)} writes acknowledged, of which"
        f" {sum(record.pending for record in records)} got their vectors later, {len(rejected)} rejected;"
        f" {len(rivals.sources)} documents written at both servers at once.",
        f"The collection: answers to writes {dict(sum((each.replies for each in readers), Counter()))}; read at the"
        f" other server at once: {dict(sum((each.reads for each in readers), Counter()))}.",
        sep="\n",
        flush=True,
    )
    for each in searches:
        is_late = each.answer.get("code") == "OVERLOADED"  # by this machine, which runs everything
        if not is_late and (each.status != OK or each.label[0] not in (1, 2)):
            yield f"a search: {each.status} {each.answer}"
    for write in rejected:
        if '"OVERLOADED"' not in str(write.error):
            yield f"a write: {write.status} {write.error}"
    for reader in readers:
        for state in ("stale", "missing"):
            if reader.reads[state]:
                yield f"{reader.reads[state]} reads of the collection at once after the write were {state}"


def main() -> int:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(prog="clusters", description=__doc__)
    parser.add_argument("--qdrant", type=Path, default=None, help="Qdrant's server program; without it, the stand-in")
    parser.add_argument("--transport", choices=("http", "grpc"), default="http")
    parser.add_argument("--named", type=int, default=NODES, help=f"how many of the nodes the address names ({NODES})")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help=f"stored before ({DOCUMENTS})")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    arguments = parser.parse_args()
    if arguments.qdrant is None and arguments.transport == "grpc":
        parser.error("the ways to the stand-in are for HTTP: --transport grpc needs --qdrant")
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rag-context-clusters-") as folder:
        wrong = measured(Path(folder), arguments, random.Random(seed))
    for complaint in wrong:
        print(f"WRONG {complaint}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
