"""A primary with two standbys under load: `python -m tests.faults.standbys [--seed N]`; synchronous, then not.

Eight clients write and search through a memory whose address names all three servers. Another memory searches on the
standbys (`target_session_attrs=standby`). One standby is lost, then both, then the primary is killed and the standby
that has most is promoted, which the other one follows from then on. Exits 1 where anything was not as it should be.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.end_to_end.process import TIMEOUT_S, Served, served, wait_until
from tests.faults.failover import BREAKER_S, WITHOUT_S, WORK_S
from tests.faults.harness import MemoryHarness
from tests.faults.load import CLIENTS, EVERY_S, LOOK_EVERY_S, Client, Record, examined
from tests.servers.postgres import NEWEST, PASSWORD, execute, postgres_process, postgres_standby, query, url_of
from tests.servers.process import HOST, ServerProcess

ONE_OF_BOTH = "ANY 1 (*)"
"""A commit waits for one of the standbys, whichever is first."""


@dataclass
class Reader(threading.Thread):
    """Writes to one memory, and looks how long it takes until the other one, on a standby, finds it."""

    primary: Served
    replica: Served
    phase: str = "undisturbed"
    behind_ms: list[float] = field(default_factory=list)
    levels: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By what was going on when a search began."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Until `end`."""
        number = 0
        while not self._over.wait(EVERY_S):
            number += 1
            marker = f"readerx{number}q"
            fields = {"contentType": "documentation", "sessionId": "reader", "source": marker}
            with suppress(httpx2.TransportError):
                content = f"The entry {marker} is about a lantern."
                if self.primary.tool("index", {"content": content, **fields}).status_code == httpx2.codes.OK:
                    self._look(marker, time.monotonic())

    def _look(self, marker: str, stored: float) -> None:
        while time.monotonic() < stored + 10.0 and not self._over.is_set():
            phase = self.phase
            reply = self.replica.tool("search", {"query": marker, "mode": "text", "minScore": 0})
            answer = reply.json()
            self.levels[phase][answer.get("fallbackLevel", reply.status_code)] += 1
            if any(marker in each["content"] for each in answer.get("results", [])):
                self.behind_ms.append((time.monotonic() - stored) * 1000.0)
                return
            time.sleep(0.01)

    def end(self) -> None:
        """Wait for the last look, and try a write on the replica, which must be rejected."""
        self._over.set()
        self.join()


def measured(folder: Path, rng: random.Random, *, names: str) -> tuple[str, list[str]]:
    """Runs with `synchronous_standby_names` of this value; returns what was measured, and what was wrong."""
    with ExitStack() as stack:
        primary = stack.enter_context(postgres_process(version=NEWEST))
        standbys = [stack.enter_context(postgres_standby(primary)) for _ in range(2)]
        _set(primary, synchronous_standby_names=names)
        wait_until(lambda: len(query(url_of(primary.port), "SELECT 1 FROM pg_stat_replication")) == 2)
        data_dir, replica_dir = folder / "memory", folder / "replica"
        data_dir.mkdir(parents=True)
        settings = {"DATABASE_URL": _address(primary, *standbys), "CIRCUIT_BREAKER_TIMEOUT": f"{1000 * BREAKER_S:.0f}"}
        memory = stack.enter_context(served(data_dir, **settings))
        harness = MemoryHarness(memory, settings, data_dir)
        harness.fill()
        reading = {**settings, "DATABASE_URL": f"{_address(*standbys)}?target_session_attrs=standby"}
        replica = stack.enter_context(served(replica_dir, **reading))
        wait_until(lambda: replica.search(harness.question(harness.known()))["fallbackLevel"] == 1)
        return _under_load(harness, primary, standbys, Reader(memory, replica), rng, names)


