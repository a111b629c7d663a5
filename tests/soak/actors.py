"""What goes on all the time. One more actor is one more class in `ACTORS`: `act` is called again and again in a thread
of its own, about every `every_s` seconds; what it finds wrong goes to `site.record.complain`."""

import json
import random
import subprocess
import tarfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import httpx2

from rag_context.agents.workspace import workspace
from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, environment
from tests.outcomes.bounds import MCP
from tests.outcomes.hooks import PROGRAM
from tests.outcomes.test_postgres_backup import run as run_of_postgres
from tests.servers.postgres import PASSWORD
from tests.soak.record import Promise
from tests.soak.sites import Site
from tests.torture.acknowledged import WORDS

OK = 200
UNKNOWN = (500, 503, 504)
"""A write that is answered so may have been stored."""

AGAIN_S = 120.0
"""How long a search is repeated until an answer is complete."""


class Actor:
    """One of those who use a site."""

    every_s: ClassVar[float] = 1.0

    def __init__(self, site: Site, rng: random.Random, folder: Path) -> None:
        self.site = site
        self.rng = rng
        self.folder = folder
        self.name = type(self).__name__
        self.record = site.record
        self.mine: list[Promise] = []
        self._number = 0

    def act(self) -> None:
        """Do it once."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once, whatever happened, after the last `act`."""

    def finish(self) -> None:
        """Called once, after the last disturbance."""

    def text(self, source: str) -> tuple[str, str]:
        """A new marker that stands in no other text, and a text with it."""
        self._number += 1
        marker = f"{source}v{self._number}".replace(".", "")
        return marker, f"The entry {marker} is about {' '.join(self.rng.choices(WORDS, k=30))}."

    def source(self) -> Promise:
        """A new source of one's own."""
        promise = self.site.promise(f"{self.site.name}{self.name}x{len(self.mine)}q".lower(), self.name)
        self.mine.append(promise)
        return promise

    def known(self, *, stored: bool = True) -> Promise | None:
        """One of one's own sources whose state is known."""
        fit = [each for each in self.mine if each.is_settled and (each.marker is not None) == stored]
        return self.rng.choice(fit[-200:]) if fit else None

    def write(self, promise: Promise, marker: str | None, tool: str, **fields: Any) -> dict[str, Any] | None:
        """Call a tool after which the source has this text; returns the receipt of one that is acknowledged."""
        before = set(promise.may_have)
        promise.perhaps(marker)
        reply = self.site.tool(self.rng, tool, source=promise.source, **fields)
        if reply is None:
            promise.may_have = before
            self.record.interrupted[self.name] += 1
            return None
        if reply.status_code != OK:
            if reply.status_code not in UNKNOWN:
                promise.may_have = before
            self.rejected(reply)
            return None
        receipt: dict[str, Any] = reply.json()
        if marker is not None and receipt.get("status") == "forgotten":
            self.record.complain(f"{promise.source}: {receipt}")
        promise.acknowledge(marker)
        self.record.done[self.name] += 1
        return receipt

    def index(self, promise: Promise, **fields: Any) -> str:
        """Store a new text under the source; returns its marker."""
        marker, content = self.text(promise.source)
        about = {"contentType": "decision", "sessionId": self.name, "force": True}
        self.write(promise, marker, "index", content=content, **about, **fields)
        return marker

    def rejected(self, reply: httpx2.Response) -> None:
        """Count an error; one that says something else than that the server cannot now is wrong.

        Those of the version before are only counted: what is repaired since was wrong in it.
        """
        self.record.rejected[f"{reply.status_code}{'' if not self.record.is_calm else ' undisturbed'}"] += 1
        if reply.status_code not in (429, 503) and self.site.older is None:
            self.record.complain(f"{self.name}: {reply.request.url} {reply.status_code} {reply.text[:300]}")
            self.site.show_log(reply.headers.get("x-request-id", "-"))

    def look(self, promise: Promise) -> None:
        """What is known of a source is what a search finds; where an answer says that it is not complete, it may."""
        if not promise.is_settled or not (promise.marker or promise.gone):
            return
        self._number += 1
        query = f"{promise.marker or promise.gone[-1]} look{self._number}"  # which no cache has the answer to
        reply = self.site.tool(self.rng, "search", query=query, mode="text", minScore=0, limit=20)
        if reply is None:
            return
        if reply.status_code != OK:
            self.rejected(reply)
            return
        answer = reply.json()
        self.judge(answer)
        texts = words_of(answer)
        is_whole = answer["fallbackLevel"] <= 2 and answer["legs"].get("text", {}).get("status") == "ok"
        if promise.marker is not None and is_whole and promise.marker not in texts:
            self.record.complain(f"{promise.marker}: acknowledged to {self.name}, and not found: {_short(answer)}")
        for gone in promise.gone[-5:]:
            if gone in texts:
                self.record.complain(f"{gone}: replaced or forgotten, and found again: {_short(answer)}")

    def judge(self, answer: dict[str, Any]) -> None:
        """An answer's label is true: what it says is what its parts did."""
        level, parts = answer["fallbackLevel"], {name: leg["status"] for name, leg in answer["legs"].items()}
        self.record.levels[f"level {level}{' with a warning' if answer.get('warning') else ''}"] += 1
        failed = [name for name, status in parts.items() if status not in ("ok", "skipped")]
        wrong = (
            (level == 1 and "warning" not in answer and failed)
            or (level > 1 and not answer.get("warning"))
            or (level >= 3 and answer["results"])
        )
        if wrong:
            self.record.complain(f"a label that is not true: {_short(answer)}")


