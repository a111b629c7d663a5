"""Eight clients at work while the servers behind the memory are killed and started again."""

import json
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np

from rag_context.search.reads import TOLERABLE
from tests.end_to_end.process import TIMEOUT_S, command
from tests.faults.backends import Role
from tests.faults.fault_cases import INEXACT, KEYWORDS_ONLY, NOTHING, OF, VECTORS_LOST, VECTORS_ONLY
from tests.faults.harness import FaultHarness, MemoryHarness, component
from tests.torture.acknowledged import ExpectedSource, compose

CLIENTS = 8
EVERY_S = 0.5
"""Each client sends two requests a second."""

LOOK_EVERY_S = 0.25

WRITES = 0.15
LONGEST_CALM_S = 1.0
LONGEST_OUTAGE_S = 1.5


@dataclass(frozen=True, slots=True)
class AnsweredSearch:
    """A search: when it began and ended, by `time.monotonic`, and what came of it."""

    began: float
    ended: float
    status: int
    answer: dict[str, Any]

    @property
    def took_ms(self) -> float:
        return (self.ended - self.began) * 1000.0

    @property
    def label(self) -> tuple[int, str | None]:
        return self.answer.get("fallbackLevel", 0), self.answer.get("warning")


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A write that was not acknowledged."""

    began: float
    ended: float
    status: int
    says_when: bool
    error: str


@dataclass(frozen=True, slots=True)
class Outage:
    """A server was dead from `killed` to `starting`, started at `started`, and in use again at `back`."""

    role: Role
    killed: float
    starting: float
    started: float
    back: float


@dataclass
class Record:
    """Everything that happened."""

    searches: list[AnsweredSearch] = field(default_factory=list)
    acknowledged: int = 0
    pending: int = 0
    rejected: list[RejectedWrite] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile([each.took_ms for each in self.searches], percent))

    def complaints(self) -> Iterator[str]:
        """What must not be: a search that failed, a label that is not true, a write rejected without reason, a loss."""
        for each in self.searches:
            if each.status != httpx2.codes.OK or each.label[0] not in (1, 2):
                yield f"a failed search: {each.status} {each.answer}"
            elif not _is_honest(each.answer):
                yield f"a label that is not true: {each.label} {each.answer['legs']}"
        for outage in self.outages:
            expected = OF[outage.role].level, OF[outage.role].warning
            for each in self.searches:
                within = outage.killed < each.began and each.ended < outage.starting
                waits = MISSING.match(each.label[1] or "") is not None or each.label[1] == VECTORS_LOST
                if within and not waits and each.label != expected:
                    yield f"{each.label} while the {outage.role} are away: {each.answer['legs']}"
        for write in self.rejected:
            away = any(
                write.began < outage.back and write.ended > outage.killed
                for outage in self.outages
                if outage.role is Role.DOCUMENTS
            )
            if write.status != httpx2.codes.SERVICE_UNAVAILABLE or not write.says_when or not away:
                yield f"a write refused with {write.status}, the document store {'away' if away else 'there'}"
        yield from self.losses


class Client:
    """One client in a thread of its own, the only one that writes its documents."""

    def __init__(self, number: int, harness: MemoryHarness, record: Record, rng: random.Random) -> None:
        self._name = f"load{number}"
        self._harness = harness
        self._record = record
        self._rng = rng
        self._mine: list[ExpectedSource] = []
        self._stop = threading.Event()
        self._http = httpx2.Client(base_url=harness.memory.url, timeout=TIMEOUT_S, trust_env=False)
        self._thread = threading.Thread(target=self._run, name=self._name)
        self._thread.start()

    def stop(self) -> list[ExpectedSource]:
        """Wait for the call under way; returns what was promised."""
        self._stop.set()
        self._thread.join()
        self._http.close()
        return self._mine

    def _run(self) -> None:
        due = time.monotonic() + self._rng.uniform(0.0, EVERY_S)
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            due += EVERY_S
            if self._rng.random() < WRITES:
                self._write()
            else:
                self._search()

    def _search(self) -> None:
        query = self._harness.rare_question(self._harness.known())
        began = time.monotonic()
        reply = self._http.post("/tools/rag_context_search", json={"query": query, "minScore": 0})
        self._record.searches.append(AnsweredSearch(began, time.monotonic(), reply.status_code, reply.json()))

    def _write(self) -> None:
        again = [
            expected_source
            for expected_source in self._mine
            if expected_source.stored is not None and not expected_source.sent
        ]
        if again and self._rng.random() < 0.5:
            expected_source = self._rng.choice(again)
        else:
            expected_source = ExpectedSource(f"{self._name}x{len(self._mine)}q")
            self._mine.append(expected_source)
        earlier = len(expected_source.replaced) + len(expected_source.sent) + (expected_source.stored is not None)
        version = compose(expected_source.source, earlier, self._rng)
        expected_source.sent.append(version)
        body = {
            "content": version.content,
            "contentType": "documentation",
            "sessionId": "s",
            "source": expected_source.source,
        }
        began = time.monotonic()
        reply = self._http.post("/tools/rag_context_index", json=body)
        if reply.status_code != httpx2.codes.OK:
            says_when = "Retry-After" in reply.headers
            self._record.rejected.append(
                RejectedWrite(began, time.monotonic(), reply.status_code, says_when, reply.text)
            )
            return
        expected_source.acknowledge(version, reply.json()["documentId"])
        self._record.acknowledged += 1
        self._record.pending += reply.json()["status"] == "pending"


def run(harness: FaultHarness, outages: int, rng: random.Random) -> Record:
    """Work, kill and start again so many times, one server after the other, and look for everything that was promised.

    Every server is killed as often as every other, in a random order.
    """
    record = Record()
    clients = [Client(number, harness, record, random.Random(rng.random())) for number in range(CLIENTS)]
    try:
        for role in _order(outages, rng):
            time.sleep(rng.uniform(0.2, LONGEST_CALM_S))
            record.outages.append(_outage(harness, role, rng.uniform(0.5, LONGEST_OUTAGE_S)))
        time.sleep(LONGEST_CALM_S)
    finally:
        expected_sources = [expected_source for client in clients for expected_source in client.stop()]
    harness.wait_healthy()
    harness.expected_sources.update((expected_source.source, expected_source) for expected_source in expected_sources)
    record.losses += harness.losses()
    record.losses += examined(harness)
    return record


def examined(harness: MemoryHarness) -> list[str]:
    """What `rag-context check` finds."""
    ended = command("check", "--json", data_dir=harness.data_dir, **harness.settings)
    if ended.returncode == 0:
        return []
    flaws = json.loads(ended.stdout)["flaws"] if ended.stdout else ended.stderr
    return [f"the index is not sound: {flaws}"]


def _order(outages: int, rng: random.Random) -> list[Role]:
    roles: list[Role] = []
    while len(roles) < outages:
        roles += rng.sample(list(Role), len(Role))
    return roles[:outages]


def _outage(harness: FaultHarness, role: Role, lasts_s: float) -> Outage:
    process = harness.backends[role].process
    process.kill()
    killed = time.monotonic()
    time.sleep(lasts_s)
    starting = time.monotonic()
    process.start()
    started = time.monotonic()
    while not _is_back(harness, role):  # a health report calls every server, and is no part of the load
        assert time.monotonic() < started + TIMEOUT_S, f"the {role} are not in use again"
        time.sleep(LOOK_EVERY_S)
    return Outage(role, killed, starting, started, time.monotonic())


def _is_back(harness: FaultHarness, role: Role) -> bool:
    """Whether the server is in use again; documents that came in meanwhile may still be pending."""
    status = component(harness.memory.health(), role)["status"]
    return bool(status == "healthy" or (role is Role.VECTORS and status == "degraded"))


MISSING = re.compile(r"(\d+) of (\d+) passages have no vectors yet")
"""What a search says while documents wait for their vectors, before any other warning."""


LEVEL_1: tuple[tuple[str | None, set[str]], ...] = ((None, set()), (VECTORS_ONLY, {"text"}), (INEXACT, {"ranking"}))
"""What an answer at level 1 may say beside that, and which parts then failed."""


def _is_honest(answer: dict[str, Any]) -> bool:
    """Whether level and warning say what the retrievers did."""
    amiss = {name for name, leg in answer["legs"].items() if leg["status"] != "ok"}
    match answer["fallbackLevel"], answer.get("warning"):
        case 1, str() as warning if (found := MISSING.match(warning)) is not None:
            missing, passages = map(int, found.groups())
            other = warning.partition("; ")[2] or None
            return missing <= TOLERABLE * passages and (other, amiss) in LEVEL_1
        case 1 | 2, str() as warning if warning.startswith(VECTORS_LOST):
            return bool(answer["results"])
        case 1, warning:
            return (warning, amiss) in LEVEL_1
        case 2, str() as warning if warning == KEYWORDS_ONLY:
            return answer["results"] != [] and "text" not in amiss
        case 2, str() as warning:
            return MISSING.match(warning) is not None and answer["results"] != []
        case 3, warning:
            return warning == NOTHING
        case _:
            return False
