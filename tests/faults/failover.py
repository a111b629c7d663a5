"""Eight clients at work while a primary is killed and its standby promoted."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.end_to_end.process import TIMEOUT_S, served, wait_until
from tests.faults.harness import MemoryHarness
from tests.faults.load import CLIENTS, EVERY_S, LOOK_EVERY_S, AnsweredSearch, Client, Record, examined
from tests.servers.postgres import NEWEST, execute, postgres_process, postgres_standby, query, url_of
from tests.servers.process import ServerProcess

WITHOUT_S = 1.0
"""How long there is no primary."""

BREAKER_S = 1.0
"""How long searches are at level 4 after five have failed; a minute by default."""

WORK_S = 3.0
"""How long clients work before and after."""


def failover(folder: Path, rng: random.Random) -> tuple[str, list[str]]:
    """Returns what was measured, and what was not as it should be."""
    with _pair() as (primary, standby):
        url = url_of(primary.port).replace(f":{primary.port}", f":{primary.port},127.0.0.1:{standby.port}")
        data_dir = folder / "failover"
        data_dir.mkdir()
        settings = {"DATABASE_URL": url, "CIRCUIT_BREAKER_TIMEOUT": str(round(1000 * BREAKER_S))}
        with served(data_dir, **settings) as memory:
            harness = MemoryHarness(memory, settings, data_dir)
            harness.fill()
            return _under_load(harness, primary, standby, rng)


def _under_load(
    harness: MemoryHarness, primary: ServerProcess, standby: ServerProcess, rng: random.Random
) -> tuple[str, list[str]]:
    record = Record()
    clients = [Client(number, harness, record, random.Random(rng.random())) for number in range(CLIENTS)]
    try:
        time.sleep(WORK_S)
        primary.kill()
        killed = time.monotonic()
        time.sleep(WITHOUT_S)
        execute(url_of(standby.port), "SELECT pg_promote()")
        promoted = time.monotonic()
        while not (report := harness.memory.health())["healthy"]:
            assert time.monotonic() < promoted + TIMEOUT_S, f"the promoted standby is not in use: {report}"
            time.sleep(LOOK_EVERY_S)
        back = time.monotonic()
        time.sleep(WORK_S)
    finally:
        sources = [source for client in clients for source in client.stop()]
    harness.wait_healthy()
    harness.expected_sources.update((source.source, source) for source in sources)
    losses = [*harness.losses(), *examined(harness)]
    return _summed_up(record, losses, back - promoted), [*_complaints(record, killed, back), *losses]


def _complaints(record: Record, killed: float, back: float) -> Iterator[str]:
    for each in record.searches:
        if each.status != httpx2.codes.OK or (each.label[0] != 1 and (each.ended < killed or each.began > back)):
            yield f"a search that was not answered at level 1: {each.status} {each.answer}"
    for write in record.rejected:
        was_there = write.ended < killed or write.began > back
        if write.status != httpx2.codes.SERVICE_UNAVAILABLE or not write.says_when or was_there:
            yield f"a write rejected with {write.status}, the primary {'there' if was_there else 'gone'}"


def _summed_up(record: Record, losses: list[str], back_s: float) -> str:
    levels = Counter(_level(each) for each in record.searches)
    told = ", ".join(f"{count} at level {level}" for level, count in sorted(levels.items()))
    return (
        f"Failover, {CLIENTS} clients at {1 / EVERY_S:.0f} requests a second each: the primary is killed, its"
        f" synchronous standby promoted {WITHOUT_S:.0f} s later, the address names both, `breaker.timeout_ms` is"
        f" {1000 * BREAKER_S:.0f}. {len(record.searches)} searches ({told}), the slowest"
        f" {record.percentile_ms(100):.0f} ms; {record.acknowledged} writes acknowledged, {len(record.rejected)}"
        f" rejected, {len(losses)} lost. Everything worked again {back_s:.1f} s after the promotion."
    )


def _level(search: AnsweredSearch) -> int:
    return search.label[0]


@contextmanager
def _pair() -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A primary, and a standby that it waits for with each commit."""
    with postgres_process(version=NEWEST) as primary, postgres_standby(primary) as standby:
        execute(url_of(primary.port), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait_until(lambda: query(url_of(primary.port), "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
        yield primary, standby