def words_of(answer: dict[str, Any]) -> set[str]:
    """The words of an answer's passages."""
    return {word.strip(".,") for each in answer["results"] for word in each["content"].split()}


def _short(answer: dict[str, Any]) -> str:
    kept = {name: answer.get(name) for name in ("fallbackLevel", "warning", "legs", "totalIndexed")}
    return json.dumps({**kept, "results": [each["content"][:60] for each in answer["results"]]})


class Writer(Actor):
    """Indexes, replaces and indexes again, and looks for it on either server."""

    every_s = 0.5

    def act(self) -> None:
        promise = self.known() if self.rng.random() < 0.5 else None
        self.index(promise := promise or self.source())
        self.look(promise)


class BulkWriter(Actor):
    """Sends many documents in one request."""

    every_s = 15.0

    def act(self) -> None:
        sent: dict[str, tuple[Promise, str]] = {}
        lines = []
        for _ in range(20):
            promise = self.source()
            marker, content = self.text(promise.source)
            promise.perhaps(marker)
            sent[promise.source] = promise, marker
            about = {"contentType": "documentation", "sessionId": self.name}
            lines.append(json.dumps({"content": content, "source": promise.source, **about}))
        headers = {"Content-Type": "application/x-ndjson"}
        reply = self.site.call(self.rng, "POST", "/bulk", content="\n".join(lines), headers=headers)
        if reply is None or reply.status_code != OK:
            if reply is not None:
                self.rejected(reply)
            return
        receipts = [json.loads(line) for line in reply.text.splitlines()]
        for (promise, marker), receipt in zip(sent.values(), receipts, strict=False):
            if receipt.get("status") in ("indexed", "pending"):
                promise.acknowledge(marker)
                self.record.done[self.name] += 1
        self.look(next(iter(sent.values()))[0])


class Corrector(Actor):
    """Corrects what it has indexed: the earlier text is found no more."""

    every_s = 3.0

    def act(self) -> None:
        if (promise := self.known()) is None or self.rng.random() < 0.3:
            self.index(self.source())
            return
        marker, content = self.text(promise.source)
        self.write(promise, marker, "correct", content=content, reason="It was wrong.")
        self.look(promise)


class Forgetter(Actor):
    """Forgets what it has indexed, and takes that back."""

    every_s = 3.0

    def act(self) -> None:
        promise = self.source()
        marker = self.index(promise)
        if promise.marker is None:
            return
        receipt = self.write(promise, None, "forget", reason="It is of no use.")
        self.look(promise)
        if receipt is not None and self.rng.random() < 0.5:
            promise.perhaps(marker)
            reply = self.site.tool(self.rng, "undo", id=receipt["id"])
            if reply is not None and reply.status_code == OK:
                promise.acknowledge(marker)
                self.record.done["undo"] += 1
                self.look(promise)


class Purger(Actor):
    """Purges what it has indexed: not a byte of it may be left at the end."""

    every_s = 3.0

    def act(self) -> None:
        promise = self.source()
        word = f"canary{self.rng.randrange(10**12):012}"
        content = f"The code of the door is {word}, and it is secret."
        about = {"contentType": "decision", "sessionId": self.name}
        if self.write(promise, word, "index", content=content, **about) is None:
            return
        if self.rng.random() < 0.5:
            self.look(promise)
        if self.write(promise, None, "forget", purge=True, confirm=True, clearQueries=True) is not None:
            self.record.purged.append(word)
            self.look(promise)


class Asker(Actor):
    """Searches in words, by both retrievers, about what others have stored long ago."""

    every_s = 0.5

    def act(self) -> None:
        words = " ".join(self.rng.sample(WORDS, 4))
        fields = {"query": f"What is said about {words}?", "minScore": 0, "limit": 5}
        reply = self.site.tool(self.rng, "search", **fields)
        if reply is not None and reply.status_code != OK:
            self.rejected(reply)
        elif reply is not None:
            self.judge(reply.json())
            self.record.done[self.name] += 1


