"""Two memories, each behind two servers: on one data directory, and on one PostgreSQL with a synchronous standby."""

import random
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.end_to_end.process import COMMAND, TIMEOUT_S, Served, environment, run, served, wait_until
from tests.faults.postgres import small_disk
from tests.outcomes.hooks import PATIENT as PATIENT_HOOKS
from tests.servers.postgres import NEWEST, execute, postgres_process, postgres_standby, query, url_of
from tests.servers.process import ServerProcess, free_port
from tests.soak.record import Promise, Record
from tests.soak.versions import Clock

DISK_MIB = 1024
CALL_S = 60.0
"""How long an actor waits for a reply."""

SETTINGS = {
    "RAG_CONTEXT_STORES__ERASE_AFTER_S": "1",
    "RAG_CONTEXT_SEARCH__DEADLINE_MS": "3000",
    "RAG_CONTEXT_BREAKER__TIMEOUT_MS": "2000",
    **PATIENT_HOOKS,
}
_POSTGRES = ("-c", "fsync=off", "-c", "min_wal_size=32MB", "-c", "max_wal_size=128MB", "-c", "max_connections=100")


@dataclass
class Member:
    """One server of a site, at the same address however often it is started."""

    data_dir: Path
    port: int
    running: Served | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, variables: dict[str, str]) -> None:
        """Start it and wait until it answers."""
        self.running = self._stack.enter_context(served(self.data_dir, "--port", str(self.port), **variables))
        wait_until(lambda: httpx2.get(f"{self.url}/ready", timeout=TIMEOUT_S).status_code == 200)

    def end(self, *, kill: bool) -> None:
        """End it by SIGKILL, or politely."""
        if self.running is not None and self.running.process.poll() is None:
            self.running.kill() if kill else self.running.stop()
        self._stack.close()
        self.running = None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.running is not None and self.running.process.poll() is None:
            self.running.process.send_signal(number)


@dataclass
class Site:
    """One memory, what it runs on, and what was seen of it."""

    name: str
    root: Path
    members: Sequence[Member]
    record: Record
    clock: Clock
    settings: dict[str, str]
    disk: Path | None = None
    postgres: tuple[ServerProcess, ServerProcess] | None = None
    older: Path | None = None
    """The packages of the version before, until the upgrade."""
    _commands: threading.Lock = field(default_factory=threading.Lock)
    _may_command: threading.Event = field(default_factory=threading.Event)
    starting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def data_dir(self) -> Path:
        """The data directory that commands use."""
        return self.members[0].data_dir

    def variables(self) -> dict[str, str]:
        """Environment of the processes of the version in use."""
        older = {} if self.older is None else {"PYTHONPATH": str(self.older)}
        return {**SETTINGS, **self.settings, **self.clock.environment, **older}

    def start(self, member: Member) -> None:
        """Start one of the servers, one after another: they announce themselves in one file."""
        with self.starting:
            member.start(self.variables())

    def revive(self) -> None:
        """Start what has ended."""
        for member in self.members:
            if member.running is None or member.running.process.poll() is not None:
                member.end(kill=True)
                self.start(member)

    def command(self, *arguments: str, data_dir: Path | None = None) -> Any:
        """Run a command of the version in use to its end."""
        place = str(self.data_dir if data_dir is None else data_dir)
        return run([COMMAND, *arguments, "--data-dir", place], env=environment(**self.variables()))

    @contextmanager
    def commanding(self, *, first: bool = False) -> Iterator[None]:
        """Held by what runs a command. An upgrade comes first: a command of the new version upgrades what it opens."""
        if first:
            self._may_command.clear()
        else:
            self._may_command.wait()
        with self._commands:
            yield
        self._may_command.set()

    def show_log(self, request_id: str) -> None:
        """Print what the servers logged of a request."""
        for member in self.members:
            lines = member.data_dir.with_suffix(".log").read_text(errors="replace").splitlines()
            print("\n".join(line for line in lines if request_id in line and '"exc_info"' in line)[-3000:], flush=True)

    def call(self, rng: random.Random, method: str, path: str, **body: Any) -> httpx2.Response | None:
        """The reply of one of the servers; None where it was not there, which is known to have changed nothing.

        Raises: httpx2.TransportError (it ended, or was silent, and what it did is not known).
        """
        try:
            return httpx2.request(method, rng.choice(self.members).url + path, timeout=CALL_S, **body)
        except httpx2.ConnectError:
            return None

    def tool(self, rng: random.Random, name: str, **fields: Any) -> httpx2.Response | None:
        """As `call`, for a tool."""
        return self.call(rng, "POST", f"/tools/rag_context_{name}", json=fields)

    def promise(self, source: str, under: str) -> Promise:
        """A source that no one else writes."""
        promise = Promise(source, {None}, under=under)
        self.record.promises.append(promise)
        return promise

    def wait_healthy(self) -> None:
        """Wait until all servers say so, and no document waits for its vectors."""
        for member in self.members:
            wait_until(lambda member=member: _is_healthy(member))


def _is_healthy(member: Member) -> bool:
    with suppress(httpx2.TransportError, ValueError):
        report = httpx2.get(f"{member.url}/health", timeout=TIMEOUT_S).json()
        return bool(report["healthy"] and report["pendingDocuments"] == 0)
    return False


@contextmanager
def directory_site(root: Path, older: Path | None) -> Iterator[Site]:
    """Two servers on one data directory, on a disk of its own where one can be mounted."""
    with small_disk(DISK_MIB) as disk:
        place = (disk or root) / "directory"
        place.mkdir()
        data_dir = place / "data"
        members = [Member(data_dir, free_port()) for _ in range(2)]
        yield from _started(Site("directory", place, members, Record("directory"), Clock(root), {}, disk, None, older))


@contextmanager
def postgres_site(root: Path, older: Path | None) -> Iterator[Site]:
    """Two servers on one database, whose server waits for a standby with every commit."""
    root.chmod(0o755)
    with (
        small_disk(DISK_MIB) as disk,
        postgres_process(*_POSTGRES, version=NEWEST, inside=disk) as primary,
        postgres_standby(primary, "-c", "fsync=off") as standby,
    ):
        url = url_of(primary.port)
        execute(url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait_until(lambda: query(url, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
        place = root / "postgres"
        place.mkdir()
        members = [Member(place / f"data{number}", free_port()) for number in range(2)]
        settings = {"DATABASE_URL": url}
        pair = primary, standby
        yield from _started(
            Site("postgres", place, members, Record("postgres"), Clock(place), settings, disk, pair, older)
        )


def _started(site: Site) -> Iterator[Site]:
    site._may_command.set()
    try:
        for member in site.members:
            site.start(member)
        yield site
    finally:
        for member in site.members:
            member.send(signal.SIGCONT)
            member.end(kill=True)