def _under_load(
    harness: MemoryHarness,
    primary: ServerProcess,
    standbys: Sequence[ServerProcess],
    reader: Reader,
    rng: random.Random,
    names: str,
) -> tuple[str, list[str]]:
    wrong: list[str] = []
    record = Record()
    clients = [Client(number, harness, record, random.Random(rng.random())) for number in range(CLIENTS)]
    reader.start()
    try:
        time.sleep(2 * WORK_S)
        reader.phase = "one standby lost"
        standbys[1].kill()
        if not _is_written(harness, "oneislost"):
            wrong.append("a write was rejected with one of two standbys lost")
        reader.phase = "both lost"
        standbys[0].kill()
        if _is_written(harness, "bothlost") == bool(names):
            wrong.append(f"with both standbys lost a write was {'acknowledged' if names else 'rejected'}")
        for standby in standbys:
            standby.start()
        wait_until(lambda: _is_written(harness, "bothback"))
        reader.phase = "both back"
        time.sleep(WORK_S)
        reader.phase = "primary lost"
        primary.kill()
        killed = time.monotonic()
        time.sleep(WITHOUT_S)
        first, other = sorted(standbys, key=_received, reverse=True)
        execute(url_of(first.port), "SELECT pg_promote()")
        promoted = time.monotonic()
        _set(first, synchronous_standby_names=names)
        _set(other, primary_conninfo=f"host={HOST} port={first.port} user=postgres password=''{PASSWORD}''")
        wait_until(lambda: query(url_of(first.port), "SELECT 1 FROM pg_stat_replication"))
        while not harness.memory.health()["healthy"]:
            assert time.monotonic() < promoted + TIMEOUT_S, "the promoted standby is not in use"
            time.sleep(LOOK_EVERY_S)
        back = time.monotonic()
        reader.phase = "one promoted"
        time.sleep(2 * WORK_S)
    finally:
        sources = [source for client in clients for source in client.stop()]
        reader.end()
    rejected = reader.replica.tool(
        "index", {"content": "No.", "contentType": "decision", "sessionId": "s", "source": "no.md"}
    )
    # Connections to the standby that was promoted stay open, and it is a primary now.
    if rejected.status_code not in (httpx2.codes.SERVICE_UNAVAILABLE, httpx2.codes.OK):
        wrong.append(f"a write on a standby: {rejected.status_code} {rejected.text}")
    harness.wait_healthy()
    harness.expected_sources.update((source.source, source) for source in sources)
    losses = harness.losses()
    wrong += examined(harness)
    if names:
        wrong += losses
    wrong += [f"{each.status} {each.answer}" for each in record.searches if each.status != httpx2.codes.OK]
    wrong += [f"a write: {each.status}" for each in record.rejected if each.status != 503 or not each.says_when]
    return _summed_up(record, reader, names, back - promoted, promoted - killed, losses), wrong


def _summed_up(
    record: Record, reader: Reader, names: str, back_s: float, without_s: float, losses: Sequence[str]
) -> str:
    levels = Counter(each.label[0] for each in record.searches)
    behind = sorted(reader.behind_ms)
    on_standbys = "; ".join(f"{phase}: {_counted(counted)}" for phase, counted in reader.levels.items())
    return (
        f"synchronous_standby_names = '{names}': {CLIENTS} clients at {1 / EVERY_S:.0f} requests a second each;"
        f" {len(record.searches)} searches ({_counted(levels)}), the slowest {record.percentile_ms(100):.0f} ms;"
        f" {record.acknowledged} writes acknowledged, {len(record.rejected)} rejected, {len(losses)} lost. No primary"
        f" for {without_s:.1f} s; all worked again {back_s:.1f} s after the promotion. Reads on a standby: answers"
        f" {on_standbys}; {len(behind)} writes found there, after"
        f" {behind[len(behind) // 2] if behind else 0:.0f} ms in the median and"
        f" {behind[-1] if behind else 0:.0f} ms at most."
    )


def _counted(levels: Counter[int]) -> str:
    return ", ".join(f"{count} at level {level}" for level, count in sorted(levels.items()))


def _is_written(harness: MemoryHarness, source: str) -> bool:
    return bool(harness.write(source)[1].status_code == httpx2.codes.OK)


def _received(standby: ServerProcess) -> int:
    """How far the log has come, in bytes."""
    return int(query(url_of(standby.port), "SELECT pg_last_wal_receive_lsn() - '0/0'")[0][0])


def _address(*servers: ServerProcess) -> str:
    """All of them, for a memory that finds out which of them it can use."""
    first, *others = servers
    return url_of(first.port).replace(
        f":{first.port}", "".join([f":{first.port}", *(f",{HOST}:{s.port}" for s in others)])
    )


def _set(server: ServerProcess, **settings: str) -> None:
    changes = [f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()]
    execute(url_of(server.port), *changes, "SELECT pg_reload_conf()")


def main() -> int:
    """Measure both, and print it."""
    parser = argparse.ArgumentParser(prog="standbys", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    wrong: list[str] = []
    for names in (ONE_OF_BOTH, ""):
        with tempfile.TemporaryDirectory(prefix="rag-context-standbys-") as folder:
            summary, complaints = measured(Path(folder), random.Random(seed), names=names)
        print(summary, flush=True)
        wrong += complaints
    for complaint in wrong:
        print(f"WRONG {complaint}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