class McpAgent(Actor):
    """A client of MCP over HTTP, which begins a session again where a server does not know it."""

    every_s = 3.0

    def act(self) -> None:
        promise = self.source()
        marker, content = self.text(promise.source)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
        url = self.rng.choice(self.site.members).url
        with httpx2.Client(base_url=url, headers=MCP, timeout=60.0) as http, suppress(httpx2.ConnectError):

            def send(method: str, params: dict[str, Any]) -> httpx2.Response:
                return http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

            begun = send("initialize", about)
            if begun.status_code != OK:
                self.rejected(begun)
                return
            http.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
            stored = {"content": content, "contentType": "decision", "sessionId": self.name, "source": promise.source}
            promise.perhaps(marker)
            reply = send("tools/call", {"name": "rag_context_index", "arguments": stored})
            if reply.status_code == OK and '"isError":true' not in reply.text:
                promise.acknowledge(marker)
                self.record.done[self.name] += 1
                send("tools/call", {"name": "rag_context_search", "arguments": {"query": marker}})
            http.delete("/mcp")
        self.look(promise)


class McpProcess(Actor):
    """A client that starts `rag-context mcp` itself, on the same data, beside the servers."""

    every_s = 45.0

    def act(self) -> None:
        promise = self.source()
        marker, content = self.text(promise.source)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
        stored = {"content": content, "contentType": "decision", "sessionId": self.name, "source": promise.source}
        with self.site.commanding():
            process = Program(
                [COMMAND, "mcp", "--data-dir", str(self.site.data_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                env=environment(**self.site.variables()),
            )
            try:
                ask(process, 1, "initialize", about)
                send(process, {"method": "notifications/initialized"})
                promise.perhaps(marker)
                answer = ask(process, 2, "tools/call", {"name": "rag_context_index", "arguments": stored})
                if not answer["result"].get("isError"):
                    promise.acknowledge(marker)
                    self.record.done[self.name] += 1
            finally:
                process.terminate()
                process.communicate()
        self.look(promise)


def send(process: Any, message: dict[str, Any]) -> None:
    """Write a message to a process's stdin."""
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def ask(process: Any, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request on a process's stdin."""
    send(process, {"id": number, "method": method, "params": params})
    while line := process.stdout.readline():
        answer: dict[str, Any] = json.loads(line)
        if answer.get("id") == number:
            return answer
    raise AssertionError(f"`rag-context mcp` ended at {method}")


class HookedAgent(Actor):
    """An agent's client, whose hooks run when a session starts and at prompts; they never fail, whatever is down."""

    every_s = 10.0

    def act(self) -> None:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        project = workspace(work)
        if (promise := self.known()) is None and project is not None:
            promise = self.source()
            self.index(promise, metadata={"tags": [project.tag]})
        session = f"s{self.rng.randrange(10**9)}"
        for event, payload in (
            ("session-start", {"source": "startup"}),
            ("prompt", {"prompt": f"What was decided about {promise.marker if promise else 'berths'}?"}),
        ):
            base = {"session_id": session, "cwd": str(work), "hook_event_name": event}
            done = subprocess.run(
                [*PROGRAM, event, "--client", "claude-code", "--data-dir", str(self.site.data_dir)],
                input=json.dumps({**base, **payload}).encode(),
                capture_output=True,
                env=environment(**self.site.variables()),
                timeout=60,
                check=False,
            )
            if done.returncode or done.stderr:
                self.record.complain(f"a hook ended with {done.returncode}: {done.stderr!r}")
            self.record.done[f"{self.name}{' (something was shown)' if done.stdout else ''}"] += 1


class WatchedFolder(Actor):
    """`rag-context watch` follows a folder in which files are written, changed and deleted."""

    every_s = 4.0
    _process: subprocess.Popen[Any] | None = None
    _version: Path | None = None

    def act(self) -> None:
        notes = self.folder / f"{self.site.name}-notes"
        notes.mkdir(exist_ok=True)
        with self.site.commanding():
            self._follow(notes)
        promise = self.known() if self.rng.random() < 0.5 else None
        if promise is None:
            number = len(self.mine)
            promise = self.site.promise(str(notes / f"note{number}.md"), self.name)
            self.mine.append(promise)
        if promise.marker is not None and self.rng.random() < 0.3:
            Path(promise.source).unlink()
            promise.acknowledge(None)
        else:
            marker, content = self.text(f"{self.site.name}note{self.mine.index(promise)}")
            Path(promise.source).write_text(f"# {marker}\n\n{content}\n", encoding="utf-8")
            promise.acknowledge(marker)
        self.record.done[self.name] += 1

    def close(self) -> None:
        """End the process that follows."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(120)

    def finish(self) -> None:
        """One more run brings the index up to the folder."""
        done = self.site.command("index", "--prune", str(self.folder / f"{self.site.name}-notes"))
        if done.returncode:
            self.record.complain(f"index of the watched folder: {done.stdout[-300:]} {done.stderr[-300:]}")

    def _follow(self, notes: Path) -> None:
        """Start it where it does not run, and again with another version."""
        if self._process is not None and (self._process.poll() is not None or self._version != self.site.older):
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(120)
            else:
                self.record.interrupted["watch ended"] += 1
            self._process = None
        if self._process is None:
            self._version = self.site.older
            with (self.folder / f"{self.site.name}-watch.log").open("ab") as log:
                self._process = Program(
                    [COMMAND, "watch", str(notes), "--data-dir", str(self.site.data_dir)],
                    stdout=log,
                    stderr=log,
                    env=environment(**self.site.variables()),
                )


class Reindexer(Actor):
    """Recreates all vectors while they answer."""

    every_s = 150.0

    def act(self) -> None:
        with self.site.commanding():
            done = self.site.command("reindex")
        if done.returncode == 0:
            self.record.done[self.name] += 1
        else:
            self.record.interrupted[self.name] += 1


class Keeper(Actor):
    """Backs up beside the servers, restores elsewhere, and finds there what was acknowledged before."""

    every_s = 90.0

    def act(self) -> None:
        promise = self.source()
        marker = self.index(promise)
        if promise.marker is None:
            return
        with self.site.commanding(), TemporaryDirectory(prefix="soak-backup-") as name:
            place = Path(name)
            if self.site.postgres is None:
                done = self.site.command("backup", str(place / "memory.tar"))
                if done.returncode:
                    self.failed("backup", done)
                    return
                done = self.site.command("restore", str(place / "memory.tar"), data_dir=place / "data")
                if done.returncode == 0:
                    done = self.site.command("check", "--full", data_dir=place / "data")
                with tarfile.open(place / "memory.tar") as files:
                    kept = marker.encode() in b"".join(self._database(files))
            else:
                dump, url = place / "memory.sql", self.site.settings["DATABASE_URL"]
                try:
                    run_of_postgres("pg_dump", f"--file={dump}", f"--dbname={url}", PGPASSWORD=PASSWORD)
                except AssertionError:
                    self.record.interrupted[self.name] += 1
                    return
                kept = marker in dump.read_text()
            if self.site.postgres is None and done.returncode:
                self.record.complain(f"a backup does not come back: {done.stdout[-500:]} {done.stderr[-500:]}")
            if not kept:
                self.record.complain(f"{marker}: acknowledged before a backup, and not in it")
            self.record.done[self.name] += 1

    def failed(self, what: str, done: Any) -> None:
        """Nothing wrong where something disturbs."""
        if self.record.is_calm:
            self.record.complain(f"{what}: {done.stdout[-500:]} {done.stderr[-500:]}")
        self.record.interrupted[self.name] += 1

    @staticmethod
    def _database(files: tarfile.TarFile) -> list[bytes]:
        found = [files.extractfile(each) for each in files if each.name.endswith("rag-context.db")]
        return [file.read() for file in found if file is not None]


class Examiner(Actor):
    """`rag-context check` beside the servers."""

    every_s = 60.0

    def act(self) -> None:
        with self.site.commanding():
            done = self.site.command("check", "--json")
        if done.returncode and self.record.is_calm:
            self.record.complain(f"check beside the servers: {done.stdout[-800:]} {done.stderr[-500:]}")
        self.record.done[self.name] += not done.returncode
        self.record.interrupted[self.name] += bool(done.returncode)


ACTORS: Sequence[type[Actor]] = (
    Writer, BulkWriter, Corrector, Forgetter, Purger, Asker, McpAgent, McpProcess, HookedAgent, WatchedFolder,
    Reindexer, Keeper, Examiner,
)  # fmt: skip


class Acting(threading.Thread):
    """An actor at work, until it is stopped."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(name=actor.name, daemon=True)
        self.actor = actor
        self._over = threading.Event()

    def run(self) -> None:
        """Act again and again; what a server's end interrupts is counted."""
        actor = self.actor
        self._over.wait(actor.rng.uniform(0.0, min(actor.every_s, 5.0)))
        while not self._over.is_set():
            began = time.monotonic()
            try:
                actor.act()
            except httpx2.TransportError:
                actor.record.interrupted[actor.name] += 1
            except Exception as error:  # noqa: BLE001 — whatever it is, it is reported
                if actor.record.is_calm:
                    actor.record.complain(f"{actor.name}: {error!r}")
                actor.record.interrupted[actor.name] += 1
            self._over.wait(max(began + actor.every_s * actor.rng.uniform(0.5, 1.5) - time.monotonic(), 0.05))

    def end(self) -> None:
        """Wait for what is under way."""
        self._over.set()
        self.join()
